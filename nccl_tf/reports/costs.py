"""What runs cost beside their accuracy: bytes kept, examples passed, time over fine-tuning's."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from nccl_tf.records.record import Record
from nccl_tf.records.settings import Settings

BYTES, EXAMPLES, TIME = "bytes stored", "examples passed", "time over fine-tuning's"
COSTS = (BYTES, EXAMPLES, TIME)
"""Names of the columns."""
_SAME = (
    "dataset", "head", "num_tasks", "tuning_tasks", "tasks", "max_tasks", "examples_per_task",
    "angles", "batch_size", "epochs", "network", "hidden", "conv_init", "augment", "image_size",
    "precision", "deterministic", "optimizer", "kind", "label", "domain", "by", "positive",
    "content", "keras",
)  # fmt: skip
"""Settings in which a run and the fine-tuning that its time is compared with are equal."""
_SAME_NUMBERS = "validation", "epochs_of_tasks"
"""Likewise, of what records of `learn` have among their hyperparameters."""


def times_over_finetuning(groups: Sequence[Sequence[Record]]) -> dict[str, float]:
    """The mean time in training steps over that of plain fine-tuning, by the hash of the settings.

    Plain is fine-tuning without alignment and averaged weights, whose passes and copies take time.

    Compared are runs with the same stream, network, batches, passes and precision on the same
    device, with as many threads and runs side by side, and with equal variables of the environment
    that choose kernels; settings without such a run of fine-tuning are missing. Times are in
    seconds of the clock.

    Args:
        groups: Records of the same settings each.
    """
    base: dict[Any, list[float]] = {}
    for group in groups:
        if _is_plain_finetuning(group[0].settings):
            for record in group:
                base.setdefault(_circumstances(record), []).append(record.train_seconds)
    ratios = {}
    for group in groups:
        pairs = [(record.train_seconds, base.get(_circumstances(record))) for record in group]
        known = [seconds / np.mean(times) for seconds, times in pairs if times and np.mean(times)]
        if len(known) == len(group):
            ratios[group[0].settings_hash] = float(np.mean(known))
    return ratios


def cost_cells(group: Sequence[Record], ratios: Mapping[str, float]) -> tuple[str, ...]:
    """The cells of `COSTS` for records of the same settings; "-" where a number is not known.

    Args:
        group: The records.
        ratios: As of `times_over_finetuning`.
    """
    ratio = ratios.get(group[0].settings_hash)
    return (
        _largest([record.bytes_stored for record in group]),
        _largest([record.examples_passed for record in group]),
        "-" if ratio is None else f"{ratio:.1f}",
    )


def _largest(values: Sequence[int | None]) -> str:
    known = [value for value in values if value is not None]
    return f"{max(known):,}" if len(known) == len(values) else "-"


def _is_plain_finetuning(settings: Settings) -> bool:
    """Whether it is fine-tuning without what would take further passes or copies."""
    plain = settings.alignment is None and settings.average_weights is None
    return settings.method == "finetune" and plain


def _circumstances(record: Record) -> tuple[Any, ...]:
    settings = record.settings
    values = [getattr(settings, name) for name in _SAME]
    values += [settings.hyperparameters.get(name) for name in _SAME_NUMBERS]
    return (*values, *record.timing, record.options.get("diagnostics"), record.replicas)
