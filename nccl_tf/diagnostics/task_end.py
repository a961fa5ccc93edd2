"""Diagnostics at the end of a task: gradients, losses, B_t, the step bound."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from nccl_tf.diagnostics.full_gradient import (
    NOTHING,
    FullGradient,
    LossSum,
)
from nccl_tf.diagnostics.gamma import GammaSum
from nccl_tf.diagnostics.memory_draws import (
    Draw,
    StepRule,
    draw_step,
)
from nccl_tf.streams.arrays import Examples
from nccl_tf.theory import bounds
from nccl_tf.theory.overfitting import inner_product

DRAWS = 10


class TaskEnd:
    """Measures a learner between steps.

    Args:
        gamma: Its sums, which say how its steps are booked and what memory they read.
        gradient: Of its training loss, with the moving averages of batch normalisation.
        examples: Task id -> the training examples that gradients are taken over.
        batches: |I| and |J|.
    """

    def __init__(
        self,
        gamma: GammaSum,
        gradient: FullGradient,
        examples: Callable[[int], Examples],
        batches: tuple[int, int],
    ):
        self._gamma, self._gradient, self._examples = gamma, gradient, examples
        self._batches = batches

    def row(
        self,
        task_id: int,
        ended: Sequence[int],
        first: int,
        test: Examples,
        random: np.random.Generator,
    ) -> dict[str, Any]:
        """Everything about the end of a task, as JSON values.

        Args:
            task_id: The task.
            ended: Ids of the tasks that ended before it.
            first: Id of the first task.
            test: Its test examples.
            random: Of the draws.
        """
        sums = {task: self._gradient.sums(self._examples(task), task) for task in ended}
        previous = sum(sums.values(), NOTHING)
        sums[task_id] = self._gradient.sums(self._examples(task_id), task_id)
        rule = self._gamma.rule(self._batches)
        draws: list[Draw] = []
        bound = None
        if ended:
            parts = [(task, self._examples(task)) for task in ended]
            draws = self._draws(random, parts, task_id, previous, rule)
            bound = self._step_bound(parts, previous, rule, draws[0])
        return {
            "task": task_id,
            **_counted(self._gamma.totals()),
            "alpha": rule.alpha,
            "smoothness": rule.smoothness,
            "first_task": {
                **_norm_and_loss(sums.get(first, NOTHING)),
                "test_loss": self._gradient.loss(test, first) / len(test.labels),
            },
            "previous": _norm_and_loss(previous),
            "seen": _norm_and_loss(previous + sums[task_id]),
            "draws": _columns(draws),
            "step_bound": bound,
        }

    def _draws(
        self,
        random: np.random.Generator,
        parts: Sequence[tuple[int, Examples]],
        task_id: int,
        full: LossSum,
        rule: StepRule,
    ) -> list[Draw]:
        memory = self._gamma.memory
        slots = getattr(memory, "slots_per_class", None)
        sizes = {"slots_per_class": slots, "capacity": memory.capacity}
        current = task_id, self._examples(task_id)
        arguments = self._gradient, parts, current, full, rule, sizes, self._batches
        return [draw_step(random, *arguments) for _ in range(DRAWS)]

    def _step_bound(
        self, parts: Sequence[tuple[int, Examples]], full: LossSum, rule: StepRule, draw: Draw
    ) -> float | None:
        """The lemma's bound on |F|^2 for the step of a draw; None outside 0 < alpha_H < 2/L."""
        if not 0 < draw.alpha_h < 2 / rule.smoothness:
            return None
        after = sum(self._gradient.loss_after(draw.step, part, task) for task, part in parts)
        scalars = (
            full.mean_loss, after / full.count, draw.gamma_raw, draw.overfitting, draw.alpha_h
        )  # fmt: skip
        arrays: Any = [np.array([value]) for value in scalars]
        arrays += [rule.smoothness, draw.error_squared]
        return float(bounds.step_bound(*arrays)[0])


def _norm_and_loss(sums: LossSum) -> dict[str, float | None]:
    if not sums.count:
        return {"gradient_norm": None, "loss": None, "examples": 0}
    norm = math.sqrt(inner_product(sums.mean_gradient, sums.mean_gradient))
    return {"gradient_norm": norm, "loss": sums.mean_loss, "examples": sums.count}


def _counted(totals: Mapping[str, float]) -> dict[str, float | None]:
    """Sums as they are; counts of broken constraints as shares of the steps measured."""
    measured = totals["steps_measured"]
    return {
        "steps": int(totals["steps"]),
        **{name: value for name, value in totals.items() if name.startswith("gamma")},
        **{
            f"share_{name}": totals[name] / measured if measured else None
            for name in ("beta_not_below_alpha", "alpha_above_limit")
        },
    }


def _columns(draws: Sequence[Draw]) -> dict[str, list[float]] | None:
    names = [name for name in Draw._fields if name != "step"]
    return {name: [getattr(draw, name) for draw in draws] for name in names} if draws else None
