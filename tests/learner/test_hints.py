"""What a learner says once, where a call may not be what was meant."""

import keras
import numpy as np
import pytest

import nccl_tf
from nccl_tf.learner import hints
from nccl_tf.learner.checks import is_plain_sgd
from tests.methods.learners import build
from tests.tiny import IMAGE_SHAPE, tiny_batches, tiny_network

pytestmark = pytest.mark.eager

LABELS = np.arange(12) % 4


def images(largest) -> np.ndarray:
    values = np.random.default_rng(0).uniform(0, largest, (12, *IMAGE_SHAPE))
    values[0] = largest
    return values.astype("uint8" if largest > 1 else "float32")


def compiled(network) -> nccl_tf.Learner:
    learner = nccl_tf.Finetune(network)
    learner.compile(keras.optimizers.SGD(0.1), run_eagerly=True)
    return learner


def rescaled(**arguments) -> keras.Model:
    inputs = keras.Input(IMAGE_SHAPE)
    scaled = keras.layers.Rescaling(**arguments)(inputs)
    outputs = keras.layers.Dense(4)(keras.layers.Flatten()(scaled))
    return keras.Model(inputs, outputs)


@pytest.mark.parametrize(("largest", "scale"), [(1.0, 1 / 255), (255, 1.0)])
def test_inputs_far_out_of_the_network_s_range_are_named_once(largest, scale, caplog):
    learner = compiled(rescaled(scale=scale))
    learner.optimizer.learning_rate = 1e-6
    learner.fit(images(largest), LABELS, verbose=0, end_task=False)
    (said,) = caplog.messages
    assert f"reach {largest:g}" in said and f"Rescaling(1 / {largest:g})" in said
    learner.fit(images(largest), LABELS, verbose=0, batch_size=3)
    assert len(caplog.messages) == 1


def test_data_are_looked_at_in_the_first_fit_alone(monkeypatch):
    asked = []
    monkeypatch.setattr(hints, "scale_warning", lambda *_: asked.append("scale"))
    learner = compiled(tiny_network())
    learner.fit((batch for batch in [(images(255), LABELS)]), verbose=0, end_task=False)
    assert not asked  # A generator shows nothing without losing it.
    for _ in range(2):
        learner.fit(images(255), LABELS, verbose=0, end_task=False)
    learner.train_on_batch(images(255), LABELS)
    assert len(asked) == 1


@pytest.mark.parametrize(
    ("largest", "arguments"),
    [
        (40, {"scale": 1 / 255}),
        (16, {"scale": 1 / 127.5, "offset": -1}),
    ],
)
def test_nothing_is_said_of_inputs_in_the_network_s_range(largest, arguments, caplog):
    compiled(rescaled(**arguments)).fit(images(largest), LABELS, verbose=0)
    assert not caplog.messages


TABLE = np.random.default_rng(0).normal(size=(12, 6)).astype("float32")
DENSE = [keras.layers.Dense(8, "relu"), keras.layers.Dense(4)]


def of_table(*first, shape=(6,), dtype=None) -> keras.Model:
    layers = [keras.layers.Dense.from_config(layer.get_config()) for layer in DENSE]
    return keras.Sequential([keras.Input(shape, dtype=dtype), *first, *layers])


@pytest.mark.parametrize("rows", [TABLE, TABLE.astype("float64")])
def test_a_column_that_drowns_the_others_is_named_once(rows, caplog):
    amounts = rows * [1, 1, 1, 1e5, 1, 1]
    learner = compiled(of_table())
    learner.optimizer.learning_rate = 1e-12
    learner.fit(amounts, LABELS, verbose=0, end_task=False)
    (said,) = caplog.messages
    assert "column 3 " in said and "keras.layers.Normalization" in said
    learner.fit(amounts, LABELS, verbose=0)
    assert len(caplog.messages) == 1


