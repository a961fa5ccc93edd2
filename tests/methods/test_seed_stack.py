"""Seeds that are trained together against the same seeds trained one after the other."""

import keras
import numpy as np
import pytest

import nccl_tf
from nccl_tf import AGEM, NCCL, ExperienceReplay, Finetune, ReservoirMemory, RingMemory
from nccl_tf.errors import UserError
from nccl_tf.methods.seed_stack import SeedStack
from nccl_tf.streams.batches import make_batches
from nccl_tf.streams.examples import Examples
from tests.conftest import IMAGE_SHAPE, TASK_CLASSES, tiny_network

TASKS, BATCH, SEEDS = 4, 5, (0, 1)
RATE = 0.1
METHODS = {
    "finetune": (Finetune, None, {}),
    "er_ring": (ExperienceReplay, "ring", {}),
    "er_reservoir": (ExperienceReplay, "reservoir", {"er_weighting": "sum_of_means"}),
    "er_separate": (ExperienceReplay, "ring", {"batch_norm": "separate"}),
    "agem": (AGEM, "ring", {}),
    "nccl_ring": (NCCL, "ring", {}),
    "nccl_beta_max": (NCCL, "ring", {"beta_max": 0.05}),
    "nccl_reservoir": (NCCL, "reservoir", {}),
}


def heads_of(seed: int) -> list[tuple[int, ...]]:
    """Two classes in each task, in another order for every seed."""
    order = np.random.default_rng(seed).permutation(2 * TASKS)
    return [tuple(map(int, order[2 * k : 2 * k + 2])) for k in range(TASKS)]


def network(seed: int, dtype: str, image_dtype: str) -> keras.Model:
    """Two hidden layers, one of them without a bias."""

    def dense(units: int, number: int, **kwargs) -> keras.layers.Dense:
        kernel = keras.initializers.GlorotUniform(10 * seed + number)
        return keras.layers.Dense(units, kernel_initializer=kernel, dtype=dtype, **kwargs)

    inputs = keras.Input(IMAGE_SHAPE, dtype=image_dtype)
    x = keras.layers.Flatten(dtype=dtype)(keras.layers.Rescaling(1 / 255, dtype=dtype)(inputs))
    x = dense(9, 1, activation="relu", bias_initializer="ones")(x)
    x = keras.layers.Activation("tanh", dtype=dtype)(dense(7, 2, use_bias=False)(x))
    return keras.Model(inputs, dense(2 * TASKS, 3)(x))


def learner(
    name: str, seed: int, dtype: str = "float64", multi: bool = True, image_dtype: str = "uint8"
) -> nccl_tf.Learner:
    method, memory, arguments = METHODS[name]
    if memory == "ring":
        arguments = arguments | {
            "memory": RingMemory(3, heads_of(seed), IMAGE_SHAPE, image_dtype, seed=seed)
        }
    if memory == "reservoir":
        arguments = arguments | {"memory": ReservoirMemory(20, IMAGE_SHAPE, image_dtype, seed=seed)}
    if memory is not None:
        arguments = arguments | {"memory_batch_size": 4}
    made = method(
        network(seed, dtype, image_dtype), heads=heads_of(seed) if multi else None, seed=seed,
        **arguments,
    )  # fmt: skip
    made.compile(keras.optimizers.SGD(RATE), metrics=["accuracy"], steps_per_execution=7)
    made.record_steps(4)
    return made


def batches(seed, task, steps, image_dtype="uint8", bad=None, skip=0):
    """A task's batches, the last one with padding; a NaN image in batch number `bad`."""
    random = np.random.default_rng((seed, task))
    labels = random.choice(heads_of(seed)[task], BATCH * steps - 2).astype(np.int32)
    images = random.integers(0, 256, (len(labels), *IMAGE_SHAPE)).astype(image_dtype)
    if bad is not None:
        images[BATCH * bad] = np.nan
    part = Examples(images, labels)
    order = [np.arange(len(labels))]
    return make_batches(part, task, order, BATCH, skip)


def together(learners, steps: int, **more):
    stack = SeedStack(learners)
    for task in range(TASKS):
        data = [batches(one.seed, task, steps, **more) for one in learners]
        *_, done = stack.learn(data, task)
        assert done == steps
        for one in learners:
            one.end_task()


def apart(learners, steps: int, **more):
    for one in learners:
        for task in range(TASKS):
            one.fit(batches(one.seed, task, steps, **more), task_id=task, verbose=0)


def log_of(one) -> np.ndarray:
    return np.array(one.step_log.take(0, whole=False))


def compare(one, other, tolerance: float):
    """Weights within the tolerance; everything that is counted or drawn equal."""
    for left, right in zip(one.network.weights, other.network.weights, strict=True):
        np.testing.assert_allclose(left.numpy(), right.numpy(), rtol=0, atol=tolerance)
    weights = {id(v) for v in (*one.network.weights, *other.network.weights)}
    rest = zip(one.state_variables().items(), other.state_variables().values(), strict=True)
    for (name, left), right in rest:
        if id(left) not in weights and "window" not in name and "sums" not in name:
            np.testing.assert_array_equal(left.numpy(), right.numpy(), err_msg=name)
    np.testing.assert_allclose(log_of(one), log_of(other), rtol=2e-3, atol=1e-4)


