"""What the host has checked is not checked again in the graph, and what it has not is."""

import functools

import keras
import numpy as np
import pytest
import tensorflow as tf

import nccl_tf
from nccl_tf.learner.data import HostFacts
from nccl_tf.records.checkpoints import variables_to_arrays
from nccl_tf.streams.arrays import Examples
from tests.tiny import IMAGE_SHAPE, TASK_CLASSES, renewed, tiny_network

COUNT, BATCH = 24, 4
RANDOM = np.random.default_rng(0)
X = RANDOM.integers(0, 256, (COUNT, *IMAGE_SHAPE), np.uint8)
Y = RANDOM.integers(0, 2, COUNT)
WEIGHTS = RANDOM.uniform(0.5, 2, COUNT).astype(np.float32)
ONE_WRONG = np.where(np.arange(COUNT) == 5, 3, Y)  # of task 1, in the second batch


def learner(heads=TASK_CLASSES, loss=None, shape=None, **compiled):
    memory = nccl_tf.RingMemory(2, TASK_CLASSES, shape)
    model = nccl_tf.ExperienceReplay(tiny_network(), memory, heads=heads, memory_batch_size=4)
    model.compile(keras.optimizers.SGD(0.1), loss=loss, **compiled)
    return model


class Sequence(keras.utils.PyDataset):
    def __init__(self, *columns):
        super().__init__()
        self.columns = columns

    def __len__(self):
        return COUNT // BATCH

    def __getitem__(self, index):
        return tuple(c[index * BATCH : (index + 1) * BATCH] for c in self.columns)


def dataset(*columns):
    return tf.data.Dataset.from_tensor_slices(columns).batch(BATCH)


def generator(*columns):
    sequence = Sequence(*columns)
    return (sequence[number] for number in range(len(sequence)))


def arrays(x, y, *weights):
    weighed = {"sample_weight": weights[0]} if weights else {}
    return {"x": x, "y": y, "batch_size": BATCH, "shuffle": False, **weighed}


def task(x, y):
    data = Examples(x, y.astype(np.int32))
    return nccl_tf.Task(0, (0, 1), len(y), lambda: data, lambda: data)


FORMS = {
    "arrays": arrays,
    "dataset": lambda *columns: {"x": dataset(*columns)},
    "generator": lambda *columns: {"x": generator(*columns)},
    "sequence": lambda *columns: {"x": Sequence(*columns), "shuffle": False},
}


def learned(model, form, columns, class_weight=None):
    """All that a learner holds after two tasks."""
    for number in range(2):
        # To a loss that takes rows a column of them is a label.
        x, y, *weights = columns
        y = y + 2 * number if y.ndim == 1 else np.roll(y, 2 * number, axis=1)
        given = FORMS[form](x, y, *weights)
        weighed = class_weight and {key + 2 * number: f for key, f in class_weight.items()}
        model.fit(**given, task_id=number, class_weight=weighed, verbose=0)
    assert int(model.optimizer.iterations) == 2 * COUNT // BATCH
    return variables_to_arrays(model.state_variables)


ROWS = np.eye(4, dtype=np.float32)[Y]
CASES = {
    "labels": ((X, Y), ({}, {})),
    "int32": ((X, Y.astype(np.int32)), ({}, {})),
    "weights": ((X, Y, WEIGHTS), ({}, {})),
    "class weights": ((X, Y), ({}, {"class_weight": {0: 2.0, 1: 0.5}})),
    "rows": ((X, ROWS), ({"loss": keras.losses.CategoricalCrossentropy(from_logits=True)}, {})),
    "one program": ((X, Y), ({"jit_compile": True, "steps_per_execution": 3}, {})),
}
# With and without a column of weights, which generators and sequences bring as a data set does;
# those of classes are held for all of them by test_class_weights.
BY_ALL_FORMS = "labels", "weights"


@functools.cache
def of_all_forms(**compiled):
    """A learner whose graphs serve all forms of examples, and its first state."""
    model = learner(shape=IMAGE_SHAPE, **compiled)
    return model, variables_to_arrays(model.state_variables)


@pytest.mark.seconds(30)
@pytest.mark.parametrize("case", CASES)
def test_all_forms_of_the_same_examples_give_the_same_bits(case):
    columns, (compiled, given) = CASES[case]
    if case == "rows":  # which are class numbers to a memory of a shape, and here have theirs
        model = learner(**compiled)
        model.fit(**arrays(*columns), epochs=0, end_task=False, verbose=0)
        before = variables_to_arrays(model.state_variables)
    else:
        model, before = of_all_forms(**compiled)
    forms = FORMS if case in BY_ALL_FORMS else ("arrays", "dataset")
    found = {form: learned(renewed(model, before), form, columns, **given) for form in forms}
    for form, values in found.items():
        assert values.keys() == found["arrays"].keys()
        for name, value in found["arrays"].items():
            np.testing.assert_array_equal(value, values[name], err_msg=f"{form}: {name}")


