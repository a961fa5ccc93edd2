"""A step of every method of table T4 against one of experience replay with a ring.

python -m benchmarks.method_steps
"""

from collections.abc import Callable

from benchmarks.last_task import BATCH
from benchmarks.side_by_side import measure, report, rounds_of
from nccl_tf.experiment.config.options import Options
from nccl_tf.experiment.config.resolve import resolve
from nccl_tf.experiment.run.build import build_learner, build_stream
from nccl_tf.reports.paper.parity import (
    REFERENCE,
    compare,
    select_cells,
)
from nccl_tf.reports.paper.published import Published

STEPS = {"permuted_mnist": 1000, "split_cifar100": 4}
"""Steps of one call, on the dense network and on the full ResNet-18."""


def second_task(cell: Published) -> Callable[[], None]:
    """A call that fits the second task of a cell's stream, once the first has ended."""
    steps = STEPS[cell.dataset]
    settings = resolve({**cell.flags(), "max_tasks": 2, "examples_per_task": BATCH * steps})
    stream = build_stream(settings, Options(), seed=0)
    learner = build_learner(settings, stream, seed=0)
    learner.fit(stream[0].train_batches(BATCH), task_id=0, verbose=0)
    batches = stream[1].train_batches(BATCH)
    return lambda: learner.fit(batches, task_id=1, end_task=False, verbose=0)


def main() -> None:
    """Measure and print."""
    rounds = rounds_of(__doc__, 5)
    for dataset, steps in STEPS.items():
        cells = select_cells("T4", dataset)
        seconds = measure({cell.method: second_task(cell) for cell in cells}, rounds)
        ratios: dict[str, tuple[float, float | None]] = {}
        for in_paper in compare(cells, []):
            method = in_paper.cell.method
            name = f"{method} / {REFERENCE}, in the paper {in_paper.published:.2f}"
            ratios[name] = (seconds[method] / seconds[REFERENCE], None)
        times = {name: 1e3 * value / steps for name, value in seconds.items()}
        report(f"A step of the methods of T4 on {dataset}", times, ratios)


if __name__ == "__main__":
    main()
