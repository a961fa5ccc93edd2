"""Pairs of gradients by rows against two tapes, which are their reference."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from nccl_tf import AGEM, GEC, MEGAI, MEGAII, NCCL, ReservoirMemory, networks
from nccl_tf.batch import Batch
from nccl_tf.learner.row_gradients import RowGradients, RowPair
from tests.tiny import IMAGE_SHAPE, TASK_CLASSES, tiny_batches

METHODS = [
    (NCCL, {}),
    pytest.param(NCCL, {"beta_max": 0.05}, marks=pytest.mark.nightly),
    pytest.param(AGEM, {}, marks=pytest.mark.nightly),
    pytest.param(MEGAI, {}, marks=pytest.mark.nightly),
    pytest.param(MEGAII, {}, marks=pytest.mark.nightly),
    pytest.param(GEC, {"gec_tolerance": 1.0}, marks=pytest.mark.nightly),
]
"""Step sizes, a projection, and step sizes by the losses; the others are of these kinds."""


def is_by_rows(learner) -> bool:
    """Whether the learner takes its gradients by rows."""
    taken = []
    learner.combine = lambda pair: taken.append(pair) or (pair.stream, {})
    images = tf.zeros((2, *IMAGE_SHAPE), tf.uint8)
    kept = {"logits": tf.zeros((2, 4))}  # of dark replay
    rows = Batch(images, tf.constant([0, 1]), tf.constant([0, 0]), tf.ones(2), kept)
    learner.replay(rows, rows)
    del learner.combine
    return isinstance(taken[0], RowPair)


def as_data(rows: Batch):
    """A batch as `fit` delivers it."""
    return {"inputs": rows.inputs, "task": rows.tasks}, rows.labels, rows.weights


def network(dtype: str) -> keras.Model:
    def dense(units, seed, **kwargs):
        kernel = keras.initializers.GlorotUniform(seed)
        return keras.layers.Dense(units, kernel_initializer=kernel, dtype=dtype, **kwargs)

    inputs = keras.Input(IMAGE_SHAPE, dtype="uint8")
    x = keras.layers.Flatten(dtype=dtype)(keras.layers.Rescaling(1 / 255, dtype=dtype)(inputs))
    x = dense(9, 1, activation="relu", bias_initializer="ones")(x)
    x = keras.layers.Activation("tanh", dtype=dtype)(dense(7, 2, use_bias=False)(x))
    return keras.Model(inputs, dense(4, 3)(x))


def batch(random, tasks: tuple[int, ...], count: int = 6) -> Batch:
    """Random examples of some tasks, the last one padding."""
    task = random.choice(tasks, count)
    label = np.array([random.choice(TASK_CLASSES[k]) for k in task], np.int64)
    images = random.integers(0, 256, (count, *IMAGE_SHAPE)).astype(np.uint8)
    weights = np.ones(count, np.float32)
    weights[-1] = 0.0
    return Batch(*map(tf.constant, (images, label, task.astype(np.int64), weights)))


def steps(method, path: str, dtype: str, count: int, arguments: dict, **compile_arguments):
    """The quantities of every step, and the weights after the last one."""
    memory = ReservoirMemory(4, IMAGE_SHAPE)
    learner = method(network(dtype), memory, heads=TASK_CLASSES, gradients=path, **arguments)
    learner.compile(keras.optimizers.SGD(0.1), **compile_arguments)
    assert is_by_rows(learner) == (path == "auto")
    random = np.random.default_rng(5)

    @tf.function(autograph=False)
    def one_step(stream, replay):
        step = learner.replay(stream, replay)
        learner.apply(step.gradients)
        return step.logs

    noted = [one_step(batch(random, (1,)), batch(random, (0,))) for _ in range(count)]
    rows = [{name: float(value) for name, value in row.items()} for row in noted]
    return rows, learner.get_weights()


def compare(method, arguments, dtype, count, tolerance):
    rows, weights = steps(method, "auto", dtype, count, arguments)
    others, reference = steps(method, "two_tapes", dtype, count, arguments)
    for left, right in zip(weights, reference, strict=True):
        np.testing.assert_allclose(left, right, rtol=0, atol=tolerance)
    for row, other in zip(rows, others, strict=True):
        scale = other["memory_gradient_norm"] * other["stream_gradient_norm"]
        for name, value in row.items():
            size = scale if name == "lambda" else 1.0
            assert abs(value - other[name]) <= tolerance * size, name
    interference = [row["interference"] for row in rows]
    assert 0 < sum(interference) < count  # both branches were taken


@pytest.mark.parametrize(("method", "arguments"), METHODS)
def test_equal_in_float64_over_200_steps(method, arguments):
    compare(method, arguments, "float64", 200, 1e-9)


def of_layers(*layers) -> keras.Model:
    return keras.Sequential([keras.Input(IMAGE_SHAPE), keras.layers.Flatten(), *layers])


def two_branches() -> keras.Model:
    inputs = keras.Input(IMAGE_SHAPE)
    x = keras.layers.Flatten()(inputs)
    both = [keras.layers.Dense(4)(x), keras.layers.Dense(4)(x)]
    return keras.Model(inputs, keras.layers.Add()(both))


NO_CHAIN = {
    "batch norm": lambda: of_layers(keras.layers.BatchNormalization(), keras.layers.Dense(4)),
    "dropout": lambda: networks.mlp(IMAGE_SHAPE, 4, dropout=0.5),
    "convolutions": lambda: keras.Sequential(
        [
            keras.Input(IMAGE_SHAPE),
            keras.layers.Conv2D(2, 2),
            keras.layers.Flatten(),
            keras.layers.Dense(4),
        ]
    ),
    "regularised": lambda: of_layers(keras.layers.Dense(4, kernel_regularizer="l2")),
    "regularised activities": lambda: of_layers(
        keras.layers.Activation("relu", activity_regularizer="l2"), keras.layers.Dense(4)
    ),
    "frozen": lambda: of_layers(keras.layers.Dense(4, trainable=False)),
    "mixed precision": lambda: of_layers(keras.layers.Dense(4, dtype="mixed_bfloat16")),
    "two branches": two_branches,
    "twice the same layer": lambda: of_layers(*[keras.layers.Dense(16)] * 2),
}


def by_rows(made) -> bool:
    learner = NCCL(made, ReservoirMemory(4))
    learner.compile(keras.optimizers.SGD(0.1))
    return RowGradients.of(learner.network, learner.trainable_variables) is not None


@pytest.mark.parametrize("name", NO_CHAIN)
def test_other_networks_take_two_tapes(name):
    assert not by_rows(NO_CHAIN[name]())


def test_the_networks_of_the_paper_s_mnist_experiments_take_rows_also_when_loaded(tmp_path):
    for made in (networks.mlp(IMAGE_SHAPE, 4), of_layers(keras.layers.Dense(4))):
        made.save(tmp_path / "network.keras")
        assert by_rows(made) and by_rows(keras.models.load_model(tmp_path / "network.keras"))


@pytest.mark.parametrize(
    ("method", "optimizer"),
    [
        (NCCL, keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.1))),
        (NCCL, keras.optimizers.SGD(0.1, loss_scale_factor=8.0)),
    ],
)
def test_two_tapes_where_one_pass_would_not_do(method, optimizer):
    learner = method(network("float32"), ReservoirMemory(4, IMAGE_SHAPE))
    learner.compile(optimizer)
    assert not is_by_rows(learner)


def fitted(learner):
    learner.compile(keras.optimizers.SGD(0.1), run_eagerly=True)
    for task in (0, 1):
        learner.fit(tiny_batches(task, 20), verbose=0)
    return learner


def constrained() -> keras.Model:
    return of_layers(keras.layers.Dense(4, kernel_constraint=keras.constraints.NonNeg()))


def test_weights_are_held_to_their_constraints():
    learner = fitted(NCCL(constrained(), ReservoirMemory(10, IMAGE_SHAPE)))
    assert is_by_rows(learner)
    assert min(learner.network.get_weights()[0].reshape(-1)) >= 0


@pytest.mark.eager
@pytest.mark.parametrize("frozen", ["kernel", "bias"])
def test_a_frozen_variable_of_a_layer_has_no_gradient(frozen):
    """By hand: orthogonal inputs do not interfere, unless by the bias."""
    net = keras.Sequential(
        [keras.Input((2,)), keras.layers.Dense(2, kernel_initializer="zeros", dtype="float64")]
    )
    getattr(net.layers[0], frozen).trainable = False
    learner = AGEM(net, ReservoirMemory(1), memory_batch_size=1)
    learner.compile(keras.optimizers.SGD(0.1), run_eagerly=True)
    learner.remember(np.array([[1.0, 0.0]]), np.array([0]))
    learner.train_on_batch(np.array([[0.0, 1.0]]), np.array([1]))
    kernel, bias = net.get_weights()
    if frozen == "bias":
        np.testing.assert_allclose(kernel, [[0, 0], [-0.05, 0.05]], atol=1e-12)
        assert not bias.any()
    else:  # g + f, since <f, g> = -1/2 is all of both
        np.testing.assert_allclose(bias, [0, 0], atol=1e-12)
        assert not kernel.any()
