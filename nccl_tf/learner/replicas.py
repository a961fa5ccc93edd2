"""What the replicas of a learner under tf.distribute do together in a step.

Every replica holds all of the learner's state and the same numbers in it. In a step each learns on
a slice of the stream batch and a slice of one draw from memory, and what the replicas find is
summed before anything is made of it, so that they all take the same step. Sums are outside of
conditionals, where no replica may wait for another. From `summed` on, this is graph code.
"""

from typing import Any

import keras
import tensorflow as tf

from nccl_tf.batch import Batch
from nccl_tf.errors import UserError
from nccl_tf.variables import pack_bytes, unpack_bytes


def check_learner(learner: Any) -> None:
    """Refuse a learner that cannot run on several replicas.

    Raises:
        UserError: It cannot.
    """
    if not learner.on_replicas:
        raise UserError(
            f"{type(learner).__name__} runs on one replica only: build it outside of the scope of "
            "a tf.distribute strategy, or take Finetune, ExperienceReplay, AGEM or NCCL"
        )
    if learner.mask != "own":
        raise UserError(
            "the union mask needs the tasks of the whole batch, and a replica has a slice of "
            'it: take mask="own" under a tf.distribute strategy'
        )


def prepare(learner: Any, jit_compile: bool) -> None:
    """Make a learner that has been compiled ready to be traced on replicas.

    Raises:
        UserError: It was compiled for what runs on one replica only.
    """
    scaled = isinstance(learner.optimizer, keras.optimizers.LossScaleOptimizer)
    if scaled or jit_compile:
        raise UserError(
            f"received {'mixed_float16' if scaled else 'jit_compile=True'} under a "
            "tf.distribute strategy: replicas run without XLA, in float32 or mixed_bfloat16"
        )
    # Metrics that no batch has been shown yet are shown float32 task ids by Keras.
    nothing = tf.zeros([1], tf.int32), tf.zeros([1, learner.num_classes]), tf.zeros([1])

    @tf.function
    def show() -> None:
        learner.distribute_strategy.run(lambda: learner.compute_metrics(None, *nothing))

    show()
    learner.reset_metrics()


def summed(tensors: list[tf.Tensor]) -> list[tf.Tensor]:
    """Each tensor's sum over the replicas."""
    return tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, tensors)


def gathered(batch: Batch) -> Batch:
    """The slices of all replicas as one batch, in the order of the replicas."""
    context = tf.distribute.get_replica_context()
    if batch.inputs.dtype == tf.uint8:
        sent = batch._replace(inputs=pack_bytes(batch.inputs))
        received = Batch(*context.all_gather(list(sent), axis=0))
        shape = tuple(batch.inputs.shape[1:])
        return received._replace(inputs=unpack_bytes(received.inputs, shape))
    return Batch(*context.all_gather(list(batch), axis=0))


def own_slice(data: Any) -> Any:
    """This replica's rows of the tensors in `data`; the replicas' slices are of equal length."""
    context = tf.distribute.get_replica_context()
    count, number = context.num_replicas_in_sync, context.replica_id_in_sync_group

    def rows(tensor: tf.Tensor) -> tf.Tensor:
        length = tf.shape(tensor)[0] // count
        part = tensor[number * length : (number + 1) * length]
        if tensor.shape[0] is not None:
            part = tf.ensure_shape(part, [tensor.shape[0] // count, *tensor.shape[1:]])
        return part

    return tf.nest.map_structure(rows, data)


def shares(*batches: Batch) -> tuple[list[tf.Tensor], tf.Tensor]:
    """How much of each batch's examples, and of all of them, this replica has.

    Returns:
        The share of each batch and that of all batches together, float32 scalars.
        Shares of one batch sum to 1 over the replicas, so that the shares of the slices' means sum
        to the mean of the whole; they are 0 where the whole batch is padding.
    """
    own = tf.stack([tf.reduce_sum(batch.weights) for batch in batches])
    (whole,) = summed([own])
    each = tf.math.divide_no_nan(own, whole)
    joint = tf.math.divide_no_nan(tf.reduce_sum(own), tf.reduce_sum(whole))
    return tf.unstack(each), joint


def weighted(share: tf.Tensor, tensors: list[tf.Tensor]) -> list[tf.Tensor]:
    """Tensors times a share."""
    return [tf.cast(share, tensor.dtype) * tensor for tensor in tensors]


def apply_where(learner: Any, finite: tf.Tensor, direction: list[tf.Tensor]) -> None:
    """Apply a step that all replicas have alike, and undo it where it is not finite.

    Not a conditional: the optimizer sums gradients over the replicas.

    Args:
        learner: Gives optimizer and weights.
        finite: bool scalar.
        direction: A tensor per trainable variable.
    """
    variables = [*learner.trainable_variables, *learner.optimizer.variables]
    before = [tf.identity(v.value) for v in variables]
    # The optimizer sums what it is given over the replicas, which all give the same.
    part = [d / learner.replicas for d in direction]
    learner.optimizer.apply(part, learner.trainable_variables)
    restore_unless(finite, variables, before)


def restore_unless(
    keep: tf.Tensor, variables: list[keras.Variable], before: list[tf.Tensor]
) -> None:
    """Set variables back to what they were, unless `keep` (bool scalar)."""
    for variable, value in zip(variables, before, strict=True):
        variable.assign(tf.where(keep, variable.value, value))


def count() -> int | None:
    """The number of replicas of the strategy in whose scope this is called, None without one."""
    if not tf.distribute.has_strategy():
        return None
    return tf.distribute.get_strategy().num_replicas_in_sync


def check_divides(what: str, size: int, replicas: int) -> None:
    """Check that a batch can be cut into a slice for each replica.

    Raises:
        UserError: It cannot; `what` names the batch.
    """
    if size % replicas:
        raise UserError(
            f"{what}={size} cannot be cut into equal slices for {replicas} replicas: expected a "
            f"multiple of {replicas}"
        )
