"""The checks of a learner: each finds a class that breaks what it is about."""

from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf

import nccl_tf
from nccl_tf.conformance.learners import ITEMS
from nccl_tf.errors import UserError
from nccl_tf.methods.registry import METHODS

BROKEN: dict[str, type] = {}
"""A class that fails an item, by the item."""


def breaks(item: str):
    def add(cls):
        BROKEN[item] = keras.saving.register_keras_serializable(package="broken")(cls)
        return cls

    return add


class Own(nccl_tf.ExperienceReplay):
    """A method that holds what it must.

    Args:
        powers: A list of numbers.

    Example:
        >>> memory = nccl_tf.ReservoirMemory(20)
        >>> learner = nccl_tf.ExperienceReplay(nccl_tf.networks.mlp((4, 4, 1), 2), memory)
    """

    def __init__(self, *args, powers=(1, 2), **kwargs):
        super().__init__(*args, **kwargs)
        self.powers = powers


@breaks("docstring")
class Silent(Own):
    pass


@breaks("arguments")
class Sorts(Own):
    def __init__(self, *args, powers=(), **kwargs):
        super().__init__(*args, powers=powers, **kwargs)
        powers.reverse()


@breaks("config")
class Forgets(Own):
    def get_config(self):
        config = super().get_config()
        del config["powers"]
        return config


@breaks("file")
class Tires(Own):
    """Takes shorter steps after a task, which no file says."""

    shorter = 1.0

    def on_task_end(self, task_id):
        self.shorter = 0.5

    def replay_loss(self, logits, batch, *replays):
        loss, logs = super().replay_loss(logits, batch, *replays)
        return self.shorter * loss, logs


@breaks("equal_seeds")
class Throws(Own):
    def replay_loss(self, logits, batch, *replays):
        loss, logs = super().replay_loss(logits, batch, *replays)
        return np.random.default_rng().uniform() * loss, logs


@breaks("datasets")
class Reverses(Own):
    def fit(self, x=None, y=None, **kwargs):
        if y is not None:
            x, y = x[::-1], y[::-1]
        return super().fit(x, y, **kwargs)


@breaks("skipped_step")
class Counts(Own):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.batches = self.state("batches", (), "int64")

    def after_step(self, batch, step):
        super().after_step(batch, step)
        self.batches.assign_add(1)


@breaks("padding")
class Averages(Own):
    """Means over all rows, those of padding too."""

    def replay_loss(self, logits, batch, replay):
        loss = tf.reduce_mean(self.stream_losses(logits.stream, batch))
        memory_loss = tf.reduce_mean(self.memory_losses(logits.memory[0], replay))
        return loss + memory_loss, {"loss": loss, "memory_loss": memory_loss}


@breaks("memory_of_stream")
class Dims(Own):
    def store(self, batch, logits):
        super().store(batch._replace(inputs=batch.inputs / 2), logits)


@breaks("logs")
class SaysMore(Own):
    def train_step(self, data):
        return {**super().train_step(data), "size": tf.constant(4.0)}


@breaks("add_classes")
class Doubles(Own):
    def add_classes(self, count):
        super().add_classes(count)
        kernel = self.network.layers[-1].kernel
        kernel.assign(2 * kernel)


@breaks("heads")
class Unmasked(Own):
    def call(self, inputs, training=False):
        return self.outputs(inputs["inputs"], None, training)


@breaks("predictions")
class Centred(Own):
    """Takes the mean of the batch's outputs from each, as a prompt chosen by a batch would."""

    def outputs(self, inputs, tasks, training):
        logits = super().outputs(inputs, tasks, training)
        return logits if training else logits - tf.reduce_mean(logits, axis=0)


@breaks("serving_model")
class Sharper(Own):
    def call(self, inputs, training=False):
        return super().call(inputs, training) * 2


@breaks("jit_compile")
class Grows(Own):
    """Counts calls in Python, of which a graph has one."""

    calls = 0

    def replay_loss(self, logits, batch, *replays):
        loss, logs = super().replay_loss(logits, batch, *replays)
        self.calls += 1
        return loss / self.calls, logs