@pytest.mark.parametrize("memory", [None, nccl_tf.ReservoirMemory])
@pytest.mark.parametrize("verb", ["fit", "learn"])
def test_tasks_of_a_stream_are_looked_at_too(verb, memory, caplog):
    amounts = TABLE * np.array([1, 1, 1, 1e5, 1, 1], "float32")
    stream = nccl_tf.stream_from_arrays((amounts, LABELS), (amounts, LABELS), num_tasks=2)
    learner = nccl_tf.Finetune(of_table())
    if memory is not None:
        learner = nccl_tf.ExperienceReplay(of_table(), memory(4))
    learner.compile(keras.optimizers.SGD(1e-12), run_eagerly=True)
    if verb == "fit":
        for task in stream:
            learner.fit(task, verbose=0)
    else:
        nccl_tf.learn(learner, stream, verbose=0)
    assert sum("column 3 " in message for message in caplog.messages) == 1


def normalised(rows):
    layer = keras.layers.Normalization()
    layer.adapt(rows)
    return of_table(layer)


QUIET = {
    "scaled": lambda: (of_table(), TABLE),
    "pixels": lambda: (of_table(), np.full((12, 6), 255, "float32")),
    "normalised": lambda: (normalised(TABLE * 1e5), TABLE * 1e5),
    "batch norm": lambda: (of_table(keras.layers.BatchNormalization()), TABLE * 1e5),
    "tokens": lambda: (
        of_table(
            keras.layers.Embedding(30_000, 3), keras.layers.GlobalAveragePooling1D(), dtype="int32"
        ),
        np.full((12, 6), 29_000, "int32"),
    ),
    "series": lambda: (
        of_table(keras.layers.Reshape((6, 1)), keras.layers.LSTM(3)), TABLE * 1e5,
    ),
    "images": lambda: (
        of_table(keras.layers.Flatten(), shape=(2, 3)), 1e5 * TABLE.reshape(12, 2, 3),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", QUIET)
def test_nothing_is_said_of_columns_that_are_scaled_or_of_other_data(name, caplog):
    network, inputs = QUIET[name]()
    learner = compiled(network)
    learner.optimizer.learning_rate = 1e-12
    learner.fit(inputs, LABELS, verbose=0)
    assert not caplog.messages


def test_the_second_fit_without_a_task_says_that_it_is_one(caplog):
    learner = compiled(tiny_network())
    learner.fit(images(255), LABELS, verbose=0)
    assert not caplog.messages
    for _ in range(2):
        learner.fit(images(255), LABELS, verbose=0)
    (said,) = caplog.messages
    assert "this fit learns task 1" in said


def test_nothing_is_said_where_the_task_is_named_or_open(caplog):
    learner = compiled(tiny_network())
    learner.fit(images(255), LABELS, verbose=0, end_task=False)
    learner.fit(images(255), LABELS, verbose=0)
    learner.fit(images(255), LABELS, verbose=0, task_id=1)
    learner.fit(tiny_batches(0), verbose=0)
    assert not caplog.messages


def test_steps_that_were_skipped_are_told(caplog):
    learner = compiled(tiny_network(input_dtype="float32"))
    values = images(200).astype("float32")
    learner.fit(values, LABELS, batch_size=4, verbose=0)
    assert not caplog.messages
    values[5] = np.nan
    learner.fit(values, LABELS, batch_size=4, verbose=0, shuffle=False, task_id=1)
    (said,) = caplog.messages
    assert said.startswith("1 step of this fit had no finite loss")


def test_a_new_learner_says_that_its_memory_is_used(caplog):
    memory = nccl_tf.ReservoirMemory(8)
    for learner_class, count in ((nccl_tf.ExperienceReplay, 0), (nccl_tf.NCCL, 1)):
        learner = learner_class(tiny_network(), memory)
        assert len(caplog.messages) == count
        learner.compile(keras.optimizers.SGD(0.1), run_eagerly=True)
        learner.fit(tiny_batches(0, 5), verbose=0)
    assert "ReservoirMemory that another one has used" in caplog.messages[0]


def test_ewc_says_that_a_task_is_shorter_than_its_window(caplog):
    for window, count in ((10, 1), (3, 0)):
        caplog.clear()
        learner = nccl_tf.EWC(tiny_network(), ewc_window=window)
        learner.compile(keras.optimizers.SGD(0.1), run_eagerly=True)
        learner.fit(images(255), LABELS, batch_size=4, verbose=0)
        assert len(caplog.messages) == count
        assert all("3 steps, fewer than the 10" in message for message in caplog.messages)


@pytest.mark.parametrize("name", ["nccl_ring", "gem", "bgd", "mer", "orthog_subspace", "lpr"])
def test_a_method_of_plain_sgd_says_once_that_another_optimizer_changes_its_step(name, caplog):
    learner = build(name)
    learner.compile(keras.optimizers.SGD(0.1))
    assert not caplog.messages
    for optimizer in (keras.optimizers.Adam(0.01), keras.optimizers.SGD(0.1, momentum=0.9)):
        learner.compile(optimizer)
    assert len(caplog.messages) == 1
    assert "Adam changes the step" in caplog.messages[0]


def test_plain_sgd_is_a_step_along_the_gradient():
    """Also under a loss scale; weight decay moves the weights beside it."""
    sgd, scaled = keras.optimizers.SGD, keras.optimizers.LossScaleOptimizer
    assert is_plain_sgd(sgd(0.1)) and is_plain_sgd(scaled(sgd(0.1)))
    others = (sgd(0.1, 0.9), sgd(0.1, weight_decay=0.01), keras.optimizers.Adam(0.1))
    assert not any(map(is_plain_sgd, (*others, *map(scaled, others))))


def numbers_learner(method, *memory, **arguments):
    """A learner of a number, and its first weights of zero."""
    layers = [keras.layers.Flatten(), keras.layers.Dense(1, kernel_initializer="zeros")]
    learner = method(keras.Sequential([keras.Input((6,)), *layers]), *memory, **arguments)
    learner.compile(keras.optimizers.SGD(1e-6), "mean_squared_error", run_eagerly=True)
    return learner


PRICES = (20 + np.arange(12) % 3).astype("float32")  # mean 21, deviation 0.82


@pytest.mark.parametrize(
    ("method", "arguments", "told"),
    [
        (nccl_tf.DERpp, {}, True),
        (nccl_tf.ExperienceReplay, {"dark": 0.5}, True),
        (nccl_tf.ExperienceReplay, {}, False),
    ],
)
def test_targets_far_from_the_outputs_that_are_replayed_are_named(method, arguments, told, caplog):
    learner = numbers_learner(method, nccl_tf.ReservoirMemory(5), **arguments)
    learner.fit(TABLE, PRICES, verbose=0, end_task=False)
    assert len(caplog.messages) == told
    if told:
        assert "mean 21 " in caplog.text and "deviation 0.816" in caplog.text
    learner.fit(TABLE, PRICES, verbose=0)
    assert len(caplog.messages) == told


def test_nothing_is_said_of_standardised_targets(caplog):
    learner = numbers_learner(nccl_tf.DERpp, nccl_tf.ReservoirMemory(5))
    learner.fit(TABLE, (PRICES - 21) / 0.82 + 1, verbose=0)
    assert not caplog.messages


def two_classes(positive, count=400):
    labels = np.zeros(count, "int32")
    labels[:positive] = 1
    return np.random.default_rng(0).normal(size=(count, 6)).astype("float32"), labels


def rare_learner(memory, outputs=2):
    layers = [keras.layers.Dense(outputs)]
    learner = nccl_tf.ExperienceReplay(keras.Sequential([keras.Input((6,)), *layers]), memory)
    loss = {"loss": keras.losses.BinaryCrossentropy(from_logits=True)} if outputs == 1 else {}
    learner.compile(keras.optimizers.SGD(0.1), run_eagerly=True, **loss)
    return learner


@pytest.mark.parametrize("outputs", [1, 2])
def test_a_class_that_a_reservoir_hardly_keeps_is_named_with_its_slots(outputs, caplog):
    learner = rare_learner(nccl_tf.ReservoirMemory(200), outputs)
    learner.fit(*two_classes(12), batch_size=100, verbose=0)
    (said,) = caplog.messages
    assert "class 1 is 3.0% " in said and "about 6 of the reservoir's 200 " in said


@pytest.mark.parametrize(
    ("memory", "positive"),
    [
        (nccl_tf.BalancedMemory(200, [[0, 1]]), 12),
        (nccl_tf.ReservoirMemory(200), 100),
        (nccl_tf.ReservoirMemory(400), 12),  # which holds all
    ],
)
def test_nothing_is_said_of_a_class_that_the_memory_keeps(memory, positive, caplog):
    rare_learner(memory).fit(*two_classes(positive), batch_size=100, verbose=0)
    assert not caplog.messages


def test_a_softmax_over_one_class_is_told_of_once(caplog):
    """Its loss is 0 and moves no weight."""
    x = images(255)
    heads = nccl_tf.Finetune(tiny_network(), heads=[[0], [1, 2, 3]])
    heads.compile(keras.optimizers.SGD(0.1))
    assert "head of task 0" in caplog.text
    before = heads.network.get_weights()
    for _ in range(2):
        heads.fit(x, np.zeros(12, int), verbose=0, task_id=0)
    for weight, value in zip(heads.network.get_weights(), before, strict=True):
        np.testing.assert_array_equal(weight, value)
    (said,) = [message for message in caplog.messages if "one class" in message]
    assert "head of task 0" in said
    compiled(tiny_network(1)).fit(x, np.zeros(12, int), verbose=0)
    assert "one output for one class" in caplog.messages[-1]
    caplog.clear()
    for quiet in (
        nccl_tf.Finetune(tiny_network(), heads=[[0, 1], [2, 3]]),
        nccl_tf.Finetune(tiny_network(), heads=[[0], [1, 2, 3]], mask="union"),
    ):
        quiet.compile(keras.optimizers.SGD(0.1))
        quiet.fit(x, np.zeros(12, int), verbose=0, task_id=0)
    unit = nccl_tf.Finetune(tiny_network(1))
    unit.compile(keras.optimizers.SGD(0.1), keras.losses.BinaryCrossentropy(from_logits=True))
    unit.fit(x, np.arange(12) % 2, verbose=0)
    assert not [message for message in caplog.messages if "one class" in message]


def test_an_evaluation_of_no_weight_is_told_of_once(caplog):
    learner = compiled(tiny_network())
    x = images(255)
    validation = x, LABELS, np.zeros(12, "float32")
    logs = learner.fit(x, LABELS, validation_data=validation, epochs=2, verbose=0).history
    assert np.isnan(logs["val_loss"]).all()
    assert len([message for message in caplog.messages if "all weigh 0" in message]) == 1
    caplog.clear()
    x[0] = 0
    again = compiled(tiny_network(input_dtype="float32"))
    nan = np.full((12, *IMAGE_SHAPE), np.nan, "float32")
    assert np.isnan(again.evaluate(nan, LABELS, verbose=0))
    assert not [message for message in caplog.messages if "all weigh 0" in message]


def test_an_accuracy_of_tags_names_their_metric():
    learner = nccl_tf.Finetune(tiny_network())
    learner.compile(keras.optimizers.SGD(0.1), keras.losses.BinaryCrossentropy(from_logits=True))
    tags = np.ones((12, 4), "float32")
    with pytest.raises(nccl_tf.UserError, match='"binary_accuracy"'):
        learner.accuracy(images(255), tags)
