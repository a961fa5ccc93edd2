"""Every learner takes or refuses every kind of memory in its constructor."""

import pytest

import nccl_tf
from nccl_tf.errors import UserError
from nccl_tf.memories.kinds import MEMORIES
from nccl_tf.methods.registry import METHODS
from tests.methods.learners import build
from tests.tiny import IMAGE_SHAPE, TASK_CLASSES, tiny_network

WRITTEN = {name for name in MEMORIES if name not in ("exemplars", "scored")}
EDITED = {"edited_reservoir", "past_edited_reservoir"}
NEEDS = {
    "gem": {"ring"}, "mc_sgd": {"ring"}, "orthog_subspace": {"ring"}, "cn_dpm": {"short_term"},
    "icarl": {"exemplars"}, "gss_greedy": {"scored"}, "er_gmed": EDITED, "mir_gmed": EDITED,
    "er_ace": {name for name in WRITTEN if MEMORIES[name].reads_open_task},  # by its stream_mask
}  # fmt: skip
WITH_MEMORY = [name for name, row in METHODS.items() if row.memory]
NAMES = [
    name
    if name in ("gem", "icarl", "gss_greedy", "nccl_ring")
    else pytest.param(name, marks=pytest.mark.nightly)
    for name in {METHODS[name].learner: name for name in reversed(WITH_MEMORY)}.values()
]


def memory_of(kind, extras):
    return MEMORIES[kind].build(
        capacity=12, slots=2, rule="exact", task_classes=TASK_CLASSES, example_shape=IMAGE_SHAPE,
        seed=0, extras=extras,
    )  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_a_memory_is_taken_or_refused_at_once(name):
    learner, arguments = build(name), {"num_tasks": 2} if METHODS[name].takes_num_tasks else {}
    for kind in MEMORIES:
        memory = memory_of(kind, getattr(learner.memory, "extras", {}))
        if kind in NEEDS.get(name, WRITTEN):
            assert type(learner)(learner.network, memory, **arguments).memory is memory
        else:
            with pytest.raises(
                UserError, match=f"received .*{type(memory).__name__} .*(expected|take) "
            ):
                type(learner)(learner.network, memory, **arguments)


@pytest.mark.parametrize("memory", [None, 10, nccl_tf.ReservoirMemory])
def test_what_is_no_memory_is_refused(memory):
    with pytest.raises(UserError, match="as the memory of NCCL, expected RingMemory or Reservoir"):
        nccl_tf.NCCL(tiny_network(), memory)
