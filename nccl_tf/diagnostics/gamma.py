"""The sum of Gamma over a run, taken inside the graph of the step."""

from typing import Any

import keras
import numpy as np
import tensorflow as tf

import nccl_tf.gradients as gradients
import nccl_tf.step_sizes as step_sizes
from nccl_tf.batch import Batch
from nccl_tf.diagnostics.memory_draws import StepRule, draw_memory
from nccl_tf.learner.learner import Learner
from nccl_tf.learner.losses import weighted_mean
from nccl_tf.learner.options.rate_decay import RateDecay
from nccl_tf.learner.step import Step
from nccl_tf.learner.two_gradients import TwoGradientLearner
from nccl_tf.memories.memory import Memory
from nccl_tf.memories.ring import RingMemory
from nccl_tf.methods.er import ExperienceReplay
from nccl_tf.step_sizes import StepSizes
from nccl_tf.streams.arrays import Examples
from nccl_tf.theory import forgetting
from nccl_tf.variables import zeros

SUMS = ("steps", "gamma_raw", "gamma_surrogate", "gamma_raw_at_0", "gamma_surrogate_at_0",
        "gamma_raw_slope", "gamma_surrogate_slope", "beta_not_below_alpha", "alpha_above_limit",
        "steps_measured")  # fmt: skip


