"""Tiny streams and networks that the tests share."""

import gc
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
# A core for each worker process of pytest, and for the processes that its tests start.
os.environ.setdefault("TF_NUM_INTRAOP_THREADS", "1")
os.environ.setdefault("TF_NUM_INTEROP_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import hypothesis
import keras
import numpy as np
import pytest
import tensorflow as tf

import nccl_tf

IMAGE_SHAPE = (4, 4, 1)
TASK_CLASSES = ((0, 1), (2, 3))


def pytest_configure(config):
    """Sets the process up; those that tests start are as a user's, whatever they import."""
    gc.disable()  # until everything is imported: what an import makes, stays
    # Nearly all time of the tests goes into graphs of a learner that takes few steps: to the
    # making of graphs, which TensorFlow then optimizes, for a gain that no test waits for. What
    # tests see of a graph is what the library says; commands in processes of their own run with
    # the optimizer, and so does what asks for `optimized_graphs`.
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
    leave_pipelines_untuned()
    # No test depends on luck: neither on which examples of a property are tried, nor on their time.
    hypothesis.settings.register_profile("same every time", derandomize=True, deadline=None)
    hypothesis.settings.load_profile("same every time")


def leave_pipelines_untuned():
    """Makes iterators without the thread that tunes them.

    On one core its end is often missed: what frees an iterator then waits until the thread looks
    again, up to a minute for an iterator that a traceback has kept alive.
    """
    untuned = tf.data.Options()
    untuned.autotune.enabled = False
    make_iterator = tf.data.Dataset.__iter__
    tf.data.Dataset.__iter__ = lambda dataset: make_iterator(dataset.with_options(untuned))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Keeps the tests of a file in one process, where they share what is built for all of them."""
    for item in items:
        if item.get_closest_marker("xdist_group") is None:
            item.add_marker(pytest.mark.xdist_group(item.nodeid.partition("::")[0]))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    """Seeds what no test seeds, such as the order of arrays in `fit`, before fixtures are made."""
    keras.utils.set_random_seed(0)


def pytest_collection_finish(session):
    """Leaves what was imported to no later collection of garbage: a twentieth of the time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)
    gc.enable()


def tiny_network(
    num_classes: int = 4,
    dtype: str = "float32",
    seed: int = 0,
    input_dtype: str = "uint8",
    hidden: int = 8,
) -> keras.Model:
    """A dense network with one hidden layer on 4x4 images."""
    initializers = [keras.initializers.GlorotUniform(seed=seed + i) for i in range(2)]
    return keras.Sequential(
        [
            keras.Input(IMAGE_SHAPE, dtype=input_dtype),
            keras.layers.Rescaling(1 / 255, dtype=dtype),
            keras.layers.Flatten(dtype=dtype),
            keras.layers.Dense(hidden, "relu", kernel_initializer=initializers[0], dtype=dtype),
            keras.layers.Dense(num_classes, kernel_initializer=initializers[1], dtype=dtype),
        ]
    )


def tiny_experts(num_classes: int = 4, dtype: str = "float32") -> keras.Model:
    """At most four experts of few units on 4x4 images."""
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(dtype)
    try:
        return nccl_tf.networks.mlp_experts(
            IMAGE_SHAPE, num_classes, widths=(8, 4), latent=2, samples=2, max_experts=4
        )
    finally:
        keras.config.set_dtype_policy(before)


def tiny_batches(task: int, count: int = 60, batch_size: int = 5, seed: int = 0):
    """A dataset of learnable 4x4 images of a task's two classes, in the form of our streams."""
    rng = np.random.default_rng((seed, task))
    labels = rng.choice(TASK_CLASSES[task], count).astype(np.int32)
    images = rng.integers(0, 60, (count, *IMAGE_SHAPE), dtype=np.uint8)
    images[np.arange(count), labels] = 255
    inputs = {"inputs": images, "task": np.full(count, task, np.int32)}
    weights = np.ones(count, np.float32)
    dataset = tf.data.Dataset.from_tensor_slices((inputs, labels, weights))
    return dataset.batch(batch_size, drop_remainder=True)


def scalars(folder) -> dict[str, dict[int, float]]:
    """The values of the event files right below a folder, by tag and step."""
    from tensorflow.python.summary.summary_iterator import summary_iterator

    found: dict[str, dict[int, float]] = {}
    for path in sorted(folder.glob("events*")):
        for event in summary_iterator(str(path)):
            for value in event.summary.value:
                if value.metadata.plugin_data.plugin_name == "scalars":
                    tensor = tf.make_ndarray(value.tensor)
                    found.setdefault(value.tag, {})[event.step] = float(tensor)
    return found


@pytest.fixture
def optimized_graphs():
    """Graphs as TensorFlow optimizes them, where two that are not the same must give equal bits."""
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": False})
    yield
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})


@pytest.fixture
def restored_tables():
    """Takes back what a test registers, and forgets the plugins that it imports."""
    from nccl_tf.extensions import plugins
    from nccl_tf.memories.kinds import MEMORIES
    from nccl_tf.methods.registry import METHODS
    from nccl_tf.streams.catalog import DATASETS

    tables = METHODS, MEMORIES, DATASETS, plugins._hashes
    before = [dict(table) for table in tables]
    yield
    for table, rows in zip(tables, before, strict=True):
        table.clear()
        table.update(rows)


@pytest.fixture
def command(capsys):
    """Runs the command in this process; returns exit code, stdout and stderr."""
    from absl import flags
    from absl.testing import flagsaver

    from nccl_tf.cli import main
    from nccl_tf.experiment.config.flags import define_flags

    define_flags(flags.FLAGS)

    def run(*argv):
        with flagsaver.flagsaver(), pytest.raises(SystemExit) as end:
            main(["run.py", *map(str, argv)])
        printed = capsys.readouterr()
        return end.value.code or 0, printed.out, printed.err

    return run


@pytest.fixture
def as_memory_batch():
    """Makes a `Batch` of single-pixel images from labels, tasks and pixel values."""
    from nccl_tf.batch import Batch

    def make(labels, tasks, pixels, weights=None):
        count = len(labels)
        return Batch(
            tf.reshape(tf.constant(pixels, tf.uint8), [count, 1, 1, 1]),
            tf.constant(labels, tf.int32),
            tf.constant(tasks, tf.int32),
            tf.constant([1.0] * count if weights is None else weights, tf.float32),
        )

    return make
