"""Parameter counts, initial weights, pixel scaling, seeds and saving of the networks."""

import keras
import numpy as np
import pytest

from nccl_tf.errors import UserError
from nccl_tf.networks import mlp, resnet18, resnet18_one_conv, resnet18_reduced
from nccl_tf.streams.arrays import PixelScaling

SMALL = (8, 8, 3)


def trainable_count(model):
    return sum(int(np.prod(weight.shape)) for weight in model.trainable_weights)


@pytest.fixture
def policy():
    before = keras.config.dtype_policy()
    yield keras.config.set_dtype_policy
    keras.config.set_dtype_policy(before)


@pytest.fixture
def images():
    return np.random.default_rng(0).integers(0, 256, (4, *SMALL)).astype(np.uint8)


def test_parameter_counts():
    assert trainable_count(mlp((28, 28, 1), 10)) == 269_322
    assert trainable_count(resnet18_reduced((32, 32, 3), 100)) == 1_109_240
    assert trainable_count(resnet18((32, 32, 3), 100)) == 11_227_812
    assert trainable_count(resnet18_one_conv((32, 32, 3), 100)) == 496_680


def test_mlp_weights_are_orthogonal_and_biases_a_tenth():
    model = mlp((28, 28, 1), 10, seed=3)
    for layer in model.layers:
        if isinstance(layer, keras.layers.Dense):
            kernel, bias = layer.get_weights()
            gram = kernel.T @ kernel  # No layer is wider than its input.
            np.testing.assert_allclose(gram, np.eye(len(gram)), atol=1e-5)
            np.testing.assert_array_equal(bias, np.float32(0.1))


def test_mlp_is_the_formula():
    model = mlp((2, 3, 1), 4, hidden=(5,), pixels=PixelScaling(1 / 16))
    x = np.random.default_rng(0).integers(0, 17, (7, 2, 3, 1)).astype(np.uint8)
    kernel1, bias1, kernel2, bias2 = model.get_weights()
    hidden = np.maximum(x.reshape(7, 6) / 16 @ kernel1 + bias1, 0)
    np.testing.assert_allclose(model(x), hidden @ kernel2 + bias2, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("make", "side", "relu_after_stem"), [(resnet18_reduced, 3, True), (resnet18, 7, False)]
)
def test_resnet_layout(make, side, relu_after_stem):
    model = make((84, 84, 3), 100)
    convs = [layer for layer in model.layers if isinstance(layer, keras.layers.Conv2D)]
    assert len(convs) == 1 + 16 + 3
    assert convs[0].kernel_size == (side, side)
    assert convs[0].strides == (1, 1)
    assert {layer.padding for layer in convs} == {"same"}
    assert not any(layer.use_bias for layer in convs)
    strided = [layer for layer in convs if layer.strides == (2, 2)]
    assert sorted(layer.kernel_size for layer in strided) == [(1, 1)] * 3 + [(3, 3)] * 3
    norms = [layer for layer in model.layers if isinstance(layer, keras.layers.BatchNormalization)]
    assert len(norms) == 20
    assert {(norm.momentum, norm.epsilon) for norm in norms} == {(0.9, 1e-3)}
    relus = sum(isinstance(layer, keras.layers.ReLU) for layer in model.layers)
    assert relus == 16 + relu_after_stem
    assert not any("Pooling2D" in type(layer).__name__ for layer in model.layers[:-2])
    assert model.get_layer("pool").input.shape[1:3] == (11, 11)  # 84, 42, 21, 11


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: mlp(8, 4), "example_shape=8, expected the shape"),
        (lambda: mlp({"a": (3,)}, 4), "several inputs, build your own network"),
        (lambda: mlp((8,), 4, hidden=64), r"\(64,\)"),
        (lambda: resnet18((8,), 4), r"such as \(32, 32, 3\)"),
    ],
)
def test_what_is_no_shape_is_refused(make, said):
    with pytest.raises(UserError, match=said):
        make()


def relu(x):
    return np.maximum(x, 0)


