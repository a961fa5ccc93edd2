"""What the learner of every method must do: the items of `check_learner`, and more.

A class is built and trained with a head per task, and one of each code path with a single head too;
further tests look at what is left of these runs.
"""

import functools
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import dataclass

import keras
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.framework import kernels

import nccl_tf
from nccl_tf.batch import PLACE_WEIGHTS
from nccl_tf.conformance.learners import ITEMS
from nccl_tf.conformance.report import CheckReport
from nccl_tf.errors import UserError
from nccl_tf.learner.options.average import AverageWeights
from nccl_tf.methods.registry import METHODS
from tests.methods.learners import (
    PLACES,
    assert_same_state,
    assert_same_values,
    build,
    fit,
    fit_at_places,
    head,
    make,
    make_at_places,
    network_of,
    values,
)
from tests.tiny import TASK_CLASSES, tiny_batches, tiny_experts, tiny_network

# The rows of the registry that are the first of their class: `joint` rows are runs of Finetune.
CLASSES = list({row.learner: row.name for row in reversed(METHODS.values())}.values())[::-1]
ONE_PER_CODE_PATH = ("er_ring", "icarl", "nccl_ring")
IN_BFLOAT16 = ("nccl_ring",)
AVERAGED = ("icarl",)  # which refuses; tests of the average itself take finetune and nccl
OF_FEATURES = ("fecam", "ncm", "ranpac", "slda")
PREDICTS_FROM_THE_END = ("fecam", "gdumb", "icarl", "ranpac")  # not with the outputs of its steps
SURE_LATER = ("er_ace", "inflora")  # of new classes against old ones, which no stream loss compares
UNMASKED_IN_TRAINING = ("cn_dpm", "multi_task")
OF_MORE_RUNS = ["equal_seeds", "datasets", "padding", "add_classes", "heads", "serving_model"]
OF_ONE_RUN = [
    item for item in ITEMS if item not in (*OF_MORE_RUNS, "jit_compile", "export_learner")
]
OWN_STATE = (*ONE_PER_CODE_PATH, "ewc", "gem", "lwf", "derpp", "slda", "clser", "supsup")
"""One of each kind of state; the others run the items at night."""
NETWORKS = {
    "cn_dpm": tiny_experts,
    "supsup": functools.partial(network_of, "supsup", input_dtype="float32"),
}
"""Of those that the network of `check_learner` is not made for."""
HOST_CODE = {"PyFunc", "PyFuncStateless", "EagerPyFunc"}
LEAVES_THE_GRAPH = {"gem": {"PyFuncStateless"}}  # its quadratic program, by a CPU solver


AT_PLACES = (
    "ewc", "bgd", "agem", "er_ring", "mer", "finetune", "gss_greedy", "mir", "der", "derpp", "si",
    "mas", "mega1", "mega2", "gec", "multi_task", "cumulative", "nccl_ring",
)  # fmt: skip
"""Methods that learn a target at each place; another says why it does not."""
BY_DAY_AT_PLACES = ("derpp", "mas", "nccl_ring")
"""One of each kind of step: it is taken from its file too. The others learn at night."""


def grouped(name: str, *marks):
    # The tests of a class run in one process, where they share its runs.
    return pytest.param(name, marks=[pytest.mark.xdist_group(name), *marks])


def variant(name: str, usual=ONE_PER_CODE_PATH):
    return grouped(name, *([] if name in usual else [pytest.mark.nightly]))


@pytest.fixture(scope="module", params=[grouped(name) for name in CLASSES])
def name(request):
    return request.param


# Tests of variants: for every class they would take too long.
variants = pytest.mark.parametrize("name", [variant(n) for n in CLASSES], scope="module")


def checked(name: str, items: list[str]) -> CheckReport:
    """What `check_learner` finds of the class of a row."""
    learner, network = METHODS[name].learner_class(), NETWORKS.get(name)
    return nccl_tf.check_learner(learner, network=network, items=items, raises=False)


@pytest.fixture(scope="module")
def report(name) -> CheckReport:
    return checked(name, OF_ONE_RUN)


@pytest.mark.parametrize("item", OF_ONE_RUN)
@pytest.mark.parametrize("name", [variant(n, OWN_STATE) for n in CLASSES], scope="module")
def test_it_does_what_every_learner_must(name, item, report):
    assert report[item].outcome in ("held", "excused"), report[item]


@pytest.fixture(scope="module")
def rest(name) -> CheckReport:
    return checked(name, OF_MORE_RUNS)