class GammaSum:
    """Sums Gamma, and counts broken constraints, over the steps after the first task.

    Gamma is affine in L, Gamma(0) + L slope, so that both parts tell it for any other L.

    A learner that forms f_I and g_J (form "two_gradients") measures Gamma at every step itself. Of
    any other, both gradients are taken again at every `every`-th step, at the weights before it and
    with the learner's way of normalising batches, and count `every` times: of experience replay
    (form "joint") on the memory batch that the step is about to read; of every other method (form
    "stream") as of x+ = x - alpha g_J, with f_I on a ring that training never sees. Methods that
    choose which examples to replay count with a uniform draw from their memory.

    Args:
        learner: The learner.
        shadow: A ring for learners of the form "stream".
        smoothness: L for learners that have none of their own.
        memory_batch_size: Examples drawn from the shadow ring.
        every: Steps from one measurement to the next, of the forms "joint" and "stream".

    Attributes:
        form: Of the step x+ = x - alpha_H f_I - beta_H g_J: "two_gradients" where the learner forms
            both gradients itself, "joint" of experience replay, and "stream", x+ = x - alpha g_J,
            of every other method, whatever else it does.
    """

    def __init__(
        self,
        learner: Learner,
        shadow: RingMemory,
        smoothness: float,
        memory_batch_size: int,
        every: int,
    ):
        self._learner = learner
        if isinstance(learner, TwoGradientLearner):
            self.form = "two_gradients"
        else:
            self.form = "joint" if isinstance(learner, ExperienceReplay) else "stream"
        self.shadow = shadow if self.form == "stream" else None
        self.smoothness, self.memory_batch_size = float(smoothness), int(memory_batch_size)
        self.every = 1 if self.form == "two_gradients" else int(every)
        self.sums = zeros("sums", (len(SUMS),), "float64")
        self.alpha = zeros("alpha", (), "float32")

    def variables(self) -> list[keras.Variable]:
        """Its state, for a checkpoint."""
        return [self.sums, self.alpha, *(self.shadow.variables if self.shadow else ())]

    @property
    def memory(self) -> Memory:
        """The memory whose examples stand for those of earlier tasks: the shadow, or its own."""
        return self.shadow or self._learner.memory

    def totals(self) -> dict[str, float]:
        """The sums so far by name."""
        return dict(zip(SUMS, map(float, self.sums.numpy()), strict=True))

    def step_sizes(self, scalars: tuple[tf.Tensor, ...], examples: tuple[Any, Any]) -> StepSizes:
        """alpha_H and beta_H of a step of the form "joint" or "stream".

        Args:
            scalars: Lambda, |f_I|^2, |g_J|^2 and alpha.
            examples: b_I and b_J, the numbers of examples in the batches.
        """
        lambda_, _, _, alpha = scalars
        one = tf.ones_like(alpha)
        if self.form == "stream":
            return step_sizes.joint(lambda_, alpha, tf.zeros_like(alpha), one)
        if self._learner.er_weighting == "sum_of_means":
            return step_sizes.joint(lambda_, alpha, one, one)
        memory, stream = (tf.cast(count, alpha.dtype) for count in examples)
        both = memory + stream
        return step_sizes.joint(lambda_, alpha, memory / both, stream / both)

    def rule(self, batches: tuple[int, int]) -> StepRule:
        """How the learner steps at the weights and the rate of its last step.

        Args:
            batches: |I| and |J|.
        """
        alpha = tf.convert_to_tensor(self.alpha.value)
        forms_both = self.form == "two_gradients"

        def sizes(*scalars: float) -> tuple[float, float, bool]:
            *products, memory_loss, loss = (tf.constant(value, alpha.dtype) for value in scalars)
            if forms_both:
                losses = {"loss": loss, "memory_loss": memory_loss}
                step = self._learner.step_sizes(gradients.Products(*products), losses, alpha)
            else:
                step = self.step_sizes((*products, alpha), batches)
            return float(step.alpha_h), float(step.beta_h), bool(step.interference)

        smoothness = (self._learner if forms_both else self).smoothness
        projects = forms_both and self._learner.projects
        return StepRule(sizes, float(alpha), float(smoothness), projects)

    def before_step(self, batch: Batch) -> tf.Tensor | None:
        """The terms that the step adds to the sums, except its count: float64 [sums].

        Graph code; as `Option`.
        """
        # This option comes before the one that decays the rate.
        decay = self._learner.option(RateDecay)
        rate = self._learner.optimizer.learning_rate if decay is None else decay.rate()
        self.alpha.assign(tf.cast(rate, tf.float32))
        if self.form == "two_gradients":
            return None
        steps = tf.cast(self.sums.value[0], tf.int64)
        due = (self._learner.progress.tasks_ended.value > 0) & (steps % self.every == 0)
        return tf.cond(
            due,
            lambda: self.every * self._measured(batch),
            lambda: tf.zeros([len(SUMS)], tf.float64),
        )

    def after_step(self, batch: Batch, step: Step, note: tf.Tensor | None) -> None:
        """Add the step to the sums, if it was not skipped. Graph code; as `Option`."""
        if note is None:
            logs = step.logs
            sizes = StepSizes(logs["alpha_h"], logs["beta_h"], logs["interference"] > 0)
            gammas = logs["gamma_raw"], logs["gamma_surrogate"]
            smoothness = tf.constant(self._learner.smoothness)
            known = tf.logical_not(tf.math.is_nan(logs["gamma_raw"]))
            projected = sizes.interference & self._learner.projects
            row = _row(sizes, logs["lambda"], gammas, projected, smoothness)
            note = tf.where(known, row, 0.0)
        one = tf.one_hot(0, len(SUMS), dtype=tf.float64)
        counts = (self._learner.progress.tasks_ended.value > 0) & ~step.is_skipped
        self.sums.assign_add(tf.where(counts, note + one, 0.0))

    def fill_shadow(self, task_id: int, examples: Examples, random: np.random.Generator) -> None:
        """Keep examples of a task in the shadow ring.

        Args:
            task_id: The task.
            examples: All of its training examples. A ring holds the last ones of a random order;
                these are drawn at once, so that no step has to write.
            random: The generator of the draw.
        """
        shadow = self.shadow
        if shadow is None:
            return
        slots = shadow.slots_per_class
        labels = np.asarray(examples.labels, np.int32)
        kept = draw_memory(random, [labels], slots_per_class=slots, capacity=shadow.capacity)
        tasks, ones = np.full(len(kept), task_id, np.int32), np.ones(len(kept), np.float32)
        batch = Batch(examples.inputs[kept], labels[kept], tasks, ones)
        shadow.write(batch.map(tf.convert_to_tensor))
        shadow.close_task(task_id)

    def _measured(self, batch: Batch) -> tf.Tensor:
        if self.shadow is not None:
            replay = self._learner.class_weighing.weighed(self.shadow.read(self.memory_batch_size))
        else:
            replay = self._learner.memory.upcoming(self._learner.memory_batch_size)
        row = self._measure()(replay, batch)
        return tf.where(tf.reduce_any(replay.weights > 0), row, 0.0)

    def _measure(self) -> Any:
        def measure(replay: Batch, batch: Batch) -> tf.Tensor:
            # A memory that is edited holds float inputs.
            batch = batch._replace(inputs=tf.cast(batch.inputs, replay.inputs.dtype))
            # Inside the scope, batch-norm statistics and dropout's draws are not written.
            with (
                keras.StatelessScope(),
                tf.GradientTape() as memory_tape,
                tf.GradientTape() as stream_tape,
            ):
                if self.form == "joint":
                    both = self._learner.replay_logits(batch, replay)
                    logits = both.stream
                    memory_losses = self._learner.memory_losses(both.memory[0], replay)
                else:
                    memory_logits = self._learner.forward(replay, training=True)
                    logits = self._learner.forward(batch, training=True)
                    memory_losses = self._learner.example_loss.of(memory_logits.masked, replay)
                stream_logits = self._learner.example_loss.for_stream(logits.masked, batch)
                stream_losses = self._learner.example_loss.of(stream_logits, batch)
                memory_loss = weighted_mean(memory_losses, replay.weights)
                stream_loss = weighted_mean(stream_losses, batch.weights)
            f = self._learner.taped_gradients(memory_tape, memory_loss)
            g = self._learner.taped_gradients(stream_tape, stream_loss)
            lambda_, stream = gradients.inner_product(f, g), gradients.squared_norm(g)
            alpha = tf.cast(self.alpha.value, lambda_.dtype)
            examples = tf.reduce_sum(replay.weights), tf.reduce_sum(batch.weights)
            scalars = lambda_, gradients.squared_norm(f), stream, alpha
            sizes = self.step_sizes(scalars, examples)
            smoothness = tf.constant(self.smoothness, alpha.dtype)
            raw = forgetting.gamma(sizes.alpha_h, sizes.beta_h, lambda_, stream, smoothness)
            return _row(sizes, lambda_, (raw, raw), tf.constant(False), smoothness)

        return measure


def _row(
    sizes: StepSizes,
    lambda_: tf.Tensor,
    gammas: tuple[tf.Tensor, tf.Tensor],
    projected: tf.Tensor,
    smoothness: tf.Tensor,
) -> tf.Tensor:
    """The terms of a measured step, in the order of SUMS.

    Args:
        sizes: alpha_H and beta_H.
        lambda_: Lambda.
        gammas: Gamma in the raw and in the surrogate form.
        projected: Whether the step is projected: its surrogate form is 0 for L = 0.
        smoothness: L.
    """
    alpha_h, beta_h, _ = sizes
    at_0 = -beta_h * lambda_, tf.where(projected, tf.zeros_like(lambda_), -beta_h * lambda_)
    slopes = ((gamma - start) / smoothness for gamma, start in zip(gammas, at_0, strict=True))
    broken = beta_h >= alpha_h, alpha_h > 2.0 / smoothness
    row = [0.0, *gammas, *at_0, *slopes, *broken, 1.0]
    return tf.stack([tf.cast(entry, tf.float64) for entry in row])
