"""One sigmoid unit: two classes, for memories by class, masks, distillation and accuracies."""

import functools

import keras
import numpy as np
import pytest
import tensorflow as tf

import nccl_tf
from nccl_tf.learner.heads import STREAM_CLASSES
from nccl_tf.learner.losses import ExampleLoss
from nccl_tf.records.checkpoints import variables_to_arrays
from tests.tiny import renewed

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(160, 5)).astype("float32")
Y = (X[:, 0] + X[:, 1] > 1.0).astype("int32")
DOMAINS = np.arange(160) // 80
CASES = ("er_ring", "mega1", "mega2", "er_ace", "lwf")
SLOW = ("gem", "nccl_ring", "er_reservoir", "derpp", "ewc")


def stream(x=X, y=Y):
    return nccl_tf.stream_from_arrays((x, y), domains=DOMAINS, test_fraction=0.25)


def network(ends: str = "logit", dtype: str = "float64") -> keras.Model:
    """Equal weights, whether they end in a logit, its sigmoid, or in 0 and the logit."""
    initializers = [keras.initializers.GlorotUniform(seed=seed) for seed in range(2)]
    inputs = keras.Input((5,), dtype=dtype)
    hidden = keras.layers.Dense(4, "tanh", kernel_initializer=initializers[0], dtype=dtype)
    logit = keras.layers.Dense(1, kernel_initializer=initializers[1], dtype=dtype)
    outputs = logit(hidden(inputs))
    if ends == "sigmoid":
        outputs = keras.layers.Activation("sigmoid", dtype=dtype)(outputs)
    if ends == "two":
        outputs = keras.ops.concatenate([keras.ops.zeros_like(outputs), outputs], axis=-1)
    return keras.Model(inputs, outputs)


def loss_of(ends: str):
    return None if ends == "two" else keras.losses.BinaryCrossentropy(from_logits=ends == "logit")


@functools.cache
def learned(name: str, ends: str):
    """What a method makes of the stream: the learner and the result, which no test changes."""
    memory = 24 if nccl_tf.METHODS[name].memory else None
    # A mean over two logits, of which one is 0 now as it was, is half of that over one.
    options = {"der_alpha": 1.0 if ends == "two" else 0.5} if name == "derpp" else {}
    learner = nccl_tf.create(name, network(ends), stream(), memory=memory, seed=1, **options)
    learner.compile(keras.optimizers.SGD(0.2), loss=loss_of(ends))
    return learner, nccl_tf.learn(learner, stream(), batch_size=20, epochs=2, verbose=0)


@pytest.mark.seconds(40)
@pytest.mark.parametrize(
    "name", [*CASES, *(pytest.param(name, marks=pytest.mark.nightly) for name in SLOW)]
)
def test_a_method_is_that_of_two_logits_of_which_one_is_0(name):
    """MEGA has the two gradients of A-GEM, and weighs them by losses, which A-GEM does not."""
    (two, expected), (one, found) = (learned(name, ends) for ends in ("two", "logit"))
    for right, weight in zip(two.network.weights, one.network.weights, strict=True):
        np.testing.assert_allclose(weight.numpy(), right.numpy(), rtol=1e-6, atol=1e-7)
    np.testing.assert_array_equal(found.matrix, expected.matrix)
    if two.memory is not None:
        np.testing.assert_array_equal(
            one.memory.labels.numpy()[:24], two.memory.labels.numpy()[:24]
        )
    np.testing.assert_array_equal(found.confusion(), expected.confusion())


