"""A program: methods, classes of `OWN` and other cases on two logical CPU devices beside one.
Prints JSON.

Devices are cut before TensorFlow's first operation, so this needs a process of its own.
"""

import json
import sys
from collections.abc import Iterator
from typing import Any, ClassVar, NamedTuple

import keras
import numpy as np
import tensorflow as tf

import nccl_tf
from nccl_tf.batch import PLACE_WEIGHTS
from nccl_tf.errors import UserError
from nccl_tf.experiment.run.devices import use_device
from nccl_tf.learner.options.step_log import StepLog
from nccl_tf.methods.registry import METHODS as METHODS_BY_NAME
from tests.methods.test_battery import make
from tests.tiny import IMAGE_SHAPE, TASK_CLASSES, tiny_network

BATCH, PLACES = 6, 5
METHODS = (
    "nccl_ring",
    "nccl_reservoir",
    "agem",
    "mega1",
    "mega2",
    "gec",
    "er_reservoir",
    "der",
    "finetune",
    "cumulative",
)


def arrays(task: int, count: int = 14) -> tuple[np.ndarray, np.ndarray]:
    """Images and labels of batches of a task."""
    random = np.random.default_rng(task)
    labels = random.choice(TASK_CLASSES[task], (count, BATCH)).astype(np.int32)
    return random.integers(0, 256, (count, BATCH, *IMAGE_SHAPE), dtype=np.uint8), labels


def batches(task: int) -> tf.data.Dataset:
    """14 batches; the last one is half padding, so that the replicas' shares differ."""
    images, labels = arrays(task)
    weights = np.ones((14, BATCH), np.float32)
    weights[-1, BATCH // 2 :] = 0
    inputs = {"inputs": images, "task": np.full((14, BATCH), task, np.int32)}
    return tf.data.Dataset.from_tensor_slices((inputs, labels, weights))


class Learned(NamedTuple):
    """A learner after two tasks."""

    learner: nccl_tf.Learner
    logs: dict[str, list[float]]
    evaluation: list[float]
    rows: list[list[float]]

    def values(self) -> dict[str, np.ndarray]:
        """Weights, memory and counters by name, as floats."""
        variables = enumerate(self.learner.variables)
        return {f"{i} {each.name}": each.numpy().astype(float) for i, each in variables}


def learn(name: str) -> Learned:
    """A learner of a method, of METHOD:N with N steps in a call of the graph, METHOD:present or
    METHOD:weighed, with weights of classes.

    It is evaluated with the average of its weights, but with METHOD:present.
    """
    method, _, more = name.partition(":")
    class_weight = {0: 4.0, 2: 0.5} if more == "weighed" else None
    more = "" if more == "weighed" else more
    if more == "present":
        learner = make(method, options={"stream_mask": more}, steps_per_execution=1)
    else:
        learner = make(
            method, TASK_CLASSES, options={"average_weights": 0.75},
            steps_per_execution=int(more or 1),
        )  # fmt: skip
    learner.record_steps(5)
    for task in range(2):
        data = {"class_weight": class_weight, "task_id": task, "verbose": 0}
        logs = learner.fit(batches(task), **data).history
    rows = np.nan_to_num(learner.option(StepLog).take(0, False)).tolist()
    return Learned(learner, dict(logs), list(learner.evaluate(batches(0), verbose=0)), rows)


def largest(left, right) -> float:
    """The largest difference between two nested lists of numbers."""
    return float(np.max(np.abs(np.asarray(left) - np.asarray(right)), initial=0))


def difference(one: Learned, two: Learned) -> dict[str, float]:
    """How far a learner on two devices is from the same on one."""
    left, right = one.values(), two.values()
    copies = [v.value.values for v in two.learner.trainable_variables]
    return {
        "state": max(largest(left[name], right[name]) for name in left),
        "copies": max(largest(*(copy.numpy() for copy in each)) for each in copies),
        "logs": max(largest(one.logs[name], two.logs[name]) for name in one.logs),
        "evaluation": largest(one.evaluation, two.evaluation),
        "rows": largest(one.rows, two.rows),
        "steps": int(two.learner.optimizer.iterations.numpy()),
        "verbs": largest(verbs(one.learner), verbs(two.learner)),
    }


def verbs(learner: nccl_tf.Learner) -> list[float]:
    """What the verbs say of arrays whose batches do not divide by the number of devices."""
    images, labels = (np.concatenate(part)[:13] for part in arrays(0, 3))
    values = [*learner.evaluate(images, labels, batch_size=5, task_id=0, verbose=0)]
    values += [*learner.test_on_batch(images, labels, task_id=0)]
    values.append(learner.accuracy(images, labels, 0))
    for logits in (
        learner.predict(images, batch_size=5, task_id=0, verbose=0),
        learner.predict_on_batch(images, task_id=0),
    ):
        values += [len(logits), *np.ravel(np.where(logits > -1e8, logits, 0))]
    if learner.steps_per_execution == 1:  # with several, replicas take datasets alone
        history = learner.fit(
            images, labels + TASK_CLASSES[1][0], batch_size=5, shuffle=False, verbose=0, task_id=1
        ).history
        values.append(history["loss"][-1])
    return [*values, *np.ravel(learner.network.get_weights()[-1])]


class OfStream(nccl_tf.ExperienceReplay):
    def stream_losses(self, logits, batch):
        return super().stream_losses(logits, batch) ** 2


class OfMemory(nccl_tf.ExperienceReplay):
    def memory_losses(self, logits, replay):
        places = tf.range(1, 7, dtype=tf.float64)
        return super().memory_losses(logits, replay) * places


class OfAll(nccl_tf.ExperienceReplay):
    """A loss of both batches that is no mean over examples, and logs of either under any name."""

    log_names = ("loss", "memory_loss", "replayed", "memory_of_the_stream")

    def replay_loss(self, logits, batch, *replays):
        _, logs = super().replay_loss(logits, batch, *replays)
        weight = tf.convert_to_tensor(self.trainable_variables[0])
        loss = 0.5 * logs["loss"] + 3.0 * logs["memory_loss"] ** 2 + 0.01 * tf.nn.l2_loss(weight)
        more = {"replayed": logs["memory_loss"], "memory_of_the_stream": logs["loss"]}
        return loss, {**logs, **more}


class OfPlain(nccl_tf.Finetune):
    """A loss that couples the examples of a batch."""

    def training_loss(self, logits, batch):
        loss, logs = super().training_loss(logits, batch)
        return loss + tf.math.reduce_variance(logits.raw[:, 0]), logs


class OfRule(nccl_tf.NCCL):
    def stream_losses(self, logits, batch):
        return super().stream_losses(logits, batch) ** 2

    def step_sizes(self, products, losses, alpha):
        sizes = super().step_sizes(products, losses, alpha)
        return sizes._replace(beta_h=0.5 * sizes.beta_h)


class OfUnion(nccl_tf.ExperienceReplay):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, heads=TASK_CLASSES, mask="union", **kwargs)


