"""Adapters on a base of int8: what is trained, and that a file goes on to the bit."""

import keras
import numpy as np
import pytest

import nccl_tf

RNG = np.random.default_rng(0)
X = RNG.integers(0, 8, (20, 5))
Y = X % 4


def adapted():
    keras.utils.set_random_seed(0)
    inputs = keras.Input((5,), dtype="int32")
    hidden = keras.layers.Dense(6, "relu")(keras.layers.Embedding(8, 6)(inputs))
    network = keras.Model(inputs, keras.layers.Dense(4)(hidden))
    for layer in network.layers[1:]:  # an input has nothing to quantize, of which Keras warns
        layer.quantize("int8")
        layer.enable_lora(2)
    return network


def compiled(learner):
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    learner.compile(keras.optimizers.Adam(0.01), loss)
    return learner


def fit(learner, x, y):
    learner.fit(x, y, batch_size=5, shuffle=False, verbose=0)


def values(learner):
    memory = [] if learner.memory is None else learner.memory.variables
    return [v.numpy() for v in (*learner.variables, *learner.optimizer.variables, *memory)]


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda network: nccl_tf.NCCL(network, nccl_tf.ReservoirMemory(10)), id="nccl"),
        pytest.param(nccl_tf.EWC, id="ewc", marks=pytest.mark.eager),
    ],
)
@pytest.mark.seconds(16)  # two learners trace their steps, and one of them anew from its file
def test_adapters_on_int8_are_trained_and_a_file_goes_on_to_the_bit(make, tmp_path):
    """Gradients of a batch and of a memory, in a graph, and importances, without one.

    A step of either is that of fine-tuning or replay, and more.
    """
    learner = compiled(make(adapted()))
    frozen = [v for v in learner.network.variables if not v.trainable]
    assert {"int8", "float32"} == {v.dtype for v in frozen}  # weights and their scales
    before = [v.numpy() for v in learner.network.variables]
    fit(learner, X, Y)
    for variable, value in zip(learner.network.variables, before, strict=True):
        assert np.array_equal(variable.numpy(), value) != variable.trainable, variable.path
    learner.save(tmp_path / "learner.keras")
    loaded = nccl_tf.load_model(tmp_path / "learner.keras")
    for each in (learner, loaded):
        fit(each, X[::-1], Y[::-1])
    for one, other in zip(values(learner), values(loaded), strict=True):
        np.testing.assert_array_equal(one, other)
    learner.save_adapters(tmp_path / "adapters.npz")
    again = compiled(make(adapted()))
    again.load_adapters(tmp_path / "adapters.npz")
    outputs = [each.network.predict(X, verbose=0) for each in (learner, again)]
    np.testing.assert_array_equal(*outputs)


@pytest.mark.parametrize("mode", ["int8", "int4"])
def test_a_quantized_head_cannot_grow(mode):
    network = keras.Sequential([keras.Input((4,)), keras.layers.Dense(4), keras.layers.Dense(2)])
    network.layers[-1].quantize(mode)
    model = nccl_tf.Finetune(network)
    with pytest.raises(nccl_tf.UserError, match=f"is quantized to {mode}"):
        model.add_classes(1)
    assert model.num_classes == 2
