"""Networks of the paper: Keras models from raw images to logits."""

from nccl_tf.networks.experts.networks import conv_experts, mlp_experts
from nccl_tf.networks.mlp import mlp
from nccl_tf.networks.resnet import resnet18, resnet18_one_conv, resnet18_reduced

__all__ = [
    "conv_experts", "mlp", "mlp_experts", "resnet18", "resnet18_one_conv", "resnet18_reduced",
]  # fmt: skip
