"""Every argument of every learner, memory and callback is shown, taken, kept and documented."""

import copy
import inspect
import json
import re

import keras
import pytest

import nccl_tf
from nccl_tf.arguments.attributes import attributes_of
from nccl_tf.arguments.constructors import described_arguments
from nccl_tf.arguments.hyperparameters import OPTIONS
from nccl_tf.errors import UserError
from nccl_tf.learner.core import Core
from nccl_tf.methods.registry import METHODS
from tests.methods.learners import assert_same_state, build
from tests.methods.test_battery import CLASSES, numbers_of
from tests.tiny import IMAGE_SHAPE, TASK_CLASSES, tiny_batches, tiny_network

pytestmark = pytest.mark.eager

PUBLIC = [getattr(nccl_tf, name) for name in nccl_tf.__all__]
OBJECTS = [cls for cls in PUBLIC if inspect.isclass(cls)]
LEARNERS = [cls for cls in OBJECTS if issubclass(cls, nccl_tf.Learner)]
MEMORIES = [cls for cls in OBJECTS if issubclass(cls, nccl_tf.Memory)]
CALLBACKS = [getattr(nccl_tf.callbacks, name) for name in nccl_tf.callbacks.__all__]

OTHER = {
    "heads": [list(classes) for classes in TASK_CLASSES], "mask": "union", "seed": 7,
    "known_classes": [1, 2], "name": "mine", "rate_decay": 0.5, "memory_batch_size": 4,
    "average_weights": 0.75, "rate_decay_steps": 7,
    "batch_norm": "frozen", "num_tasks": 2, "capacity": 9,
    "example_shape": list(IMAGE_SHAPE), "dark": 0.25, "replay_labels": 0.75,
    "stream_mask": "seen", "head": None, "stores": "every_epoch", "alignment": None, "rates": None,
    "example_dtype": "float16", "extras": {"logits": [[4], "float32"]}, "label_shape": [4],
    "label_dtype": "float32", "rule": "off_by_one", "exclude_current_task": True, "per_class": 2,
    "slots_per_class": 3, "task_classes": [[0, 1], [2, 3]], "general": 4, "general_share": 0.25,
    "joined": True,
}  # fmt: skip
"""A value of each argument that no row of a method has, other than its default where it can be."""
KNOW_NOTHING = ("fecam", "icarl", "ncm", "ranpac", "slda", "supsup")  # refuse known_classes


def arguments(cls) -> dict[str, inspect.Parameter]:
    return dict(inspect.signature(cls).parameters)


@pytest.mark.parametrize("cls", [*LEARNERS, *MEMORIES, *CALLBACKS])
def test_every_argument_is_shown_and_documented(cls):
    for parameter in arguments(cls).values():
        assert parameter.kind not in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL)
    assert set(arguments(cls)) == set(described_arguments(inspect.getdoc(cls))) - {"**kwargs"}


@pytest.mark.parametrize("name", CLASSES)
def test_every_argument_is_taken_and_kept(name):
    cls = METHODS[name].learner_class()
    values = {**OTHER, **{row.name: other for row, other, _ in numbers_of(name)}}
    refused = {"known_classes" if name in KNOW_NOTHING else "heads", "network", "memory"}
    refused |= {row.name for row in OPTIONS if METHODS[name].option_refusal(row.name)}
    refused |= set(METHODS[name].refuses)
    if "rate_decay" in refused:
        refused.add("rate_decay_steps")
    if name == "cumulative":
        refused.add("average_weights")  # by its restart
    asked = [each for each in arguments(cls) if each not in refused]
    config = build(name, **{each: values[each] for each in asked}).get_config()
    assert {each: config[each] for each in asked} == {each: values[each] for each in asked}
    saved = json.dumps(config)
    assert json.dumps(cls.from_config(json.loads(saved)).get_config()) == saved


@pytest.mark.parametrize("cls", MEMORIES)
def test_every_argument_of_a_memory_is_taken_and_kept(cls):
    values = {name: OTHER[name] for name in arguments(cls)}
    config = cls(**values).get_config()
    assert config == values
    assert cls.from_config(config).get_config() == config


