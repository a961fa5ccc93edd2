"""Weights of places: sample weights [n, places], `ignore_class` and Keras masks."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import nccl_tf
from nccl_tf.batch import PLACE_WEIGHTS
from nccl_tf.errors import UserError
from nccl_tf.learner.losses import ExampleLoss

RNG = np.random.default_rng(7)
COUNT, PLACES, TOKENS, WIDTH, CLASSES, RATE = 6, 5, 9, 4, 3, 0.3
X = RNG.integers(1, TOKENS, (COUNT, PLACES))
Y = RNG.integers(0, CLASSES, (COUNT, PLACES))
W = RNG.integers(0, 4, (COUNT, PLACES)).astype("float32")
W[:, 0] = 1
TABLE = RNG.normal(size=(TOKENS, CLASSES)).astype("float32")


def cross_entropy(**arguments):
    return keras.losses.SparseCategoricalCrossentropy(from_logits=True, **arguments)


def network(mask_zero=False, nested=False):
    """Logits of each token from a table: what a step does can be told by hand."""
    table = keras.layers.Embedding(TOKENS, CLASSES, mask_zero=mask_zero)
    inputs = keras.Input((PLACES,), dtype="int32")
    made = keras.Model(inputs, table(inputs))
    if nested:
        again = keras.Input((PLACES,), dtype="int32")
        made = keras.Model(again, keras.layers.Activation("linear")(made(again)))
    table.set_weights([TABLE])
    return made


def learned(learner, x, y, weights=None, loss=None, **arguments):
    learner.compile(keras.optimizers.SGD(RATE), loss or cross_entropy(), **arguments)
    learner.fit(x, y, sample_weight=weights, batch_size=len(y), shuffle=False, verbose=0)
    return learner.network.get_weights()[0]


def plain(x, y, weights=None, loss=None, **arguments):
    model = network(**arguments)
    model.compile(keras.optimizers.SGD(RATE), loss or cross_entropy())
    model.fit(x, y, sample_weight=weights, batch_size=len(y), shuffle=False, verbose=0)
    return model.get_weights()[0]


def gradient(x, y, weights, table):
    """Of the mean over examples of the mean over their places by weight, with NumPy."""
    totals = weights.sum(1)
    shares = weights / np.where(totals > 0, totals, 1)[:, None] / np.count_nonzero(totals)
    logits = table[x]
    softmax = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    rows = shares[..., None] * (softmax - np.eye(CLASSES)[y])
    found = np.zeros_like(table)
    np.add.at(found, x, rows)
    return found


@pytest.mark.eager
def test_a_step_is_that_of_plain_keras_with_weights_of_mean_one():
    even = W * PLACES / W.sum(1, keepdims=True)
    for weights in (W, 3 * W, even):
        np.testing.assert_allclose(
            learned(nccl_tf.Finetune(network()), X, Y, weights), plain(X, Y, even), atol=1e-6
        )


def test_a_step_is_that_of_numpy_and_examples_without_a_place_do_not_count():
    weights = W.copy()
    weights[2] = 0
    expected = TABLE - RATE * gradient(X, Y, weights, TABLE)
    found = learned(nccl_tf.Finetune(network()), X, Y, weights)
    np.testing.assert_allclose(found, expected, atol=1e-6)
    kept = np.arange(COUNT) != 2
    columns = X[kept], Y[kept], weights[kept]
    rest = learned(nccl_tf.Finetune(network()), *columns, run_eagerly=True)
    np.testing.assert_allclose(rest, found, atol=1e-6)


@pytest.mark.eager
@pytest.mark.parametrize("nested", [False, True])
def test_a_mask_is_that_of_plain_keras(nested):
    x = X.copy()
    x[np.arange(COUNT), np.arange(COUNT) % PLACES] = 0  # as many places of each, as Keras counts
    arguments = {"mask_zero": True, "nested": nested}
    found = learned(nccl_tf.Finetune(network(**arguments)), x, Y)
    np.testing.assert_allclose(found, plain(x, Y, **arguments), atol=1e-6)
    even = (x > 0) * W
    np.testing.assert_allclose(
        learned(nccl_tf.Finetune(network(**arguments)), x, Y, W),
        TABLE - RATE * gradient(x, Y, even, TABLE),
        atol=1e-6,
    )


@pytest.mark.eager
def test_a_masking_layer_counts_places_of_examples_of_several_lengths():
    kernel = RNG.normal(size=(WIDTH, CLASSES)).astype("float32")
    x = RNG.normal(size=(2, PLACES, WIDTH)).astype("float32")
    x[0, 3:] = x[1, 1:] = 0
    y = RNG.integers(0, CLASSES, (2, PLACES))
    made = keras.Sequential([
        keras.Input((PLACES, WIDTH)), keras.layers.Masking(),
        keras.layers.Dense(CLASSES, use_bias=False),
    ])  # fmt: skip
    made.set_weights([kernel])
    found = learned(nccl_tf.Finetune(made), x, y)
    logits = x @ kernel
    rows = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True) - np.eye(CLASSES)[y]
    expected = (x[0, :3].T @ rows[0, :3] / 3 + x[1, :1].T @ rows[1, :1]) / 2
    np.testing.assert_allclose(found, kernel - RATE * expected, atol=1e-6)


@pytest.mark.eager
def test_ignored_classes_are_those_of_plain_keras_and_meet_weights():
    y = Y.copy()
    y[np.arange(COUNT), np.arange(COUNT) % PLACES] = -1
    loss = cross_entropy(ignore_class=-1)
    found = learned(nccl_tf.Finetune(network()), X, y, loss=loss)
    np.testing.assert_allclose(found, plain(X, y, loss=loss), atol=1e-6)
    kept = (y >= 0) * W
    np.testing.assert_allclose(
        learned(nccl_tf.Finetune(network()), X, y, W, loss),
        TABLE - RATE * gradient(X, np.maximum(y, 0), kept, TABLE),
        atol=1e-6,
    )


@pytest.mark.eager
def test_ignored_classes_have_weight_0_where_others_have_weights():
    y = Y.copy()
    y[np.arange(COUNT), np.arange(COUNT) % PLACES] = -1
    kept = (y >= 0).astype("float32")
    for capacity in (COUNT, 2 * COUNT):
        memory = nccl_tf.ReservoirMemory(capacity)
        learner = nccl_tf.ExperienceReplay(network(), memory, memory_batch_size=COUNT)
        first = learned(learner, X, Y, W, cross_entropy(ignore_class=-1))
        if capacity == COUNT:  # all that it holds is replayed
            now, replayed = gradient(X, np.maximum(y, 0), kept, first), gradient(X, Y, W, first)
            learner.fit(X, y, batch_size=COUNT, shuffle=False, verbose=0)
            found = learner.network.get_weights()[0]
            np.testing.assert_allclose(found, first - RATE * (now + replayed) / 2, atol=1e-6)
        else:
            learner.remember(X, y)
            np.testing.assert_array_equal(memory.read_all().extras[PLACE_WEIGHTS][COUNT:], kept)


@pytest.mark.eager
def test_a_place_of_weight_0_may_have_any_label():
    y, weights = Y.copy(), W.copy()
    y[:, -1], weights[:, -1] = -7, 0
    found = learned(nccl_tf.Finetune(network()), X, y, weights)
    np.testing.assert_allclose(found, learned(nccl_tf.Finetune(network()), X, Y, weights))


@pytest.mark.parametrize("mask_zero", [pytest.param(False, marks=pytest.mark.eager), True])
def test_weights_of_places_are_stored_and_replayed(mask_zero):
    x, after = X.copy(), RNG.integers(1, TOKENS, (COUNT, PLACES))
    x[0, 2] = 0
    counted = W * (x > 0) if mask_zero else W
    memory = nccl_tf.ReservoirMemory(COUNT)
    learner = nccl_tf.ExperienceReplay(network(mask_zero), memory, memory_batch_size=COUNT)
    first = learned(learner, x, Y, W)
    np.testing.assert_array_equal(memory.read_all().extras[PLACE_WEIGHTS], counted)
    ones = np.ones_like(W)  # of the places that come without weights
    learner.fit(after, Y, batch_size=COUNT, shuffle=False, verbose=0)
    both = (gradient(x, Y, counted, first) + gradient(after, Y, ones, first)) / 2
    np.testing.assert_allclose(learner.network.get_weights()[0], first - RATE * both, atol=1e-6)


@pytest.mark.eager
def test_a_file_has_the_weights_of_places(tmp_path):
    memory = nccl_tf.ReservoirMemory(COUNT)
    learner = nccl_tf.ExperienceReplay(network(), memory, memory_batch_size=COUNT)
    first = learned(learner, X, Y, W)
    learner.save(tmp_path / "learner.keras")
    loaded = nccl_tf.load_model(tmp_path / "learner.keras")
    loaded.fit(X, Y, batch_size=COUNT, shuffle=False, verbose=0)  # 1 at each place
    both = (gradient(X, Y, W, first) + gradient(X, Y, np.ones_like(W), first)) / 2
    np.testing.assert_allclose(loaded.network.get_weights()[0], first - RATE * both, atol=1e-6)


def test_remembered_examples_keep_their_weights_of_places():
    memory = nccl_tf.ReservoirMemory(2 * COUNT)
    learner = nccl_tf.ExperienceReplay(network(), memory)
    learner.compile("sgd", cross_entropy())
    learner.remember(X, Y, sample_weight=W, batch_size=4)
    np.testing.assert_array_equal(memory.read_all().extras[PLACE_WEIGHTS], W)


def test_logits_are_compared_at_places_by_their_weights():
    loss = ExampleLoss(cross_entropy(), 3)
    values = RNG.normal(size=(2, PLACES)).astype("float32")
    expected = (values * W[:2]).sum(1) / W[:2].sum(1)
    found = loss.over_places(tf.constant(values), tf.constant(Y[:2]), tf.constant(W[:2]))
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_metrics_weigh_places():
    learner = nccl_tf.Finetune(network())
    learner.compile("sgd", cross_entropy(), metrics=["accuracy"])
    result = learner.evaluate(X, Y, sample_weight=W, verbose=0, return_dict=True)
    hits = TABLE[X].argmax(-1) == Y
    assert result["accuracy"] == pytest.approx((hits * W).sum() / W.sum(), rel=1e-5)
    logs = TABLE[X] - np.log(np.exp(TABLE[X]).sum(-1, keepdims=True))
    losses = -np.take_along_axis(logs, Y[..., None], -1)[..., 0]
    expected = ((losses * W).sum(1) / W.sum(1)).mean()
    assert result["loss"] == pytest.approx(expected, rel=1e-5)


def test_a_dataset_delivers_weights_of_places():
    data = tf.data.Dataset.from_tensor_slices((X, Y, W)).batch(COUNT)
    memory = nccl_tf.ReservoirMemory(COUNT)
    learner = nccl_tf.ExperienceReplay(network(), memory)
    learner.compile(keras.optimizers.SGD(RATE), cross_entropy())
    learner.fit(data, verbose=0)
    expected = TABLE - RATE * gradient(X, Y, W, TABLE)
    np.testing.assert_allclose(learner.network.get_weights()[0], expected, atol=1e-6)
    assert memory.extras == {PLACE_WEIGHTS: ((PLACES,), "float32")}


@pytest.mark.parametrize(
    "bad",
    [
        -1.0,
        pytest.param(np.nan, marks=pytest.mark.eager),
        pytest.param(np.inf, marks=pytest.mark.eager),
    ],
)
def test_a_weight_that_is_no_finite_number_of_0_or_more_is_named(bad):
    weights = W.copy()
    weights[3, 2] = bad
    data = tf.data.Dataset.from_tensor_slices((X, Y, weights)).batch(COUNT)
    for arguments in ((data,), (X, Y, None)):
        learner = nccl_tf.Finetune(network())
        learner.compile("sgd", cross_entropy())
        kept = {} if len(arguments) == 1 else {"sample_weight": weights}
        with pytest.raises(UserError, match=f"received the weight {bad}"):
            learner.fit(*arguments[:2], verbose=0, **kept)
        np.testing.assert_array_equal(learner.network.get_weights()[0], TABLE)


def test_class_weight_beside_weights_of_places_is_refused():
    learner = nccl_tf.Finetune(network())
    learner.compile("sgd", cross_entropy())
    with pytest.raises(UserError, match="received class_weight"):
        learner.fit(X, Y, sample_weight=W, class_weight={0: 2.0}, verbose=0)


def test_weights_of_another_form_are_refused():
    learner = nccl_tf.Finetune(network())
    learner.compile("sgd", cross_entropy())
    with pytest.raises(UserError, match=r"\[n, 2\].*for each place, \[n, 5\]"):
        learner.fit(X, Y, sample_weight=np.ones((COUNT, 2)), verbose=0)
    flat = nccl_tf.Finetune(keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)]))
    flat.compile("sgd")
    with pytest.raises(UserError, match=r"\[n, 3\], expected one for each example, \[n\]:"):
        flat.fit(np.ones((4, 3)), np.zeros(4, int), sample_weight=np.ones((4, 3)), verbose=0)


@pytest.mark.eager
def test_a_memory_that_has_no_column_for_them_says_so():
    learner = nccl_tf.ExperienceReplay(network(), nccl_tf.ReservoirMemory(COUNT))
    learned(learner, X, Y)
    with pytest.raises(UserError, match="without a column for them"):
        learner.fit(X, Y, sample_weight=W, verbose=0)


def test_a_loss_of_one_number_for_an_example_takes_no_weights_of_places():
    def mean_error(targets, outputs):
        return tf.reduce_mean(tf.square(outputs[..., 0] - targets), axis=1)

    learner = nccl_tf.Finetune(network())
    learner.compile("sgd", mean_error, run_eagerly=True)
    with pytest.raises(UserError, match="one number for each example"):
        learner.fit(X, Y, sample_weight=W, verbose=0)