@pytest.mark.parametrize("item", OF_MORE_RUNS)
@pytest.mark.parametrize("name", [variant(n, ["er_ring"]) for n in CLASSES], scope="module")
def test_it_does_so_in_further_runs(name, item, rest):
    assert rest[item].outcome in ("held", "excused"), rest[item]


@pytest.mark.seconds(60)  # XLA compiles the steps of two batch sizes
@pytest.mark.parametrize("name", [variant(n, ()) for n in CLASSES], scope="module")
def test_chunks_learn_what_single_steps_learn(name):
    (verdict,) = checked(name, ["jit_compile"]).verdicts
    assert verdict.outcome in ("held", "excused"), verdict


@pytest.mark.seconds(90)  # an export
@pytest.mark.parametrize("name", [variant(n, ()) for n in CLASSES], scope="module")
def test_a_file_for_a_device_learns_what_it_learns(name):
    (verdict,) = checked(name, ["export_learner"]).verdicts
    assert verdict.outcome in ("held", "excused"), verdict


@dataclass
class Run:
    """A learner and what was seen of it while it learned both tasks."""

    learner: keras.Model
    heads: tuple[list[np.ndarray], list[np.ndarray]]  # before the first task and after it
    logs: dict[str, list[float]]  # of the second task
    traces: tuple[int, int]  # after each task
    state: list[np.ndarray]
    accuracy: float  # on new examples of the task that ended last
    graphs: list[tf.Graph]  # in which its steps were traced


@contextmanager
def traced(learner):
    """The graphs in which the learner's steps are traced in the body."""
    graphs, get_metrics_result = [], learner.get_metrics_result

    def told():
        if not tf.executing_eagerly():
            graphs.append(tf.compat.v1.get_default_graph())
        return get_metrics_result()

    learner.get_metrics_result = told
    yield graphs
    del learner.get_metrics_result


def run(learner, end_task=True) -> Run:
    before = head(learner)
    with traced(learner) as graphs:
        fit(learner, 0)
        after, traces = head(learner), learner.execution.traces
        logs = fit(learner, 1, end_task=end_task)
    state, traces = values(learner), (traces, learner.execution.traces)
    (inputs, labels, _), *_ = tiny_batches(int(end_task), 60, 60, seed=9)
    predicted = np.argmax(learner(inputs), axis=1)
    accuracy = float(np.mean(predicted == labels))
    return Run(learner, (before, after), logs, traces, state, accuracy, graphs)


@pytest.fixture(scope="module")
def single(name) -> Run:
    return run(make(name))


@pytest.fixture(scope="module")
def multi(name) -> Run:
    """With heads, where the method has a meaning for them. The second task stays open."""
    return run(make(name, heads_of(name)), end_task=False)


def heads_of(name: str):
    return None if METHODS[name].unsupported_reason("split", "multi") else TASK_CLASSES


def assert_learned(run, name):
    assert np.isfinite(run.logs["loss"]).all()
    assert run.logs["accuracy"][-1] > 0.6 or name in (*PREDICTS_FROM_THE_END, *SURE_LATER)
    assert run.accuracy > 0.9


@pytest.mark.parametrize("name", [variant(n, BY_DAY_AT_PLACES) for n in AT_PLACES])
def test_learns_a_class_at_each_place(name, tmp_path):
    learner = make_at_places(name)
    for task in range(2):
        loss = fit_at_places(learner, task, epochs=2)["loss"]
        assert loss[1] < loss[0]
    for memory in learner.memories():
        weights = memory.read_all().extras[PLACE_WEIGHTS]
        np.testing.assert_array_equal(weights, np.arange(PLACES) < PLACES - 1 + 0 * weights)
    if name in BY_DAY_AT_PLACES:
        learner.save(tmp_path / "learner.keras")
        loaded = keras.models.load_model(tmp_path / "learner.keras")
        for each in (learner, loaded):
            fit_at_places(each, 0)
        assert_same_state(learner, loaded)


@pytest.mark.parametrize("name", [n for n in CLASSES if n not in BY_DAY_AT_PLACES])
def test_takes_sequences_or_says_why_not(name):
    """Of the others it is shown above that they learn them."""
    if name in AT_PLACES:
        make_at_places(name)
    else:
        with pytest.raises(UserError):
            make_at_places(name)


@variants
def test_learns_with_one_head(name, single):
    assert_learned(single, name)


