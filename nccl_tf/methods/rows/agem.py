"""The row of A-GEM, without TensorFlow."""

from dataclasses import replace

from nccl_tf.arguments.hyperparameters import BATCH_NORM, GRADIENTS, SMOOTHNESS
from nccl_tf.methods.row import Method

TWO_GRADIENTS = (
    replace(SMOOTHNESS, help="smoothness constant of the loss in the logged Γ"),
    GRADIENTS, BATCH_NORM,
)  # fmt: skip
"""Numbers of every rule for two gradients but NCCL's, which takes step sizes by L."""

AGEM = Method(
    name="agem",
    place=40,
    title="A-GEM",
    learner="nccl_tf.methods.agem:AGEM",
    memory="ring",
    hyperparameters=TWO_GRADIENTS,
    on_replicas=True,
    source="Chaudhry et al., Efficient lifelong learning with A-GEM, ICLR 2019",
)
