"""Every kind of learner takes Keras's steps on a device: its export compares them."""

import functools

import keras
import numpy as np
import pytest

import nccl_tf
from benchmarks import on_device
from nccl_tf.device_file.flat_file import FlatFile
from nccl_tf.errors import UserError
from tests.device_file.learners import (
    SHAPE,
    TASKS,
    Device,
    compiled,
    er,
    examples,
    memory,
    network,
)  # fmt: skip

pytestmark = [pytest.mark.nightly, pytest.mark.seconds(90)]
LOGITS = {"logits": ((6,), "float32")}
SGD, SCHEDULES = keras.optimizers.SGD, keras.optimizers.schedules


SMALL = [
    key for key in on_device.ALL if key[1] != "efficientnet"
]  # whose weights are no part of us


def exported(learner, path, *fitted):
    learner.fit(*(fitted or examples(0, 40)), batch_size=10, verbose=0)
    return nccl_tf.export_learner(learner, path / "a.tflite")


@pytest.mark.parametrize(("method", "net"), SMALL)
def test_a_method_on_a_network(method, net, tmp_path):
    path = tmp_path / "a.tflite"
    row = on_device.exported((method, net), path, None)
    assert 0 < row["difference"] < 1e-5
    assert not [name for name in FlatFile(path.read_bytes()).operations if name.startswith("Flex")]


OPTIMIZERS = {
    "momentum": functools.partial(SGD, 0.05, momentum=0.9),
    "nesterov": functools.partial(SGD, 0.05, momentum=0.9, nesterov=True),
    "adam": functools.partial(keras.optimizers.Adam, 0.01),
    "adamw": functools.partial(keras.optimizers.AdamW, 0.01),
    "clipnorm": functools.partial(SGD, 0.05, clipnorm=0.5),
    "clipvalue": functools.partial(SGD, 0.05, clipvalue=0.01),
    "global_clipnorm": functools.partial(SGD, 0.05, global_clipnorm=0.5),
    "accumulates": functools.partial(SGD, 0.05, gradient_accumulation_steps=2),
    "decays": functools.partial(SGD, 0.05, weight_decay=0.01),
    "averages": functools.partial(SGD, 0.05, use_ema=True),
    "rmsprop": functools.partial(keras.optimizers.RMSprop, 0.01),
    "cosine": lambda: SGD(SCHEDULES.CosineDecay(0.1, 50)),
    "exponential": lambda: SGD(SCHEDULES.ExponentialDecay(0.1, 5, 0.9, staircase=True)),
    "piecewise": lambda: SGD(SCHEDULES.PiecewiseConstantDecay([3, 9], [0.1, 0.05, 0.01])),
}


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_an_optimizer(optimizer, tmp_path):
    assert exported(er(optimizer=OPTIMIZERS[optimizer]()), tmp_path).difference < 1e-5


OPTIONS = {
    "average_weights": {"average_weights": 0.9},
    "rate_decay": {"rate_decay": 0.5, "optimizer": SGD(0.05, momentum=0.9)},
    "rate_decay_steps": {"rate_decay": 0.5, "rate_decay_steps": 3},
    "rates": {"rates": {"bias": 0.1}},
    "every_epoch": {"stores": "every_epoch"},
    "present": {"stream_mask": "present"},
    "seen": {"stream_mask": "seen"},
    "task": {"stream_mask": "task"},
    "known_classes": {"known_classes": [4, 5]},
    "heads": {"heads": TASKS},
    "union": {"heads": TASKS, "mask": "union"},
    "joint": {"kind": "bn", "batch_norm": "joint"},
    "frozen": {"kind": "bn", "batch_norm": "frozen"},
}


@pytest.mark.parametrize("option", OPTIONS)
def test_an_option(option, tmp_path):
    assert exported(er(**OPTIONS[option]), tmp_path).difference < 1e-5


MEMORIES = {
    "past tasks": lambda: memory("reservoir", exclude_current_task=True),
    "another rule": lambda: memory("reservoir", rule="off_by_one"),
    "mixed": lambda: nccl_tf.MixedMemory(20, 8, 0.3, SHAPE),
}


@pytest.mark.parametrize("kind", MEMORIES)
def test_a_memory(kind, tmp_path):
    learner = compiled(nccl_tf.ExperienceReplay(network(), MEMORIES[kind]()))
    assert exported(learner, tmp_path).difference < 1e-5


def adapted(*layers):
    """A network whose dense layers learn by adapters alone, as their biases do not."""
    net = keras.Sequential([keras.Input((5,)), *layers, keras.layers.Dense(6)])
    for layer in net.layers[:-1]:
        layer.enable_lora(2)
        layer.bias.trainable = False
    return net


