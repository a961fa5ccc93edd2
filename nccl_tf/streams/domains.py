"""Streams of domains: every task has the same targets, its inputs come from another domain."""

import logging

import numpy as np

from nccl_tf.arguments.choices import PERIODS
from nccl_tf.errors import UserError, checked_name
from nccl_tf.streams import seeding
from nccl_tf.streams.arrays import Examples, ExampleSet
from nccl_tf.streams.plan import StreamPlan
from nccl_tf.streams.task import Task

_LOGGER = logging.getLogger("nccl_tf")
_MANY = 31
"""More dates or numbers than these are rarely meant as a task each."""


def domain_tasks(
    data: ExampleSet, plan: StreamPlan, seed: int
) -> tuple[tuple[Task, ...], tuple[Task, ...]]:
    """Make the evaluated and the tuning tasks, which are the first domains.

    The domains come in the order of their values; the seed draws the subset of
    `examples_per_task` alone.

    Args:
        data: The examples, `in_windows`.
        plan: The sizes of the stream.
        seed: Seed of the stream.

    Raises:
        UserError: A task has too few examples.
    """
    assert data.domains is not None and data.windows is not None  # by `in_windows`
    (train, test), values = data.windows, data.domains[0]
    classes = tuple(range(plan.classes_per_task)) if data.has_classes else ()

    def task(task_id: int, domain: int, seed: int, subset_key: int) -> Task:
        rows, test_rows = np.flatnonzero(train == domain), np.flatnonzero(test == domain)
        count = len(rows) if plan.examples_per_task is None else plan.examples_per_task
        if not len(test_rows) or not 0 < count <= len(rows):
            remedy = "take fewer tasks" if count <= len(rows) else "take fewer examples_per_task"
            raise UserError(
                f"the domain {_shown(values[rows], domain)} has {len(rows)} training and "
                f"{len(test_rows)} test examples: expected at least {max(count, 1)} and 1; "
                f"{remedy}, or leave this domain out"
            )
        if count < len(rows):
            rows = seeding.generator(seed, subset_key, task_id).permutation(rows)[:count]

        def take_train() -> Examples:
            return data.train.take(rows)

        def take_test() -> Examples:
            return data.test.take(test_rows)

        return Task(task_id, classes, count, take_train, take_test)

    held_out = plan.tuning_tasks
    return (
        tuple(task(i, held_out + i, seed, seeding.SUBSET) for i in range(plan.run_tasks)),
        tuple(task(i, i, 0, seeding.TUNING_SUBSET) for i in range(held_out)),
    )


def in_windows(data: ExampleSet, num_tasks: int, by: str | None = None) -> ExampleSet:
    """A data set with the number of its domain for each example.

    Args:
        data: The data set.
        num_tasks: Domains to make.
        by: A period of the calendar, whose dates are one value; None for values as they are.

    Raises:
        UserError: It has no domains, or they do not make so many tasks, or there is a period and
            they are no dates.
    """
    if data.domains is None:
        raise UserError(
            "received no domains for a stream of domains: expected `domains`, a value for each "
            "training and for each test example"
        )
    train, test = (periods(values, by) for values in data.domains)
    return data._replace(windows=number_domains(train, test, num_tasks))


def periods(values: np.ndarray, by: str | None) -> np.ndarray:
    """The first day of the period of the calendar that each date is in; other values with None.

    Args:
        values: Dates, datetime64 [n]; with None also numbers or names.
        by: Of `PERIODS`; None for the values as they are.

    Raises:
        UserError: The period is unknown, or the values are no dates.
    """
    if by is None:
        return values
    checked_name("by", by, PERIODS)
    if values.dtype.kind != "M":
        raise UserError(
            f"received by={by!r} and domains that are no dates: expected dates, such as "
            "pandas.to_datetime(frame.date), or those of a CSV file as 2026-01-31"
        )
    if by in ("week", "quarter"):
        unit, size, first = ("D", 7, 4) if by == "week" else ("M", 3, 0)  # a Monday, 1970-01-05
        numbers = values.astype(f"datetime64[{unit}]").astype(np.int64)
        values = (numbers - (numbers - first) % size).astype(f"datetime64[{unit}]")
    else:
        values = values.astype(f"datetime64[{by[0].upper()}]")
    return values.astype("datetime64[D]")


def domain_count(values: np.ndarray, by: str | None = None, tells: bool = True) -> int:
    """The tasks that domains make where nobody says how many.

    Args:
        values: The domains of the training examples, [n].
        by: As for `periods`.
        tells: Whether a task for each of many dates or numbers is told of.

    Raises:
        UserError: As for `periods`.
    """
    count = len(np.unique(periods(values, by)))
    if tells and count > _MANY and values.dtype.kind in "iufM":
        ranges = "num_tasks=12 makes ranges of them"
        if values.dtype.kind != "M":
            what, remedy = "numbers", ranges
        elif by is None:
            what, remedy = "dates", f'by="month" makes a task of each month, and {ranges}'
        else:
            what, remedy = f"{by}s", ranges
        _LOGGER.warning("each of %d different %s is a task of its own: %s", count, what, remedy)
    return count


def _shown(values: np.ndarray, domain: int) -> str:
    """A domain as messages show it: its value where all its examples have one, else its number."""
    different = np.unique(values)
    return repr(different[0].item()) if len(different) == 1 else str(domain)


def number_domains(
    train: np.ndarray, test: np.ndarray, num_tasks: int
) -> tuple[np.ndarray, np.ndarray]:
    """The domain of each training and each test example, from 0.

    Args:
        train: [n] values, numbers, dates (datetime64) or names. Where there are as many different
            ones as tasks, each is a domain; where there are more, and they are numbers or dates,
            domains are ranges of them with equally many training examples.
        test: [m] values.
        num_tasks: Number of domains.

    Raises:
        UserError: The values do not make so many domains, or a test value is of none.
    """
    different = np.unique(train)
    if len(different) == num_tasks:
        unknown = np.setdiff1d(test, different).tolist()
        if unknown:
            raise UserError(
                f"received the domain {unknown[0]!r} in the test examples alone: expected test "
                "examples of the domains of the training examples"
            )
        return np.searchsorted(different, train), np.searchsorted(different, test)
    if len(different) < num_tasks or different.dtype.kind not in "iufM":
        raise UserError(
            f"num_tasks={num_tasks} does not fit the {len(different)} different domains: leave "
            "num_tasks out for a task a domain, or give numbers or dates to cut into ranges, such "
            "as pandas.to_datetime(frame.date)"
        )
    if different.dtype.kind == "M":
        train, test = ((part - different[0]).astype(np.int64) for part in (train, test))
    edges = np.quantile(train, np.arange(1, num_tasks) / num_tasks)
    return np.searchsorted(edges, train, "right"), np.searchsorted(edges, test, "right")
