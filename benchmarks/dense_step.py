"""A step of NCCL and A-GEM against one of experience replay, and that against a bare loop.

python -m benchmarks.dense_step
"""

import argparse

import keras
import numpy as np
import tensorflow as tf

import nccl_tf
from benchmarks.side_by_side import measure, report
from nccl_tf.batch import Batch
from nccl_tf.memories.draws import without_replacement
from nccl_tf.streams.examples import Examples

IMAGE_SHAPE, CLASSES, HIDDEN, BATCH = (28, 28, 1), 10, (256, 256), 10
TASKS, SLOTS = 20, 5
STEPS = 500
RATE = 0.05


def examples() -> tuple[np.ndarray, np.ndarray]:
    """Random images and labels of one task."""
    random = np.random.default_rng(0)
    images = random.integers(0, 256, (BATCH * STEPS, *IMAGE_SHAPE), dtype=np.uint8)
    return images, random.integers(0, CLASSES, BATCH * STEPS).astype(np.int32)


def network() -> keras.Model:
    """The network of the paper's MNIST experiments."""
    return nccl_tf.networks.mlp(IMAGE_SHAPE, CLASSES, hidden=HIDDEN, seed=0)


def full_ring() -> nccl_tf.RingMemory:
    """A ring for TASKS tasks, of which all but the last have ended."""
    memory = nccl_tf.RingMemory(SLOTS, [range(CLASSES)] * TASKS, IMAGE_SHAPE)
    images = tf.constant(examples()[0][: SLOTS * CLASSES])
    labels = tf.constant(np.repeat(np.arange(CLASSES, dtype=np.int32), SLOTS))
    for task in range(TASKS - 1):
        memory.write(Batch(images, labels, tf.fill([len(labels)], task), tf.ones([len(labels)])))
        memory.close_task(task)
    return memory


def fitted(method, **arguments):
    """A call that fits one task of STEPS steps, as the command does."""
    learner = method(network(), full_ring(), **arguments)
    learner.compile(keras.optimizers.SGD(RATE), steps_per_execution=50)
    images, labels = examples()
    part = Examples(images, labels)
    task = nccl_tf.Task(TASKS - 1, tuple(range(CLASSES)), len(labels), lambda: part, lambda: part)
    data = task.train_batches(BATCH)
    return lambda: learner.fit(data, task_id=TASKS - 1, end_task=False, verbose=0)


def bare_loop():
    """A call of STEPS steps of experience replay with a ring as one bare compiled loop."""
    images, labels = (tf.constant(part) for part in examples())
    model, ring = network(), full_ring()
    weights = [v.value for v in model.trainable_variables]
    kept, kept_labels = ring.images.value, ring.labels.value
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
            drawn = without_replacement(seed, tf.constant((TASKS - 1) * CLASSES * SLOTS), BATCH)
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
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    rounds = parser.parse_args().rounds
    tf.config.threading.set_inter_op_parallelism_threads(2)
    tf.config.threading.set_intra_op_parallelism_threads(2)
    sides = {
        "er_ring": fitted(nccl_tf.ExperienceReplay),
        "nccl_ring": fitted(nccl_tf.NCCL),
        "nccl_ring, two tapes": fitted(nccl_tf.NCCL, gradients="two_tapes"),
        "agem": fitted(nccl_tf.AGEM),
        "er_ring, bare loop": bare_loop(),
    }
    seconds = measure(sides, rounds)
    er, bare = seconds["er_ring"], seconds["er_ring, bare loop"]
    ratios = {
        "nccl_ring / er_ring": (seconds["nccl_ring"] / er, 1.0),
        "agem / er_ring": (seconds["agem"] / er, 1.0),
        "er_ring / bare loop": (er / bare, 1.1),
        "nccl_ring, two tapes / er_ring": (seconds["nccl_ring, two tapes"] / er, None),
    }
    times = {name: 1e3 * value / STEPS for name, value in seconds.items()}
    report("A step of a 784-256-256-10 network, batches of 10 and 10", times, ratios)


if __name__ == "__main__":
    main()