def test_learns_with_a_head_per_task(name, multi):
    if heads_of(name) is None:
        with pytest.raises(UserError, match="heads"):
            build(name, TASK_CLASSES)
        return
    assert_learned(multi, name)


def test_later_tasks_trace_nothing_again(multi):
    assert multi.traces == (1, 1)


def test_masked_classes_get_exactly_no_gradient(name, multi):
    if name in UNMASKED_IN_TRAINING:
        pytest.skip("trains on the logits of all classes")
    if heads_of(name) is None:
        pytest.skip("has no heads")
    for old, new in zip(*multi.heads, strict=True):
        np.testing.assert_array_equal(old[..., 2:], new[..., 2:])
        assert (old[..., :2] != new[..., :2]).any()


@variants
def test_other_classes_get_gradient_without_mask(name, single):
    if name == "cn_dpm":
        pytest.skip("its network's last layer is no dense head")
    if name in OF_FEATURES:
        pytest.skip("learns by statistics of classes, of which others are no part")
    if name == "inflora":
        pytest.skip("takes the softmax over the classes of the task")
    (before, *_), (after, *_) = single.heads
    assert (before[:, 2:] != after[:, 2:]).any()


@functools.cache
def kinds_of_device(op: str) -> set[str]:
    """The kinds of device that this build of TensorFlow has a kernel of an op for."""
    return {kernel.device_type for kernel in kernels.get_registered_kernels_for_op(op).kernel}


def ops_of(graphs: list[tf.Graph]) -> set[str]:
    """Types of the ops of graphs, in the functions they call too."""
    found = set()
    for graph in map(tf.Graph.as_graph_def, graphs):
        nodes = [*graph.node, *(node for f in graph.library.function for node in f.node_def)]
        found |= {node.op for node in nodes}
    return found


def test_no_step_leaves_the_graph(name, multi):
    ops, exceptions = ops_of(multi.graphs), LEAVES_THE_GRAPH.get(name, set())
    assert "MatMul" in ops
    assert ops & HOST_CODE == exceptions
    if "GPU" in kinds_of_device("MatMul"):
        on_cpu = {op for op in ops if not kinds_of_device(op) & {"GPU", "DEFAULT"}}
        assert on_cpu <= exceptions


KEPT = {"ReadVariableOp", "AssignVariableOp", "AssignAddVariableOp", "ResourceGather",
        "ResourceScatterUpdate", "ResourceScatterAdd", "ResourceScatterNdUpdate"}  # fmt: skip
"""What a step does to its variables."""


def uses_of_state(graphs: list[tf.Graph]) -> set[tuple[str, tuple[tuple[str, int], ...]]]:
    """The operations on variables in graphs, with the dtypes that choose their kernels."""
    found = set()
    for graph in map(tf.Graph.as_graph_def, graphs):
        nodes = [*graph.node, *(node for f in graph.library.function for node in f.node_def)]
        for node in nodes:
            if node.op in KEPT:
                names = ("dtype", "Tindices")
                kinds = {name: node.attr[name].type for name in names if name in node.attr}
                found.add((node.op, tuple(sorted(kinds.items()))))
    return found


@functools.cache
def runs_on_a_gpu(op: str, kinds: tuple[tuple[str, int], ...]) -> bool:
    """Whether there is a kernel that keeps what a variable holds in a GPU's memory."""
    for kernel in kernels.get_registered_kernels_for_op(op).kernel:
        of_dtypes = {c.name: list(c.allowed_values.list.type) for c in kernel.constraint}
        fits = all(kind in of_dtypes.get(name, [kind]) for name, kind in kinds)
        on_host = set(kernel.host_memory_arg) - {"resource", "ref"}
        if kernel.device_type in ("GPU", "DEFAULT") and fits and not on_host:
            return True
    return False


def assert_state_on_device(run):
    for variable in run.learner.state_variables.values():
        assert variable.dtype not in ("int32", "uint64"), variable.path
    uses = uses_of_state(run.graphs)
    assert uses
    if "GPU" in kinds_of_device("MatMul"):
        assert [use for use in sorted(uses) if not runs_on_a_gpu(*use)] == []


def test_the_state_of_a_step_lives_on_the_device(multi):
    """TensorFlow keeps int32 variables on the host, and XLA then fails on a GPU."""
    assert_state_on_device(multi)


@variants
def test_the_state_of_a_step_with_one_head_lives_there_too(single):
    """It is used in no way that a step with heads has not, which are trained for every class."""
    assert_state_on_device(single)


