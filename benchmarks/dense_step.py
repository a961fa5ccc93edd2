"""A step of NCCL and A-GEM against one of experience replay, and that against a bare loop.

python -m benchmarks.dense_step
"""

import keras
import tensorflow as tf

import nccl_tf
from benchmarks.side_by_side import (
    BATCH,
    SLOTS,
    examples,
    fitted,
    full_ring,
    measure,
    report,
    rounds_of,
)
from nccl_tf.rng import sample_without_replacement

IMAGE_SHAPE, CLASSES, HIDDEN = (28, 28, 1), 10, (256, 256)
TASKS = 20
HEADS = [range(CLASSES)] * TASKS
STEPS = 500
RATE = 0.05


def network() -> keras.Model:
    """The network of the paper's MNIST experiments."""
    return nccl_tf.networks.mlp(IMAGE_SHAPE, CLASSES, hidden=HIDDEN, seed=0)


def compiled(method, **arguments):
    """A learner before its last task."""
    learner = method(network(), full_ring(HEADS, IMAGE_SHAPE), **arguments)
    learner.compile(keras.optimizers.SGD(RATE))
    return learner


def side(method, **arguments):
    """A call that fits one task of STEPS steps."""
    part = examples(STEPS, IMAGE_SHAPE, HEADS[-1])
    return fitted(compiled(method, **arguments), part, HEADS)


def without_fit(method):
    """A call of STEPS steps of a learner as one compiled loop over tensors."""
    learner = compiled(method)
    learner.begin_task(TASKS - 1)
    images, labels = map(tf.constant, examples(STEPS, IMAGE_SHAPE, HEADS[-1]))
    order = tf.random.shuffle(tf.range(BATCH * STEPS))

    @tf.function
    def loop() -> None:
        for step in tf.range(STEPS):
            rows = order[BATCH * step : BATCH * (step + 1)]
            learner.train_step((tf.gather(images, rows), tf.gather(labels, rows)))

    return loop


def bare_loop():
    """A call of STEPS steps of experience replay with a ring as one bare compiled loop."""
    images, labels = map(tf.constant, examples(STEPS, IMAGE_SHAPE, HEADS[-1]))
    model, ring = network(), full_ring(HEADS, IMAGE_SHAPE)
    weights = [v.value for v in model.trainable_variables]
    kept, kept_labels = ring.inputs.value, ring.labels.value
    counts = tf.Variable(tf.zeros([CLASSES], tf.int32))
    readable = ring.readable.value
    order = tf.random.shuffle(tf.range(BATCH * STEPS))

    @tf.function
    def loop() -> tf.Tensor:
        total = tf.constant(0.0)
        for step in tf.range(STEPS):
            rows = order[BATCH * step : BATCH * (step + 1)]
            x, y = tf.gather(images, rows), tf.gather(labels, rows)
            seed = tf.stack([tf.constant(0, tf.int64), tf.cast(step, tf.int64)])
            drawn = sample_without_replacement(
                seed, tf.constant((TASKS - 1) * CLASSES * SLOTS), BATCH
            )
            slots = readable.sparse_read(drawn)
            both = tf.concat([kept.sparse_read(slots), x], axis=0)
            targets = tf.concat([kept_labels.sparse_read(slots), y], axis=0)
            with tf.GradientTape() as tape:
                logits = model(both, training=True)
                losses = tf.nn.sparse_softmax_cross_entropy_with_logits(targets, logits)
                loss = tf.reduce_mean(losses)
            for weight, slope in zip(weights, tape.gradient(loss, weights), strict=True):
                weight.assign_sub(RATE * slope)
            earlier = tf.linalg.band_part(tf.cast(y[:, None] == y[None, :], tf.int32), -1, 0)
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
    rounds = rounds_of(__doc__, 9)
    sides = {
        "er_ring": side(nccl_tf.ExperienceReplay),
        "nccl_ring": side(nccl_tf.NCCL),
        "nccl_ring, two tapes": side(nccl_tf.NCCL, gradients="two_tapes"),
        "agem": side(nccl_tf.AGEM),
        "nccl_ring, bare loop around its step": without_fit(nccl_tf.NCCL),
        "er_ring, bare loop": bare_loop(),
    }
    seconds = measure(sides, rounds)
    er, bare = seconds["er_ring"], seconds["er_ring, bare loop"]
    ratios = {
        "nccl_ring / er_ring": (seconds["nccl_ring"] / er, 1.09),
        "agem / er_ring": (seconds["agem"] / er, 1.0),
        "er_ring / bare loop": (er / bare, 1.05),
        "nccl_ring, fit / bare loop around its step": (
            seconds["nccl_ring"] / seconds["nccl_ring, bare loop around its step"],
            1.15,
        ),
        "nccl_ring, two tapes / er_ring": (seconds["nccl_ring, two tapes"] / er, None),
    }
    times = {name: 1e3 * value / STEPS for name, value in seconds.items()}
    report("A step of a 784-256-256-10 network, batches of 10 and 10", times, ratios)


if __name__ == "__main__":
    main()
