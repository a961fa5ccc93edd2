"""What is saved can be loaded again, or saving says why not."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import nccl_tf
from nccl_tf.errors import UserError
from tests.tiny import IMAGE_SHAPE, tiny_batches, tiny_network


def fitted(learner_class, memory, **arguments):
    learner = learner_class(tiny_network(), memory, **arguments)
    learner.compile(keras.optimizers.SGD(0.1), run_eagerly=True)
    learner.fit(tiny_batches(0, 10), verbose=0)
    return learner


def test_a_class_that_is_not_registered_is_named(tmp_path):
    class Own(nccl_tf.Finetune):
        pass

    path = tmp_path / "learner.keras"
    Own(tiny_network()).save(path)
    assert type(nccl_tf.load_model(path, {"Own": Own})) is Own


@keras.saving.register_keras_serializable(package="tests")
class CompilesItself(keras.Sequential):
    """As a task of KerasHub, which Keras leaves uncompiled when it loads it."""

    def compile(self, *args, **kwargs):
        super().compile(*args, **kwargs)


def test_a_network_with_a_compile_of_its_own_loads_in_silence(tmp_path, recwarn):
    network = CompilesItself([keras.Input((3,)), keras.layers.Dense(2)])
    network.compile("sgd", "mse")
    nccl_tf.Finetune(network).save(tmp_path / "learner.keras")
    loaded = nccl_tf.load_model(tmp_path / "learner.keras")
    assert type(loaded.network) is CompilesItself
    assert "compile()" not in "".join(str(each.message) for each in recwarn)


def from_checkpoint(learner, path):
    """Read a file of weights, as one of an earlier version may be."""
    tf.train.Checkpoint(model=learner.network).write(path)
    tf.train.Checkpoint(model=learner).read(path)


@pytest.mark.parametrize(
    ("verb", "said"),
    [
        (lambda learner, folder: learner.save(folder / "a.h5"), "expected a .keras file"),
        (lambda learner, folder: learner.export(folder / "a"), "serving_model"),
        (lambda learner, folder: tf.saved_model.save(learner, folder / "a"), "serving_model"),
        (lambda learner, folder: tf.train.Checkpoint(model=learner).write(folder / "a"), "network"),
        (lambda learner, folder: from_checkpoint(learner, folder / "a"), "memory"),
    ],
)
def test_other_formats_are_refused(verb, said, tmp_path):
    with pytest.raises(UserError, match=said):
        verb(nccl_tf.Finetune(tiny_network()), tmp_path)


def test_a_full_disk_leaves_the_earlier_model(tmp_path, full_disk):
    learner, path = nccl_tf.Finetune(tiny_network()), tmp_path / "model.keras"
    learner.save(path)
    link, before = tmp_path / "link.keras", path.read_bytes()
    link.symlink_to(path)
    with pytest.raises(OSError), full_disk(len(before) // 2):
        learner.save(link)
    assert path.read_bytes() == before and link.is_symlink()
    assert len(list(tmp_path.iterdir())) == 2


def test_weights_are_loaded_with_the_examples_or_not_at_all(tmp_path):
    path = tmp_path / "learner.weights.h5"
    learner = fitted(nccl_tf.ExperienceReplay, nccl_tf.ReservoirMemory(8))
    learner.save_weights(path)
    shaped = nccl_tf.ExperienceReplay(tiny_network(), nccl_tf.ReservoirMemory(8, IMAGE_SHAPE))
    shaped.compile(keras.optimizers.SGD(0.1))
    shaped.load_weights(path)
    for one, other in zip(learner.memory.variables, shaped.memory.variables, strict=True):
        np.testing.assert_array_equal(one.numpy(), other.numpy())
    without = nccl_tf.ExperienceReplay(tiny_network(), nccl_tf.ReservoirMemory(8))
    with pytest.raises(UserError, match="ReservoirMemory without shapes"):
        without.load_weights(path)


def test_dropout_goes_on_with_the_draws_that_would_have_come(tmp_path):
    inputs, labels = np.ones((20, 8), np.float32), np.arange(20) % 2
    layers = [keras.Input((8,)), keras.layers.Dropout(0.5), keras.layers.Dense(2)]
    model = nccl_tf.Finetune(keras.Sequential(layers))
    model.compile("sgd", run_eagerly=True)
    model.fit(inputs, labels, verbose=0)
    model.save(tmp_path / "learner.keras")
    loaded = nccl_tf.load_model(tmp_path / "learner.keras")
    for one in (model, loaded):
        one.fit(inputs, labels, verbose=0, shuffle=False)
    for left, right in zip(model.get_weights(), loaded.get_weights(), strict=True):
        np.testing.assert_array_equal(left, right)


@pytest.mark.parametrize("which", ["loss", "metrics"])
def test_a_lambda_is_refused_before_it_is_saved(tmp_path, which):
    def function(targets, outputs):
        return keras.ops.sum((targets - outputs) ** 2, -1)

    model = nccl_tf.Finetune(tiny_network())
    alone = lambda targets, outputs: function(targets, outputs)  # noqa: E731
    arguments = {"loss": function, "metrics": [function]}
    model.compile("sgd", **arguments)
    model.save(tmp_path / "learner.keras")
    model.compile("sgd", **{**arguments, which: alone if which == "loss" else [alone]})
    with pytest.raises(UserError, match="loss or metric is a lambda"):
        model.save(tmp_path / "learner.keras")
