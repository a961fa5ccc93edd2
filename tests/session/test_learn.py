"""A whole stream in one call: the same as a loop, with any metric, and its errors."""

import functools

import keras
import numpy as np
import pytest

import nccl_tf
from nccl_tf.errors import UserError
from nccl_tf.records.checkpoints import variables_to_arrays
from tests.tiny import IMAGE_SHAPE, renewed, tiny_network

CLASSES = 4


def arrays(count, seed):
    """4x4 images whose pixel of the class's number is bright."""
    random = np.random.default_rng(seed)
    labels = np.arange(count) % CLASSES
    images = random.integers(0, 60, (count, *IMAGE_SHAPE), dtype=np.uint8)
    images.reshape(count, -1)[np.arange(count), labels] = 255
    return images, labels


def tiny_stream(num_tasks=2, count=44):
    return nccl_tf.stream_from_arrays(arrays(count, 0), arrays(12, 1), num_tasks=num_tasks)


def tiny_model(seed=0, **compile_arguments):
    memory = nccl_tf.ReservoirMemory(6, IMAGE_SHAPE)
    model = nccl_tf.ExperienceReplay(tiny_network(CLASSES, seed=seed), memory, memory_batch_size=3)
    model.compile(keras.optimizers.SGD(0.2, momentum=0.5), **compile_arguments)
    return model


@functools.cache
def _built():
    model = tiny_model(steps_per_execution=2)
    model.record_steps(2)
    return model, variables_to_arrays(model.state_variables)


def again():
    """A model in its first state, whose graphs are built: cheaper than a new one."""
    return renewed(*_built())


def weights(model):
    return [np.copy(variable.numpy()) for variable in model.variables]


def assert_equal(first, second):
    for one, other in zip(first, second, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.eager
def test_with_one_output_the_matrix_is_binary_accuracy():
    random = np.random.default_rng(0)
    x = random.normal(size=(80, 3)).astype("float32")
    y = (x[:, 0] > 0.3).astype("int32")
    halves = np.arange(80) // 40
    stream = nccl_tf.stream_from_arrays((x, y), (x, y), domains=(halves, halves))
    loss = keras.losses.BinaryCrossentropy(from_logits=True)
    for metric in (None, "accuracy"):
        model = nccl_tf.Finetune(keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)]))
        model.compile(keras.optimizers.SGD(0.3), loss)
        result = nccl_tf.learn(model, stream, metric=metric, verbose=0)
        inputs, labels = stream[1].test
        right = np.mean((model.predict(inputs, verbose=0)[:, 0] > 0) == labels)
        assert result.matrix[1, 1] == pytest.approx(right)
        assert (result.metric, result.higher_is_better) == ("accuracy", True)


def test_it_is_what_a_loop_over_the_tasks_does():
    stream = tiny_stream()
    model = again()
    result = nccl_tf.learn(model, stream, batch_size=5, epochs=2, seed=0, verbose=0)
    learned, looped = weights(model), again()
    initial = [looped.accuracy(*task.test, task.task_id) for task in stream]
    expected = np.full((2, 2), np.nan)
    for task in stream:
        looped.fit(task, batch_size=5, epochs=2, verbose=0)
        expected[task.task_id] = [looped.accuracy(*other.test, 0) for other in stream]
    assert_equal(weights(looped), learned)
    np.testing.assert_array_equal(result.matrix, expected)
    np.testing.assert_array_equal(result.initial, initial)
    assert result.average_accuracy == expected[-1].mean()
    assert result.learning_accuracy == np.diag(expected).mean()
    assert result.forgetting == -result.backward_transfer == expected[0, 0] - expected[1, 0]
    assert result.forward_transfer == expected[0, 1] - initial[1]


def test_each_task_may_have_passes_of_its_own():
    stream, model = tiny_stream(), again()
    result = nccl_tf.learn(model, stream, batch_size=5, epochs=[3, 1], verbose=0)
    learned, looped = weights(model), again()
    for task, epochs in zip(stream, (3, 1), strict=True):
        looped.fit(task, batch_size=5, epochs=epochs, verbose=0)
    assert_equal(weights(looped), learned)
    settings = result.run.settings
    assert (settings.epochs, settings.hyperparameters["epochs_of_tasks"]) == (3, "3_1")
    assert sum(task.steps(5) for task in stream) < result.run.measured["steps"]
    equal = nccl_tf.learn(again(), stream, batch_size=5, epochs=[2, 2], verbose=0).run.settings
    assert equal == nccl_tf.learn(again(), stream, batch_size=5, epochs=2, verbose=0).run.settings