@pytest.mark.parametrize("name", ["er_ring", "er_ace", "lwf"])
def test_a_sigmoid_is_as_its_logit(name):
    (logit, expected), (sigmoid, found) = (learned(name, ends) for ends in ("logit", "sigmoid"))
    for right, weight in zip(logit.network.weights, sigmoid.network.weights, strict=True):
        np.testing.assert_allclose(weight.numpy(), right.numpy(), rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(found.matrix, expected.matrix)


@pytest.mark.eager
def test_a_memory_by_class_keeps_the_rare_class():
    """Of 3 % positives a ring fills its slots, and a balanced memory half of its own."""
    x = RANDOM.normal(size=(400, 5)).astype("float32")
    y = (np.arange(400) % 33 == 0).astype("int32")  # 13 positives
    memories = nccl_tf.RingMemory(10, [[0, 1]]), nccl_tf.BalancedMemory(20, [[0, 1]])
    for memory in memories:
        learner = nccl_tf.ExperienceReplay(network("sigmoid", "float32"), memory)
        learner.compile(keras.optimizers.SGD(0.1), loss="binary_crossentropy")
        learner.fit(x, y, batch_size=100, verbose=0)
        assert memory.labels.numpy()[:20].sum() == 10
        assert learner.accuracy(x, y) == np.mean((learner.predict(x, verbose=0)[:, 0] > 0.5) == y)


def test_an_accuracy_is_keras_s_binary_accuracy():
    learner = nccl_tf.Finetune(network("logit", "float32"))
    learner.compile(
        keras.optimizers.SGD(0.3), keras.losses.BinaryCrossentropy(from_logits=True), ["accuracy"]
    )
    learner.fit(X, Y, epochs=3, verbose=0)
    expected = learner.evaluate(X, Y, verbose=0, return_dict=True)["accuracy"]
    assert learner.accuracy(X, Y[:, None]) == pytest.approx(expected, abs=1e-7)


def test_what_the_stream_s_loss_leaves_out_is_sure():
    """By hand: of both classes the sigmoid, of one alone no loss and no gradient."""
    batch = nccl_tf.Batch(
        tf.zeros([2, 1]), tf.constant([0.0, 1.0]), tf.zeros([2], tf.int64), tf.ones([2])
    )
    for from_logits, outputs in ((True, [[2.0], [-1.0]]), (False, [[0.88], [0.27]])):
        loss = ExampleLoss(keras.losses.BinaryCrossentropy(from_logits), outputs=1)
        value = tf.constant(outputs)
        both, own = ([[True, True]] * 2, [[True, False], [False, True]])
        probability = tf.sigmoid(value)[:, 0] if from_logits else value[:, 0]
        by_hand = -np.log([1 - probability[0], probability[1]])
        for keep, expected in ((both, by_hand), (own, [0, 0])):
            masked = loss.for_stream(
                value, batch._replace(extras={STREAM_CLASSES: tf.constant(keep)})
            )
            np.testing.assert_allclose(loss.of(masked, batch), expected, atol=2e-6)


@functools.cache
def of_all_labels():
    """A learner whose graphs serve all cases, and its first state."""
    learner = nccl_tf.Finetune(network("logit", "float32"))
    learner.compile(keras.optimizers.SGD(0.1), keras.losses.BinaryCrossentropy(from_logits=True))
    return learner, variables_to_arrays(learner.state_variables)


@pytest.mark.parametrize("as_data", [lambda x, y: (x, y), lambda x, y: (dataset(x, y),)])
@pytest.mark.parametrize("label", [2, -1, 1.5])
def test_a_label_that_is_neither_class_is_refused(as_data, label):
    learner = renewed(*of_all_labels())
    y = Y.astype("float32")
    y[3] = label
    with pytest.raises(nccl_tf.UserError, match="label"):
        learner.fit(*as_data(X, y), verbose=0)


def dataset(x, y):
    return tf.data.Dataset.from_tensor_slices((x, y)).batch(32)


@pytest.mark.eager
def test_labels_that_are_shares_or_missing():
    learner = nccl_tf.Finetune(network("logit", "float32"))
    learner.compile(keras.optimizers.SGD(0.1), keras.losses.BinaryCrossentropy(from_logits=True))
    shares = np.where(Y, 0.9, 0.2)
    learner.fit(X, shares, verbose=0)
    assert learner.accuracy(X, shares) == learner.accuracy(X, Y)
    shares[0] = np.nan
    with pytest.raises(nccl_tf.UserError, match="without a label"):
        learner.fit(X, shares, verbose=0)
    weights = np.ones(len(X))
    weights[0] = 0
    learner.fit(X, shares, sample_weight=weights, verbose=0)
    with pytest.raises(nccl_tf.UserError, match="one output"):
        learner.fit(X, np.stack([Y, Y], 1), verbose=0)


def test_one_unit_does_not_grow():
    learner = nccl_tf.Finetune(network("logit", "float32"))
    learner.compile(keras.optimizers.SGD(0.1), keras.losses.BinaryCrossentropy(from_logits=True))
    with pytest.raises(nccl_tf.UserError, match="an output for each class"):
        learner.add_classes(1)


@pytest.mark.eager
def test_a_file_and_known_classes(tmp_path):
    learner = nccl_tf.LwF(network("logit", "float32"), known_classes=[0, 1])
    learner.compile(keras.optimizers.SGD(0.1), keras.losses.BinaryCrossentropy(from_logits=True))
    learner.fit(X, Y, verbose=0)
    assert learner.old_units.numpy().tolist() == [[True, True]]
    learner.save(tmp_path / "one.keras")
    again = nccl_tf.load_model(tmp_path / "one.keras")
    for each in (learner, again):
        each.fit(X, Y, shuffle=False, verbose=0)
    for right, weight in zip(learner.weights, again.weights, strict=True):
        np.testing.assert_array_equal(weight.numpy(), right.numpy())


@pytest.mark.eager
def test_one_logit_of_a_softmax_is_one_class():
    """A learner whose head begins with one class, and grows."""
    learner = nccl_tf.LwF(network("logit", "float32"))
    learner.compile(keras.optimizers.SGD(0.1))
    learner.fit(X, np.zeros(len(X), int), verbose=0)
    assert learner.predict(X, verbose=0).shape == (len(X), 1)
    learner.add_classes(1)
    learner.fit(X, np.ones(len(X), int), verbose=0)
    assert learner.progress.seen_classes.numpy().tolist() == [True, True]
