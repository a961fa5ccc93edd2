"""mixed_float16: what is measured and applied is float32's, whatever the loss scale."""

import keras
import numpy as np
import pytest

import nccl_tf
from nccl_tf.batch import as_batch
from tests.tiny import IMAGE_SHAPE, tiny_batches

pytestmark = pytest.mark.eager

SCALES = (1.0, 2.0**7, 2.0**15)
QUANTITIES = ("lambda", "memory_gradient_norm", "stream_gradient_norm", "alpha_h", "beta_h")
RATE = 0.25


def network(batch_norm: bool) -> keras.Model:
    """A dense network in the global dtype policy."""
    initializers = [keras.initializers.GlorotUniform(seed=i) for i in range(2)]
    return keras.Sequential(
        [
            keras.Input(IMAGE_SHAPE, dtype="uint8"),
            keras.layers.Rescaling(1 / 255),
            keras.layers.Flatten(),
            keras.layers.Dense(8, "relu", kernel_initializer=initializers[0]),
            *([keras.layers.BatchNormalization()] if batch_norm else []),
            keras.layers.Dense(4, kernel_initializer=initializers[1]),
        ]
    )


def learner(
    precision: str, scale: float = 1.0, cls=nccl_tf.NCCL, batch_norm=False, **compile_arguments
) -> nccl_tf.TwoGradientLearner:
    """A learner with a task in memory that it has not learned: both precisions have equal weights.

    `scale` is the loss scale of the next step.
    """
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(precision)
    try:
        memory = nccl_tf.ReservoirMemory(12, IMAGE_SHAPE, seed=1)
        model = cls(network(batch_norm), memory, memory_batch_size=6)
        model.compile(keras.optimizers.SGD(RATE), **compile_arguments)
    finally:
        keras.config.set_dtype_policy(before)
    (first,) = tiny_batches(0, 12, 12)
    memory.write(as_batch(first, 0))
    if precision == "mixed_float16":
        model.optimizer.dynamic_scale.assign(scale)
    return model


def one_step(model) -> tuple[dict[str, float], np.ndarray]:
    """What one step on the second task measures, and by how much it moves the weights."""
    before = [v.numpy() for v in model.trainable_variables]
    logs = model.fit(tiny_batches(1, 5), verbose=0, end_task=False).history
    after = [v.numpy() for v in model.trainable_variables]
    change = [(b - a).reshape(-1) for a, b in zip(before, after, strict=True)]
    return {name: logs[name][0] for name in QUANTITIES}, np.concatenate(change)


@pytest.mark.parametrize(
    ("cls", "scales"),
    [
        (nccl_tf.NCCL, SCALES),
        # Shares with NCCL all that scales and unscales.
        pytest.param(nccl_tf.AGEM, SCALES[1:2], marks=pytest.mark.nightly),
    ],
)
def test_lambda_norms_and_the_update_are_those_of_float32(cls, scales):
    exact, exact_change = one_step(learner("float32", cls=cls))
    length = exact["memory_gradient_norm"] * exact["stream_gradient_norm"]
    model = learner("mixed_float16", cls=cls)
    first = [(v, v.numpy()) for v in model.state_variables.values()]
    for scale in scales:
        for variable, value in first:
            variable.assign(value)
        model.optimizer.dynamic_scale.assign(scale)
        measured, change = one_step(model)
        assert int(model.progress.skipped.numpy()) == 0
        assert abs(measured.pop("lambda") - exact["lambda"]) <= 1e-2 * length
        for name, value in measured.items():
            assert value == pytest.approx(exact[name], rel=1e-2, abs=1e-2 * RATE), (name, scale)
        error = np.linalg.norm(change - exact_change)
        assert error <= 1e-2 * np.linalg.norm(exact_change), scale
        assert all(v.dtype == "float32" for v in model.trainable_variables)


def kept(model) -> dict[str, np.ndarray]:
    """Every variable that a step may change, but the counts of skipped steps and of draws."""
    counters = ("skipped", "skipped_in_a_row", "draws", "step_counter", "dynamic_scale")
    variables = model.state_variables.values()
    return {f"{i} {v.path}": v.numpy() for i, v in enumerate(variables) if v.name not in counters}


# What XLA makes of a skipped step is shown by test_skipped_steps.py.
@pytest.mark.parametrize("jit_compile", [False, pytest.param(True, marks=pytest.mark.nightly)])
def test_an_overflow_skips_the_step_and_halves_the_scale(jit_compile):
    model = learner("mixed_float16", batch_norm=True, jit_compile=jit_compile)
    model.fit(tiny_batches(1, 5), verbose=0, end_task=False)
    assert int(model.progress.skipped.numpy()) == 0
    model.optimizer.dynamic_scale.assign(2.0**30)
    before = kept(model)
    model.fit(tiny_batches(1, 5, seed=2), verbose=0, end_task=False)
    for name, value in kept(model).items():
        np.testing.assert_array_equal(value, before[name], err_msg=name)
    assert int(model.progress.skipped.numpy()) == 1
    assert float(model.optimizer.dynamic_scale.numpy()) == 2.0**29


class Policy:
    """A dtype policy that is global for the body."""

    def __init__(self, name: str):
        self._name = name

    def __enter__(self):
        self._before = keras.config.dtype_policy()
        keras.config.set_dtype_policy(self._name)

    def __exit__(self, *_):
        keras.config.set_dtype_policy(self._before)


@pytest.mark.parametrize("wraps", [False, True])
def test_the_loss_scale_is_that_of_the_network_not_of_what_is_global_now(wraps):
    with Policy("mixed_float16"):
        made = network(batch_norm=False)
    if wraps:
        inputs = keras.Input(IMAGE_SHAPE, dtype="uint8")
        made = keras.Model(inputs, made(inputs))
    model = nccl_tf.Finetune(made)
    model.compile(keras.optimizers.SGD(RATE))
    assert isinstance(model.optimizer, keras.optimizers.LossScaleOptimizer)
    assert isinstance(model.optimizer.inner_optimizer, keras.optimizers.SGD)
    model.compile(keras.optimizers.SGD(RATE), auto_scale_loss=False)
    assert isinstance(model.optimizer, keras.optimizers.SGD)
    model.compile(keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(RATE)))
    assert isinstance(model.optimizer.inner_optimizer, keras.optimizers.SGD)


def test_evaluation_does_not_round_what_training_does_not():
    """Inputs of a float32 network stay, though the learner is made under another policy."""
    keras.utils.set_random_seed(0)
    made = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    with Policy("mixed_float16"):
        model = nccl_tf.Finetune(made)
    model.compile(keras.optimizers.SGD(RATE))
    inputs = np.array([[70_000, 0.1, 2049]], np.float32)  # infinite, rounded and odd in float16
    np.testing.assert_array_equal(model.predict(inputs, verbose=0), made(inputs))
