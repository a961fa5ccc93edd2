"""An option that a method accepts changes what it learns or predicts; else it is refused."""

import numpy as np
import pytest

from nccl_tf.errors import UserError
from nccl_tf.memories.kinds import MEMORIES
from nccl_tf.methods.registry import METHODS
from tests.methods.learners import make
from tests.methods.test_battery import CLASSES
from tests.tiny import tiny_batches

OPTIONS = (
    {"rate_decay": 0.5},
    {"average_weights": 0.9},
    {"stream_mask": "present"},
    {"stream_mask": "seen"},
    {"dark": 0.7},
    {"dark": 0.7, "replay_labels": 0.3},
)


def learned(name: str, options: dict[str, float | str]) -> list[np.ndarray]:
    """The network's weights after two short tasks, and logits."""
    learner = make(name, options=options)
    for task in range(2):
        learner.fit(tiny_batches(task, 40), task_id=task, verbose=0)
    logits = learner.predict(tiny_batches(0, 40, seed=9), verbose=0)
    return [*learner.network.get_weights(), logits]


@pytest.mark.nightly
@pytest.mark.parametrize("name", CLASSES)
def test_an_accepted_option_changes_what_is_learned(name):
    plain = learned(name, {})
    for options in OPTIONS:
        if "dark" in options and not METHODS[name].memory:
            continue  # no argument of its class
        if options.items() <= METHODS[name].options.items():
            continue  # its default
        if any(METHODS[name].option_refusal(option) for option in options):
            with pytest.raises(UserError):
                learned(name, options)
            continue
        memory = METHODS[name].memory
        if (
            options == {"stream_mask": "present"}
            and memory
            and not MEMORIES[memory].reads_open_task
        ):
            continue  # refused for the memory: tests/methods/test_new_classes.py
        changed = learned(name, options)
        same = [np.array_equal(left, right) for left, right in zip(plain, changed, strict=True)]
        assert not all(same), f"{name} accepts {options} without an effect"


@pytest.mark.parametrize("name", ["gss_greedy", "mc_sgd", "mer"])
def test_batch_norm_is_refused_where_it_has_no_effect(name):
    with pytest.raises(UserError, match="leave batch_norm out"):
        make(name, options={"batch_norm": "frozen"})
