"""The compiled step as a GPU sees it."""

import functools

import pytest
import tensorflow as tf
from tensorflow.python.framework import kernels

from nccl_tf.methods.registry import METHODS
from tests.conftest import TASK_CLASSES, tiny_batches
from tests.methods.test_battery import NAMES, fit, make

HOST_CODE = {"PyFunc", "PyFuncStateless", "EagerPyFunc"}
LEAVES_THE_GRAPH = {"gem": {"PyFuncStateless"}}  # its quadratic program, by a CPU solver


def devices(op: str) -> set[str]:
    """The kinds of device that this build of TensorFlow has a kernel of an op for."""
    return {kernel.device_type for kernel in kernels.get_registered_kernels_for_op(op).kernel}


@functools.cache
def ops_of(name: str) -> set[str]:
    """Types of the ops of a step, in the functions it calls too."""
    learner = make(name, TASK_CLASSES)
    fit(learner, 0, count=10)  # so that what is there from the second task on is in the graph
    learner.begin_task(1)
    step = tf.function(learner.train_step)
    graph = step.get_concrete_function(next(iter(tiny_batches(1)))).graph.as_graph_def()
    nodes = [*graph.node, *(node for f in graph.library.function for node in f.node_def)]
    return {node.op for node in nodes}


@pytest.mark.parametrize("name", NAMES)
def test_no_step_leaves_the_graph(name):
    assert ops_of(name) & HOST_CODE <= LEAVES_THE_GRAPH.get(name, set())


@pytest.mark.skipif("GPU" not in devices("MatMul"), reason="a build of TensorFlow without GPUs")
@pytest.mark.parametrize("name", NAMES)
def test_every_op_has_a_kernel_for_gpus(name):
    allowed = LEAVES_THE_GRAPH.get(name, set())
    without = {op for op in ops_of(name) if not devices(op) & {"GPU", "DEFAULT"}}
    assert without <= allowed


def test_the_exception_is_a_method():
    assert LEAVES_THE_GRAPH.keys() <= METHODS.keys()