def test_an_unknown_argument_of_a_learner_is_refused():
    memory = nccl_tf.RingMemory(2, TASK_CLASSES)
    with pytest.raises(UserError) as error:
        nccl_tf.NCCL(tiny_network(), memory, memory_batchsize=3)
    said = "unknown argument of NCCL 'memory_batchsize': did you mean 'memory_batch_size'? choose"
    assert str(error.value).startswith(said)
    for name, value in {"dtype": "float64", "trainable": False}.items():
        with pytest.raises(UserError, match=f"unknown argument of NCCL '{name}'"):
            nccl_tf.NCCL(tiny_network(), memory, **{name: value})


def test_an_unknown_argument_is_named_before_a_missing_one():
    with pytest.raises(UserError, match=r"unknown argument of DERpp 'mem_size': .* memory"):
        nccl_tf.DERpp(tiny_network(), mem_size=20)
    with pytest.raises(UserError, match="received no memory for DERpp"):
        nccl_tf.DERpp(tiny_network())


class Takes(nccl_tf.ExperienceReplay):
    """A method of one's own.

    Args:
        network: As for `ExperienceReplay`.
        memory: Its memory.
        margin: How far classes are apart.
    """

    def __init__(self, network, memory, *, margin, **kwargs):
        super().__init__(network, memory, **kwargs)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: nccl_tf.ExperienceReplay(tiny_network()), r"no memory for Exp.*A ring \(ER-Ring"),
        (lambda: nccl_tf.EWC(), r"no network for .*network=keras.Sequential"),
        (lambda: nccl_tf.ExperienceReplay(memory_batch_size=3), "no network and no memory"),
        (lambda: nccl_tf.ReservoirMemory(), r"no capacity for ReservoirMemory: pass capacity=500"),
        (lambda: nccl_tf.RingMemory(), "no slots_per_class for RingMemory"),
        (
            lambda: Takes(tiny_network(), nccl_tf.ReservoirMemory(4)),
            r"no margin for Takes: .*\(How far",
        ),
    ],
)
def test_a_missing_argument_is_named_with_what_to_pass(call, said):
    with pytest.raises(UserError, match=said):
        call()


def test_a_memory_is_copied_without_its_constructor():
    memory = nccl_tf.ReservoirMemory(4, (2,))
    assert copy.copy(memory).capacity == 4


def test_an_unknown_argument_of_a_memory_is_refused():
    with pytest.raises(UserError, match=r"RingMemory 'extra': did you mean 'extras'\? "):
        nccl_tf.RingMemory(2, TASK_CLASSES, extra={})


def test_a_class_from_outside_shows_all_without_doing_anything():
    class Mine(nccl_tf.NCCL):
        def __init__(self, *args, own: float = 0.5, **kwargs):
            super().__init__(*args, **kwargs)

    names = list(arguments(nccl_tf.NCCL))
    assert list(arguments(Mine)) == [*names[:2], "own", *names[2:]]


HOSTILE = sorted(
    name
    for name in {*dir(nccl_tf.ReplayLearner), *vars(nccl_tf.Finetune(tiny_network()))}
    if name not in arguments(nccl_tf.ExperienceReplay)
)
"""Names that a learner and Keras's models have, and that no constructor takes."""


@keras.saving.register_keras_serializable(package="tests")
class Hostile(nccl_tf.ExperienceReplay):
    """One that takes arguments of any name, and keeps them in another place."""

    def __init__(self, rate, *args, joint=None, **kwargs):
        self._kept = {name: kwargs.pop(name) for name in HOSTILE if name in kwargs}
        self._kept |= {"joint": joint, "rate": rate}
        super().__init__(*args, **kwargs)


def test_an_argument_may_have_any_name_and_survives_a_file(tmp_path):
    assert {"progress", "options", "dark", "update", "built"} - {*HOSTILE} == {"dark"}
    values = {name: [i, {i: (i,)}] for i, name in enumerate(HOSTILE)} | {"joint": True}
    memory = nccl_tf.ReservoirMemory(8)
    learner = Hostile(0.5, tiny_network(), memory, er_weighting="sum_of_means", **values)
    learner.compile(keras.optimizers.SGD(0.1), run_eagerly=True)
    learner.fit(tiny_batches(0, 10), verbose=0)
    learner.save(tmp_path / "learner.keras")
    loaded = nccl_tf.load_model(tmp_path / "learner.keras")
    assert loaded._kept == {**values, "rate": 0.5}
    assert loaded.er_weighting == "sum_of_means" and loaded.memory.capacity == 8


