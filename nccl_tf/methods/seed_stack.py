"""Several learners that differ by their seeds, trained in one compiled program."""

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tensorflow as tf

from nccl_tf.batch import Batch
from nccl_tf.chunks import all_batches_of, chunks_of
from nccl_tf.errors import UserError
from nccl_tf.methods.learner import Learner
from nccl_tf.methods.outcome import Outcome, one_after_another
from nccl_tf.methods.replay import ReplayLearner
from nccl_tf.methods.stackable import refusal
from nccl_tf.methods.stacked_step import Skips, StackedStep
from nccl_tf.networks.dense_chain import DenseChain
from nccl_tf.networks.stacked_chain import StackedChain


class SeedStack:
    """S learners of one method and one network of dense layers, on stacked batches.

    Every learner keeps its own stream, memory, draws, counters, metrics and step log: after each
    task it is what it would have become alone, up to rounding, and is evaluated and saved as such.
    The small operations of a step, which cost more than their arithmetic, are made once for all.

    Args:
        learners: Compiled learners: finetune, ER, A-GEM or NCCL with plain SGD.

    Raises:
        UserError: They cannot be stacked; the message says why.
    """

    def __init__(self, learners: Sequence[Learner]):
        self.learners = list(learners)
        reason = refusal(self.learners)
        if reason:
            raise UserError(f"these seeds cannot be trained together: {reason}")
        chain = StackedChain([_chain_of(learner) for learner in self.learners])
        self._step = StackedStep(self.learners, chain)
        self._calls: dict[Any, Callable[..., None]] = {}
        self.traces = 0

    def learn(self, datasets: Sequence[tf.data.Dataset], task_id: int) -> Iterator[int]:
        """Learn one task, each learner from its own dataset; it stays open.

        Training stops with the shortest dataset: each learner's own `fit` goes on from there.

        Args:
            datasets: A dataset for each learner, as `Task.train_batches` makes them.
            task_id: The task's number.

        Yields:
            How many steps of the task are done, after every call of the graph.

        Raises:
            UserError: The learners' learning rates differ.
            ValueError: As for `Learner.begin_task`, or a dataset does not come in chunks.
        """
        rates = {float(learner.optimizer.learning_rate) for learner in self.learners}
        if len(rates) > 1:
            raise UserError(
                f"these seeds cannot be trained together: in task {task_id + 1} their learning "
                f"rates are {', '.join(f'{rate:g}' for rate in sorted(rates))}"
            )
        self._step.set_rate(*rates)
        for learner in self.learners:
            learner.begin_task(task_id)
            learner.reset_metrics()
        chunks = [self._in_chunks(data) for data in datasets]
        done = 0
        for parts in zip(*chunks, strict=False):
            pairs = zip(self.learners, parts, strict=True)
            ahead = all(learner.looks_ahead(part) for learner, part in pairs)
            done += int(self._call_for(chunks, ahead)(parts))
            yield done

    def _in_chunks(self, data: tf.data.Dataset) -> tf.data.Dataset:
        chunks = chunks_of(data)
        if chunks is None:
            raise ValueError(
                "received a dataset that does not come in chunks: pass one of Task.train_batches, "
                "or give yours chunks with nccl_tf.chunks.with_chunks"
            )
        return chunks(self.learners[0].steps_per_execution)

    def _call_for(self, chunks: Sequence[tf.data.Dataset], ahead: bool) -> Callable[..., tf.Tensor]:
        specs = tuple(data.element_spec for data in chunks)
        # A step log that came later is another program.
        logs = (id(learner.step_log) for learner in self.learners)
        key = ahead, *map(str, tf.nest.flatten(specs)), *logs
        if key not in self._calls:
            call = functools.partial(self._call, ahead)
            self._calls[key] = tf.function(call, input_signature=[specs], autograph=False)
        return self._calls[key]

    def _call(self, ahead: bool, parts: tuple[Any, ...]) -> tf.Tensor:
        """Learn a chunk of batches of every learner; the number of steps."""
        self.traces += 1
        stream, count = _stacked(parts)
        learners = self.learners
        drawn = self._step.draw_ahead(count) if ahead else None

        def take(step: tf.Tensor, skips: Skips) -> tuple[Outcome, Skips]:
            batch = Batch(*(part[step] for part in stream))
            own = None if drawn is None else (drawn[0][step], drawn[1][step])
            return self._step.take(batch, skips, own)

        skips = Skips(
            tf.stack([learner.skipped.value for learner in learners]),
            tf.stack([learner.skipped_in_a_row.value for learner in learners]),
        )
        outcomes, skips = one_after_another(count, learners[0].outcome_dtypes(), take, skips)
        each = zip(*(tf.unstack(part, axis=1) for part in outcomes), strict=True)
        streams = zip(*(tf.unstack(part, axis=1) for part in stream), strict=True)
        for learner, batches, outcome, skipped, in_a_row in zip(
            learners, streams, each, *map(tf.unstack, skips), strict=True
        ):
            own, found = Batch(*batches), Outcome(*outcome)
            if isinstance(learner, ReplayLearner) and ahead:
                learned = own._replace(weights=found.counted(own.weights))
                learner.memory.write(all_batches_of(learned))
            learner.optimizer.iterations.assign_add(
                tf.cast(count - (skipped - learner.skipped.value), tf.int64)
            )
            learner.skipped.assign(skipped)
            learner.skipped_in_a_row.assign(in_a_row)
            learner.measure(own.labels, own.weights, found)
        return count


def _stacked(parts: tuple[Any, ...]) -> tuple[Batch, tf.Tensor]:
    """The learners' chunks as one [steps, S, ...], as long as the shortest, and its length."""
    count = tf.reduce_min([tf.shape(labels)[0] for _, labels, _ in parts])
    batches = [(x["image"], labels, x["task"], weights) for x, labels, weights in parts]
    columns = zip(*batches, strict=True)
    return Batch(*(tf.stack([x[:count] for x in column], axis=1) for column in columns)), count


def _chain_of(learner: Learner) -> DenseChain:
    chain = DenseChain.of(learner.network)
    assert chain is not None  # `refusal` has seen to it
    return chain
