"""Learners by the name of their method, put together as the command does."""

import json

import pytest

import nccl_tf
from nccl_tf.errors import UserError
from nccl_tf.experiment.config.resolve import resolve
from nccl_tf.experiment.run.build import build_learner, build_network
from nccl_tf.methods.create import create
from nccl_tf.methods.registry import METHODS

SIZE = 40
_KINDS = {(row.memory, row.takes_num_tasks): name for name, row in METHODS.items()}
NAMES = [
    pytest.param(name, marks=() if name in _KINDS.values() else pytest.mark.nightly)
    for name in METHODS
]


@pytest.fixture(scope="module")
def streams():
    return {
        head: nccl_tf.load_stream("split_digits", head=head, examples_per_task=20)
        for head in ("multi", "single")
    }


@pytest.mark.parametrize("name", NAMES)
def test_every_method_is_that_of_the_command(name, streams):
    method = METHODS[name]
    head = "single" if method.unsupported_reason("split", "multi") else "multi"
    size = {"memory_size": SIZE} if method.memory else {}
    settings = resolve({
        "method": name, "dataset": "split_digits", "head": head, "tuning_tasks": 0,
        "hidden": None if "mlp_experts" in method.networks else (8,), **size,
    })  # fmt: skip
    network = build_network(settings, streams[head], 5)
    memory = SIZE if method.memory else None
    ours = create(name, network, streams[head], memory=memory, seed=5).get_config()
    its = build_learner(settings, streams[head], 5).get_config()
    for config in (ours, its):
        config["network"] = config["name"] = None
    assert json.dumps(ours, sort_keys=True) == json.dumps(its, sort_keys=True)


def test_numbers_and_a_memory_of_one_s_own(streams):
    stream = streams["single"]
    network = nccl_tf.networks.mlp(stream.example_shape, stream.num_classes, pixels=stream.pixels)
    learner = create("er_reservoir", network, stream, 50, dark=0.5, reservoir="off_by_one")
    assert (learner.dark, learner.memory.rule, learner.memory_batch_size) == (0.5, "off_by_one", 10)
    memory = nccl_tf.ReservoirMemory(7)
    assert create("er_reservoir", network, stream, memory).memory is memory
    for name, arguments, said in (
        ("er_reservoir", {}, "memory=500"),
        ("finetune", {"memory": 9}, "which keeps none"),
        ("er_ring", {"memory": 9}, "expected at least 10"),
        ("er_ring", {"memory": 10, "reservoir": "exact"}, "no such rule"),
        ("er_ring", {"memory": memory, "reservoir": "exact"}, "without the size"),
        ("stable_sgd", {"momentum": 0.5}, "the optimizer takes it"),
        ("er_ring", {"memory": 10, "darkness": 1}, "did you mean 'dark'"),
        ("derp", {"memory": 10}, "did you mean 'derpp'"),
    ):
        with pytest.raises(UserError, match=said):
            create(name, network, stream, **arguments)
    with pytest.raises(UserError, match="cannot learn"):
        create("er_ace", network, streams["multi"], memory=10)
