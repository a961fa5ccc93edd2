"""A check that a run fits into the machine's memory."""

import math
import os
from itertools import pairwise

from nccl_tf.errors import UserError
from nccl_tf.experiment.config.settings import Settings
from nccl_tf.methods.registry import get_method
from nccl_tf.streams import Stream

# Weights and replay memory exist once, and twice more while a checkpoint is assembled.
_COPIES = 3
_BYTES_PER_INDEX_AND_WEIGHT = 12


def check_fits(settings: Settings, stream: Stream, examples: int) -> None:
    """Refuse a run that needs more memory than the machine has.

    Otherwise the operating system would kill the process without a message.

    Args:
        settings: Settings of the run.
        stream: Stream of the run.
        examples: Training examples of the largest task.

    Raises:
        UserError: The minimum the run needs exceeds the machine's memory.
    """
    needs = bytes_needed(settings, stream, examples)
    available = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if sum(needs.values()) > available:
        flag = max(needs, key=lambda name: needs[name])
        raise UserError(
            f"the run needs {sum(needs.values()) / 1e9:,.1f} GB of memory or more, and this "
            f"machine has {available / 1e9:,.1f} GB: {needs[flag] / 1e9:,.1f} GB are for {flag}; "
            "lower it"
        )


def bytes_needed(settings: Settings, stream: Stream, examples: int) -> dict[str, int]:
    """Estimate the minimum memory of a run, in bytes, by the flag that determines it."""
    pixels = math.prod(stream.example_shape)
    widths = [pixels, *(settings.hidden or ()), stream.num_classes]
    weights = sum((m + 1) * n for m, n in pairwise(widths))
    per_task = settings.evaluated_tasks if get_method(settings.method).takes_num_tasks else 0
    batch = settings.batch_size + (settings.memory_batch_size or 0)
    return {
        "--hidden": 4 * weights * (_COPIES + per_task) if settings.hidden else 0,
        "the replay memory": _COPIES * (settings.memory_capacity or 0) * (pixels + 8),
        "--batch_size": 4 * batch * sum(widths),
        "--epochs": settings.epochs
        * max(examples, settings.batch_size)
        * _BYTES_PER_INDEX_AND_WEIGHT,
    }
