"""The bytes that a learner holds beside its network and its optimizer."""

from nccl_tf.learner.learner import Learner
from nccl_tf.variables import bytes_of


def bytes_stored(learner: Learner) -> int:
    """The bytes of what a method keeps: of its memories, and of all state of its own.

    Counted are the variables themselves, as they are allocated, full or not: a memory's inputs,
    labels, task ids, further columns, counters and its spare row, also of samples that are emptied
    at a task's end; copies of weights, averages, importances and anchors, statistics and masks; and
    the state of options. Not counted are the network that the learner was given, the optimizer's
    slots, and the counters that every learner has, so that fine-tuning holds 0. A memory that
    was built without shapes holds 0 before the first `fit`.
    """
    counters, weights = learner.progress.variables, learner.network.variables
    apart = {id(variable) for variable in (*counters, *weights)}
    own = [variable for variable in learner.variables if id(variable) not in apart]
    return bytes_of([*own, *(v for memory in learner.memories() for v in memory.variables)])