class Stops(keras.callbacks.Callback):
    """Ends the training of each task after its first pass."""

    def on_epoch_end(self, epoch, logs=None):
        self.model.stop_training = True


def test_steps_are_those_that_were_taken():
    model, settings = again(), {"batch_size": 5, "verbose": 0}
    found = nccl_tf.learn(model, tiny_stream(), epochs=3, callbacks=[Stops()], **settings).run
    assert found.settings.epochs == 3
    assert found.measured["steps"] == int(model.optimizer.iterations.numpy())
    once = nccl_tf.learn(again(), tiny_stream(), **settings).run.measured
    for name in ("steps", "task_steps", "examples_passed"):
        assert found.measured[name] == once[name]


def test_examples_of_tasks_of_unequal_size_are_counted_each():
    """60 and 20, each of them once in steps and once in the alignment."""
    random, labels = np.random.default_rng(0), np.arange(80) % 4
    data = random.normal(size=(80, 6)).astype("float32"), labels
    stream = nccl_tf.stream_from_arrays(data, data, classes=[[0, 1, 2], [3]])
    layers = [keras.Input((6,)), keras.layers.Dense(8, "relu"), keras.layers.Dense(4)]
    alignment = nccl_tf.Alignment(epochs=1, drawn=4)
    model = nccl_tf.Finetune(keras.Sequential(layers), alignment=alignment)
    model.compile(keras.optimizers.SGD(0.1))
    result = nccl_tf.learn(model, stream, batch_size=10, verbose=0)
    assert result.examples_passed == 2 * 80


@pytest.mark.parametrize("epochs", [0, 1.5, None, [1, 0], [2, 1.5]])
def test_passes_that_are_none_are_refused_before_the_first_task(epochs):
    model = tiny_model()
    with pytest.raises(UserError, match=r"epochs=.* is out of range"):
        nccl_tf.learn(model, tiny_stream(), epochs=epochs, verbose=0)
    assert int(model.optimizer.iterations.numpy()) == 0


def test_with_an_average_there_is_a_result_of_it_beside_that_of_the_weights():
    metric = "sparse_categorical_accuracy"
    stream, expected = tiny_stream(), []
    memory = nccl_tf.ReservoirMemory(6, IMAGE_SHAPE)
    model = nccl_tf.ExperienceReplay(
        tiny_network(CLASSES), memory, memory_batch_size=3, average_weights=0.9
    )
    model.compile(keras.optimizers.SGD(0.2, momentum=0.5), run_eagerly=True)

    class Row(keras.callbacks.Callback):
        def on_train_end(self, logs=None):
            expected.append([model.accuracy(*task.test, 0) for task in stream])

    result = nccl_tf.learn(
        model, stream, batch_size=5, seed=3, metric=metric, verbose=0, callbacks=[Row()]
    )
    plain = nccl_tf.learn(again(), stream, batch_size=5, seed=3, verbose=0)
    np.testing.assert_allclose(result.matrix, plain.matrix)
    np.testing.assert_allclose(result.averaged.matrix, expected)
    assert (result.averaged.matrix != result.matrix).any() and plain.averaged is None
    np.testing.assert_array_equal(result.averaged.initial, result.initial)
    assert result.averaged.title == f"{result.title}, averaged weights"


