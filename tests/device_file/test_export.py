"""A learner in a file: it learns, saves and restores as Keras does."""

import json
import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf

import nccl_tf
from nccl_tf.conformance.trial import state_of
from nccl_tf.device_file import replacements
from nccl_tf.device_file.export import layout_of
from nccl_tf.device_file.flat_file import FlatFile
from nccl_tf.device_file.program import Program
from nccl_tf.errors import UserError
from tests.device_file.learners import BATCH, Device, compiled, er, examples, memory, network

LABELS_OUTSIDE = np.full(BATCH, 9, np.int32)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A learner amid its first task, its file, and its state before the export."""
    keras.utils.set_random_seed(1)
    learner = er(stream_mask="seen")
    learner.fit(*examples(0, 40), batch_size=BATCH, shuffle=False, verbose=0, end_task=False)
    before = {name: v.numpy() for name, v in learner.state_variables.items()}
    path = tmp_path_factory.mktemp("device") / "learner.tflite"
    file = nccl_tf.export_learner(learner, path, predict_batch_size=4, check_steps=4)
    return learner, file, before


@pytest.fixture(scope="module")
def layout(made):
    """Of the learner's state, for which its step is traced."""
    return layout_of(Program(made[0], BATCH, 1))


@pytest.fixture
def learner(made):
    """The learner as it was exported."""
    learner, _, before = made
    for name, variable in learner.state_variables.items():
        variable.assign(before[name])
    learner.progress._begun = 0
    return learner


@pytest.fixture
def device(made):
    return Device(made[1].path)


def agrees(learner, layout, state):
    """That a device's state is that of a learner: integers exactly, floats to 1e-5."""
    wanted = [v.numpy() for v in layout.variables]
    for variable, value in zip(layout.variables, layout.unpack(state.tobytes(), "it"), strict=True):
        variable.assign(value)
    for each in learner.memories():
        each.blank_spare_row()
    found = [v.numpy() for v in layout.variables]
    for variable, value in zip(layout.variables, wanted, strict=True):
        variable.assign(value)
    for each in learner.memories():
        each.blank_spare_row()
    for part, one, variable in zip(layout.parts, found, layout.variables, strict=True):
        if one.dtype.kind == "f":
            np.testing.assert_allclose(one, variable.numpy(), rtol=0, atol=1e-5, err_msg=part.name)
        else:
            np.testing.assert_array_equal(one, variable.numpy(), err_msg=part.name)


@pytest.mark.seconds(60)  # an export
def test_an_export_leaves_the_learner_as_it_was(made):
    learner, file, before = made
    after = {name: v.numpy() for name, v in learner.state_variables.items()}
    assert before.keys() == after.keys()
    assert all(np.array_equal(before[name], after[name]) for name in before)
    assert 0 < file.difference < 1e-5
    assert file.bytes == file.path.stat().st_size


@pytest.mark.seconds(20)  # steps are traced once more
def test_a_device_learns_through_two_tasks_what_keras_learns(learner, layout, device):
    np.testing.assert_array_equal(device.state, layout.pack())
    for task in (0, 1):
        if task:
            assert device("begin_task")["task"] == task
        for number in range(3):
            images, labels = examples(task, seed=number)
            logs = learner.train_on_batch(images, labels, return_dict=True, task_id=task)
            found = device.train(images, labels)
            assert found["learned"] == 1
            np.testing.assert_allclose(found["loss"], logs["loss"], atol=1e-5)
        learner.end_task()
        assert device("end_task")["tasks_ended"] == task + 1
    agrees(learner, layout, device.state)
    images, labels = examples(1, 4)
    answer = device("infer", x=images)
    logits = learner.predict(images, verbose=0)
    np.testing.assert_allclose(answer["logits"], logits, atol=1e-4)
    np.testing.assert_array_equal(answer["label"], logits.argmax(1))


