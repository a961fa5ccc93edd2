"""Measurements of a run that has ended, for its record."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from nccl_tf.learner.bytes_stored import bytes_stored
from nccl_tf.learner.execution import Execution
from nccl_tf.learner.learner import Learner
from nccl_tf.networks.inspection import has_convolutions
from nccl_tf.records import compile_cache
from nccl_tf.records.costs import examples_passed
from nccl_tf.records.provenance import (
    computes_in_tensorfloat32,
    describe_devices,
    state_and_memory,
    variables_that_decide_bits,
)
from nccl_tf.records.settings import Settings


def measured_entries(
    learner: Learner,
    settings: Settings,
    *,
    source: Mapping[str, Any],
    rates: Sequence[float],
    steps: Sequence[int],
    examples: Sequence[int],
    train_seconds: float,
    compile_seconds: float,
    eval_seconds: float,
    kept: int,
    is_own_process: bool,
) -> dict[str, Any]:
    """The entries of a record that are neither settings nor metrics.

    Args:
        learner: At the end of its run.
        settings: Of the run.
        source: As `package_source` gave it when the run began.
        rates: The learning rate of each task, or of all at once.
        steps: Steps of each task, or of all at once.
        examples: For training, of each task, or of all at once.
        train_seconds: In training steps.
        compile_seconds: In tracing and compiling.
        eval_seconds: In evaluation.
        kept: Bytes of the examples that the session keeps beside the learner, to train on them
            again in later tasks.
        is_own_process: Whether the process ran this alone, so that its peak of memory is the run's,
            and whether the learner's state belongs to the record.
    """
    return {
        **source,
        "learning_rates": list(rates),
        "parameters": sum(int(np.prod(v.shape)) for v in learner.trainable_variables),
        "steps": sum(steps),
        "task_steps": list(steps),
        "skipped_steps": int(learner.progress.skipped.numpy()),
        "device": describe_devices(),
        "tensorfloat32": computes_in_tensorfloat32(),
        **entries_of_xla(learner.execution),
        "compile_cache": compile_cache.publish(learner.execution.per_program > 0),
        "environment": variables_that_decide_bits(),
        "replicas": learner.distribute_strategy.num_replicas_in_sync,
        **(state_and_memory(learner.state_variables) if is_own_process else _WITHOUT_STATE),
        "bytes_stored": bytes_stored(learner) + kept,
        "examples_passed": examples_passed(
            settings, steps, examples, has_convolutions(learner.network)
        ),
        "train_seconds": train_seconds,
        "compile_seconds": compile_seconds,
        "eval_seconds": eval_seconds,
    }


_WITHOUT_STATE = {"state_sha256": None, "peak_memory_bytes": None}


def entries_of_xla(execution: Execution) -> dict[str, Any]:
    """Whether steps were compiled with XLA, and how many in a program."""
    # What was to be compiled, and XLA has refused, ran without it.
    compiled = execution.under_xla is not False
    return {"xla": compiled, "steps_per_program": execution.per_program if compiled else None}
