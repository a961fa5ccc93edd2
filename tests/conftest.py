"""How the processes of the tests are set up, and the fixtures that all share."""

import contextlib
import gc
import os
import tempfile
import time
from pathlib import Path
from unittest import mock

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
# A core for each worker process of pytest, and for the processes that its tests start.
os.environ.setdefault("TF_NUM_INTRAOP_THREADS", "1")
os.environ.setdefault("TF_NUM_INTEROP_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import hypothesis
import pytest

# What commands compile is kept apart from the user's own; Matplotlib has its fonts where it had.
os.environ.setdefault("MPLCONFIGDIR", os.path.expanduser("~/.cache/matplotlib"))
_CACHES = tempfile.TemporaryDirectory(prefix="nccl_tf-caches-")
os.environ["XDG_CACHE_HOME"] = _CACHES.name

MAX_SECONDS = 8.0  # of the processor, for a test of those that run by default
GRAPH_SECONDS = 0.35  # of that processor, for what `slowness` makes
ELSEWHERE = "nightly", "records", "pages", "processes"


def pytest_xdist_auto_num_workers(config):
    """A process a core for the suite or a folder, this one alone for files and single tests.

    Each imports TensorFlow, in 14 seconds and 1 GB: more than eight are no gain.
    """
    from nccl_tf.machine import count_cores

    return min(8, count_cores()) if any(Path(arg).is_dir() for arg in config.args) else 0


def pytest_configure(config):
    """Sets the process up; those that tests start are as a user's, whatever they import."""
    if config.option.dist != "no" and not hasattr(config, "workerinput"):
        return  # it hands tests out to others, and starts them the sooner without TensorFlow
    import tensorflow as tf

    gc.disable()  # until everything is imported: what an import makes, stays
    # Nearly all time of the tests goes into graphs of a learner that takes few steps: to the
    # making of graphs, which TensorFlow then optimizes, for a gain that no test waits for. What
    # tests see of a graph is what the library says; commands in processes of their own run with
    # the optimizer, and so does what asks for `optimized_graphs`.
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
    compile_quickly()
    take_one_stack_for_all()
    leave_pipelines_untuned()
    # No test depends on luck: neither on which examples of a property are tried, nor on their time.
    hypothesis.settings.register_profile("same every time", derandomize=True, deadline=None)
    hypothesis.settings.load_profile("same every time")


def compile_quickly():
    """Has XLA make slower programs in half the time; processes that tests start do not."""
    import tensorflow as tf

    flags = "--xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false"
    with mock.patch.dict(os.environ, XLA_FLAGS=f"{os.environ.get('XLA_FLAGS', '')} {flags}"):
        tf.function(tf.identity, jit_compile=True)(0.0)


def take_one_stack_for_all():
    """Gives all operations of graphs one stack, in place of that of the call that made each.

    It is for messages about an operation, which no test reads; taking it, with all of pytest
    around, is a seventh of the time of tests that make graphs.
    """
    from tensorflow.python.util import tf_stack

    stack = tf_stack.extract_stack()
    tf_stack.extract_stack = lambda stacklevel=1: stack


def leave_pipelines_untuned():
    """Makes iterators without the thread that tunes them.

    On one core its end is often missed: what frees an iterator then waits until the thread looks
    again, up to a minute for an iterator that a traceback has kept alive.
    """
    import tensorflow as tf

    from nccl_tf.streams.batches import without_autotuning

    make_iterator = tf.data.Dataset.__iter__
    tf.data.Dataset.__iter__ = lambda dataset: make_iterator(without_autotuning(dataset))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Keeps the tests of a file in one process, where they share what is built for all of them.

    Those of pages and processes take long each, and share next to nothing: whoever is free has one.
    """
    for item in items:
        if not any(map(item.get_closest_marker, ("xdist_group", "pages", "processes"))):
            item.add_marker(pytest.mark.xdist_group(item.nodeid.partition("::")[0]))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    """Seeds what no test seeds, such as the order of arrays in `fit`, before fixtures are made.

    TensorFlow forgets all its kernels when it is seeded, and takes a sixth of the time of the tests
    to make them anew: it is seeded only where a seed has been drawn from it since.
    """
    import keras
    import tensorflow as tf
    from tensorflow.python.eager import context

    def seeds():
        generator = getattr(context.context(), "_rng", None)
        return generator and generator.getstate()

    if seeds() != pytest_runtest_setup.seeds:
        keras.utils.set_random_seed(0)
        pytest_runtest_setup.seeds = seeds()
    else:
        with mock.patch.object(tf.random, "set_seed"):
            keras.utils.set_random_seed(0)


pytest_runtest_setup.seeds = "of no test yet"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    """Notes when the test itself begins: its fixtures may be made for several."""
    item.started = time.process_time()
    return (yield)


def slowness():
    """How many times as long as it was measured to take, and at least once, a graph takes now.

    A shared machine may be half as fast as another, and as itself a minute ago.
    """
    import tensorflow as tf

    began = time.process_time()
    with tf.Graph().as_default():
        number = tf.constant(1.0)
        for _ in range(500):
            number += 1.0
    return max(1.0, (time.process_time() - began) / GRAPH_SECONDS)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """Fails a test that has taken too much of the processor."""
    report = yield
    if call.when == "call" and report.passed:
        seconds = time.process_time() - item.started
        own = item.get_closest_marker("seconds")
        allowed = own.args[0] if own else MAX_SECONDS
        elsewhere = any(map(item.get_closest_marker, ELSEWHERE))
        if seconds > allowed and not elsewhere and seconds > allowed * slowness():
            report.outcome = "failed"
            report.longrepr = f"{seconds:.1f} processor seconds: at most {allowed:g} in this test"
    return report


def pytest_collection_finish(session):
    """Leaves what was imported to no later collection of garbage: a twentieth of the time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)
    gc.enable()


@pytest.fixture(autouse=True)
def _eagerly(request):
    """Runs what is marked `eager` without graphs, which cost more than the few steps it takes."""
    if not request.node.get_closest_marker("eager"):
        yield
        return
    import tensorflow as tf

    tf.config.run_functions_eagerly(True)
    yield
    tf.config.run_functions_eagerly(False)


@pytest.fixture
def optimized_graphs():
    """Graphs as TensorFlow optimizes them, where two that are not the same must give equal bits."""
    import tensorflow as tf

    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": False})
    yield
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
    compile_quickly()


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
    from nccl_tf.cli import main

    def run(*argv):
        with pytest.raises(SystemExit) as end:
            main(["run.py", *map(str, argv)])
        printed = capsys.readouterr()
        return end.value.code or 0, printed.out, printed.err

    return run


@pytest.fixture
def full_disk():
    """Makes the disk full: no file that this process writes grows beyond so many bytes."""
    import resource

    @contextlib.contextmanager
    def limited(size):
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)

    return limited


@pytest.fixture
def as_memory_batch():
    """Makes a `Batch` of single-pixel images from labels, tasks and pixel values."""
    import tensorflow as tf

    from nccl_tf.batch import Batch

    def make(labels, tasks, pixels, weights=None):
        count = len(labels)
        return Batch(
            tf.reshape(tf.constant(pixels, tf.uint8), [count, 1, 1, 1]),
            tf.constant(labels, tf.int64),
            tf.constant(tasks, tf.int64),
            tf.constant([1.0] * count if weights is None else weights, tf.float32),
        )

    return make
