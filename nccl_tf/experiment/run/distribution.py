"""Distribution strategies of a run, over the devices of a machine or over machines."""

import functools
import json
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import tensorflow as tf

from nccl_tf.errors import UserError
from nccl_tf.experiment.config.settings import Settings
from nccl_tf.learner.devices import check_divides

_EXAMPLE = (
    '{"cluster": {"worker": ["host0:2222", "host1:2222"]}, "task": {"type": "worker", "index": 0}}'
)


@functools.cache
def make_strategy(name: str | None) -> tf.distribute.Strategy | None:
    """Create a strategy, once per process and before TensorFlow's first operation.

    Args:
        name: "mirrored", "multi_worker" or None.

    Raises:
        UserError: The workers of TF_CONFIG cannot connect.
    """
    if name is None:
        return None
    if name == "mirrored":
        return tf.distribute.MirroredStrategy()
    worker_number(name)
    try:
        return tf.distribute.MultiWorkerMirroredStrategy()
    except (ValueError, KeyError, RuntimeError, tf.errors.OpError) as error:
        raise UserError(
            f"--distribute=multi_worker could not start ({error}): start the same command on every "
            f"worker, with the index of the worker in TF_CONFIG, such as {_EXAMPLE}"
        ) from error


def worker_number(name: str | None) -> int:
    """The index of this worker; worker 0 writes the results. Always 0 without multi_worker.

    Raises:
        UserError: The environment variable TF_CONFIG is missing or has no valid index.
    """
    if name != "multi_worker":
        return 0
    try:
        config = json.loads(os.environ["TF_CONFIG"])
        number = int(config["task"]["index"])
        if not 0 <= number < len(config["cluster"]["worker"]):
            raise ValueError("no such index")
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(
            f"--distribute=multi_worker needs the environment variable TF_CONFIG on every worker "
            f"({error!r}): expected JSON such as {_EXAMPLE}"
        ) from error
    return number


def check_batches(settings: Settings, strategy: tf.distribute.Strategy | None) -> None:
    """Check that both batches divide evenly between the replicas.

    Raises:
        UserError: A batch size is not a multiple of the number of replicas.
    """
    if strategy is None:
        return
    count = strategy.num_replicas_in_sync
    check_divides("--batch_size", settings.batch_size, count)
    if settings.memory_batch_size is not None:
        check_divides("--memory_batch_size", settings.memory_batch_size, count)


def strategy_scope(strategy: tf.distribute.Strategy | None) -> AbstractContextManager[Any]:
    """The scope of the strategy; a null context without one."""
    return nullcontext() if strategy is None else strategy.scope()


def check_agreement(
    strategy: tf.distribute.Strategy | None, settings_hash: str, steps: int
) -> None:
    """Check that all workers have the same settings and resume from the same step.

    Args:
        strategy: Strategy of the run.
        settings_hash: Hexadecimal digest of the settings and the seed.
        steps: Steps so far.

    Raises:
        UserError: The workers differ.
    """
    if not isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy):
        return
    local = tf.constant([[int(settings_hash[:7], 16), steps]])

    @tf.function(autograph=False)
    def gather() -> tf.Tensor:
        return strategy.run(lambda: tf.distribute.get_replica_context().all_gather(local, axis=0))

    gathered = strategy.experimental_local_results(gather())[0].numpy()
    for column, what in zip(gathered.T, ("settings", "steps done"), strict=True):
        if len(set(column.tolist())) > 1:
            raise UserError(
                f"the workers disagree about their {what}: start all of them with the same flags "
                "and a shared --output_dir, or start again with --overwrite"
            )


@contextmanager
def translate_worker_error() -> Iterator[None]:
    """Translate TensorFlow's errors about a lost worker into a `UserError`.

    Raises:
        UserError: Another worker has stopped.
    """
    try:
        yield
    except (tf.errors.UnavailableError, tf.errors.AbortedError, tf.errors.CancelledError) as error:
        raise UserError(
            "another worker has stopped: start the same command again on every worker; the run "
            "resumes from its last checkpoint"
        ) from error