def test_a_device_that_was_switched_off_goes_on_to_the_byte(made, device):
    again = Device(made[1].path)
    for number in range(2):
        device.train(*examples(0, seed=number))
    kept = device.state
    device("end_task")
    for number in range(2):
        device.train(*examples(1, seed=number))
    assert again("restore", state=kept)["ok"] == 1
    np.testing.assert_array_equal(again.state, kept)
    again("end_task")
    for number in range(2):
        again.train(*examples(1, seed=number))
    np.testing.assert_array_equal(again.state, device.state)


@pytest.mark.seconds(30)  # steps are traced twice more
def test_what_a_device_has_learned_goes_on_in_keras(learner, device, tmp_path):
    learner.save(tmp_path / "learner.keras")
    device.train(*examples(0))
    device("end_task")
    device.train(*examples(1))
    device.state.tofile(tmp_path / "state")
    again = nccl_tf.load_model(tmp_path / "learner.keras")
    nccl_tf.load_device_state(again, tmp_path / "state")
    assert int(again.progress.task.numpy()) == 1
    for number in range(3):
        images, labels = examples(1, seed=number)
        again.train_on_batch(images, labels)
        device.train(images, labels)
    agrees(again, layout_of(Program(again, BATCH, 1)), device.state)


def test_weights_alone_leave_the_memory_as_it_was(learner, device, tmp_path):
    device.train(*examples(0))
    device.state.tofile(tmp_path / "state")
    draws = int(learner.memory.draws.numpy())
    nccl_tf.load_device_state(learner, tmp_path / "state", weights_only=True)
    vector = np.concatenate([v.numpy().ravel() for v in learner.network.variables])
    np.testing.assert_array_equal(vector, device("weights")["weights"])
    assert int(learner.memory.draws.numpy()) == draws


def test_weights_are_averaged_without_examples(learner, device):
    weights = device("weights")["weights"]
    assert weights.size == learner.network.count_params()
    state = device.state
    wrong = weights.copy()
    wrong[3] = np.nan
    assert device("set_weights", weights=wrong)["ok"] == 0
    np.testing.assert_array_equal(device.state, state)
    assert device("set_weights", weights=weights / 2)["ok"] == 1
    np.testing.assert_array_equal(device("weights")["weights"], weights / 2)


def test_padding_is_not_learned(made, device):
    images, labels = examples(0)
    weights = (np.arange(BATCH) < 6).astype(np.float32)
    other = Device(made[1].path)
    device.train(images, labels, weights)
    images[6:], labels[6:] = 77, 0
    other.train(images, labels, weights)
    np.testing.assert_array_equal(device("weights")["weights"], other("weights")["weights"])


def test_wrong_labels_skip_their_steps_and_stop_nothing(device):
    weights = device("weights")["weights"]
    images, labels = examples(0)
    for _ in range(12):
        found = device.train(images, LABELS_OUTSIDE)
        assert found["learned"] == 0 and np.isnan(found["loss"])
    np.testing.assert_array_equal(device("weights")["weights"], weights)
    assert device.train(images, labels)["learned"] == 1
    assert not np.array_equal(device("weights")["weights"], weights)


def in_state(device, file, variable):
    """What a device's state has of a learner's variable."""
    part = next(p for p in file.layout["state"] if p["name"] == variable.path)
    return device.state[part["offset"] : part["offset"] + part["size"]].view(part["dtype"])


def test_a_loss_that_is_not_finite_skips_its_step(made, device):
    learner, file, _ = made
    weights = np.full(device("weights")["weights"].size, 3e38, np.float32)
    assert device("set_weights", weights=weights)["ok"] == 1
    kept = [in_state(device, file, v) for v in (learner.memory.labels, learner.memory.seen)]
    found = device.train(*examples(0))
    assert found["learned"] == 0 and not np.isfinite(found["loss"])
    np.testing.assert_array_equal(device("weights")["weights"], weights)
    for before, variable in zip(kept, (learner.memory.labels, learner.memory.seen), strict=True):
        np.testing.assert_array_equal(in_state(device, file, variable)[:20], before[:20])


