"""Five seeds trained together in one program against one seed.

python -m benchmarks.vectorized_seeds
"""

from collections.abc import Callable

import keras

import nccl_tf
from benchmarks.last_task import BATCH, examples, fitted, full_ring
from benchmarks.side_by_side import measure, report, rounds_of
from nccl_tf.methods.seed_stack import SeedStack

IMAGE_SHAPE, CLASSES, HIDDEN = (28, 28, 1), 10, (256, 256)
TASKS = 20
HEADS = [range(CLASSES)] * TASKS
STEPS, SEEDS = 500, 5
RATE = 0.05
METHODS = {"nccl_ring": nccl_tf.NCCL, "er_ring": nccl_tf.ExperienceReplay}


def learner(method: type[nccl_tf.Learner], seed: int) -> nccl_tf.Learner:
    """A learner of the paper's MNIST experiments, that records its steps as the command does."""
    network = nccl_tf.networks.mlp(IMAGE_SHAPE, CLASSES, hidden=HIDDEN, seed=seed)
    made = method(network, full_ring(HEADS, IMAGE_SHAPE), seed=seed)
    made.compile(keras.optimizers.SGD(RATE), metrics=["accuracy"], steps_per_execution=50)
    made.record_steps(50)
    return made


def together(method: type[nccl_tf.Learner]) -> Callable[[], None]:
    """A call that fits the last task once with all seeds."""
    stack = SeedStack([learner(method, seed) for seed in range(SEEDS)])
    part, last = examples(STEPS, IMAGE_SHAPE, HEADS[-1]), TASKS - 1
    task = nccl_tf.Task(last, tuple(HEADS[last]), len(part.labels), lambda: part, lambda: part)
    data = [task.train_batches(BATCH, seed=seed) for seed in range(SEEDS)]

    def learn() -> None:
        for _ in stack.learn(data, last):
            pass

    return learn


def main() -> None:
    """Measure and print."""
    rounds = rounds_of(__doc__, 9)
    part = examples(STEPS, IMAGE_SHAPE, HEADS[-1])
    sides: dict[str, Callable[[], None]] = {}
    for name, method in METHODS.items():
        sides[f"{name}, one seed"] = fitted(learner(method, 0), part, HEADS)
        sides[f"{name}, {SEEDS} seeds together"] = together(method)
    seconds = measure(sides, rounds)
    ratios: dict[str, tuple[float, float | None]] = {
        f"{name}: {SEEDS} seeds / one seed": (
            seconds[f"{name}, {SEEDS} seeds together"] / seconds[f"{name}, one seed"], 3.5
        )
        for name in METHODS
    }  # fmt: skip
    times = {name: 1e3 * value / STEPS for name, value in seconds.items()}
    report("A step of a 784-256-256-10 network, batches of 10 and 10", times, ratios)


if __name__ == "__main__":
    main()