def test_adapters_over_frozen_biases(tmp_path):
    """Their biases are constants of zeros, after which the converter lost the relu."""
    net = adapted(*(keras.layers.Dense(8, "relu") for _ in range(2)))
    slots = nccl_tf.ReservoirMemory(20, (5,), "float32")
    learner = compiled(nccl_tf.ExperienceReplay(net, slots))
    x = np.random.default_rng(0).normal(size=(40, 5)).astype(np.float32)
    file = exported(learner, tmp_path, x, np.arange(40) % 2)
    names = [part["name"].split("/")[-1] for part in file.layout["weights"]]
    assert names == [*["lora_kernel_a", "lora_kernel_b"] * 2, "kernel", "bias"]


def test_a_weight_of_classes_leaves_what_it_made(tmp_path):
    """It belongs to a fit, and a device goes on without it."""
    learner = er()
    learner.fit(*examples(0, 40), batch_size=10, verbose=0, class_weight={0: 2.0, 1: 0.5})
    assert nccl_tf.export_learner(learner, tmp_path / "a.tflite").difference < 1e-5


def test_metrics_and_two_tapes(tmp_path):
    learner = nccl_tf.NCCL(network(), memory("ring"), gradients="two_tapes", beta_max=0.1)
    file = exported(compiled(learner, metrics=["accuracy"]), tmp_path)
    assert "accuracy" in file.layout["logs"]


def test_dark_replay(tmp_path):
    slots = memory("reservoir", extras=LOGITS)
    learner = compiled(nccl_tf.ExperienceReplay(network(), slots, dark=0.5))
    assert exported(learner, tmp_path).difference < 1e-5


LAYERS = {
    "average pooling": lambda: [keras.layers.AveragePooling2D(3, 2, padding="same")],
    "max pooling": lambda: [keras.layers.MaxPooling2D(3, 2, padding="same")],
    "depthwise": lambda: [keras.layers.DepthwiseConv2D(3, depth_multiplier=2)],
    "separable": lambda: [keras.layers.SeparableConv2D(4, 3, padding="same")],
    "dilated": lambda: [keras.layers.Conv2D(4, 2, dilation_rate=2)],
    "global pooling": lambda: [keras.layers.GlobalAveragePooling2D()],
    "layer normalization": lambda: [keras.layers.LayerNormalization()],
    "dropout": lambda: [keras.layers.Dropout(0.3, seed=3)],
    "gelu": lambda: [keras.layers.Dense(4, "gelu")],
    "relu6": lambda: [keras.layers.ReLU(6)],
    "swish": lambda: [keras.layers.Dense(4, "silu")],
    "no bias": lambda: [keras.layers.Dense(4, "relu", use_bias=False)],
    "bounded": lambda: [keras.layers.Dense(4, "hard_sigmoid", use_bias=False)],
    "transposed": lambda: [keras.layers.Conv2DTranspose(4, 3, strides=2)],
    "group normalization": lambda: [keras.layers.GroupNormalization(2)],
    "lost channels": lambda: [keras.layers.SpatialDropout2D(0.3, seed=1)],
    "turned": lambda: [keras.layers.RandomFlip(seed=2)],
    "prelu": lambda: [keras.layers.PReLU()],
    "elu": lambda: [keras.layers.Dense(4, "elu")],
    "along a line": lambda: [keras.layers.Reshape((36, 4)), keras.layers.Conv1D(4, 3, strides=2)],
}


@pytest.mark.parametrize("layer", LAYERS)
def test_a_layer(layer, tmp_path):
    begin = [keras.Input(SHAPE, dtype="uint8"), keras.layers.Rescaling(1 / 255)]
    layers = [keras.layers.Conv2D(4, 3), *LAYERS[layer](), keras.layers.Flatten()]
    net = keras.Sequential([*begin, *layers, keras.layers.Dense(6)])
    learner = compiled(nccl_tf.ExperienceReplay(net, memory("reservoir")))
    assert exported(learner, tmp_path).difference < 1e-5


def test_a_recurrent_layer_is_refused_by_its_name(tmp_path):
    layers = [keras.layers.Reshape((8, 8)), keras.layers.GRU(4, name="by_rows")]
    net = keras.Sequential([keras.Input(SHAPE), *layers, keras.layers.Dense(6)])
    with pytest.raises(UserError, match="'by_rows'"):
        nccl_tf.export_learner(compiled(nccl_tf.Finetune(net)), tmp_path / "a.tflite")
    assert not list(tmp_path.iterdir())


