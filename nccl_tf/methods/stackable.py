"""Why learners cannot be trained together."""

from collections.abc import Sequence

from nccl_tf.methods.agem import AGEM
from nccl_tf.methods.er import ExperienceReplay
from nccl_tf.methods.finetune import Finetune
from nccl_tf.methods.learner import Learner, descends_plainly
from nccl_tf.methods.nccl import NCCL
from nccl_tf.networks.dense_chain import DenseChain
from nccl_tf.networks.stacked_chain import difference

STACKABLE: tuple[type[Learner], ...] = (Finetune, ExperienceReplay, AGEM, NCCL)
"""The classes whose steps are known to be right on stacked batches; subclasses may do otherwise."""


def refusal(learners: Sequence[Learner]) -> str:
    """Why compiled learners cannot be trained together, the end of a sentence; "" where they can.

    Args:
        learners: One or more.
    """
    chains = []
    for learner in learners:
        reason = _reason(learner)
        if reason:
            return reason
        chains.append(DenseChain.of(learner.network))
    for learner, chain in zip(learners[1:], chains[1:], strict=True):
        if _settings(learner) != _settings(learners[0]):
            return "they differ in more than their seeds"
        assert chain is not None and chains[0] is not None  # `_reason` has seen to it
        apart = difference(chains[0], chain)
        if apart:
            return f"their networks differ in {apart}"
    return ""


def _reason(learner: Learner) -> str:
    if type(learner) not in STACKABLE:
        names = ", ".join(kind.__name__ for kind in STACKABLE)
        return f"{type(learner).__name__} is none of {names}"
    if not learner.compiled or not descends_plainly(learner):
        return (
            "the optimizer has to be keras.optimizers.SGD with a learning rate alone, "
            "and no weight under a constraint"
        )
    if learner.run_eagerly or learner.replicas is not None or learner.jits:
        return "they run in a graph, on one device and without XLA"
    if learner.mask != "own":
        return 'the union mask looks at a whole batch: take mask="own"'
    if learner.observer is not None:
        return "diagnostics look at one learner"
    if getattr(learner, "smoothness_mode", "fixed") != "fixed":
        return f"smoothness_mode={learner.smoothness_mode!r} takes gradients of its own: take fixed"
    if getattr(learner, "gradient_path", "auto") != "auto":
        return f"gradients={learner.gradient_path!r} asks for separate gradients: take auto"
    chain = DenseChain.of(learner.network)
    if chain is None or not chain.holds(learner.trainable_variables):
        return (
            "the network has to be a chain of dense layers in float32 or float64, without "
            "convolutions, batch normalisation, dropout or regularisation"
        )
    return ""


def _settings(learner: Learner) -> tuple[object, ...]:
    """What has to be the same for all learners, their networks apart."""
    own = ("network", "memory", "heads", "seed", "name")
    config = {name: value for name, value in learner.get_config().items() if name not in own}
    heads = None if learner.heads is None else len(learner.heads.classes)
    return type(learner), config, heads, learner.steps_per_execution