@pytest.mark.parametrize("form", ["arrays", "task", "batches of a task"])
def test_a_wrong_label_of_arrays_is_refused_before_a_step(form):
    model = learner()
    given = {
        "arrays": arrays(X, ONE_WRONG),
        "task": {"x": task(X, ONE_WRONG)},
        "batches of a task": {"x": task(X, ONE_WRONG).train_batches(BATCH)},
    }[form]
    with pytest.raises(nccl_tf.UserError, match="label 3 in task 0"):
        model.fit(**given, verbose=0)
    assert not model.execution.traces and not model.progress.task_is_open.numpy()


@pytest.mark.parametrize("form", ["dataset", "generator", "sequence"])
@pytest.mark.parametrize("after_arrays", [False, True])
def test_a_wrong_label_of_batches_skips_its_batch(form, after_arrays):
    model, steps = renewed(*of_all_forms()), 0
    if after_arrays:
        model.fit(**arrays(X, Y), end_task=False, verbose=0)
        steps = COUNT // BATCH
    with pytest.raises(nccl_tf.UserError, match="label 3 in task 0"):
        model.fit(**FORMS[form](X, ONE_WRONG), task_id=0, verbose=0)
    assert int(model.optimizer.iterations) == steps + COUNT // BATCH - 1
    assert int(model.progress.skipped) == 1


def test_batches_in_the_form_of_checked_ones_are_checked():
    model = renewed(*of_all_forms())
    model.fit(task(X, Y).train_batches(BATCH), end_task=False, verbose=0)
    batches = task(X, ONE_WRONG).train_batches(BATCH).take(-1)  # what they are made of is lost
    with pytest.raises(nccl_tf.UserError, match="label 3 in task 0"):
        model.fit(batches, verbose=0)
    assert int(model.progress.skipped) == 1


def test_steps_are_traced_once_for_examples_that_are_known_and_once_for_others():
    model = learner(heads=None)
    counts = []
    for _ in range(2):
        for given in (arrays(X, Y), FORMS["dataset"](X, Y), arrays(X, Y)):
            model.fit(**given, task_id=0, verbose=0)
        counts.append(model.execution.traces)
    assert counts[0] == counts[1]


def test_padding_with_any_label_is_checked_in_the_graph():
    weights = np.where(ONE_WRONG == 3, 0.0, WEIGHTS).astype(np.float32)
    left = []
    for form in ("arrays", "dataset"):
        model = renewed(*of_all_forms())
        model.fit(**FORMS[form](X, ONE_WRONG, weights), verbose=0)
        left.append([variable.numpy() for variable in model.variables])
        assert model.progress.seen_classes.numpy().tolist() == [True, True, False, False]
    for one, other in zip(*left, strict=True):
        np.testing.assert_array_equal(one, other)


class After(keras.callbacks.Callback):
    """Does something after the first batch."""

    def __init__(self, change):
        super().__init__()
        self.change = change

    def on_train_batch_end(self, batch, logs=None):
        if batch == 0:
            self.change(self.model)


def begin_the_next_task(model):
    model.end_task()
    model.begin_task(1)


def test_labels_are_those_of_no_task_that_a_callback_begins():
    model = renewed(*of_all_forms())
    with pytest.raises(nccl_tf.UserError, match=r"label [01] in task 1"):
        model.fit(**arrays(X, Y), callbacks=[After(begin_the_next_task)], verbose=0)
    assert int(model.optimizer.iterations) == 1


@pytest.mark.parametrize(
    "change", [lambda model: model.add_classes(2), lambda model: model.train_on_batch(X, Y)]
)
def test_a_fit_goes_on_after_what_a_callback_does_to_its_learner(change):
    model = nccl_tf.Finetune(tiny_network())
    model.compile(keras.optimizers.SGD(0.1))
    before = []
    note = After(lambda model: before.append(int(model.optimizer.iterations)))
    model.fit(**arrays(X, Y), callbacks=[After(change), note], verbose=0)
    assert int(model.optimizer.iterations) == before[0] + COUNT // BATCH - 1
    assert model.execution.known == HostFacts()


@pytest.mark.seconds(16)  # XLA compiles the step twice
def test_a_task_goes_on_in_whole_programs_after_its_learner_has_grown():
    model = nccl_tf.Finetune(tiny_network())
    model.compile(keras.optimizers.SGD(0.1), jit_compile=True, steps_per_execution=2)
    grow = After(lambda model: model.add_classes(2))
    grow.on_train_batch_end = lambda batch, logs=None: batch == 1 and grow.change(model)
    model.fit(task(X, Y), batch_size=BATCH, callbacks=[grow], verbose=0)
    assert int(model.optimizer.iterations) == COUNT // BATCH


def test_nothing_is_known_of_the_state_that_a_callback_loads(tmp_path):
    path, seen = tmp_path / "state.weights.h5", []
    model = learner()
    model.fit(**arrays(X, Y), end_task=False, verbose=0)
    model.save_weights(path)

    def load(model):
        seen.append(model.execution.known)
        model.load_weights(path)
        seen.append(model.execution.known)

    model.fit(**arrays(X, Y), callbacks=[After(load)], verbose=0)
    assert seen == [HostFacts(labels_checked=True, has_weights=False), HostFacts()]
