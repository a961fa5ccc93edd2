"""B_t and e_t over several memories drawn at fixed weights (paper, figure 2(f))."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from nccl_tf.diagnostics.full_gradient import FullGradient, LossSum
from nccl_tf.streams.arrays import Examples
from nccl_tf.theory import forgetting
from nccl_tf.theory.overfitting import inner_product, overfitting


class StepRule(NamedTuple):
    """How a method steps at fixed weights.

    Attributes:
        sizes: (Lambda, |f_I|^2, |g_J|^2, mean loss on I, on J) -> alpha_H, beta_H and whether f_I
            and g_J interfere.
        alpha: The learning rate.
        smoothness: L.
        projects: Whether steps in interference are projected, so that Gamma has its surrogate form.
    """

    sizes: Callable[[float, float, float, float, float], tuple[float, float, bool]]
    alpha: float
    smoothness: float
    projects: bool


class Draw(NamedTuple):
    """One memory's step.

    Attributes:
        overfitting: B.
        overfitting_slope: Its derivative by L, in which it is affine.
        error_squared: |e|^2.
        gamma_raw: Gamma.
        gamma_surrogate: Gamma, in its surrogate form where the step is projected.
        gamma_surrogate_slope: Its derivative by L.
        gamma_least: The least Gamma over all beta_H at this alpha_H.
        alpha_h: alpha_H.
        beta_h: beta_H.
        step: x+ - x, [d].
    """

    overfitting: float
    overfitting_slope: float
    error_squared: float
    gamma_raw: float
    gamma_surrogate: float
    gamma_surrogate_slope: float
    gamma_least: float
    alpha_h: float
    beta_h: float
    step: npt.NDArray[np.float64]


def draw_memory(
    random: np.random.Generator,
    labels: Sequence[npt.NDArray[np.integer]],
    *,
    slots_per_class: int | None,
    capacity: int,
) -> npt.NDArray[np.int64]:
    """A memory drawn uniformly from the previous tasks' examples.

    Args:
        random: The generator.
        labels: Of each task.
        slots_per_class: m of a ring: so many of each class of each task, or all where there are
            fewer; None for a memory that is a uniform sample of all examples.
        capacity: Examples in such a sample, or all where there are fewer.

    Returns:
        Distinct indices into the examples of all tasks, one task after the other.
    """
    if slots_per_class is None:
        count = sum(map(len, labels))
        return random.choice(count, min(capacity, count), replace=False)
    chosen, start = [], 0
    for task in labels:
        for label in np.unique(task):
            those = np.flatnonzero(task == label)
            taken = random.choice(those, min(slots_per_class, len(those)), replace=False)
            chosen.append(start + taken)
        start += len(task)
    return np.concatenate(chosen)


def draw_step(
    random: np.random.Generator,
    gradient: FullGradient,
    previous: Sequence[tuple[int, Examples]],
    current: tuple[int, Examples],
    full: LossSum,
    rule: StepRule,
    memory: dict[str, Any],
    batches: tuple[int, int],
) -> Draw:
    """Draw a memory, a batch I of it and a batch J of the current task, and book their step.

    Args:
        random: The generator.
        gradient: Of the learner.
        previous: Id and examples of the previous tasks.
        current: Those of the current task.
        full: The sums over the previous tasks, whose mean gradient is F.
        rule: How the method steps.
        memory: Arguments of `draw_memory`.
        batches: |I| and |J|, the number of examples drawn; all where there are fewer.
    """
    kept = draw_memory(random, [examples.labels for _, examples in previous], **memory)
    drawn = np.sort(random.choice(kept, min(batches[0], len(kept)), replace=False))
    replayed = gradient.sums(*_taken(previous, drawn))
    count = len(current[1].labels)
    stream = random.choice(count, min(batches[1], count), replace=False)
    streamed = gradient.sums(current[1].take(stream), current[0])
    f, g = replayed.mean_gradient, streamed.mean_gradient
    lambda_, f_squared, g_squared = inner_product(f, g), inner_product(f, f), inner_product(g, g)
    alpha_h, beta_h, interference = rule.sizes(
        lambda_, f_squared, g_squared, replayed.mean_loss, streamed.mean_loss
    )
    whole, level = full.mean_gradient, rule.smoothness

    def raw(smoothness: float) -> float:
        return float(forgetting.gamma(alpha_h, beta_h, lambda_, g_squared, smoothness))

    def surrogate(smoothness: float) -> float:
        if not (rule.projects and interference):
            return raw(smoothness)
        scalars = (rule.alpha, lambda_, f_squared, g_squared, smoothness)
        return float(forgetting.gamma_surrogate(*(tf.constant(v, tf.float64) for v in scalars)))

    error = f - whole
    return Draw(
        overfitting=overfitting(alpha_h, beta_h, whole, f, g, level),
        overfitting_slope=alpha_h**2 * inner_product(whole, error),
        error_squared=inner_product(error, error),
        gamma_raw=raw(level),
        gamma_surrogate=surrogate(level),
        gamma_surrogate_slope=surrogate(level + 1) - surrogate(level),
        gamma_least=float(
            forgetting.optimal_gamma(
                *(tf.constant(v, tf.float64) for v in (lambda_, g_squared, alpha_h, level))
            )
        ),
        alpha_h=alpha_h,
        beta_h=beta_h,
        step=-alpha_h * f - beta_h * g,
    )


def _taken(
    tasks: Sequence[tuple[int, Examples]], indices: npt.NDArray[np.int64]
) -> tuple[Examples, npt.NDArray[np.int64]]:
    """The examples at ascending indices that count over all tasks, and the task of each."""
    starts = np.cumsum([0, *(len(examples.labels) for _, examples in tasks)])
    parts = [
        (task_id, examples.take(indices[(indices >= start) & (indices < end)] - start))
        for (task_id, examples), start, end in zip(tasks, starts[:-1], starts[1:], strict=True)
    ]
    taken = Examples(
        *(np.concatenate(column) for column in zip(*(e for _, e in parts), strict=True))
    )
    return taken, np.concatenate([np.full(len(e.labels), task_id) for task_id, e in parts])