@pytest.mark.processes
def test_loaded_in_a_fresh_process_goes_on(tmp_path):
    learner = make("nccl_reservoir")
    fit(learner, 0)
    learner.save(tmp_path / "learner.keras")
    fit(learner, 1)
    code = f"""
import keras, numpy as np
import nccl_tf
from tests.methods.learners import fit
learner = keras.models.load_model({str(tmp_path / "learner.keras")!r})
fit(learner, 1)
np.savez({str(tmp_path / "weights.npz")!r}, *learner.get_weights())
"""
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
    with np.load(tmp_path / "weights.npz") as weights:
        for mine, name in zip(learner.get_weights(), weights.files, strict=True):
            np.testing.assert_array_equal(mine, weights[name])


def numbers_of(name: str):
    """The row's arguments of the constructor, each with another value and one out of range."""
    for row in METHODS[name].hyperparameters:
        if row.part != "learner":
            continue
        if row.kind == "choice":
            other = next(choice for choice in row.choices if choice != row.default)
            yield row, other, "no such choice"
        elif row.kind == "bool":
            yield row, not row.default, "no such switch"
        else:
            tries = (2 * row.default, row.default / 2) if row.default else (0.5, 1, 2)
            tries = [int(value) if row.kind == "int" else value for value in tries]
            other = next(value for value in tries if passes(row, value) and value != row.default)
            yield row, other, -(10**9) if row.kind == "int" else float("nan")


def passes(row, value) -> bool:
    try:
        row.check(value)
    except UserError:
        return False
    return True


@pytest.fixture(scope="module")
def network():
    """That no learner is made of: what refuses a number leaves the network as it was."""
    return tiny_network()


@pytest.mark.parametrize("name", CLASSES)
def test_numbers_out_of_the_range_of_the_row_are_refused(name, network):
    """That others arrive is shown with all arguments, in tests/learner/test_arguments.py."""
    network = NETWORKS[name]() if name in NETWORKS else network
    for row, _, outside in numbers_of(name):
        with pytest.raises(UserError, match=row.name):
            build(name, network=network, **{row.name: outside})


class AverageByHand(keras.callbacks.Callback):
    """Takes the weights of every step into an average of its own."""

    def __init__(self, share: float):
        super().__init__()
        self.share, self.averages = share, None

    def on_train_begin(self, logs=None):
        if self.averages is None:
            self.averages = self.model.network.get_weights()

    def on_train_batch_end(self, batch, logs=None):
        pairs = zip(self.averages, self.model.network.get_weights(), strict=True)
        self.averages = [self.share * a + (1 - self.share) * w for a, w in pairs]


def check_average(name, single):
    """It is that of the weights after each step, and what is trained are the same bits."""
    by_hand = AverageByHand(0.75)
    learner = make(name, options={"average_weights": 0.75}, steps_per_execution=1)
    fit(learner, 0, 1, callbacks=[by_hand])
    average = learner.option(AverageWeights)
    kept = {id(v) for v in (*average.copy.variables, average.steps)}
    of_memories = [v for memory in learner.memories() for v in memory.variables]
    rest = [v.numpy() for v in (*learner.variables, *of_memories) if id(v) not in kept]
    assert_same_values(rest, single.state)
    for mine, kept in zip(by_hand.averages, average.copy.variables, strict=True):
        np.testing.assert_allclose(kept, mine, rtol=1e-5, atol=1e-6)
    assert int(average.steps.numpy()) == 80
    _, accuracy = learner.evaluate(tiny_batches(1, seed=9), verbose=0)
    assert accuracy > 0.9


@pytest.mark.parametrize("name", [variant(n, AVERAGED) for n in CLASSES], scope="module")
def test_averages_its_weights_or_says_why_not(name, single):
    if METHODS[name].refuses.get("average_weights"):
        with pytest.raises(UserError, match="leave average_weights out"):
            make(name, options={"average_weights": 0.75})
    else:
        check_average(name, single)


@pytest.mark.parametrize("name", [variant(n, IN_BFLOAT16) for n in CLASSES], scope="module")
def test_trains_in_mixed_bfloat16(name):
    keras.config.set_dtype_policy("mixed_bfloat16")
    try:
        learner = make(name, dtype="mixed_bfloat16")
    finally:
        keras.config.set_dtype_policy("float32")
    assert_learned(run(learner), name)
    assert all(v.dtype == "float32" for v in learner.trainable_variables)
