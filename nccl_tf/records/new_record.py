"""The record of a run that has just ended."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from nccl_tf.extensions.plugins import plugin_hashes
from nccl_tf.methods.registry import get_method
from nccl_tf.records.options import RunOptions
from nccl_tf.records.provenance import versions
from nccl_tf.records.record import SCHEMA_VERSION, Record
from nccl_tf.records.settings import Settings
from nccl_tf.records.summary import (
    AVERAGED,
    averaged_numbers,
    matrix_to_json,
    row_to_json,
    summarize,
)


def make_record(
    settings: Settings,
    options: RunOptions,
    seed: int,
    *,
    matrix: np.ndarray,
    initial: np.ndarray,
    measured: Mapping[str, Any],
    averaged: np.ndarray | None = None,
) -> Record:
    """The record of one seed.

    Args:
        settings: What was run.
        options: How.
        seed: Seed of the run.
        matrix: Accuracies, float [tasks, tasks], fractions, nan where not evaluated.
        initial: Accuracies before training, float [tasks], fractions, nan where not evaluated.
        measured: `package_source`, times in seconds, steps, rates, parameters and peak memory in
            bytes.
        averaged: Accuracies with the averaged weights, like `matrix`; None without an average.
    """
    values, undefined = summarize(matrix, initial, get_method(settings.method).joint)
    content = {
        "schema_version": SCHEMA_VERSION,
        "method": settings.method,
        "dataset": settings.dataset,
        "head": settings.head,
        "seed": seed,
        "num_tasks": settings.num_tasks,
        "tuning_tasks": settings.tuning_tasks,
        "evaluated_tasks": len(matrix),
        "settings": settings.as_json(),
        "settings_hash": settings.digest(),
        "options": {
            "record_every": options.record_every,
            "steps_per_execution": options.steps_per_execution,
            "tensorboard": options.tensorboard,
            "diagnostics": options.diagnostics,
            "threads": options.threads,
            "workers": options.workers,
            **({"plugins": plugin_hashes(options.plugin)} if options.plugin else {}),
        },
        "versions": versions(),
        "accuracy_matrix": matrix_to_json(matrix),
        "initial_accuracy": row_to_json(initial),
        **values,
        "undefined": undefined,
        **({} if averaged is None else _averaged(averaged, values["forgetting"] is None)),
        **measured,
    }
    return Record.from_json(content)


def _averaged(matrix: np.ndarray, undefined: bool) -> dict[str, Any]:
    return {AVERAGED: matrix_to_json(matrix), **averaged_numbers(matrix, undefined)}
