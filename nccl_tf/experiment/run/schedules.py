"""The learning rate of each task."""

import math
from collections.abc import Sequence

from nccl_tf.experiment.config.resolve import check_rate
from nccl_tf.experiment.config.settings import Settings

REFERENCE_STEPS = 1000


def task_learning_rates(settings: Settings, steps: Sequence[int]) -> list[float]:
    """The rates alpha, one a task.

    "constant" takes the settings' rate as it is. "inverse_sqrt" is the paper's alpha = c / sqrt(T)
    (decisions, Methods): constant inside a task, T its number of steps, c = rate x sqrt(1000).

    Args:
        settings: With the rate, the first task's rate and the schedule.
        steps: Number of steps T of each task.

    Raises:
        UserError: The schedule raises alpha to where alpha L >= 1 for NCCL.
    """
    rates = []
    for task, count in enumerate(steps):
        rate = settings.first_task_learning_rate if task == 0 else settings.learning_rate
        if settings.schedule == "inverse_sqrt":
            rate *= math.sqrt(REFERENCE_STEPS / count)
            check_rate(settings, rate, f"--schedule=inverse_sqrt: over {count} steps the rate")
        rates.append(rate)
    return rates