@breaks("export_learner")
class Notes(Own):
    """Notes in Python which task has ended."""

    def on_task_end(self, task_id):
        self.ended = int(task_id)


IN_GRAPHS = ("file", "equal_seeds", "jit_compile", "export_learner")
"""Items that find what a graph does not take anew from Python, or differs by."""


@pytest.mark.seconds(20)  # XLA compiles steps
@pytest.mark.parametrize(
    "item",
    [item if item in IN_GRAPHS else pytest.param(item, marks=pytest.mark.eager) for item in ITEMS],
)
def test_each_item_finds_a_class_that_breaks_it(item):
    with pytest.raises(UserError) as error:
        nccl_tf.check_learner(BROKEN[item], arguments={"powers": [2, 3]}, items=[item])
    title, said = str(error.value).split("\n")
    assert title.startswith(f"{BROKEN[item].__name__} fails 1 of 1 checks")
    assert said.startswith(f"  {item}: received ") and ", expected " in said


def test_a_class_that_holds_all_is_told_so():
    slow = ("jit_compile", "file", "config", "export_learner")
    items = [item for item in ITEMS if item not in slow]
    report = nccl_tf.check_learner(Own, arguments={"powers": [2, 3]}, items=items)
    assert [each.outcome for each in report.verdicts] == ["held"] * len(items)
    assert str(report).splitlines() == ["Own", *(f"  {item}: held" for item in items)]


@pytest.mark.eager
def test_one_error_has_every_item_that_failed():
    items = ["docstring", "logs", "datasets", "memory_of_stream"]

    class Both(Dims, SaysMore):
        pass

    with pytest.raises(UserError) as error:
        nccl_tf.check_learner(Both, items=items)
    assert [line.split(":")[0].strip() for line in str(error.value).splitlines()[1:]] == [
        "docstring", "logs", "memory_of_stream",
    ]  # fmt: skip
    report = nccl_tf.check_learner(Both, items=items, raises=False)
    assert report["datasets"].outcome == "held"
    assert [each.item for each in report.failed] == ["docstring", "logs", "memory_of_stream"]


@pytest.mark.eager
def test_a_memory_that_nothing_is_written_into_fails():
    class Forgetful(Own):
        def after_step(self, batch, step):
            pass

    report = nccl_tf.check_learner(Forgetful, items=["memory_of_stream"], raises=False)
    assert report["memory_of_stream"].outcome == "failed"


@pytest.mark.eager
def test_a_memory_that_a_task_s_end_empties_holds():
    class Empties(Own):
        def on_task_end(self, task_id):
            self.memory.seen.assign(0)

    nccl_tf.check_learner(
        Empties, items=["memory_of_stream"], memory=lambda: nccl_tf.ReservoirMemory(6)
    )


@pytest.mark.eager
def test_a_registered_class_is_tried_with_the_memory_of_its_row(monkeypatch):
    tried = []

    class Registered(Own):
        def __init__(self, network, memory, **kwargs):
            super().__init__(network, memory, **kwargs)
            tried.append(type(memory))

    row = nccl_tf.Method(name="registered", title="R", learner=Registered, memory="balanced")
    monkeypatch.setitem(METHODS, "registered", row)
    nccl_tf.check_learner(Registered, items=["logs"])
    assert tried == [nccl_tf.BalancedMemory]


def test_the_step_that_is_to_be_skipped_is_not_warned_of(caplog):
    nccl_tf.check_learner(Own, items=["skipped_step"])
    assert "changed nothing" not in caplog.text


@pytest.mark.parametrize("item", ["padding", "jit_compile"])
def test_an_error_in_float64_says_that_it_is_one(item):
    class Single(Own):
        def stream_losses(self, logits, batch):
            return super().stream_losses(logits, batch) * tf.ones(len(batch.labels), tf.float32)

    report = nccl_tf.check_learner(Single, items=[item, "logs"], raises=False)
    assert "float64" in report[item].reason.rpartition("expected no error")[2]
    assert report["logs"].outcome == "held"


