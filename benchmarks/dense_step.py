"""A step of five methods on a dense network, plain and in chunks, over a bare loop of replay.

python -m benchmarks.dense_step [--rounds=5]

The bare loop is experience replay with a ring as one compiled loop over tensors, without heads,
weights, checks, logs, callbacks or choice of what to store. `plain` is `jit_compile=False`, `chunk`
is `jit_compile=True`, both as `fit` runs them. The printed table is the one of `docs/speed.md`.
"""

from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

import nccl_tf
from benchmarks.side_by_side import (
    BATCH,
    SLOTS,
    examples,
    fitted,
    full_memory,
    full_ring,
    measure,
    report,
    rounds_of,
    table,
)
from nccl_tf.records.provenance import describe_devices
from nccl_tf.rng import sample_without_replacement

IMAGE_SHAPE, CLASSES, HIDDEN = (28, 28, 1), 10, (256, 256)
TASKS = 20
HEADS = [range(CLASSES)] * TASKS
STEPS = 1000
RATE = 0.05
METHODS: dict[str, tuple[str, dict[str, Any], float]] = {
    "er_ring": ("er_ring", {}, 1.2),
    "nccl_ring": ("nccl_ring", {}, 1.35),
    "nccl_ring, two tapes": ("nccl_ring", {"gradients": "two_tapes"}, 1.6),
    "agem": ("agem", {}, 1.3),
    "derpp": ("derpp", {}, 2.0),
}
"""The method of each row, options of its learner, and the most that a chunk's step should take
over one of the bare loop."""
HOW = "plain", "chunk"
BARE = "er_ring, bare loop"


def network() -> keras.Model:
    """The network of the paper's MNIST experiments."""
    return nccl_tf.networks.mlp(IMAGE_SHAPE, CLASSES, hidden=HIDDEN, seed=0)


def side(name: str, xla: bool) -> Callable[[], None]:
    """A call that fits one task of STEPS steps."""
    method, options, _ = METHODS[name]
    memory = full_memory(method, HEADS, IMAGE_SHAPE, CLASSES)
    learner = nccl_tf.get_method(method).learner_class()(network(), memory, **options)
    learner.compile(keras.optimizers.SGD(RATE), jit_compile=xla)
    return fitted(learner, examples(STEPS, IMAGE_SHAPE, HEADS[-1]), HEADS)


def bare_loop() -> Callable[[], None]:
    """A call of STEPS steps of experience replay with a ring as one bare compiled loop."""
    part = examples(STEPS, IMAGE_SHAPE, HEADS[-1])
    images, labels = tf.constant(part.inputs), tf.constant(part.labels, tf.int64)
    model, ring = network(), full_ring(HEADS, IMAGE_SHAPE)
    weights = [v.value for v in model.trainable_variables]
    kept, kept_labels = ring.inputs.value, ring.labels.value
    counts = tf.Variable(tf.zeros([CLASSES], tf.int64))
    readable = ring.readable.value
    order = tf.random.shuffle(tf.range(BATCH * STEPS))

    @tf.function
    def loop() -> tf.Tensor:
        total = tf.constant(0.0)
        for step in tf.range(STEPS):
            rows = order[BATCH * step : BATCH * (step + 1)]
            x, y = tf.gather(images, rows), tf.gather(labels, rows)
            seed = tf.stack([tf.constant(0, tf.int64), tf.cast(step, tf.int64)])
            population = tf.constant((TASKS - 1) * CLASSES * SLOTS, tf.int64)
            drawn = sample_without_replacement(seed, population, BATCH)
            slots = readable.sparse_read(drawn)
            both = tf.concat([kept.sparse_read(slots), x], axis=0)
            targets = tf.concat([kept_labels.sparse_read(slots), y], axis=0)
            with tf.GradientTape() as tape:
                logits = model(both, training=True)
                losses = tf.nn.sparse_softmax_cross_entropy_with_logits(targets, logits)
                loss = tf.reduce_mean(losses)
            for weight, slope in zip(weights, tape.gradient(loss, weights), strict=True):
                weight.assign_sub(RATE * slope)
            earlier = tf.linalg.band_part(tf.cast(y[:, None] == y[None, :], tf.int64), -1, 0)
            place = counts.sparse_read(y) + tf.reduce_sum(earlier, axis=1) - 1
            counts.scatter_nd_add(y[:, None], tf.ones_like(y))
            into = ((TASKS - 1) * CLASSES + y) * SLOTS + tf.math.floormod(place, SLOTS)
            kept.scatter_nd_update(into[:, None], x)
            kept_labels.scatter_nd_update(into[:, None], y)
            total += loss
        return total

    return loop


def main() -> None:
    """Measure and print."""
    rounds = rounds_of(__doc__, 5)
    sides = {f"{name}, {how}": side(name, how == "chunk") for name in METHODS for how in HOW}
    seconds = measure({**sides, BARE: bare_loop()}, rounds)
    times = {name: 1e3 * value / STEPS for name, value in seconds.items()}
    ratios = {
        f"{name}, chunk / bare loop": (times[f"{name}, chunk"] / times[BARE], most)
        for name, (_, _, most) in METHODS.items()
    }
    title = "A step of a 784-256-256-10 network, batches of 10 and 10"
    report(title, times, ratios)
    rows = []
    for name in METHODS:
        plain, chunk = (times[f"{name}, {how}"] for how in HOW)
        over = plain / times[BARE], chunk / times[BARE]
        rows.append([f"`{name}`", *(f"{value:.2f}" for value in (plain, chunk, *over))])
    rows.append(["bare loop of replay", f"{times[BARE]:.2f}", "-", "1.00", "-"])
    heads = "method", "plain", "chunk", "plain / bare loop", "chunk / bare loop"
    table(f"{title}, ms on {describe_devices()}, one thread", heads, rows)


if __name__ == "__main__":
    main()