def test_callbacks_see_the_epochs_of_each_task(capsys):
    seen = []

    class Epochs(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            seen.append((epoch, "loss" in logs))

    nccl_tf.learn(again(), tiny_stream(), epochs=2, callbacks=[Epochs()])
    assert seen == [(0, True), (1, True)] * 2
    assert "task 2/2: mean over tasks so far 0." in capsys.readouterr().out


def test_a_metric_of_which_less_is_better():
    model = again()
    loss = keras.metrics.SparseCategoricalCrossentropy(from_logits=True, name="loss")
    result = nccl_tf.learn(model, tiny_stream(), metric=loss, verbose=0)
    matrix = result.matrix
    by_hand = model.evaluate(tiny_stream()[0], verbose=0, return_dict=True)["loss"]
    np.testing.assert_allclose(matrix[1, 0], by_hand, rtol=1e-5)
    assert result.average_accuracy == matrix[-1].mean()
    assert result.forgetting == pytest.approx(matrix[1, 0] - matrix[0, 0])
    assert result.backward_transfer == pytest.approx(matrix[0, 0] - matrix[1, 0])
    assert result.forward_transfer == pytest.approx(result.initial[1] - matrix[0, 1])
    assert set(result.rows()[0]) == {"tasks_trained", "task", "loss"}
    assert "average loss" in str(result)


def test_a_function_needs_a_direction():
    def top(targets, outputs):
        return keras.ops.max(outputs, axis=-1)

    with pytest.raises(UserError, match='mode="max" or mode="min"'):
        nccl_tf.learn(again(), tiny_stream(), metric=top, verbose=0)
    result = nccl_tf.learn(again(), tiny_stream(), metric=top, mode="min", verbose=0)
    assert (result.metric, result.higher_is_better) == ("top", False)


def test_joint_training_fills_the_last_row():
    result = nccl_tf.learn(again(), tiny_stream(), joint=True, verbose=0)
    assert np.isnan(result.matrix[0]).all() and np.isfinite(result.matrix[1]).all()
    assert np.isnan(result.forgetting) and result.average_accuracy > 0


def test_fewer_evaluations_are_nan_in_the_matrix(capsys, tmp_path):
    model = again()
    result = nccl_tf.learn(model, tiny_stream(), evaluate="new", backup_dir=tmp_path)
    whole = nccl_tf.learn(other := again(), tiny_stream(), verbose=0)
    np.testing.assert_array_equal(np.isnan(result.matrix), [[False, True], [False, False]])
    kept = ~np.isnan(result.matrix)
    np.testing.assert_array_equal(result.matrix[kept], whole.matrix[kept])
    np.testing.assert_array_equal(result.initial, [whole.initial[0], np.nan])
    ended = nccl_tf.learn(model, tiny_stream(), evaluate="new", backup_dir=tmp_path, verbose=0)
    np.testing.assert_array_equal(ended.initial, result.initial)
    assert_equal(weights(model), weights(other))
    # Of two tasks the diagonal is all that forgetting needs.
    assert result.forgetting == whole.forgetting and np.isnan(result.forward_transfer)
    assert "task 1/2: mean over tasks so far" in capsys.readouterr().out
    assert len(result.plot()) == 2


@pytest.mark.parametrize(
    ("model", "stream", "settings", "said"),
    [
        (None, tiny_stream, {}, "received a NoneType as model"),
        (again, arrays, {}, "received a function as stream"),
        (again, list, {}, "received a type as stream"),
        (again, tiny_stream, {"epochs": 0}, "out of range"),
        (again, tiny_stream, {"epochs": [1]}, "1 numbers for 2 trainings"),
        (again, tiny_stream, {"epochs": [1, 0]}, "out of range"),
        (again, tiny_stream, {"batch_size": 0}, "batch_size=0"),
        (again, tiny_stream, {"metric": "acuracy"}, "the metric 'acuracy'"),
        (again, tiny_stream, {"evaluate": "every:0"}, "received evaluate=every:0"),
        (again, tiny_stream, {"evaluate": "new", "joint": True}, "evaluate=new with joint=True"),
    ],
)
def test_what_does_not_fit_is_refused(model, stream, settings, said):
    given = stream() if stream is tiny_stream else stream
    with pytest.raises(UserError, match=said):
        nccl_tf.learn(model and model(), given, verbose=0, **settings)


def test_numbers_to_predict_need_a_metric():
    numbers = np.linspace(0, 1, 8)[:, None]
    stream = nccl_tf.stream_from_arrays(
        (numbers, numbers), (numbers, numbers), domains=0, num_tasks=2
    )
    with pytest.raises(UserError, match='such as metric="mean_absolute_error"'):
        nccl_tf.learn(again(), stream)


@pytest.mark.parametrize(
    ("targets", "advice"),
    [([[1, 1, 0], [0, 0, 0]], "binary_accuracy"), ([[1, 0, 0], [0, 0, 1]], "argmax")],
)
def test_tags_and_one_hot_classes_are_told_apart_where_no_metric_is_given(targets, advice):
    data = np.zeros((8, 1)), np.array(targets * 4)
    stream = nccl_tf.stream_from_arrays(data, data, domains=0, num_tasks=1)
    with pytest.raises(UserError, match=advice):
        nccl_tf.learn(again(), stream)


def test_fit_and_evaluate_take_a_task():
    stream, model = tiny_stream(), again()
    for epoch in range(3):
        one = stream[1].train_batches(5, passes=epoch + 1, skip=epoch * stream[1].steps(5))
        model.fit(one, task_id=1, end_task=epoch == 2, resumes=epoch > 0, verbose=0)
    plain = weights(model)
    model = again()
    model.fit(stream[1], batch_size=5, epochs=3, verbose=0)
    assert_equal(weights(model), plain)
    assert int(model.progress.task.numpy()) == 1
    assert model.evaluate(stream[1], verbose=0) == model.evaluate(
        stream[1].test_batches(), verbose=0
    )
    with pytest.raises(UserError, match=r"nccl_tf.learn\(model, stream\)"):
        model.fit(stream)
    with pytest.raises(UserError, match="received a task of a stream and y="):
        model.fit(stream[0], stream[0].train.labels)
    with pytest.raises(UserError, match="has no test examples"):
        model.evaluate(nccl_tf.JointTask(stream.tasks))


@pytest.mark.parametrize(("numbers", "readable"), [((0, 1, 2, 3), 8), ((3, 0), 4)])
def test_a_ring_takes_tasks_in_any_order_or_some_of_them(numbers, readable):
    model = nccl_tf.ExperienceReplay(tiny_network(CLASSES), nccl_tf.RingMemory(2))
    model.compile(keras.optimizers.SGD(0.2), run_eagerly=True)
    stream = tiny_stream(num_tasks=4)
    result = nccl_tf.learn(model, [stream[number] for number in numbers], verbose=0)
    assert np.isfinite(result.average_accuracy)
    for number in numbers:
        assert tuple(model.memory.task_classes[number]) == stream[number].classes
    assert int(model.memory.readable_count()) == readable


def test_what_may_not_be_meant_is_said(caplog):
    """A model that is trained already, and one head for a stream that has several."""
    model = again()
    nccl_tf.learn(model, tiny_stream(), verbose=0)
    assert not caplog.messages
    heads = nccl_tf.stream_from_arrays(arrays(44, 0), arrays(12, 1), num_tasks=2, head="multi")
    result = nccl_tf.learn(model, heads, verbose=0)
    first, second = caplog.messages
    assert "which makes it class-incremental" in first
    assert "has learned 6 steps before" in second
    assert result.title.endswith("single head, continued")


def test_the_upper_bound_asks_for_all_tasks_at_once():
    model = nccl_tf.MultiTask(tiny_network(CLASSES))
    model.compile(keras.optimizers.SGD(0.2))
    with pytest.raises(UserError, match="add joint=True"):
        nccl_tf.learn(model, tiny_stream(), verbose=0)


def test_windows_of_a_stream_without_boundaries():
    """Times as domains: the matrix is over windows of time, each with examples held out."""
    time = np.arange(400)
    inputs = np.random.default_rng(0).normal(size=(400, 2)).astype(np.float32)
    turn = np.pi * time / 400
    labels = (inputs[:, 0] * np.cos(turn) + inputs[:, 1] * np.sin(turn) > 0).astype(np.int32)
    windows = nccl_tf.stream_from_arrays(
        (inputs, labels), test_fraction=0.25, domains=time, num_tasks=4
    )
    for place, task in enumerate(windows):
        seen = np.flatnonzero((inputs[:, None] == task.train.inputs).all(-1).any(1))
        assert 100 * place <= seen.min() and seen.max() < 100 * place + 100
        counts = np.bincount(labels[100 * place : 100 * place + 100])
        assert np.bincount(task.test.labels).tolist() == np.ceil(counts / 4).tolist()
    network = keras.Sequential([keras.Input((2,)), keras.layers.Dense(2)])
    model = nccl_tf.Finetune(network)
    model.compile(keras.optimizers.SGD(0.1))
    result = nccl_tf.learn(model, windows, epochs=3, verbose=0)
    assert result.learning_accuracy > 0.8 and result.forgetting > 0.2
    assert len(result.rows()) == 4 + 4 + 3 + 2 + 4  # before any, then those so far and the next
    assert len(result.plot()) == 2