def test_a_task_that_begins_ends_a_row_of_skipped_steps(made, device):
    learner, file, _ = made
    for number in range(3):
        device.train(examples(0)[0], LABELS_OUTSIDE)
        assert in_state(device, file, learner.progress.skipped_in_a_row) == number + 1
    device("begin_task")
    assert in_state(device, file, learner.progress.skipped_in_a_row) == 0


def test_what_an_exception_has_left_is_undone_by_restore(made, device):
    """The runtime begins a step of another size, and fails in the middle."""
    other = Device(made[1].path)
    state = device.state
    with pytest.raises((RuntimeError, ValueError)):
        device.train(*examples(0, 7))
    assert device("restore", state=state)["ok"] == 1
    np.testing.assert_array_equal(device.state, state)
    for each in (device, other):
        assert each.train(*examples(0))["learned"] == 1
    np.testing.assert_array_equal(device.state, other.state)


def test_the_newer_interface_learns_the_same_bytes(made, device):
    from ai_edge_litert.compiled_model import CompiledModel

    model = CompiledModel.from_file(str(made[1].path))
    signatures = model.get_signature_list()

    def run(name, **columns):
        number = model.get_signature_index(name)
        inputs, outputs = model.create_input_buffers(number), model.create_output_buffers(number)
        for column, buffer in zip(signatures[name]["inputs"], inputs, strict=True):
            buffer.write(columns[column])
        model.run_by_index(number, inputs, outputs)
        return dict(zip(signatures[name]["outputs"], outputs, strict=True))

    def state():
        return np.asarray(run("save")["state"].read(device.state.size, np.uint8))

    before = state()
    for number in range(2):
        images, labels = examples(0, seed=number)
        run("train", x=images, y=labels, weights=np.ones(BATCH, np.float32))
        device.train(images, labels)
    np.testing.assert_array_equal(state(), device.state)
    assert run("restore", state=before)["ok"].read(1, np.int32)[0] == 1
    np.testing.assert_array_equal(state(), before)


def test_a_task_begins_with_the_first_step_and_ends_once(made):
    device = Device(made[1].path)
    assert device("begin_task")["task"] == 0  # it is open
    assert device("end_task")["tasks_ended"] == 1
    assert device("end_task")["tasks_ended"] == 1
    device.train(*examples(1))
    assert device("begin_task")["task"] == 1


@pytest.mark.parametrize("change", ["short", "long", "edited", "head", "empty"])
def test_a_hostile_state_changes_nothing(change, learner, device, tmp_path):
    device.train(*examples(0))
    state = device.state
    hostile = {
        "short": state[:-4], "long": np.concatenate([state, state[:4]]), "empty": state[:0],
        "edited": np.concatenate([state[:100], state[100:101] + 1, state[101:]]),
        "head": np.concatenate([state[:3], state[3:4] + 1, state[4:]]),
    }[change]  # fmt: skip
    if len(hostile) == len(state):
        assert device("restore", state=hostile)["ok"] == 0
    else:
        with pytest.raises((RuntimeError, ValueError)):
            device("restore", state=hostile)
    np.testing.assert_array_equal(device.state, state)
    assert device("restore", state=state)["ok"] == 1
    before = state_of(learner)
    hostile.tofile(tmp_path / "state")
    with pytest.raises(UserError, match="received"):
        nccl_tf.load_device_state(learner, tmp_path / "state")
    after = state_of(learner)
    assert all(np.array_equal(before[name], after[name], equal_nan=True) for name in before)


def test_a_state_of_another_model_is_refused_with_both_fingerprints(made, device, tmp_path):
    device.state.tofile(tmp_path / "state")
    others = (
        er("mlp", optimizer=keras.optimizers.Adam()),
        compiled(nccl_tf.NCCL(network(), memory("reservoir"))),
        compiled(nccl_tf.ExperienceReplay(network(), nccl_tf.ReservoirMemory(21, (8, 8, 1)))),
    )
    for other in others:
        with pytest.raises(UserError, match=made[1].layout["fingerprint"]) as error:
            nccl_tf.load_device_state(other, tmp_path / "state")
        assert layout_of(Program(other, 2, 1)).fingerprint in str(error.value)


