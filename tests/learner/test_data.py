"""What a learner knows of the data that a verb received, whatever their form."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import nccl_tf
from nccl_tf.errors import UserError
from nccl_tf.learner.data import FitData, HostFacts, agreed_names

COUNT, BATCH = 10, 4
X = np.arange(COUNT * 3, dtype=np.float32).reshape(COUNT, 3)
Y = np.arange(COUNT) % 2
NAMED = {"inputs": X, "task": np.ones(COUNT, np.int32)}
STREAM = nccl_tf.stream_from_arrays((X, Y), (X, Y), num_tasks=1)


class Sequence(keras.utils.PyDataset):
    def __init__(self, *columns):
        super().__init__()
        self.columns = columns

    def __len__(self):
        return -(-COUNT // BATCH)

    def __getitem__(self, index):
        rows = slice(index * BATCH, (index + 1) * BATCH)
        return tuple(column[rows] for column in self.columns)


def dataset(*columns):
    return tf.data.Dataset.from_tensor_slices(columns).batch(BATCH)


def generator(*columns):
    sequence = Sequence(*columns)
    return (sequence[number] for number in range(len(sequence)))


FORMS = {
    "arrays": lambda *columns: FitData(*columns, batch_size=BATCH),
    "dataset": lambda *columns: FitData(dataset(*columns)),
    "sequence": lambda *columns: FitData(Sequence(*columns)),
    "generator": lambda *columns: FitData(generator(*columns)),
}


def batches(data):
    """The inputs of all batches of named data, each with its tasks."""
    if data.form == "arrays":
        return [data.x]
    count = data.count() or 0
    given = (data.x[i] for i in range(count)) if data.form == "sequence" else data.x
    return [batch[0] for batch in given]


@pytest.mark.parametrize("form", FORMS)
def test_every_form_tells_what_it_can(form):
    data = FORMS[form](X, Y)
    assert data.count() == (None if form == "generator" else 3)
    assert (data.label_spec is None) == (form in ("sequence", "generator"))
    assert data.known() == (HostFacts(True, False) if form == "arrays" else HostFacts())
    assert not data.names_tasks and data.tasks(7) == 7
    assert form not in ("dataset", "generator") or data.first(needed=False) is None
    np.testing.assert_array_equal(data.first(needed=True)[0][:BATCH], X[:BATCH])
    np.testing.assert_array_equal(np.concatenate(batches(data)), X)  # nothing is lost
    assert data.shuffles == (form in ("arrays", "sequence"))


@pytest.mark.parametrize("form", FORMS)
def test_every_form_can_name_the_task_of_its_examples(form):
    found = batches(FORMS[form](X, Y).with_task(5))
    np.testing.assert_array_equal(np.concatenate([part["inputs"] for part in found]), X)
    assert np.concatenate([part["task"] for part in found]).tolist() == [5] * COUNT


def test_a_dataset_of_inputs_alone_can_name_a_task():
    data = FitData(tf.data.Dataset.from_tensor_slices(X).batch(BATCH)).with_task(2)
    assert next(iter(data.x))["task"].numpy().tolist() == [2] * BATCH


def test_tasks_that_the_data_name_are_known():
    assert FitData(NAMED, Y).tasks(7) is NAMED["task"]
    data = FitData(tf.data.Dataset.from_tensor_slices((NAMED, Y)).batch(BATCH))
    assert data.names_tasks and data.tasks(7) == 7
    with pytest.raises(UserError, match="integers from 0"):
        FitData({"inputs": X, "task": X[:, 0]}, Y).tasks(0)


def test_weights_say_what_a_step_need_not_find_out():
    assert FitData(X, Y, np.full(COUNT, 2.0)).known() == HostFacts(
        labels_checked=True, has_weights=True
    )
    assert FitData(X, Y, (Y > 0).astype(float)).known() == HostFacts()
    assert FitData(X, Y.tolist()).known() == HostFacts()


def test_arrays_are_held_out_as_keras_does():
    """Of ten examples the last four, by a share of 0.4."""
    train, held_out = FitData(X, Y, Y + 1.0, batch_size=2).split(0.4)
    assert train.count() == 3 and held_out.count() == 2
    np.testing.assert_array_equal(train.x, X[:6])
    for column, whole in zip(held_out.columns, (X, Y, Y + 1.0), strict=True):
        np.testing.assert_array_equal(column, whole[6:])
    for share in (0.99, 1.0):
        with pytest.raises(UserError, match="leaves a part empty"):
            FitData(X, Y).split(share)
    with pytest.raises(UserError, match="give validation_data"):
        FitData(dataset(X, Y)).split(0.5)


def test_arrays_have_batches_of_32_or_of_the_size_that_a_number_of_steps_asks_for():
    assert FitData(X, Y).count() == 1 and FitData(X, Y).batches().size == 32
    assert FitData(X, Y).count(steps=2) == 2 and FitData(X, Y).batches(steps=2).size == 5


def test_arrays_are_shuffled_anew_in_each_reading_by_the_seed_of_keras():
    x, orders = np.arange(50), []
    for _ in range(2):
        keras.utils.set_random_seed(3)
        batches = FitData(x, x, batch_size=50).batches(shuffle=True)
        orders.append([next(iter(batches))[0].numpy().tolist() for _ in range(2)])
    assert orders[0] == orders[1] and orders[0][0] != orders[0][1]
    assert sorted(orders[0][0]) == x.tolist()
    (labels,) = [labels for _, labels in FitData(x, x, batch_size=50).batches()]
    assert labels.numpy().tolist() == x.tolist()


def test_floats_come_in_the_dtype_of_keras():
    data = FitData({"a": X.astype(np.float16), "b": Y}, tf.cast(Y, tf.float64))
    inputs, labels = next(iter(data.batches()))
    assert inputs["a"].dtype == labels.dtype == tf.float32 and inputs["b"].dtype == Y.dtype


def test_a_first_batch_has_the_weights_of_arrays_and_a_dataset_is_read_where_needed():
    first = FitData(X, Y, np.full(COUNT, 2.0)).first(needed=False)
    assert first[2].numpy().tolist() == [2.0] * COUNT
    assert FitData(dataset(X, Y)).first(needed=False) is None


def test_a_task_is_its_batches_or_its_examples():
    task = STREAM[0]
    data = FitData.of_fit(task, None, None, batch_size=None, epochs=2, seed=0)
    assert data.task_id == 0 and data.count() == 1 and data.known() == HostFacts(True, False)
    np.testing.assert_array_equal(data.y, task.train.labels)
    orders = []
    for epoch in range(2):
        data.begin_epoch(epoch)
        orders.append(next(iter(data.batches()))[0]["inputs"].numpy())
    assert not np.array_equal(*orders)
    np.testing.assert_array_equal(np.sort(orders[0], axis=0), np.sort(orders[1], axis=0))
    assert FitData.of_test(task).count() == 1
    for part in ("test", "train"):
        np.testing.assert_array_equal(FitData.of_arrays(task, part=part).y, Y)


def test_what_a_task_leaves_no_room_for_is_refused():
    task, joint = STREAM[0], nccl_tf.JointTask(STREAM.tasks)
    with pytest.raises(UserError, match="and steps_per_epoch"):
        FitData.of_fit(task, None, None, batch_size=5, epochs=1, seed=0, steps_per_epoch=3)
    for of in (FitData.of_test, FitData.of_arrays):
        with pytest.raises(UserError, match="and y="):
            of(task, Y)
        with pytest.raises(UserError, match="JointTask"):
            of(joint)
    with pytest.raises(UserError, match="the stream 'own'"):
        FitData(STREAM)


def test_validation_comes_in_every_form():
    assert len(FitData.of_validation((X, Y), None).columns) == 2
    assert len(FitData.of_validation([X, Y, np.ones(COUNT)], None).columns) == 3
    data = dataset(X, Y)
    assert FitData.of_validation(data, None).for_keras(alone=True)["x"] is data
    assert FitData.of_validation(STREAM[0], 5).count() == 2
    with pytest.raises(UserError, match="4 parts"):
        FitData.of_validation((X, Y, Y, Y), None)


def test_one_number_is_one_class():
    def named(*names):
        data = dataset(X, Y)
        data.class_names = list(names)
        return FitData(data)

    assert agreed_names(("cat",), named("cat", "dog"), FitData(X)) == ("cat", "dog")
    with pytest.raises(UserError, match="class 1 is 'bird', and that of earlier data is 'dog'"):
        agreed_names((), named("cat", "dog"), named("cat", "bird"))


class Endless(Sequence):
    num_batches = None

    def __getitem__(self, index):
        if index > 20:
            pytest.fail("read on and on")
        return X[:BATCH], Y[:BATCH]


WHOLE = {
    "evaluate": lambda model, data: model.evaluate(data, verbose=0),
    "predict": lambda model, data: model.predict(data, verbose=0),
    "validation": lambda model, data: model.fit(X, Y, validation_data=data, verbose=0),
}
PARTS = {
    "evaluate": lambda model, data: model.evaluate(data, steps=2, verbose=0),
    "predict": lambda model, data: model.predict(data, steps=2, verbose=0),
    "validation": lambda model, data: model.fit(
        X, Y, validation_data=data, validation_steps=2, verbose=0
    ),
}


@pytest.mark.parametrize("verb", WHOLE)
def test_data_without_an_end_are_read_by_a_number_of_steps_alone(verb):
    network = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    model = nccl_tf.Finetune(network)
    model.compile(keras.optimizers.SGD(1e-3))
    says_so = tf.data.experimental.assert_cardinality(tf.data.INFINITE_CARDINALITY)
    for data in (dataset(X, Y).apply(says_so), Endless(X, Y)):
        with pytest.raises(UserError, match="without an end"):
            WHOLE[verb](model, data)
    assert int(model.optimizer.iterations.numpy()) == 0
    PARTS[verb](model, dataset(X, Y).repeat())