@pytest.mark.eager
def test_what_a_hook_raises_is_what_was_received():
    class Fails(Own):
        def store(self, batch, logits):
            raise KeyError("scores")

    report = nccl_tf.check_learner(Fails, items=["equal_seeds"], raises=False)
    line = Fails.store.__code__.co_firstlineno + 1
    place = f"{Path(__file__).name}:{line} in store"
    assert f"received KeyError ('scores') at {place}" in report["equal_seeds"].reason


@pytest.mark.eager
def test_a_reason_that_items_share_is_given_once():
    class Fails(Own):
        def store(self, batch, logits):
            raise KeyError("scores")

    with pytest.raises(UserError) as error:
        nccl_tf.check_learner(Fails, items=["docstring", "equal_seeds", "logs"])
    lines = str(error.value).splitlines()[1:]
    assert [line.partition(": received")[0] for line in lines] == [
        "  docstring", "  equal_seeds, logs",
    ]  # fmt: skip


@pytest.mark.eager
def test_an_error_of_the_package_alone_has_no_place():
    report = nccl_tf.check_learner(
        nccl_tf.ExperienceReplay, items=["logs"], memory=lambda: "ring", raises=False
    )
    assert report["logs"].outcome == "failed"
    assert report["logs"].reason.endswith("), expected no error")


@pytest.mark.eager
def test_an_item_with_a_reason_is_left_out():
    class Excused(Doubles):
        cannot = dict.fromkeys(("add_classes", "docstring"), "has a head of its own")

        def add_classes(self, count):
            raise UserError("received new classes")

    report = nccl_tf.check_learner(Excused, items=["docstring", "add_classes", "logs"])
    assert [each.outcome for each in report.verdicts] == ["excused", "excused", "held"]
    assert report["add_classes"].reason == "has a head of its own"


@pytest.mark.eager
def test_what_has_a_reason_is_refused_by_the_learner():
    class Both(Unmasked):
        cannot = dict.fromkeys(["heads"], "has one head")

    report = nccl_tf.check_learner(Both, items=["heads"], raises=False)
    assert "received a learner that takes heads" in report["heads"].reason


@pytest.mark.eager
def test_three_items_may_be_left_out():
    class Lazy(Own):
        cannot = dict.fromkeys(("docstring", "logs", "datasets", "equal_seeds"), "is lazy")

    report = nccl_tf.check_learner(Lazy, items=list(Lazy.cannot), raises=False)
    assert [each.outcome for each in report.verdicts] == ["excused"] * 3 + ["failed"]


def test_an_unknown_item_is_refused():
    with pytest.raises(UserError, match="unknown item 'seeds'"):
        nccl_tf.check_learner(Own, items=["seeds"])


class OwnMemory(nccl_tf.ReservoirMemory):
    """A name that only this module has."""


def test_an_example_sees_the_names_of_its_module():
    class Shown(Own):
        """Is made with a memory of this module.

        Example:
            >>> learner = Shown(nccl_tf.networks.mlp((4, 4, 1), 2), OwnMemory(20))
        """

    assert not nccl_tf.check_learner(Shown, items=["docstring"]).failed


def test_data_network_and_memory_may_be_ones_own():
    """Numbers of words, whose NaN is a weight's."""
    random = np.random.default_rng(1)
    words = [
        (random.integers(0, 9, (16, 5)), random.integers(2 * t, 2 * t + 2, 16)) for t in (0, 1)
    ]

    def network():
        layers = [keras.layers.Embedding(9, 4), keras.layers.Flatten(), keras.layers.Dense(6)]
        return keras.Sequential([keras.Input((5,), dtype="int32"), *layers])

    report = nccl_tf.check_learner(
        nccl_tf.DERpp, network=network, memory=lambda: nccl_tf.ReservoirMemory(4), tasks=words,
        optimizer=lambda: keras.optimizers.Adam(0.01),
        items=["file", "skipped_step", "memory_of_stream", "logs", "heads"],
    )  # fmt: skip
    assert not report.failed