class OfGradients(nccl_tf.ExperienceReplay):
    """Takes its gradients itself, by `gradient`, and says that it may."""

    on_replicas = True

    def replay(self, batch, *replays):
        step = super().replay(batch, *replays)
        return step._replace(gradients=[tf.sign(g) * tf.abs(g) ** 0.5 for g in step.gradients])


@keras.saving.register_keras_serializable(package="tests_two")
class OfState(nccl_tf.TwoGradientLearner):
    """Averages memory gradients, in variables that `combine` writes.

    Example:
        >>> learner = OfState(tiny_network(), nccl_tf.ReservoirMemory(20))
    """

    log_names = ("loss", "memory_loss")
    cumulative = ()
    cannot: ClassVar[dict[str, str]] = {"refreezing": "keeps state for each trainable weight"}

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.averages = [
            self.state(f"average_{i}", weight, weight.dtype, of_steps=True)
            for i, weight in enumerate(self.trainable_variables)
        ]

    def combine(self, pair):
        found = []
        for average, f, g in zip(self.averages, pair.memory, pair.stream, strict=True):
            value = 0.9 * average.value + 0.1 * f
            average.assign(value)
            found.append(g + value)
        return found, {}


OWN = {
    kind.__name__: kind
    for kind in (OfStream, OfMemory, OfAll, OfPlain, OfRule, OfUnion, OfGradients, OfState)
}


