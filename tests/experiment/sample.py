"""Records made without training."""

import json

import numpy as np

from nccl_tf.experiment.config.resolve import resolve
from nccl_tf.records.new_record import make_record
from nccl_tf.records.options import RunOptions
from nccl_tf.records.record import Record

MEASURED = {
    "commit": "0" * 40, "package_modified": False,
    "learning_rates": [0.1], "parameters": 7, "train_seconds": 1.5, "compile_seconds": 0.5,
    "eval_seconds": 0.25, "steps": 30, "task_steps": [30], "peak_memory_bytes": 1 << 20,
    "state_sha256": "0" * 64, "skipped_steps": 0, "device": "cpu", "replicas": 1,
    "tensorfloat32": False, "xla": False, "steps_per_program": None,
}  # fmt: skip


def matrix(tasks, seed=0):
    """Accuracies [tasks, tasks] as a run fills them: nan beyond the next task."""
    values = np.random.default_rng(seed).uniform(0.5, 0.99, (tasks, tasks))
    values[np.triu_indices(tasks, 2)] = np.nan
    return values


def record(values=None, seed=0, **given):
    """A record with this matrix, by default of three tasks; averaged weights have halves of it."""
    values = matrix(3, seed) if values is None else np.asarray(values, float)
    averaged = values / 2 if "average_weights" in given else None
    given.setdefault("max_tasks", len(values))
    given.setdefault("num_tasks", max(10, len(values)))
    return make_record(
        resolve(given), RunOptions(), seed, matrix=values, initial=np.full(len(values), 0.1),
        measured=MEASURED, averaged=averaged,
    )  # fmt: skip


def changed(record, **entries):
    """The record with other entries, such as `settings` as JSON values."""
    return Record.from_json({**record.as_json(), **entries})


def entries(*values, **given):
    """What a file holds of `record`."""
    return json.loads(json.dumps(record(*values, **given).as_json()))
