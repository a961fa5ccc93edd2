"""Every argument of every learner, memory and callback is shown, taken, kept and documented."""

import inspect
import json

import pytest

import nccl_tf
from nccl_tf.arguments.constructors import described_arguments
from nccl_tf.arguments.hyperparameters import OPTIONS
from nccl_tf.errors import UserError
from nccl_tf.methods.registry import METHODS
from tests.methods.learners import build
from tests.methods.test_battery import CLASSES, numbers_of
from tests.tiny import IMAGE_SHAPE, TASK_CLASSES, tiny_network

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
    "stream_mask": "seen", "head": None,
    "example_dtype": "float16", "extras": {"logits": [[4], "float32"]}, "label_shape": [4],
    "label_dtype": "float32", "rule": "off_by_one", "exclude_current_task": True, "per_class": 2,
    "slots_per_class": 3, "task_classes": [[0, 1], [2, 3]],
}  # fmt: skip
"""A value of each argument that no row of a method has, other than its default where it can be."""
KNOW_NOTHING = ("icarl", "ncm", "ranpac", "slda", "supsup")  # refuse known_classes


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
    asked = [each for each in arguments(cls) if each not in refused]
    config = build(name, **{each: values[each] for each in asked}).get_config()
    assert {each: config[each] for each in asked} == {each: values[each] for each in asked}
    saved = json.dumps(config)
    assert json.dumps(cls.from_config(json.loads(saved)).get_config()) == saved


@pytest.mark.parametrize("cls", MEMORIES)
def test_every_argument_of_a_memory_is_taken_and_kept(cls):
    values = {name: OTHER[name] for name in arguments(cls)}
    config = cls(**values).get_config()
    if cls is nccl_tf.Memory:  # whose subclasses have the capacity in their own words
        del values["capacity"]
    else:
        assert cls.from_config(config).get_config() == config
    assert config == values


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
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'memory'"):
        nccl_tf.DERpp(tiny_network())


def test_an_unknown_argument_of_a_memory_is_refused():
    with pytest.raises(UserError, match=r"RingMemory 'extra': did you mean 'extras'\? "):
        nccl_tf.RingMemory(2, TASK_CLASSES, extra={})


def test_a_class_from_outside_shows_all_without_doing_anything():
    class Mine(nccl_tf.NCCL):
        def __init__(self, *args, own: float = 0.5, **kwargs):
            super().__init__(*args, **kwargs)

    names = list(arguments(nccl_tf.NCCL))
    assert list(arguments(Mine)) == [*names[:2], "own", *names[2:]]