def own(kind: type[nccl_tf.Learner]) -> tuple[list[np.ndarray], dict[str, list[float]]]:
    """Weights and logs of eight steps in float64; replicas have unequal weights, once none."""
    random = np.random.default_rng(0)
    images = random.integers(0, 256, (45, *IMAGE_SHAPE), dtype=np.uint8)
    weights = random.uniform(0.2, 2.0, 45).astype(np.float32)
    weights[9:15] = 0
    labels = random.integers(0, 4, 45)
    inputs = {"inputs": images, "task": labels // 2}
    network = tiny_network(dtype="float64")
    network.layers[-1].kernel_regularizer = keras.regularizers.L2(0.01)
    memory = () if kind.memory_class is None else (nccl_tf.ReservoirMemory(20),)
    more = {"memory_batch_size": 6} if memory else {}
    learner = kind(network, *memory, **more)
    learner.compile(keras.optimizers.SGD(0.1))
    history = learner.fit(
        inputs, labels, sample_weight=weights, batch_size=BATCH, shuffle=False, verbose=0,
    )  # fmt: skip
    return network.get_weights(), history.history


def own_difference(kind: type[nccl_tf.Learner], strategy: tf.distribute.Strategy) -> dict:
    """How far weights and logs on two devices are from those on one."""
    (one, one_logs) = own(kind)
    with strategy.scope():
        two, two_logs = own(kind)
    return {
        "weights": max(map(largest, one, two)),
        "logs": {name: largest(one_logs[name], two_logs[name]) for name in one_logs},
    }


def at_places(method: str) -> dict[str, list[float]]:
    """Weights, memory and logs of 20 steps in float64 on sequences with weights of places.

    The memory keeps these weights, and of DER the logits of every place. An example has weights in
    its first places alone, and one has none.
    """
    random = np.random.default_rng(0)
    tokens = random.integers(0, 8, (60, PLACES))
    weights = random.uniform(0.2, 2.0, tokens.shape) * (np.arange(60)[:, None] % 6 > range(PLACES))
    keras.utils.set_random_seed(0)
    layers = [keras.layers.Embedding(8, 6, dtype="float64"), keras.layers.Dense(4, dtype="float64")]
    network = keras.Sequential([keras.Input((PLACES,), dtype="int32"), *layers])
    memory = nccl_tf.ReservoirMemory(20)
    learner = METHODS_BY_NAME[method].learner_class()(network, memory, memory_batch_size=6)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    learner.compile(keras.optimizers.SGD(0.1), loss)
    for task in range(2):
        history = learner.fit(
            tokens, tokens % 2 + 2 * task, sample_weight=weights, batch_size=BATCH, task_id=task,
            shuffle=False, verbose=0,
        )  # fmt: skip
    assert PLACE_WEIGHTS in memory.columns
    kept = {v.name: np.ravel(v.numpy()).tolist() for v in memory.variables}
    return {
        "weights": np.concatenate([np.ravel(w) for w in network.get_weights()]).tolist(),
        **{f"log {name}": values for name, values in history.history.items()},
        **{f"memory {name}": values for name, values in kept.items()},
    }


def difference_at_places(method: str, strategy: tf.distribute.Strategy) -> dict[str, float]:
    """The largest differences between two devices and one."""
    one = at_places(method)
    with strategy.scope():
        two = at_places(method)
    assert one.keys() == two.keys()
    return {name: largest(one[name], two[name]) for name in one}


def statistics(strategy: tf.distribute.Strategy) -> dict[str, float]:
    """Batch normalisation after one step of examples whose two slices differ, from both replicas.

    By hand, from averages of 0 and 1 with momentum 0.9: 0.1 of the mean of all examples, and 0.9
    and 0.1 of the mean of the variances of the slices.
    """
    inputs = np.random.default_rng(0).normal(size=(8, 3)).astype(np.float32)
    inputs[4:] += 5
    variance = np.mean([inputs[:4].var(0), inputs[4:].var(0)], axis=0)
    by_hand = 0.1 * inputs.mean(0), 0.9 + 0.1 * variance
    with strategy.scope():
        layer = keras.layers.BatchNormalization(momentum=0.9)
        network = keras.Sequential([keras.Input((3,)), layer, keras.layers.Dense(2)])
        learner = nccl_tf.Finetune(network)
        learner.compile(keras.optimizers.SGD(0.1))
    learner.fit(inputs, np.arange(8) % 2, batch_size=8, shuffle=False, verbose=0)
    moved = zip((layer.moving_mean, layer.moving_variance), by_hand, strict=True)
    return {
        f"{v.name} {i}": largest(each.numpy(), value)
        for v, value in moved
        for i, each in enumerate(v.value.values)
    }


def in_whole(clips: str) -> tuple[list[Any], list[int]]:
    """Weights and memory, and the counters, after two tasks from a generator.

    The optimizer clips, and one variable takes its gradient as value.

    Args:
        clips: Name of the argument of optimizers by which it does.
    """
    random = np.random.default_rng(0)
    inputs, labels = random.normal(size=(40, 3)), random.integers(0, 2, 40)
    inputs = inputs > 0  # no collective operation takes bool

    def batches() -> Iterator[tuple[np.ndarray, np.ndarray]]:
        for start in range(0, 40, 8):
            yield inputs[start : start + 8], labels[start : start + 8]

    keras.utils.set_random_seed(0)
    layers = [keras.layers.Dense(4), keras.layers.Dense(2)]
    network = keras.Sequential([keras.Input((3,), dtype="bool"), *layers])
    layers[0].bias.overwrite_with_gradient = True
    memory = nccl_tf.ReservoirMemory(20)  # the generator tells it the shapes
    learner = nccl_tf.ExperienceReplay(network, memory, memory_batch_size=8)
    learner.compile(keras.optimizers.SGD(0.5, momentum=0.9, **{clips: 0.05}))
    for task in range(2):
        learner.fit(batches(), verbose=0, task_id=task)
    counts = [int(v.numpy()) for v in (learner.optimizer.iterations, memory.seen)]
    return [*network.get_weights(), memory.inputs.numpy().astype(float)], counts


def in_whole_difference(clips: str, strategy: tf.distribute.Strategy) -> dict[str, Any]:
    """How far two devices are from one, and the counters of both."""
    one, counts = in_whole(clips)
    with strategy.scope():
        two, of_two = in_whole(clips)
    return {"state": max(map(largest, one, two)), "counts": [counts, of_two]}


def restarted(strategy: tf.distribute.Strategy) -> float:
    """How far weights are from those of one device after a training that began anew."""
    random = np.random.default_rng(0)
    inputs, labels = random.normal(size=(16, 3)), np.arange(16) % 2

    def learned() -> list[np.ndarray]:
        keras.utils.set_random_seed(0)
        network = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
        learner = nccl_tf.Cumulative(network, restart=True, joined=True)
        learner.compile(keras.optimizers.SGD(0.5, momentum=0.9))
        for count in (8, 16):
            learner.fit(inputs[:count], labels[:count], batch_size=8, shuffle=False, verbose=0)
        return network.get_weights()

    one = learned()
    with strategy.scope():
        two = learned()
    return max(map(largest, one, two))


def averaged_by_keras(strategy: tf.distribute.Strategy) -> float:
    """How far weights that an optimizer has averaged are from those of one device."""

    def learned() -> list[np.ndarray]:
        network = tiny_network()
        learner = nccl_tf.Finetune(network)
        learner.compile(keras.optimizers.SGD(0.1, use_ema=True), steps_per_execution=4)
        learner.fit(batches(0), verbose=0)
        return network.get_weights()

    one = learned()
    with strategy.scope():
        two = learned()
    return max(map(largest, one, two))


def refusals(strategy: tf.distribute.Strategy) -> list[str]:
    """What cannot run on replicas says so."""

    def memory():
        return nccl_tf.ReservoirMemory(12, IMAGE_SHAPE)

    def compiled(**kwargs):
        learner = nccl_tf.Finetune(tiny_network())
        learner.compile(**kwargs)

    def train_on_batch():
        learner = nccl_tf.Finetune(tiny_network())
        learner.compile()
        images, labels = (part[0] for part in arrays(0))
        learner.train_on_batch(images, labels)

    def text():
        layers = [keras.layers.TextVectorization(8, output_sequence_length=2, vocabulary=["a"])]
        layers += [keras.layers.Embedding(8, 2), keras.layers.Flatten(), keras.layers.Dense(2)]
        learner = nccl_tf.Finetune(keras.Sequential([keras.Input((), dtype="string"), *layers]))
        learner.compile()
        learner.fit(np.array(["a", "b"], object), np.arange(2), verbose=0)

    tried = (
        train_on_batch,
        lambda: nccl_tf.EWC(tiny_network()),
        lambda: nccl_tf.MIR(tiny_network(), memory()),
        lambda: nccl_tf.NCCL(tiny_network(), memory(), memory_batch_size=5),
        lambda: compiled(jit_compile=True),
        lambda: compiled(optimizer=keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.1))),
        lambda: compiled(optimizer=keras.optimizers.SGD(0.1, gradient_accumulation_steps=2)),
        lambda: compiled(
            optimizer=keras.optimizers.SGD(0.1, use_ema=True, ema_overwrite_frequency=2)
        ),
        lambda: compiled(metrics=[keras.metrics.OneHotIoU(4, [0])]),
        text,
    )
    said = []
    with strategy.scope():
        for attempt in tried:
            try:
                attempt()
                said.append("")
            except UserError as error:
                said.append(str(error))
    return said


def main() -> None:
    use_device("cpu:2")
    strategy = tf.distribute.MirroredStrategy()
    found = {
        "replicas": strategy.num_replicas_in_sync,
        "methods": {},
        "own": {},
        "places": {},
        "whole": {},
    }
    for name in sys.argv[1:]:
        if name.startswith("places:"):
            method = name.removeprefix("places:")
            found["places"][method] = difference_at_places(method, strategy)
            continue
        if name.startswith("whole:"):
            clips = name.removeprefix("whole:")
            found["whole"][clips] = in_whole_difference(clips, strategy)
            continue
        if name in (alone := {f.__name__: f for f in (statistics, restarted, averaged_by_keras)}):
            found[name] = alone[name](strategy)
            continue
        if name in OWN:
            found["own"][name] = own_difference(OWN[name], strategy)
            continue
        one = learn(name)
        with strategy.scope():
            two = learn(name)
        found["methods"][name] = difference(one, two)
    found["refusals"] = refusals(strategy)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