@keras.saving.register_keras_serializable(package="tests")
class OwnParts(nccl_tf.ExperienceReplay):
    """One that makes network, memory and heads itself, from arguments of the base's names."""

    def __init__(self, heads=2, seed=1, memory=(8, *IMAGE_SHAPE), **kwargs):
        size, *shape = memory
        made = nccl_tf.ReservoirMemory(size, shape)
        super().__init__(
            tiny_network(), made, heads=TASK_CLASSES[:heads], seed=seed + 1, batch_norm="frozen",
            **kwargs,
        )  # fmt: skip


def test_a_class_may_make_its_parts_itself(tmp_path):
    learner = OwnParts(seed=4)
    learner.compile(keras.optimizers.SGD(0.1), run_eagerly=True)
    learner.fit(tiny_batches(0, 10), verbose=0)
    learner.save(tmp_path / "learner.keras")
    loaded = nccl_tf.load_model(tmp_path / "learner.keras")
    assert (loaded.seed, loaded.batch_norm, loaded.heads.classes) == (5, "frozen", TASK_CLASSES)
    assert_same_state(loaded, learner)
    learner.add_classes(1)
    with pytest.raises(UserError, match="network does not say what it has become"):
        learner.save(tmp_path / "grown.keras")


@keras.saving.register_keras_serializable(package="tests")
class Sized(nccl_tf.ReservoirMemory):
    """A memory that has its size in other words."""

    def __init__(self, capacity, variables=2, **kwargs):
        super().__init__(capacity * variables, **kwargs)


class Shapeless(nccl_tf.ReservoirMemory):
    """A memory whose constructor takes no shape."""

    def __init__(self, capacity):
        super().__init__(capacity)


def test_a_memory_of_one_s_own_is_kept(tmp_path):
    path = tmp_path / "learner.keras"
    learner = nccl_tf.ExperienceReplay(tiny_network(), Sized(4, variables=3))
    learner.compile(keras.optimizers.SGD(0.1), run_eagerly=True)
    learner.fit(tiny_batches(0, 10), verbose=0)
    learner.save(path)
    assert_same_state(nccl_tf.load_model(path), learner)
    assert nccl_tf.load_model(path).memory.capacity == 12


def test_a_memory_that_a_file_could_not_make_is_refused(tmp_path):
    learner = nccl_tf.ExperienceReplay(tiny_network(), Shapeless(4))
    learner.compile(keras.optimizers.SGD(0.1), run_eagerly=True)
    learner.fit(tiny_batches(0, 10), verbose=0)
    with pytest.raises(UserError, match="example_shape does not say"):
        learner.save(tmp_path / "learner.keras")


def test_the_attributes_of_a_learner_are_known():
    """What the base sets: a name that is added there is one that a class may not replace."""
    learner = nccl_tf.Finetune(tiny_network(), average_weights=0.9, known_classes=[0])
    learner.compile(keras.optimizers.SGD(0.1))
    plain = keras.Model(learner.network.inputs, learner.network.outputs)
    plain.compile(keras.optimizers.SGD(0.1))
    added = vars(learner).keys() - vars(plain).keys()
    assert added == attributes_of(Core).keys()


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("progress", 3), ("options", 0.9), ("gradient", 3), ("execution", []), ("devices", 2),
        ("progress", 0), ("update", 5), ("apply", 2), ("fit", None), ("seed", 8),
        ("network", [0, 1]), ("num_classes", "ten"), ("heads", 2), ("memory", 7),
    ],
)  # fmt: skip
def test_an_attribute_of_the_base_is_not_replaced(name, value, when):
    class Mine(nccl_tf.Finetune):
        def __init__(self, network, **kwargs):
            if when == "before":
                setattr(self, name, value)
            super().__init__(network, **kwargs)
            if when == "after":
                setattr(self, name, value)

    with pytest.raises(UserError, match=rf"received {name} = .* of a Mine, whose base has one"):
        Mine(tiny_network())


def test_an_attribute_of_one_s_own_may_be_set_and_one_of_the_base_again():
    class Mine(nccl_tf.Finetune):
        def __init__(self, network, seed=0, **kwargs):
            self.seed, self.rate, self.average = seed, 0.5, None
            super().__init__(network, seed=seed, **kwargs)
            self.rate, self.seed = [1], seed

    learner = Mine(tiny_network(), seed=4)
    learner.rate, learner.saves_memory = None, False
    assert (learner.seed, learner.rate) == (4, None)


