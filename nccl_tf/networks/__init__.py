"""Networks of the paper: Keras models from raw images to logits."""

from nccl_tf.networks.adapters import enable_lora
from nccl_tf.networks.inspection import features_of
from nccl_tf.networks.logits import logits_of
from nccl_tf.networks.mlp import mlp
from nccl_tf.networks.resnet import resnet18, resnet18_one_conv, resnet18_reduced

__all__ = [
    "enable_lora", "features_of", "logits_of", "mlp", "resnet18", "resnet18_one_conv",
    "resnet18_reduced",
]  # fmt: skip
