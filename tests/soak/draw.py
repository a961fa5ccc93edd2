"""Random flags of runs that end in a moment."""

import numpy as np
from absl import flags

from nccl_tf.arguments.hyperparameters import OPTIONS, Hyperparameter
from nccl_tf.experiment.config.flags import define_flags, parse_flags, read_flag_values
from nccl_tf.methods.registry import METHODS

Flags = dict[str, object]

STREAMS = ("permuted_digits", "split_digits", "split_digits", "breast_cancer")
# What would take long otherwise.
SHORT = {
    "passes": (1, 2), "vae_steps": (0, 3), "classifier_steps": (1, 3), "max_experts": (1, 3),
    "sleep_batch_size": (5,), "line_steps": (1, 3), "line_points": (1, 3), "bgd_samples": (1, 2),
    "gss_iterations": (1, 2), "smoothness": (0.5, 1.0, 5.0),
}  # fmt: skip
COMMON: dict[str, tuple] = {
    "batch_size": (1, 5, 10, 10, 16), "epochs": (1, 1, 2), "hidden": ("8", "8", "4,4", "16"),
    "examples_per_task": (20, 41, 60), "max_tasks": (1, 2, 3), "learning_rate": (0.01, 0.05, 0.1),
}  # fmt: skip
RARE: dict[str, tuple] = {
    "memory_batch_size": (1, 5, 10, 20), "memory_per_class": (1, 2, 10), "memory_size": (11, 60),
    "reservoir": ("off_by_one",), "first_task_learning_rate": (0.02,),
    "schedule": ("inverse_sqrt",), "precision": ("mixed_bfloat16", "mixed_float16"),
    "mask": ("union",), "head": ("single", "multi"), "tuning_tasks": (0, 1), "num_tasks": (3, 5),
    "dark": (0.3,), "replay_labels": (0.5,),
    "stream_mask": ("present", "seen", "all"), "average_weights": (0.5, 0.99),
    "tasks": ("tuning",), "tensorboard": ("true",),
}  # fmt: skip
assert {row.name for row in OPTIONS} <= RARE.keys()


def draw_flags(random: np.random.Generator, method: str | None = None) -> Flags:
    """Flags of a run, not all of which go together."""

    def one(values: tuple) -> object:
        return values[random.integers(len(values))]

    method = method or str(one(tuple(METHODS)))
    drawn: Flags = {"method": method, "dataset": one(STREAMS)}
    drawn |= {name: one(values) for name, values in COMMON.items()}
    drawn |= {name: one(values) for name, values in RARE.items() if random.random() < 0.12}
    for row in METHODS[method].hyperparameters:
        if row.name in SHORT or random.random() < 0.3:
            drawn[row.name] = one(SHORT.get(row.name) or _values(row))
    # These take long to compile.
    if random.random() < 0.04:
        drawn["diagnostics"] = "subset"
    if random.random() < 0.02:
        drawn["jit_compile"] = "true"
    if random.random() < 0.05:
        drawn |= {"distribute": "mirrored", "device": "cpu:2", "batch_size": 10}
    return {"device": "cpu", **drawn}


def as_words(drawn: Flags) -> list[str]:
    """Flags as words of a command line."""
    return [f"--{name}={value}" for name, value in drawn.items()]


def _values(row: Hyperparameter) -> tuple:
    if row.kind == "choice":
        return tuple(row.choices)
    if row.kind == "int":
        low = int(row.ge or 1)
        return low, low + 1, max(low, 7)
    default = 0.5 if row.default is None else float(row.default)
    return tuple({default, default / 2, (default + (row.le or 2 * default)) / 2} - {0.0} or {0.1})


def parse_words(words: list[str]) -> dict[str, object]:
    """The values of flags by name, as the command reads them.

    Raises:
        UserError: A word is no flag, or a value is bad.
    """
    values = flags.FlagValues()
    define_flags(values)
    parse_flags(values, ["run.py", *words])
    return read_flag_values(values)