def test_a_state_with_a_weight_that_is_not_finite_is_refused(learner, layout, tmp_path):
    kernel = learner.network.layers[-1].kernel
    kept = kernel.numpy()
    kernel.assign(kept * np.inf)
    layout.pack().tofile(tmp_path / "state")
    kernel.assign(kept)
    with pytest.raises(UserError, match="infinite"):
        nccl_tf.load_device_state(learner, tmp_path / "state")
    np.testing.assert_array_equal(kernel.numpy(), kept)


def test_a_momentum_that_is_not_finite_is_refused(tmp_path):
    """The first step would spoil every weight."""
    learner = er("mlp", optimizer=keras.optimizers.SGD(0.1, momentum=0.9))
    layout = layout_of(Program(learner, BATCH, 1))
    momentum = learner.optimizer.variables[-1]
    momentum.assign(momentum * np.nan)
    layout.pack().tofile(tmp_path / "state")
    momentum.assign(np.zeros(momentum.shape))
    with pytest.raises(UserError, match=f"{momentum.path} is infinite or NaN"):
        nccl_tf.load_device_state(learner, tmp_path / "state")
    assert not momentum.numpy().any()
    nccl_tf.load_device_state(learner, tmp_path / "state", weights_only=True)


LOWEST = {"seen": 0, "skipped": 0, "task": -1, "iteration": 0}
"""Counts of the memory, of what was learned, and of the optimizer; no task yet is -1."""


def counts_in(layout):
    return {v.name: v for v in layout.variables if v.name in LOWEST}


@pytest.mark.parametrize("name", LOWEST)
def test_a_count_below_0_is_refused(name, learner, layout, tmp_path):
    count, below = counts_in(layout)[name], LOWEST[name] - 1
    kept = int(count.numpy())
    count.assign(below)
    layout.pack().tofile(tmp_path / "state")
    count.assign(kept)
    with pytest.raises(UserError, match=f"{count.path} is {below}"):
        nccl_tf.load_device_state(learner, tmp_path / "state")
    assert int(count.numpy()) == kept


def test_the_lowest_counts_are_taken(learner, layout, tmp_path):
    counts = counts_in(layout)
    kept = {name: int(count.numpy()) for name, count in counts.items()}
    for name, count in counts.items():
        count.assign(LOWEST[name])
    layout.pack().tofile(tmp_path / "state")
    for name, count in counts.items():
        count.assign(kept[name])
    assert kept != LOWEST
    nccl_tf.load_device_state(learner, tmp_path / "state")
    assert {name: int(count.numpy()) for name, count in counts.items()} == LOWEST


def test_the_file_says_what_is_in_it(made):
    learner, file, _ = made
    again = nccl_tf.DeviceFile.read(file.path)
    assert again.layout == json.loads(json.dumps(file.layout))
    assert again.layout["classes"] == [str(number) for number in range(6)]
    assert again.layout["input_range"] == [0, 255]
    assert again.layout["inputs"] == [{"name": "x", "dtype": "uint8", "shape": [BATCH, 8, 8, 1]}]
    device = Device(file.path)
    assert again.layout["state_bytes"] == device.state.size
    stored = in_state(device, again, learner.memory.labels)
    np.testing.assert_array_equal(stored, learner.memory.labels.numpy())
    assert not [name for name in again.operations if name.startswith("Flex")]


def test_a_file_of_another_format_or_none_is_refused(made, tmp_path):
    path = tmp_path / "other.tflite"
    flat = FlatFile(made[1].path.read_bytes())
    flat.model.metadata = []
    path.write_bytes(flat.with_metadata({"format": 99}))
    with pytest.raises(UserError, match="format 99"):
        nccl_tf.DeviceFile.read(path)
    for content in (b"", b"nothing at all", made[1].path.read_bytes()[:5000]):
        path.write_bytes(content)
        with pytest.raises(UserError, match="no file"):
            nccl_tf.DeviceFile.read(path)
    with pytest.raises(UserError, match="cannot read"):
        nccl_tf.DeviceFile.read(tmp_path)


