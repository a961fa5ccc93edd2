"""The graphs of a learner's steps, which go with it.

Keras calls a step as a compiled function within another one. TensorFlow keeps the graph of such a
function for ever: its operations refer to it where Python's garbage collector does not look.
"""

import contextlib
import weakref
from typing import Any

import tensorflow as tf

_PARTS = "_true_graph", "_false_graph", "_cond_graph", "_body_graph"
"""Where an operation holds the graphs of a condition or a loop."""


class TracedGraphs:
    """The graphs of steps that were traced, which are taken apart when their owner is deleted.

    Args:
        owner: What runs the steps.
    """

    def __init__(self, owner: Any):
        self._graphs: list[Any] = []
        weakref.finalize(owner, _dismantle, self._graphs).atexit = False

    def note(self) -> None:
        """Note the graph that is being traced, if any."""
        if not tf.executing_eagerly():
            self._graphs.append(tf.compat.v1.get_default_graph())


def _dismantle(graphs: list[Any]) -> None:
    # Private, and without it graphs stay, as Keras's own do.
    with contextlib.suppress(ImportError):
        from tensorflow.python.framework.func_graph import dismantle_func_graph

        while graphs:
            graph = graphs.pop()
            parts = (
                getattr(operation, name, None)
                for operation in graph.get_operations()
                for name in _PARTS
            )
            graphs.extend(part for part in parts if part is not None)
            dismantle_func_graph(graph)