@pytest.mark.parametrize(("number", "stride"), [(1, 2), (2, 1)])
def test_a_block_of_one_convolution_by_hand(number, stride):
    """`BasicBlock.forward` of Stable SGD's code in evaluation: conv, relu, norm, add, relu, norm.

    On an input that is constant in space a convolution without its border is a matrix.
    """
    model = resnet18_one_conv((32, 32, 3), 10, seed=1)
    name = f"stage2_block{number}"
    before = model.get_layer("stage1_block2_norm" if number == 1 else "stage2_block1_norm")
    block = keras.Model(before.output, model.get_layer(f"{name}_norm").output)
    random = np.random.default_rng(0)
    for part in (f"{name}_a", name):
        norm = model.get_layer(f"{part}_norm")
        norm.set_weights([random.uniform(0.5, 2, v.shape) for v in norm.get_weights()])

    def normed(x, part):
        gamma, beta, mean, variance = model.get_layer(f"{part}_norm").get_weights()
        return (x - mean) / np.sqrt(variance + 1e-5) * gamma + beta

    x = random.normal(size=before.output.shape[-1]).astype(np.float32)
    kernel = model.get_layer(f"{name}_a_conv").kernel.numpy().sum((0, 1))
    shortcut = x
    if stride == 2:
        shortcut = x @ model.get_layer(f"{name}_shortcut_conv").kernel.numpy()[0, 0]
    y = normed(relu(x @ kernel), f"{name}_a")
    expected = normed(relu(y + shortcut), name)
    side = before.output.shape[1]
    outputs = block(np.broadcast_to(x, (1, side, side, len(x))))
    assert outputs.shape[1:3] == (16, 16)
    np.testing.assert_allclose(outputs[0, 3, 3], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("make", [resnet18_reduced, resnet18_one_conv])
def test_resnet_reference_initialisation(make):
    """Of the network of Stable SGD's code as in PyTorch, the fan being k^2 c_in; else k c_in."""
    model = make(SMALL, 100)
    for layer in model.layers:
        if isinstance(layer, keras.layers.Conv2D):
            side, _, channels, _ = layer.kernel.shape
            bound = 1 / np.sqrt(side * channels * (side if make is resnet18_one_conv else 1))
            assert np.abs(layer.kernel).max() <= bound
            spread = 0.05 if np.prod(layer.kernel.shape) > 2000 else 0.15
            assert np.std(layer.kernel) == pytest.approx(bound / np.sqrt(3), rel=spread)
    kernel, bias = model.get_layer("logits").get_weights()
    bound = 1 / np.sqrt(len(kernel))
    assert 0.9 * bound < np.abs(kernel).max() <= bound
    assert 0.5 * bound < np.abs(bias).max() <= bound


def test_he_initialisation_changes_the_convolutions_only():
    reference, he = resnet18_reduced(SMALL, 10), resnet18_reduced(SMALL, 10, conv_init="he")
    kernel = he.get_layer("stage4_block2_a_conv").get_weights()[0]
    assert np.std(kernel) == pytest.approx(np.sqrt(2 / (9 * 160)), rel=0.02)
    for one, other in zip(
        reference.get_layer("logits").get_weights(),
        he.get_layer("logits").get_weights(),
        strict=True,
    ):
        np.testing.assert_array_equal(one, other)


def test_weights_depend_on_the_seed_alone():
    make = mlp
    first = make(SMALL, 10, seed=1)
    keras.utils.set_random_seed(12345)
    again, other = make(SMALL, 10, seed=1), make(SMALL, 10, seed=2)
    for one, same in zip(first.get_weights(), again.get_weights(), strict=True):
        np.testing.assert_array_equal(one, same)
    for one, different in zip(first.weights, other.weights, strict=True):
        if one.path.endswith("kernel"):
            assert np.abs(one - different).max() > 1e-3


@pytest.mark.parametrize(
    ("mean", "std"),
    [
        (None, None),
        (np.float32([0.485, 0.456, 0.406]), np.float32([0.229, 0.224, 0.225])),
    ],
)
def test_pixels_are_scaled_in_float32(policy, images, mean, std):
    policy("mixed_bfloat16")
    model = mlp(SMALL, 10, pixels=PixelScaling(mean=mean, std=std))
    scaled = keras.Model(model.input, model.get_layer("flatten").input)(images)
    expected = (images / 255 - (0 if mean is None else mean)) / (1 if std is None else std)
    np.testing.assert_allclose(scaled, expected, atol=2e-6)
    assert model(images).dtype == "float32"


def test_mean_image_is_not_trained_and_not_in_the_config():
    mean = np.random.default_rng(1).random((32, 32, 3), np.float32)
    model = resnet18_reduced((32, 32, 3), 100, pixels=PixelScaling(mean=mean))
    assert trainable_count(model) == 1_109_240
    plain = resnet18_reduced((32, 32, 3), 100)
    assert len(model.to_json()) < len(plain.to_json()) + 2_000
    assert not model.get_layer("mean_image").trainable_weights


def test_float_images_give_the_logits_of_raw_ones(images):
    model = mlp(SMALL, 10)
    np.testing.assert_array_equal(model(images), model(images.astype(np.float32)))


def test_saved_and_loaded_network_gives_the_same_logits(tmp_path, images):
    mean = np.random.default_rng(1).random(SMALL, np.float32)
    model = resnet18_reduced(SMALL, 10, pixels=PixelScaling(mean=mean))
    model.save(tmp_path / "network.keras")
    loaded = keras.saving.load_model(tmp_path / "network.keras")
    np.testing.assert_array_equal(model(images), loaded(images))
    np.testing.assert_array_equal(loaded.get_layer("mean_image").mean, mean)


@pytest.fixture
def channels_first():
    before = keras.config.image_data_format()
    keras.config.set_image_data_format("channels_first")
    yield
    keras.config.set_image_data_format(before)


@pytest.mark.parametrize("make", [mlp, resnet18_one_conv])
def test_networks_are_the_same_whatever_keras_takes_for_the_axis_of_channels(images, make, request):
    usual = make(SMALL, 4)
    request.getfixturevalue("channels_first")
    other = make(SMALL, 4)
    assert [w.shape for w in other.weights] == [w.shape for w in usual.weights]
    np.testing.assert_array_equal(other(images), usual(images))


def test_bad_arguments():
    with pytest.raises(UserError, match="hidden"):
        mlp(SMALL, 10, hidden=(256, 0))
    with pytest.raises(UserError, match="did you mean 'reference'"):
        resnet18_reduced(SMALL, 10, conv_init="referense")