def test_several_inputs_without_names_have_numbers():
    sides = [keras.Input((3,)), keras.Input((2,))]
    net = keras.Model(sides, keras.layers.Dense(6)(keras.layers.Concatenate()(sides)))
    program = Program(compiled(nccl_tf.Finetune(net)), 4, 1)
    found = [(spec.name, spec.shape.as_list()) for spec in program.inputs]
    assert found == [("x_0", [4, 3]), ("x_1", [4, 2])]


@pytest.mark.processes
def test_a_process_without_tensorflow_learns_remembers_and_resumes(made, tmp_path):
    np.savez(tmp_path / "task.npz", *examples(1, 40))
    code = """
import sys
sys.modules |= {"tensorflow": None, "keras": None, "nccl_tf": None}
import numpy as np
from ai_edge_litert.interpreter import Interpreter

path, data, out = sys.argv[1:]
with np.load(data) as columns:
    x, y = columns["arr_0"], columns["arr_1"]

def run(name, **columns):
    return device.get_signature_runner(name)(**columns)

device = Interpreter(path)
run("end_task")
for i in range(0, 20, 10):
    found = run("train", x=x[i:i + 10], y=y[i:i + 10], weights=np.ones(10, np.float32))
    assert found["learned"] == 1
state = run("save")["state"]
device = Interpreter(path)
assert run("restore", state=state)["ok"] == 1
for i in range(20, 40, 10):
    run("train", x=x[i:i + 10], y=y[i:i + 10], weights=np.ones(10, np.float32))
run("save")["state"].tofile(out)
"""
    words = [sys.executable, "-c", code, made[1].path, tmp_path / "task.npz", tmp_path / "state"]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    device = Device(made[1].path)
    device("end_task")
    images, labels = examples(1, 40)
    for first in range(0, 40, BATCH):
        device.train(images[first : first + BATCH], labels[first : first + BATCH])
    np.testing.assert_array_equal(np.fromfile(tmp_path / "state", np.uint8), device.state)


@pytest.mark.seconds(60)  # an export
def test_a_file_that_learns_something_else_is_not_written(monkeypatch, tmp_path):
    def wrong(op, ins):
        return [tf.where(ins[1] > 0, ins[0] * 1.001, tf.zeros_like(ins[0]))]

    monkeypatch.setitem(replacements.REPLACEMENTS, "ReluGrad", wrong)
    learner = compiled(nccl_tf.Finetune(network()))
    before = [v.numpy() for v in learner.variables]
    with pytest.raises(UserError, match="does not learn what Keras does"):
        nccl_tf.export_learner(learner, tmp_path / "wrong.tflite")
    assert list(tmp_path.iterdir()) == []
    assert all(map(np.array_equal, before, [v.numpy() for v in learner.variables]))


@pytest.mark.seconds(60)  # an export
def test_nccl_with_a_ring_and_convolutions_through_three_tasks(tmp_path):
    """Single steps from equal states: its rule jumps where the gradients are orthogonal."""
    learner = compiled(nccl_tf.NCCL(network("conv"), memory("ring"), beta_max=0.1))
    learner.fit(*examples(0, 40), batch_size=BATCH, shuffle=False, verbose=0)
    file = nccl_tf.export_learner(learner, tmp_path / "nccl.tflite")
    device, layout = Device(file.path), layout_of(Program(learner, BATCH, 1))
    for task in (1, 2):
        for number in range(3):
            assert device("restore", state=layout.pack())["ok"] == 1
            images, labels = examples(task, seed=number)
            found = device.train(images, labels)
            learner.train_on_batch(images, labels, task_id=task)
            agrees(learner, layout, device.state)
            assert set(found) == {"learned", *learner.log_names}
        learner.end_task()
        device("end_task")
        agrees(learner, layout, device.state)
    assert device.train(*examples(2))["learned"] == 0  # the ring has no fourth task
