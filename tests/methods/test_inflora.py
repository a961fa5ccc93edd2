"""InfLoRA: outputs on old inputs stay, merging keeps predictions, and only B and the head learn."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import nccl_tf
from nccl_tf.methods import inflora as module

RNG = np.random.default_rng(2)
SIDE = 6


def network(hidden=5):
    keras.utils.set_random_seed(0)
    return keras.Sequential([
        keras.Input((SIDE,)), keras.layers.Dense(hidden, "tanh"), keras.layers.Dense(4),
    ])  # fmt: skip


def learner(net=None, **arguments):
    made = nccl_tf.InfLoRA(net or network(), **{"rank": 2, "epsilon": 1.0, **arguments})
    made.compile(keras.optimizers.Adam(0.1))
    return made


def of_plane(count, axes):
    """Inputs within the plane of some axes."""
    x = np.zeros((count, SIDE), np.float32)
    x[:, axes] = RNG.normal(size=(count, len(axes)))
    return x


def fit(made, x, labels, **arguments):
    made.fit(x, labels, batch_size=5, verbose=0, **arguments)


@pytest.mark.eager
def test_an_update_leaves_outputs_on_protected_inputs_and_moves_others():
    made = learner()
    old, new = of_plane(20, [0, 1]), of_plane(20, [1, 2, 3])
    fit(made, old, np.arange(20) % 2)
    layer = made.network.layers[0]
    before, others = np.asarray(layer(old)), np.asarray(layer(new))
    fit(made, new, 2 + np.arange(20) % 2, epochs=3)
    np.testing.assert_allclose(layer(old), before, atol=1e-6)
    assert np.abs(np.asarray(layer(new)) - others).max() > 0.05


@pytest.mark.eager
def test_the_zeros_of_a_merged_pair_are_no_fault(caplog):
    made, x = learner(), np.eye(SIDE, dtype=np.float32).repeat(4, axis=0)
    for task in range(3):  # All directions are protected after the first task.
        fit(made, x, task + np.arange(24) % 2)
    assert "both matrices" not in caplog.text


@pytest.mark.eager
def test_merging_keeps_predictions():
    made = learner()
    x = RNG.normal(size=(20, SIDE)).astype(np.float32)
    fit(made, x, np.arange(20) % 2, end_task=False)
    layer = made.network.layers[0]
    before, kernel = np.asarray(made.network(x)), layer._kernel.numpy().copy()
    assert np.abs(layer.lora_kernel_b.numpy()).max() > 0
    made.end_task()
    np.testing.assert_allclose(made.network(x), before, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(layer.lora_kernel_b, np.zeros((2, 5)))
    assert np.abs(layer._kernel.numpy() - kernel).max() > 1e-3


def test_directions_are_leading_ones_outside_of_what_is_protected():
    protected = np.diag([1.0, 0, 0, 0])
    second = np.diag([9.0, 1.0, 4.0, 0.0])
    found = module.directions(protected, second, 2)
    np.testing.assert_allclose(np.abs(found), [[0, 0], [0, 1], [1, 0], [0, 0]], atol=1e-12)
    # Two directions are left; a third has nothing to learn from.
    np.testing.assert_array_equal(module.directions(protected, second, 3)[:, 2], np.zeros(4))


@pytest.mark.parametrize(
    ("share", "axes"), [(0.5, [0]), (0.81, [0]), (0.9, [0, 2]), (0.98, [0, 2]), (1.0, [0, 1, 2])]
)
def test_the_protected_space_grows_to_its_share(share, axes):
    second = np.diag([9.0, 1.0, 3.0, 0.0])  # Squares 81, 1, 9 of 91.
    expected = np.diag([float(k in axes) for k in range(4)])
    found = module.grown(np.zeros((4, 4)), second, share)
    np.testing.assert_allclose(found, expected, atol=1e-12)
    np.testing.assert_allclose(module.grown(found, second, share), found, atol=1e-12)


def test_the_directions_of_a_task_are_those_of_its_inputs_by_numpy():
    made = learner(epsilon=0.9, num_tasks=2)
    first, second = (RNG.normal(size=(30, SIDE)).astype(np.float32) for _ in range(2))
    second *= np.arange(1, SIDE + 1)
    fit(made, first, np.arange(30) % 2)
    h = first.T.astype(np.float64) @ first / 30
    vectors, values, _ = np.linalg.svd(h)
    count = np.searchsorted(np.cumsum(values**2) / np.sum(values**2), 0.9) + 1
    projection = vectors[:, :count] @ vectors[:, :count].T
    option = made.option(module.FreeDirections)
    np.testing.assert_allclose(option.protected[0].numpy(), projection, atol=1e-6)
    fit(made, second, 2 + np.arange(30) % 2, end_task=False)
    h = second.T.astype(np.float64) @ second / 30
    vectors, _, _ = np.linalg.svd(h - projection @ h)
    found = made.network.layers[0].lora_kernel_a.numpy() * np.sqrt(3)
    np.testing.assert_allclose(np.abs(found.T @ vectors[:, :2]), np.eye(2), atol=1e-4)
    assert made._share(0) == 0.9 and made._share(1) == pytest.approx(0.95)


@pytest.mark.eager
def test_padding_and_nan_are_no_inputs_of_a_task():
    made, expected = learner(epsilon=0.8), learner(epsilon=0.8)
    x, weights = RNG.normal(size=(20, SIDE)).astype(np.float32), np.ones(20, np.float32)
    x[::4] *= 100
    weights[::4] = 0
    kept = np.setdiff1d(np.flatnonzero(weights), [3])
    data = [(x, np.arange(20) % 2, weights), (x[kept].copy(), kept % 2)]
    x[3, 0] = np.nan
    for each, columns in zip((made, expected), data, strict=True):
        each.fit(tf.data.Dataset.from_tensor_slices(columns).batch(5), verbose=0)
    found, wanted = (each.option(module.FreeDirections).protected[0] for each in (made, expected))
    assert 0 < np.linalg.matrix_rank(wanted) < SIDE
    np.testing.assert_allclose(found, wanted, atol=1e-6)


@pytest.mark.eager
def test_a_task_that_ends_without_its_pass_is_told_though_it_began_with_one(caplog):
    made, x = learner(), of_plane(10, [0, 1])
    fit(made, x, np.arange(10) % 2, end_task=False)
    assert "asks for" not in caplog.text
    made.end_task()
    assert "that FreeDirections asks for" in caplog.text


def test_biases_and_every_other_weight_are_frozen():
    keras.utils.set_random_seed(0)
    net = keras.Sequential([
        keras.Input((SIDE,)), keras.layers.Dense(5), keras.layers.LayerNormalization(),
        keras.layers.Dense(4), keras.layers.Dense(4),
    ])  # fmt: skip
    net.layers[0].enable_lora(2)
    assert len(net.trainable_variables) == 9
    made = learner(net)
    names = [v.path.rpartition("/")[2] for v in made.trainable_variables]
    assert names == ["lora_kernel_b", "kernel", "bias"]
    assert not net.layers[2].lora_enabled


@pytest.mark.eager
def test_attention_has_one_set_of_directions_for_its_heads():
    keras.utils.set_random_seed(0)
    inputs = keras.Input((3, SIDE))
    attended = keras.layers.MultiHeadAttention(2, 4, output_shape=SIDE)(inputs, inputs)
    outputs = keras.layers.Dense(4)(keras.layers.GlobalAveragePooling1D()(attended))
    net = keras.Model(inputs, outputs)
    made = learner(net)
    adapted = [x for x in net._flatten_layers(include_self=False) if getattr(x, "lora_enabled", 0)]
    assert {layer.name for layer in adapted} == {"key", "value"}
    x = RNG.normal(size=(10, 3, SIDE)).astype(np.float32)
    x[..., 3:] = 0
    fit(made, x, np.arange(10) % 2)
    before = [np.asarray(layer(x)) for layer in adapted]
    fit(made, RNG.normal(size=(10, 3, SIDE)).astype(np.float32), 2 + np.arange(10) % 2)
    for layer, outputs in zip(adapted, before, strict=True):
        np.testing.assert_allclose(layer(x), outputs, atol=1e-5)
        a = layer.lora_kernel_a.numpy()
        np.testing.assert_array_equal(a[:, 0], a[:, 1])


@pytest.mark.eager
def test_the_optimizer_begins_a_task_as_a_new_one():
    made = learner()
    x = RNG.normal(size=(20, SIDE)).astype(np.float32)
    fit(made, x, np.arange(20) % 2)
    assert any(np.any(v.numpy()) for v in made.optimizer._momentums)
    made.begin_task(1)
    kept = {v.path.rpartition("/")[2] for v in made.optimizer.variables if np.any(v.numpy())}
    assert kept == {"learning_rate"}


@pytest.mark.eager
def test_a_file_goes_on_to_the_bit(tmp_path):
    made = learner()
    fit(made, of_plane(10, [0, 1]), np.arange(10) % 2)
    made.save(tmp_path / "inflora.keras")
    loaded = nccl_tf.load_model(tmp_path / "inflora.keras")
    x = of_plane(10, [1, 2, 3])
    for each in (made, loaded):
        fit(each, x, 2 + np.arange(10) % 2, shuffle=False)
    for one, other in zip(made.get_weights(), loaded.get_weights(), strict=True):
        np.testing.assert_array_equal(one, other)
    assert made.serving_model()(x).shape == (10, 4)


def test_an_average_does_not_follow_a_merge():
    with pytest.raises(nccl_tf.UserError, match="average_weights"):
        nccl_tf.InfLoRA(nccl_tf.networks.mlp((2, 2, 1), 4), average_weights=0.9)


def test_what_has_no_directions_is_refused_by_name():
    embedding = keras.Sequential([
        keras.Input((3,), dtype="int32"), keras.layers.Embedding(5, 4, name="words"),
        keras.layers.Flatten(), keras.layers.Dense(4),
    ])  # fmt: skip
    with pytest.raises(nccl_tf.UserError, match="without a dense layer"):
        nccl_tf.InfLoRA(embedding)
    embedding.layers[0].enable_lora(2)
    with pytest.raises(nccl_tf.UserError, match="'words', a Embedding"):
        nccl_tf.InfLoRA(embedding)
    einsum = keras.Sequential([
        keras.Input((3, 4)), keras.layers.EinsumDense("abc,bd->acd", (4, 2), name="across"),
        keras.layers.Flatten(), keras.layers.Dense(4),
    ])  # fmt: skip
    with pytest.raises(nccl_tf.UserError, match="'across', an EinsumDense of 'abc,bd->acd'"):
        nccl_tf.InfLoRA(einsum)
    tokens = keras.Input((3,), dtype="int32")  # As language models have it that generate text.
    words = keras.layers.ReversibleEmbedding(5, 4)
    hidden = keras.layers.Dense(4, name="value")(words(tokens))
    with pytest.raises(nccl_tf.UserError, match="no dense layer is known to make the outputs"):
        nccl_tf.InfLoRA(keras.Model(tokens, words(hidden, reverse=True)))

    class Own(keras.Model):
        def call(self, inputs):
            return inputs

    with pytest.raises(nccl_tf.UserError, match=r"Own .* no dense layer is known"):
        nccl_tf.InfLoRA(Own())
    with pytest.raises(nccl_tf.UserError, match="rank"):
        nccl_tf.InfLoRA(network(), rank=0)
