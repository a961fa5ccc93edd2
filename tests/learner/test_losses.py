"""Losses that `compile` takes: what they are, what is stored, masked, measured and refused."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import nccl_tf
from nccl_tf.errors import UserError
from nccl_tf.learner.losses import ExampleLoss

pytestmark = pytest.mark.eager

RNG = np.random.default_rng(0)
INPUTS = RNG.normal(size=(96, 4)).astype(np.float32)
VALUES = INPUTS @ RNG.normal(size=(4, 1))
OUTPUTS = RNG.uniform(0.1, 0.9, (5, 3)).astype(np.float32)
ROWS = np.eye(3, dtype=np.float32)[[0, 2, 1, 1, 0]]
BOTH = np.array([[0, 1, 1], [1, 0, 1], [0, 0, 0], [1, 1, 1], [0, 1, 0]])


@keras.saving.register_keras_serializable(package="tests")
class HalfSquare(keras.losses.Loss):
    def call(self, y_true, y_pred):
        return keras.ops.sum(keras.ops.square(y_true - y_pred), axis=-1) / 2


@keras.saving.register_keras_serializable(package="tests")
def absolute(targets, outputs):
    return tf.abs(targets - outputs)


@pytest.mark.parametrize(
    ("loss", "targets"),
    [
        (keras.losses.Huber(0.1), OUTPUTS[::-1]),
        ("sparse_categorical_crossentropy", ROWS.argmax(1)),
        (keras.losses.CategoricalCrossentropy(from_logits=True, label_smoothing=0.1), ROWS),
        (keras.losses.BinaryCrossentropy(from_logits=True), BOTH),
        (HalfSquare(), OUTPUTS[::-1]),
    ],
)
def test_the_mean_over_examples_is_keras_s_own(loss, targets):
    ours = ExampleLoss(loss)
    each = ours(tf.constant(OUTPUTS), ours.targets(tf.constant(targets)))
    assert each.shape == (5,)
    known = keras.losses.get(loss)
    assert float(tf.reduce_mean(each)) == pytest.approx(
        float(tf.reduce_mean(known(keras.ops.cast(targets, "float32"), OUTPUTS))), rel=1e-5
    )


def test_masks_where_there_are_classes():
    values = {
        None: -1e9,
        "categorical_crossentropy": 0.0,
        keras.losses.CategoricalCrossentropy(from_logits=True): -1e9,
        keras.losses.CategoricalCrossentropy(label_smoothing=0.1): None,
        "binary_crossentropy": None,
        absolute: None,
    }
    assert [ExampleLoss(loss).masked_value for loss in values] == list(values.values())
    assert ExampleLoss("sparse_categorical_crossentropy", rank=3).masked_value is None


@pytest.mark.parametrize("bad", ["nosuch", keras.losses.MeanSquaredError(reduction="sum")])
def test_no_loss(bad):
    with pytest.raises(UserError, match="received"):
        ExampleLoss(bad)


def test_one_number_for_a_batch_is_no_loss():
    with pytest.raises(UserError, match="one number for a batch"):
        ExampleLoss(lambda t, p: tf.reduce_mean(p))(tf.constant(OUTPUTS), tf.constant(OUTPUTS))


def network(units=1, activation=None):
    layers = [keras.Input((4,)), keras.layers.Dense(units, activation, kernel_initializer="ones")]
    return keras.Sequential(layers)


MEMORIES = {
    "reservoir": lambda: nccl_tf.ReservoirMemory(8),
    "ring": lambda: nccl_tf.RingMemory(2, [[0, 1, 2]]),
    "balanced": lambda: nccl_tf.BalancedMemory(4, [[0, 1, 2]]),
    "exemplars": lambda: nccl_tf.ExemplarMemory(4),
    "short_term": lambda: nccl_tf.ShortTermMemory(4),
}


@pytest.mark.parametrize(
    ("cls", "memory", "heads", "loss"),
    [
        (nccl_tf.NCCL, "ring", None, "mse"),
        (nccl_tf.GEM, "ring", None, keras.losses.BinaryCrossentropy(from_logits=True)),
        (nccl_tf.NCCL, "reservoir", [[0], [1, 2]], "mse"),
        (nccl_tf.GDumb, "balanced", None, "categorical_crossentropy"),
        (nccl_tf.ICaRL, "exemplars", None, "mse"),
        (nccl_tf.SupSup, None, None, "mse"),
    ],
)
def test_a_loss_without_a_meaning_is_refused(cls, memory, heads, loss):
    arguments = {"heads": heads} | ({"num_tasks": 2} if cls is nccl_tf.SupSup else {})
    if memory:
        arguments["memory"] = MEMORIES[memory]()
    with pytest.raises(UserError, match=r"received the loss .*: (leave|take) "):
        cls(network(3), **arguments).compile("sgd", loss)


@pytest.mark.parametrize(
    "loss",
    [
        "sparse_categorical_crossentropy",
        keras.losses.BinaryFocalCrossentropy(),
    ],
)
def test_a_loss_of_probabilities_refuses_logits(loss):
    nested = keras.Sequential([keras.Input((4,)), network(3), keras.layers.Dropout(0.1)])
    for ends_linear in (network(3), nested):
        with pytest.raises(UserError, match=r"takes probabilities, .* from_logits=True"):
            nccl_tf.Finetune(ends_linear).compile("sgd", loss)
    nccl_tf.Finetune(network(3, "sigmoid")).compile("sgd", loss)
    # Nothing is known of a layer without weights or an activation of the user's own.
    for unknown in (keras.layers.Lambda(keras.ops.sigmoid), keras.layers.Dense(3, abs)):
        layers = [keras.Input((4,)), keras.layers.Dense(3), unknown]
        nccl_tf.Finetune(keras.Sequential(layers)).compile("sgd", loss)


def test_the_default_loss_needs_a_vector_of_logits():
    images = keras.Sequential([keras.Input((4, 4, 1)), keras.layers.Conv2D(3, 2)])
    learner = nccl_tf.Finetune(images)
    with pytest.raises(UserError, match=r"outputs of shape \(None, 3, 3, 3\), expected logits"):
        learner.compile("sgd")
    learner.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))


def test_accuracy_says_what_it_cannot_count():
    learner = nccl_tf.Finetune(network())
    with pytest.raises(UserError, match="says nothing of classes"):
        learner.compile("sgd", "mse", metrics=["accuracy"])
    learner.compile("sgd", "mse")
    with pytest.raises(UserError, match="not one class for each example"):
        learner.accuracy(INPUTS, VALUES, 0)


@keras.saving.register_keras_serializable(package="tests")
def focal(targets, outputs):
    numbers = tf.one_hot(tf.cast(targets, tf.int32), outputs.shape[-1])
    return keras.losses.categorical_focal_crossentropy(numbers, outputs, from_logits=True)


@pytest.mark.parametrize("cls", [nccl_tf.ERACE, nccl_tf.LwF])
def test_a_loss_of_one_s_own_over_classes_is_that_of_keras(cls, tmp_path):
    """With masks, also where it was saved and loaded."""
    logits, labels = [], np.repeat([0, 1, 2], 8)
    losses = {
        "numbers": (focal, labels, "numbers"),
        "rows": (
            keras.losses.CategoricalFocalCrossentropy(from_logits=True), np.eye(3)[labels], None
        ),
    }  # fmt: skip
    for loss, targets, classes in losses.values():
        keras.utils.set_random_seed(0)
        memory = {"memory": nccl_tf.ReservoirMemory(8)} if cls is nccl_tf.ERACE else {}
        learner = cls(network(3), **memory)
        learner.compile(keras.optimizers.SGD(0.5), loss, metrics=["accuracy"], classes=classes)
        for part in (slice(0, 16), slice(16, 24)):
            learner.fit(INPUTS[part], targets[part], batch_size=4, shuffle=False, verbose=0)
            masked = learner.predict(INPUTS[:4], verbose=0)
            assert (masked[:, 2] == -1e9).all() == (part.start == 0)
        logits.append(masked)
        accuracy = learner.evaluate(INPUTS[:24], targets, verbose=0)[1]
        assert accuracy == pytest.approx(learner.accuracy(INPUTS[:24], targets))
        learner.save(tmp_path / "model.keras")
        assert nccl_tf.load_model(tmp_path / "model.keras").example_loss.has_classes
    np.testing.assert_allclose(*logits, rtol=1e-4, atol=1e-5)


def test_accuracy_of_a_loss_of_one_s_own_goes_by_shapes():
    labels = np.arange(24) % 3
    for targets, loss in ((labels, focal), (np.eye(3)[labels], HalfSquare())):
        learner = nccl_tf.Finetune(network(3))
        learner.compile(keras.optimizers.SGD(0.1), loss, metrics=["accuracy"])
        learner.fit(INPUTS[:24], targets, verbose=0)
        right = np.argmax(learner.predict(INPUTS[:24], verbose=0), axis=1) == labels
        inputs = np.concatenate([INPUTS[:24], np.full((8, 4), np.nan)])
        targets = np.concatenate([targets, targets[:8]])
        found = learner.evaluate(inputs, targets, verbose=0)[1]
        assert found == pytest.approx(right.sum() / 32)  # NaN is wrong
    learner = nccl_tf.Finetune(network(1))
    learner.compile("sgd", absolute, metrics=["accuracy"])
    with pytest.raises(UserError, match="BinaryAccuracy"):
        learner.fit(INPUTS[:24], labels, verbose=0)


def test_classes_that_a_loss_has_not_are_refused():
    for loss, classes in (("mse", "numbers"), (focal, "rows"), (None, "numbers")):
        with pytest.raises(UserError, match=r"classes=|form of classes"):
            nccl_tf.Finetune(network(3)).compile("sgd", loss, classes=classes)
    for cls, memory in ((nccl_tf.ERACE, "reservoir"), (nccl_tf.LwF, None), (nccl_tf.GEM, "ring")):
        arguments = {"memory": MEMORIES[memory]()} if memory else {}
        learner = cls(network(3), **arguments)
        with pytest.raises(UserError, match=r'compile\(\.\.\., classes="numbers"'):
            learner.compile("sgd", focal)
        learner.compile("sgd", focal, classes="numbers")


def test_a_plain_step_is_that_of_keras():
    """Also with weights, of which 0 marks padding."""
    weights = np.where(np.arange(96) % 3, 1.0, 0.0)
    learner, plain = nccl_tf.Finetune(network()), network()
    learner.compile(keras.optimizers.SGD(0.1), "mse")
    plain.compile(keras.optimizers.SGD(0.1), "mse")
    learner.fit(INPUTS, VALUES, batch_size=96, sample_weight=weights, verbose=0)
    real = weights > 0
    plain.fit(INPUTS[real], VALUES[real], batch_size=96, verbose=0)
    np.testing.assert_allclose(learner.network.get_weights()[0], plain.get_weights()[0], rtol=1e-5)


def test_regression_is_replayed_saved_and_goes_on(tmp_path):
    learner = nccl_tf.NCCL(network(), nccl_tf.ReservoirMemory(16))
    learner.compile(keras.optimizers.SGD(0.05), HalfSquare(), metrics=["mae"], run_eagerly=True)
    losses = learner.fit(INPUTS, VALUES[:, 0], epochs=3, verbose=0).history["loss"]
    assert losses[-1] < losses[0] / 2
    stored = learner.memory.labels.numpy()[:16]
    assert set(stored) <= set(VALUES[:, 0].astype(np.float32))
    loss, error = learner.evaluate(INPUTS, VALUES[:, 0], verbose=0)
    predicted = learner.predict(INPUTS, verbose=0)
    assert loss == pytest.approx(np.square(predicted - VALUES).mean() / 2, rel=1e-4)
    assert error == pytest.approx(np.abs(predicted - VALUES).mean(), rel=1e-4)
    learner.save(tmp_path / "learner.keras")
    loaded = nccl_tf.load_model(tmp_path / "learner.keras")
    assert isinstance(loaded.example_loss._loss, HalfSquare)
    for each in (learner, loaded):
        each.fit(INPUTS, VALUES[:, 0], shuffle=False, verbose=0)
    for left, right in zip(learner.get_weights(), loaded.get_weights(), strict=True):
        np.testing.assert_array_equal(left, right)


def test_one_hot_probabilities_with_heads_and_a_ring():
    labels = np.arange(96) % 3
    learner = nccl_tf.NCCL(network(3, "softmax"), nccl_tf.RingMemory(2), heads=[[0, 1], [2]])
    learner.compile(
        keras.optimizers.SGD(0.1),
        "categorical_crossentropy",
        metrics=["accuracy"],
        run_eagerly=True,
    )
    for task, own in enumerate((labels < 2, labels == 2)):
        learner.fit(INPUTS[own], np.eye(3)[labels[own]], verbose=0)
        assert learner.accuracy(INPUTS[own], np.eye(3)[labels[own]], task) > 0.4
    assert learner.memory.labels.shape == (7, 3)
    inputs = {"inputs": INPUTS, "task": np.zeros(96, np.int32)}
    assert (learner.predict(inputs, verbose=0)[:, 2] == 0).all()
    assert learner.progress.seen_classes.numpy().all()
    assert int(learner.memory.readable_count()) == 6


def sequences(**arguments):
    network = keras.Sequential(
        [
            keras.Input((6,)),
            keras.layers.Embedding(20, 5),
            keras.layers.Dense(4),
        ]
    )
    model = nccl_tf.Finetune(network)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True, **arguments)
    model.compile(keras.optimizers.SGD(0.5), loss, run_eagerly=True)
    return model


def test_ignored_places_have_no_part_in_an_example_s_mean():
    logits = RNG.normal(size=(3, 4, 5)).astype(np.float32)
    labels = np.array([[1, 2, 0, 0], [4, 0, 0, 0], [0, 0, 0, 0]])
    loss = ExampleLoss(
        keras.losses.SparseCategoricalCrossentropy(from_logits=True, ignore_class=0), 3
    )
    logs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    expected = [-(logs[0, 0, 1] + logs[0, 1, 2]) / 2, -logs[1, 0, 4], 0]
    np.testing.assert_allclose(loss(tf.constant(logits), tf.constant(labels)), expected, rtol=1e-5)


def test_values_of_further_axes_are_a_mean_at_each_place():
    """Of 1 and 3 at the first place and 5 and 7 at the second, which weighs three times as much."""
    outputs = tf.constant([[[1.0, 3.0], [5.0, 7.0]]])
    losses = ExampleLoss(absolute, rank=3)(
        outputs, tf.zeros_like(outputs), tf.constant([[1.0, 3.0]])
    )
    assert losses.numpy().tolist() == [(1 * 2 + 3 * 6) / 4]


def test_an_example_of_ignored_places_alone_does_not_count():
    inputs = RNG.integers(1, 20, (8, 6))
    labels = inputs % 4
    labels[2:, 3:] = 0
    labels[5] = 0
    kept = np.arange(8) != 5
    weights = []
    for x, y in ((inputs, labels), (inputs[kept], labels[kept])):
        keras.utils.set_random_seed(1)
        model = sequences(ignore_class=0)
        model.fit(x, y, batch_size=8, shuffle=False, verbose=0)
        weights.append(model.get_weights())
    for left, right in zip(*weights, strict=True):
        np.testing.assert_allclose(left, right, atol=1e-6)