@pytest.mark.parametrize(
    ("name", "multi"), [*((name, True) for name in METHODS), ("nccl_ring", False)]
)
def test_equal_in_float64_over_200_steps(name, multi):
    one, other = ([learner(name, seed, multi=multi) for seed in SEEDS] for _ in range(2))
    together(one, 50)
    apart(other, 50)
    for pair in zip(one, other, strict=True):
        compare(*pair, 1e-9)


@pytest.mark.parametrize("name", METHODS)
def test_equal_in_float32_over_20_steps(name):
    one, other = ([learner(name, seed, "float32") for seed in SEEDS] for _ in range(2))
    together(one, 5)
    apart(other, 5)
    for pair in zip(one, other, strict=True):
        compare(*pair, 1e-5)


@pytest.mark.parametrize("name", ["nccl_reservoir", "finetune"])
def test_a_bad_batch_of_one_seed_leaves_the_others_untouched(name):
    def trained(*bad: int | None) -> list[nccl_tf.Learner]:
        learners = [learner(name, seed, image_dtype="float32") for seed in SEEDS]
        data = [batches(s, 0, 8, "float32", b) for s, b in zip(SEEDS, bad, strict=True)]
        list(SeedStack(learners).learn(data, 0))
        return learners

    good, bad = trained(None, None), trained(3, None)
    alone = learner(name, SEEDS[0], image_dtype="float32")
    alone.fit(batches(SEEDS[0], 0, 8, "float32", 3), task_id=0, end_task=False, verbose=0)
    compare(bad[1], good[1], 0.0)
    compare(bad[0], alone, 1e-9)
    assert [int(one.skipped.numpy()) for one in bad] == [1, 0]


def test_a_longer_task_goes_on_alone():
    one, other = ([learner("nccl_reservoir", seed) for seed in SEEDS] for _ in range(2))
    steps = (9, 12)
    data = [batches(seed, 0, count) for seed, count in zip(SEEDS, steps, strict=True)]
    # A call has 7 batches of each: the last one ends with the shorter data.
    assert list(SeedStack(one).learn(data, 0)) == [7, 9]
    rest = batches(SEEDS[1], 0, 12, skip=9)
    one[1].fit(rest, task_id=0, end_task=False, verbose=0)
    for learner_alone, count in zip(other, steps, strict=True):
        whole = batches(learner_alone.seed, 0, count)
        learner_alone.fit(whole, task_id=0, end_task=False, verbose=0)
    for pair in zip(one, other, strict=True):
        compare(*pair, 1e-9)


def of(network: keras.Model, method=Finetune, optimizer=None, **arguments) -> nccl_tf.Learner:
    made = method(network, **arguments)
    made.compile(optimizer or keras.optimizers.SGD(RATE))
    return made


def normed() -> keras.Model:
    layers = [keras.layers.Flatten(), keras.layers.BatchNormalization(), keras.layers.Dense(4)]
    return keras.Sequential([keras.Input(IMAGE_SHAPE), *layers])


def nccl(**arguments) -> nccl_tf.Learner:
    return of(tiny_network(), NCCL, memory=ReservoirMemory(4, IMAGE_SHAPE), **arguments)


class OwnRule(Finetune):
    """A method of one's own."""


REFUSED = {
    "is none of Finetune": lambda: [of(tiny_network(), OwnRule)],
    "a learning rate alone": lambda: [of(tiny_network(), optimizer=keras.optimizers.Adam())],
    "without convolutions, batch norm": lambda: [of(normed())],
    "dropout": lambda: [of(nccl_tf.networks.mlp(IMAGE_SHAPE, 4, dropout=0.5))],
    "smoothness_mode='secant'": lambda: [nccl(smoothness_mode="secant")],
    "gradients='two_tapes'": lambda: [nccl(gradients="two_tapes")],
    "union mask": lambda: [of(tiny_network(), heads=TASK_CLASSES, mask="union")],
    "more than their seeds": lambda: [nccl(), nccl(delta=0.2)],
    "networks differ": lambda: [of(tiny_network()), of(tiny_network(hidden=9))],
}


@pytest.mark.parametrize("said", REFUSED)
def test_what_cannot_be_stacked_is_refused(said):
    with pytest.raises(UserError, match=said):
        SeedStack(REFUSED[said]())


def test_different_learning_rates_are_refused():
    learners = [of(tiny_network()), of(tiny_network())]
    learners[1].optimizer.learning_rate = 0.2
    with pytest.raises(UserError, match=r"learning rates are 0\.1, 0\.2"):
        next(SeedStack(learners).learn([], 0))