class KeepsOwn(nccl_tf.ExperienceReplay):
    def __init__(self, *args, own="", **kwargs):
        super().__init__(*args, **kwargs)
        setattr(self, own, {})


@pytest.mark.parametrize("name", ["_count", "_head", "_trained", "_store", "_said", "_growing"])
def test_a_private_name_of_a_learner_is_one_s_own(name):
    learner = KeepsOwn(tiny_network(), nccl_tf.ReservoirMemory(5), own=name)
    learner.compile(keras.optimizers.SGD(0.1), run_eagerly=True)
    learner.fit(tiny_batches(0, 10), verbose=0)
    assert getattr(learner, name) == {}


@pytest.mark.parametrize(
    "name", ["_base", "_quantity_means", "_stream_batch", "_stream_weights_for_joint_mean"]
)
def test_a_private_name_of_the_base_is_refused_where_it_is_set(name):
    with pytest.raises(UserError, match=f"received {name} = "):
        KeepsOwn(tiny_network(), nccl_tf.ReservoirMemory(5), own=name)


@pytest.mark.parametrize(
    ("base", "name"),
    [
        (nccl_tf.Finetune, "_log"), (nccl_tf.Finetune, "_check_labels"),
        (nccl_tf.ExperienceReplay, "_stream_weights_for_joint_mean"),
        (nccl_tf.ReservoirMemory, "_allocate"),
    ],
)  # fmt: skip
def test_a_class_defines_no_private_name_of_its_base(base, name):
    with pytest.raises(UserError, match=f"received {name} in the class Mine"):
        type("Mine", (base,), {name: lambda self: None})
    assert type("Mine", (base,), {f"{name}_of_mine": lambda self: None})


@pytest.mark.parametrize("name", ["_forms", "_stores", "_class_weights", "_arguments", "_count"])
def test_a_private_name_of_a_memory_is_one_s_own(name):
    class Mine(nccl_tf.ReservoirMemory):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            setattr(self, name, "mine")

    memory = Mine(6)
    learner = nccl_tf.ExperienceReplay(tiny_network(), memory)
    learner.compile(keras.optimizers.SGD(0.1), run_eagerly=True)
    learner.fit(tiny_batches(0, 10), verbose=0)
    assert getattr(memory, name) == "mine" and int(memory.readable_count()) == 6
    assert memory.get_config()["capacity"] == 6


def ring():
    return nccl_tf.RingMemory(2, [[0], [1]])


@pytest.mark.parametrize(
    ("make", "name", "other"),
    [
        (lambda: nccl_tf.ReservoirMemory(20), "capacity", 7),
        (lambda: nccl_tf.ReservoirMemory(20), "seed", 7),
        (lambda: nccl_tf.ReservoirMemory(20), "rule", "off_by_one"),
        (lambda: nccl_tf.ReservoirMemory(20), "exclude_current_task", True),
        (ring, "capacity", 9), (ring, "slots_per_class", 3), (ring, "task_classes", [[3]]),
        (lambda: nccl_tf.BalancedMemory(20, [[0], [1]]), "task_classes", [[3]]),
        (lambda: nccl_tf.MixedMemory(20, 5), "general", 6),
        (lambda: nccl_tf.MixedMemory(20, 5), "general_share", 0.5),
        (lambda: nccl_tf.ExemplarMemory(20, per_class=3), "per_class", 4),
    ],
)  # fmt: skip
def test_what_a_memory_is_made_with_stays(make, name, other):
    """It had no effect on a memory that has its slots, and its file said what it was made with."""
    memory = make()
    before = getattr(memory, name)
    with pytest.raises(UserError, match=f"received {name} = .*{re.escape(repr(before))}"):
        setattr(memory, name, other)
    setattr(memory, name, before)
    assert getattr(memory, name) == before


@pytest.mark.parametrize(
    ("name", "value"), [("labels", 3), ("draws", 0), ("read", 2), ("seed", "x"), ("_base", {})]
)
def test_an_attribute_of_a_memory_is_not_replaced(name, value):
    class Mine(nccl_tf.ReservoirMemory):
        def __init__(self, capacity, **kwargs):
            setattr(self, name, value)
            super().__init__(capacity, **kwargs)

    with pytest.raises(UserError, match=rf"received {name} = .* of a Mine, whose base has one"):
        Mine(4)
