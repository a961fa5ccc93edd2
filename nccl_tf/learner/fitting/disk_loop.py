"""How `fit` calls the graph where the inputs of the memory are in a file."""

from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

from nccl_tf.batch import BatchStack, joined
from nccl_tf.learner.fitting.train_loop import TrainFunction
from nccl_tf.learner.prefetch import batches_of, steps_until_stop
from nccl_tf.learner.step import RecordedSteps


class DiskTrainFunction(TrainFunction):
    """As `TrainFunction`, for a learner whose memory has its inputs in a file.

    What the steps of a call read is drawn ahead, and fetched from the file before it; what they
    write goes there after it. A call ends early at a step that is skipped, which changes what later
    ones read, and where an empty memory gets its first examples; another call takes the others.

    Args:
        learner: A learner, compiled for one device, with its memory in `memory`.
    """

    def _take(self, element: Any, spec: Any) -> dict[str, tf.Tensor]:
        if self._learner.run_eagerly:
            return super()._take(element, spec)
        logs: dict[str, tf.Tensor] = {}
        for stack in self._stacks(element, spec):
            done, count = 0, int(stack.sizes.shape[0])
            while done < count:
                taken, logs = self._call(_steps_of(stack, slice(done, None)))
                done += taken
        return logs

    def _stacks(self, element: Any, spec: Any) -> Iterator[BatchStack]:
        """The element as stacks of batches of one size, whose reads are known ahead."""
        if not isinstance(element, BatchStack):
            size = tf.shape(tf.nest.flatten(element)[0])[:1]
            yield BatchStack(tf.nest.map_structure(lambda part: part[None], element), size)
            return
        # What a step has seen of the classes is noted when it is logged, which is before the next.
        one_by_one = (
            spec.is_ragged
            or self._learner.stream_mask == "seen"
            or not self._learner.can_prefetch_replay(element)
        )
        if not one_by_one:
            yield element
            return
        for step, size in enumerate(element.sizes.numpy()):
            yield _steps_of(element, slice(step, step + 1), int(size))

    def _call(self, stack: BatchStack) -> tuple[int, dict[str, tf.Tensor]]:
        """Take steps of a stack as far as what they read is known; their number, and metrics."""
        disk = self._learner.memory.disk
        spec = tf.nest.map_structure(
            lambda part: tf.TensorSpec([None, *part.shape[1:]], part.dtype), stack
        )
        slots = self._graph(self._slots, spec)(stack)
        fetched = disk.fetch(slots.numpy())
        rows = [tf.TensorSpec([None, *part.shape[1:]], part.dtype) for part in fetched]
        end, into, written, logs = self._graph(self._steps, spec, rows)(stack, fetched)
        disk.store(into.numpy(), [part.numpy() for part in written])
        return int(end), logs

    def _graph(self, function: Callable[..., Any], *specs: Any) -> Callable[..., Any]:
        key = function.__name__, str(specs)
        if key not in self._graphs:
            graph = tf.function(function, input_signature=list(specs), autograph=False)
            self._graphs[key] = graph
        return self._graphs[key]

    def _slots(self, stack: BatchStack) -> tf.Tensor:
        """int32 [n]: the slots whose rows the steps read. Graph code."""
        learner = self._learner
        with learner.memory.disk.exchange() as exchange:
            batches = batches_of(learner, stack)
            learner.memory.ahead(batches, tf.constant(0), learner.memory_batch_size)
        return exchange.slots

    def _steps(self, stack: BatchStack, fetched: list[tf.Tensor]) -> Any:
        """The number of steps taken, slots and rows that they write, and metrics. Graph code."""
        learner = self._learner
        learner.traces += 1
        batches, none = batches_of(learner, stack), tf.constant(0)
        recorded = RecordedSteps.none_of(tf.shape(stack.sizes)[0], learner.logits_dtype)
        with learner.memory.disk.exchange(fetched) as exchange:
            end, recorded = steps_until_stop(learner, batches, none, recorded)
        taken = joined(batches.map(lambda part: part[:end]))
        learner.log_steps(taken.labels, taken.weights, recorded.first(end))
        return end, *exchange.written, learner.get_metrics_result()


def _steps_of(stack: BatchStack, steps: slice, size: int | None = None) -> BatchStack:
    """Some steps of a stack, with the first `size` examples of each."""
    data = tf.nest.map_structure(lambda part: part[steps, :size], stack.data)
    return BatchStack(data, stack.sizes[steps])
