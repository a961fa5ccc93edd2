"""New classes are learned with every memory and every options that a method accepts."""

import functools
import itertools

import pytest

import nccl_tf
from nccl_tf.errors import UserError
from nccl_tf.memories.kinds import MEMORIES, check_memory
from nccl_tf.methods.registry import METHODS
from tests.methods.learners import RATES, build
from tests.methods.test_battery import CLASSES
from tests.tiny import TASK_CLASSES, tiny_batches, tiny_network

OPTIONS = (
    {},
    {"stream_mask": "present"},
    {"stream_mask": "task"},
    {"stream_mask": "seen"},
    {"dark": 0.5},
    {"dark": 0.5, "replay_labels": 0.0},
    {"average_weights": 0.5},
    {"rate_decay": 0.9},
)
PAIRS = [
    {**one, **other}
    for one, other in itertools.combinations(OPTIONS[1:], 2)
    if not one.keys() & other.keys()
]
KINDS = (*MEMORIES, "mixed", "mixed_general")
HIDING = {
    "ring", "past_reservoir", "past_edited_reservoir", "exemplars", "short_term", "mixed_general",
}  # fmt: skip
CHANCE = 0.25
"""Of four classes. A mask with nothing that compares new classes with old ones, as in fine-tuning,
leaves 0.4; a memory of old classes that presses the new ones down, 0."""
SLOWER = {"mega1": 0.1}
"""Its factor is a ratio of losses, which dark logits make as large as it makes them."""
MASKED_ALONE = ("cn_dpm", "multi_task")
"""Trains experts of their own kind of memory; learns all tasks at once."""


def memory_of(kind: str) -> nccl_tf.Memory:
    if kind in MEMORIES:
        return MEMORIES[kind].build(
            capacity=12, slots=2, rule="exact", seed=3, task_classes=TASK_CLASSES
        )
    return nccl_tf.MixedMemory(12, 4, 1.0 if kind == "mixed_general" else 0.2)


def kinds_of(name: str) -> list[str]:
    """The memories that a method takes."""

    def takes(kind: str) -> bool:
        try:
            check_memory(name, memory_of(kind), METHODS[name].learner_class().memory_class)
        except UserError:
            return False
        return True

    return list(filter(takes, KINDS)) if METHODS[name].memory else []


def just_learned(name: str, kind: str | None, options: dict[str, object]) -> float | None:
    """Accuracy of a single head on the second task, right after it; None where it is refused."""
    memory = {"memory": memory_of(kind)} if kind else {}
    try:
        learner = build(name, **memory, **options)
        learner.compile("sgd", metrics=["accuracy"])
        learner.optimizer.learning_rate = SLOWER.get(name, RATES.get(name, 0.25))
        for task in range(2):
            learner.fit(tiny_batches(task, 200), task_id=task, verbose=0)
    except UserError:
        return None
    return learner.evaluate(tiny_batches(1, 60, seed=9), verbose=0, return_dict=True)["accuracy"]


def options_of(name: str, kind: str | None) -> list[dict[str, object]]:
    """All of one memory, and the mask of the others, which is what the kinds differ in."""
    if kind not in (METHODS[name].memory, None) and name != "er_ring":
        return [OPTIONS[1]]
    found = [*OPTIONS, *PAIRS]
    return found if kind else [options for options in found if "dark" not in options]


@pytest.mark.nightly
@pytest.mark.seconds(600)
@pytest.mark.parametrize("name", [name for name in CLASSES if name not in MASKED_ALONE])
def test_what_is_accepted_learns_new_classes(name):
    low = {}
    for kind in kinds_of(name) or [None]:
        for options in options_of(name, kind):
            accuracy = just_learned(name, kind, options)
            if accuracy is not None and accuracy < CHANCE:
                low[f"{kind} {options}"] = accuracy
    assert low == {}


@pytest.mark.parametrize("kind", kinds_of("er_ring"))
def test_a_mask_of_the_batch_needs_a_memory_of_the_open_task(kind):
    """Without one the logits of new classes are pressed down by old examples, and nothing lifts
    them: accuracy on the new task was 0, 1 without the mask."""
    memory = memory_of(kind)
    assert memory.reads_open_task == (kind not in HIDING)
    by_task = functools.partial(nccl_tf.MIR, stream_mask="task")
    for made in (nccl_tf.ERACE, by_task):
        if kind in HIDING:
            with pytest.raises(UserError, match="reads nothing of the open task"):
                made(tiny_network(), memory)
        else:
            made(tiny_network(), memory)
    nccl_tf.ExperienceReplay(tiny_network(), memory, stream_mask="seen")
