"""Methods, memories and streams that are registered from outside of the package."""

import dataclasses

import numpy as np
import pytest

import nccl_tf
from nccl_tf.commands._command_line import all_flags
from nccl_tf.commands._help import help_text
from nccl_tf.errors import UserError
from nccl_tf.experiment.config.resolve import resolve
from nccl_tf.experiment.run.build import build_learner
from nccl_tf.memories.kinds import MEMORIES
from nccl_tf.memories.reservoir import ReservoirMemory
from nccl_tf.methods.er import ExperienceReplay
from nccl_tf.methods.registry import METHODS
from nccl_tf.streams.catalog import DATASETS
from nccl_tf.streams.load import KINDS, load_stream

pytestmark = pytest.mark.usefixtures("restored_tables")


class HalfReplay(ExperienceReplay):
    """Experience replay with one number more."""

    def __init__(self, *args, half_weight=0.5, **kwargs):
        super().__init__(*args, **kwargs)
        self.half_weight = half_weight


class AveragedReplay(ExperienceReplay):
    """Experience replay that averages its weights without being told to."""

    def __init__(self, *args, average_weights=0.9, **kwargs):
        super().__init__(*args, average_weights=average_weights, **kwargs)


class LastReservoir(ReservoirMemory):
    """A reservoir of another class."""


def half_replay(**columns):
    number = nccl_tf.Hyperparameter("half_weight", "float", 0.5, ge=0.0, help="a weight")
    return nccl_tf.Method(
        **{
            "name": "half_replay",
            "title": "Half replay",
            "learner": HalfReplay,
            "memory": "reservoir",
            "hyperparameters": (number,),
            **columns,
        }
    )


def images(data_dir, manual_dir):
    rng = np.random.default_rng(0)
    labels = np.tile(np.arange(4), 30)
    inputs = rng.integers(0, 255, (len(labels), 3, 3, 1), dtype=np.uint8)
    return (inputs, labels), (inputs[:40], labels[:40])


def my_stream(**columns):
    row = {"name": "split_mine", "kind": "split", "num_tasks": 2, "num_classes": 4}
    return nccl_tf.StreamRow(**{**row, "source": images, **columns})


def test_a_registered_method_has_flags_defaults_and_a_page():
    nccl_tf.register_method(half_replay())
    assert "half_weight" in {row.name for row in all_flags()}
    assert "half_replay" in help_text() and "--half_weight" in help_text(full=True)
    settings = resolve({"method": "half_replay", "half_weight": 2.0})
    assert settings.hyperparameters == {"half_weight": 2.0} and settings.reservoir == "exact"
    with pytest.raises(UserError, match="--half_weight=-1"):
        resolve({"method": "half_replay", "half_weight": -1.0})


def test_method_memory_and_stream_work_together():
    nccl_tf.register_memory(
        nccl_tf.MemoryKind(
            name="last_reservoir", memory=LastReservoir, has_rule=True,
            sized_by={"capacity": "capacity", "rule": "rule"},
        )
    )  # fmt: skip
    nccl_tf.register_method(half_replay(memory="last_reservoir"))
    nccl_tf.register_stream(my_stream())
    settings = resolve({"method": "half_replay", "dataset": "split_mine", "memory": 17})
    assert settings.network == "mlp" and settings.learning_rate == 0.03
    stream = load_stream("split_mine", seed=1)
    learner = build_learner(settings, stream, seed=1)
    assert isinstance(learner, HalfReplay) and learner.half_weight == 0.5
    assert isinstance(learner.memory, LastReservoir) and learner.memory.capacity == 17
    assert len(stream) == 2 and stream.example_shape == (3, 3, 1)
    learner.fit(stream[0].train_batches(10), task_id=0, verbose=0)


def test_an_option_of_the_learner_s_own_is_in_its_row():
    row = nccl_tf.Method(
        name="averaged", title="Averaged", learner=AveragedReplay, memory="reservoir"
    )
    nccl_tf.register_method(row)
    stream = load_stream("split_digits", seed=1, max_tasks=1)
    told = {"method": "averaged", "dataset": "split_digits", "max_tasks": 1}
    with pytest.raises(UserError, match=r"average_weights=0\.9 by default, .* options="):
        build_learner(resolve(told), stream, seed=1)
    build_learner(resolve({**told, "average_weights": 0.8}), stream, seed=1)
    del METHODS["averaged"]
    nccl_tf.register_method(dataclasses.replace(row, options={"average_weights": 0.9}))
    assert resolve(told).average_weights == 0.9
    build_learner(resolve(told), stream, seed=1)


def test_a_stream_may_be_made_by_its_row():
    def make(plan, seed, data_dir, manual_dir):
        assert seed == 3 and data_dir is manual_dir is None
        return nccl_tf.stream_from_arrays(
            *images(None, None), num_tasks=plan.num_tasks, head=plan.head, seed=seed, name="mine",
            tuning_tasks=plan.tuning_tasks,
        )  # fmt: skip

    nccl_tf.register_stream(my_stream(source="", make=make))
    assert len(load_stream("split_mine", seed=3)) == 2
    tuning = load_stream("split_mine", seed=3, tuning_tasks=1, tasks="tuning")
    assert tuning.task_classes == ((0, 1),)
    with pytest.raises(UserError, match="--tuning_tasks"):
        load_stream("split_mine", seed=3, tasks="tuning")
    with pytest.raises(UserError, match="made a stream of"):
        load_stream("split_mine", seed=3, max_tasks=1)


def test_every_kind_of_stream_has_its_cut():
    assert {row.kind for row in DATASETS.values()} == set(KINDS)


@pytest.mark.parametrize(
    ("register", "row", "said"),
    [
        (nccl_tf.register_method, half_replay(name="er_ring"), "already"),
        (nccl_tf.register_method, half_replay(name="../x"), "lower-case"),
        (nccl_tf.register_method, half_replay(memory="rong"), "kind of memory 'rong'"),
        (nccl_tf.register_memory, MEMORIES["ring"], "already"),
        (nccl_tf.register_stream, my_stream(name="split_mnist"), "already"),
        (nccl_tf.register_stream, my_stream(kind="cut"), "kind of the stream"),
        (nccl_tf.register_stream, my_stream(source=""), "neither source and make"),
        (nccl_tf.register_stream, my_stream(default_head="multi"), "default head"),
    ],
)
def test_what_does_not_fit_is_refused(register, row, said):
    before = [dict(table) for table in (METHODS, MEMORIES, DATASETS)]
    with pytest.raises(UserError, match=said):
        register(row)
    assert [dict(table) for table in (METHODS, MEMORIES, DATASETS)] == before


def test_hyperparameters_may_not_clash():
    other_kind = nccl_tf.Hyperparameter("passes", "float", 0.5, help="passes")
    with pytest.raises(UserError, match="of the kind 'int'"):
        nccl_tf.register_method(half_replay(hyperparameters=(other_kind,)))
    flag = nccl_tf.Hyperparameter("batch_size", "int", 1, help="batch")
    nccl_tf.register_method(half_replay(hyperparameters=(flag,)))
    with pytest.raises(UserError, match="'batch_size', which is the name of another flag"):
        all_flags()