def test_a_frozen_network_under_a_head_is_no_part_of_the_state(tmp_path):
    base = network("bn")
    base.trainable = False
    net = keras.Sequential([base, keras.layers.Dense(6)])
    learner = compiled(nccl_tf.ExperienceReplay(net, memory("reservoir")))
    file = exported(learner, tmp_path)
    names = [part["name"] for part in file.layout["weights"]]
    assert [name.split("/")[-1] for name in names] == ["kernel", "bias"]
    other = keras.models.clone_model(net)
    other.layers[0].trainable = False
    another = compiled(nccl_tf.ExperienceReplay(other, memory("reservoir")))
    Device(file.path).state.tofile(tmp_path / "state")
    with pytest.raises(UserError, match="frozen weights"):
        nccl_tf.load_device_state(another, tmp_path / "state")
    other.set_weights(net.get_weights())
    nccl_tf.load_device_state(another, tmp_path / "state")


def test_regression(tmp_path):
    net = keras.Sequential(
        [keras.Input((5,)), keras.layers.Dense(8, "relu"), keras.layers.Dense(2)]
    )
    slots = nccl_tf.ReservoirMemory(20, (5,), "float32", label_shape=(2,), label_dtype="float32")
    learner = compiled(nccl_tf.ExperienceReplay(net, slots), loss="mse")
    random = np.random.default_rng(0)
    x, y = (random.normal(size=(40, side)).astype(np.float32) for side in (5, 2))
    file = exported(learner, tmp_path, x, y)
    found = Device(file.path)("infer", x=x[:1])["outputs"]
    np.testing.assert_allclose(found, learner.predict(x[:1], verbose=0), atol=1e-5)


def test_one_sigmoid(tmp_path):
    net = keras.Sequential([keras.Input((5,)), keras.layers.Dense(1)])
    slots = nccl_tf.ReservoirMemory(20, (5,), "float32", label_dtype="float32")
    loss = keras.losses.BinaryCrossentropy(from_logits=True)
    learner = compiled(nccl_tf.ExperienceReplay(net, slots), loss=loss)
    x = np.random.default_rng(0).normal(size=(40, 5)).astype(np.float32)
    file = exported(learner, tmp_path, x, (x[:, 0] > 0).astype(np.float32))
    answer = Device(file.path)("infer", x=x[:1])
    assert answer["label"] == (answer["logits"][0] > 0)


def test_several_inputs(tmp_path):
    sides = {"left": keras.Input((3,), name="left"), "right": keras.Input((2,), name="right")}
    joined = keras.layers.Concatenate()(list(sides.values()))
    net = keras.Model(sides, keras.layers.Dense(6)(joined))
    shapes, dtypes = {"left": (3,), "right": (2,)}, {"left": "float32", "right": "float32"}
    slots = nccl_tf.ReservoirMemory(20, shapes, dtypes)
    learner = compiled(nccl_tf.ExperienceReplay(net, slots))
    random = np.random.default_rng(0)
    x = {
        name: random.normal(size=(40, *shape)).astype(np.float32) for name, shape in shapes.items()
    }
    file = exported(learner, tmp_path, x, np.arange(40) % 2)
    assert [each["name"] for each in file.layout["inputs"]] == ["x_left", "x_right"]


def test_tokens(tmp_path):
    layers = [keras.layers.Embedding(20, 4), keras.layers.GlobalAveragePooling1D()]
    net = keras.Sequential([keras.Input((7,), dtype="int32"), *layers, keras.layers.Dense(6)])
    learner = compiled(nccl_tf.ExperienceReplay(net, nccl_tf.ReservoirMemory(20, (7,), "int32")))
    x = np.random.default_rng(0).integers(0, 20, (40, 7)).astype(np.int32)
    assert exported(learner, tmp_path, x, np.arange(40) % 2).difference < 1e-5


def test_attention(tmp_path):
    inputs = keras.Input((6, 4))
    attended = keras.layers.MultiHeadAttention(2, 3)(inputs, inputs)
    outputs = keras.layers.Dense(6)(keras.layers.Flatten()(attended))
    learner = compiled(
        nccl_tf.ExperienceReplay(
            keras.Model(inputs, outputs), nccl_tf.ReservoirMemory(20, (6, 4), "float32")
        )
    )
    x = np.random.default_rng(0).normal(size=(40, 6, 4)).astype(np.float32)
    assert exported(learner, tmp_path, x, np.arange(40) % 2).difference < 1e-5
