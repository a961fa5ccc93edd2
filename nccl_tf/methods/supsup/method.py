"""SupSup (Wortsman et al., NeurIPS 2020, "Supermasks in superposition")."""

from collections.abc import Mapping
from typing import Any, ClassVar

import keras
import numpy as np
import tensorflow as tf

from nccl_tf.arguments.hyperparameters import Rows
from nccl_tf.errors import UserError
from nccl_tf.learner.heads import at_least_float32
from nccl_tf.learner.learner import Learner
from nccl_tf.methods.rows import supsup as rows
from nccl_tf.methods.supsup.masks import (
    MaskedNetwork,
    draw_scores,
    top_mask,
)
from nccl_tf.methods.supsup.task_inference import surest_task


@keras.saving.register_keras_serializable(package="nccl_tf")
class SupSup(Learner):
    r"""Finds a mask for every task on weights that are random and never change.

    The weights of each Dense and Conv2D layer become $\pm\sqrt{2/\text{fan-in}}$ with the signs
    that the network came with, the biases 0, batch norms without scale and offset. A step changes
    scores, one for each weight: a layer runs with the weights of the highest scores, and the
    gradient by the mask is taken for the gradient by the scores (straight through). At its end a
    task's masks are stored, with the moving averages of its batch norms; a task begins with new
    random scores, a task that comes again with its stored mask.

    Where the task of a test example is not given, it is inferred from one pass: with the mean over
    the tasks' masks, $\sum_i \alpha_i M_i$ with equal $\alpha$, it is the task for which the
    entropy of the output falls fastest with $\alpha_i$. The entropy is over all outputs of the
    network, and tells tasks apart only where many of these are superfluous: outputs of no class,
    which every task learns never to choose (section 3.4 of the paper). The authors' experiments on
    permuted MNIST have 100 to 500 outputs for 10 classes (github.com/RAIVNLab/supsup,
    `args.output_size` in experiments/GNu/MNISTPerm, `se_oneshot_entropy_minimization` in
    adaptors.py). With 10 outputs for 20 tasks of 10,000 examples about half of the test examples
    are put into the right task, with 110 nearly all of them. Build the network with as many; the
    command has `--superfluous_outputs`.

    Args:
        network: A Keras model of Dense, Conv2D and BatchNormalization layers and layers without
            weights, from inputs to one logit per class and, where tasks are inferred, 100 logits
            or more beside these. Its weights are set as said above.
        num_tasks: Number of tasks to store masks for; None for the number of heads.
        mask_density: q, share of each layer's weights that a mask keeps.
        task_id_at_test: "given" or "inferred"; None for given with a multi-head, else inferred.
        **kwargs: As for `Learner`.

    Raises:
        UserError: The number of tasks is not known, `mask_density` is out of range, another layer
            has weights, or a multi-head is to infer the task.

    Example:
        >>> import nccl_tf
        >>> learner = nccl_tf.SupSup(nccl_tf.networks.mlp((28, 28, 1), 10), num_tasks=2)
    """

    hyperparameters: ClassVar[Rows] = rows.NUMBERS
    cannot: ClassVar[Mapping[str, str]] = {
        "export_learner": "reads the number of the task in Python when it begins",
        "loss": "finds an example's task by the entropy of its class logits",
        "known_classes": (
            "replaces the weights of the network by random ones, which know no class"
        ),
        "add_classes": (
            "the masks of ended tasks have no weights for later classes, so build its network with "
            "outputs enough"
        ),
        "serving_model": (
            "it runs its network under masks that an example's task chooses, which a derivative "
            "finds; export learner.network under the masks of one task in a process with nccl_tf"
        ),
        **rows.SUPSUP.refuses,
    }

    def __init__(
        self,
        network: keras.Model,
        *,
        num_tasks: int | None = None,
        mask_density: float = 0.5,
        task_id_at_test: str | None = None,
        **kwargs: Any,
    ):
        super().__init__(network, **kwargs)
        if num_tasks is None:
            if self.heads is None:
                raise UserError(
                    "received no number of tasks, but supsup stores a mask for each: pass num_tasks"
                )
            num_tasks = len(self.heads.classes)
        self.num_tasks = int(num_tasks)
        self.mask_density = mask_density
        self.task_id_at_test = task_id_at_test
        if self.heads is not None and task_id_at_test == "inferred":
            raise UserError(
                "--task_id_at_test=inferred with a multi-head, which is told the task: leave it "
                "out, or take --head=single"
            )
        default = "inferred" if self.heads is None else "given"
        self._infers = (task_id_at_test or default) == "inferred"
        self._masked = MaskedNetwork(network)
        self.scores = [
            self.add_weight(name=f"scores_{i}", shape=k.shape, dtype=k.dtype, autocast=False)
            for i, k in enumerate(self._masked.kernels)
        ]
        self.masks = [
            self.state(f"masks_{i}", (self.num_tasks, *k.shape), "bool")
            for i, k in enumerate(self._masked.kernels)
        ]
        self.statistics = [
            self.state(f"statistics_{i}", (self.num_tasks, *v.shape), v.dtype)
            for i, v in enumerate(self._masked.statistics)
        ]
        self.learned = self.state("learned", (self.num_tasks,), "bool")
        self._draw_scores(0)

    def on_task_begin(self, task_id: int) -> None:
        if not 0 <= task_id < self.num_tasks:
            raise UserError(
                f"received task {task_id}, but the learner stores masks of {self.num_tasks} tasks: "
                "raise num_tasks"
            )
        self._draw_scores(task_id)
        known = bool(self.learned.numpy()[task_id])
        pairs = zip(self._masked.statistics, self.statistics, strict=True)
        for i, (variable, stored) in enumerate(pairs):
            # Means and variances take turns: a mean begins at 0, a variance at 1.
            variable.assign(stored.value[task_id] if known else np.full(variable.shape, i % 2))

    def on_task_end(self, task_id: int) -> None:
        current = [*self._current_masks(), *(v.value for v in self._masked.statistics)]
        for stored, value in zip([*self.masks, *self.statistics], current, strict=True):
            self._put(stored, task_id, value)
        self._put(self.learned, task_id, tf.constant(True))

    def _put(self, stored: keras.Variable, task_id: int, value: tf.Tensor) -> None:
        """Write the row of a task; TensorFlow scatters no bool on a GPU."""
        here = tf.equal(tf.range(self.num_tasks), task_id)
        here = tf.reshape(here, [-1] + [1] * value.shape.rank)
        stored.assign(tf.where(here, value[None], stored.value))

    def outputs(self, inputs: tf.Tensor, tasks: tf.Tensor | None, training: bool) -> tf.Tensor:
        """Logits [n, classes] with the masks in training, or with those of each example's task."""
        if training:
            return self._trained_outputs(inputs)
        stacks = self._stacks()
        if self._infers:
            chosen = self._infer(inputs, stacks)
        else:
            tasks = self.progress.task.value if tasks is None else tasks
            chosen = tf.fill(tf.shape(inputs)[:1], tf.constant(self.num_tasks, tf.int64))
            stored = (tasks >= 0) & tf.gather(self._stored(), tf.maximum(tasks, 0))
            chosen = tf.where(stored, tasks, chosen)
        logits = tf.zeros(
            [tf.shape(inputs)[0], self.num_classes],
            at_least_float32(tf.zeros([], self.network.outputs[0].dtype)).dtype,
        )

        def of_row(row: tf.Tensor) -> tf.Tensor:
            return self._masked.tested(inputs, [stack[row] for stack in stacks])

        def fill_in(row: tf.Tensor, logits: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            here = tf.equal(chosen, row)[:, None]
            filled = tf.cond(
                tf.reduce_any(here), lambda: tf.where(here, of_row(row), logits), lambda: logits
            )
            return row + 1, filled

        return tf.while_loop(
            lambda row, _: row <= self.num_tasks,
            fill_in,
            [tf.constant(0, tf.int64), logits],
            parallel_iterations=1,
        )[1]

    def _draw_scores(self, task_id: int) -> None:
        r"""New scores, uniform in $\pm 1/\sqrt{\text{fan-in}}$; a stored mask gives the order to
        them."""
        known = bool(self.learned.numpy()[task_id])
        for i, (score, mask) in enumerate(zip(self.scores, self.masks, strict=True)):
            drawn = draw_scores((self.seed, task_id, i), score.shape)
            if known:
                drawn = np.where(mask.value[task_id], np.abs(drawn), -np.abs(drawn))
            score.assign(drawn)

    def _current_masks(self) -> list[tf.Tensor]:
        counts = [max(1, round(self.mask_density * int(np.prod(s.shape)))) for s in self.scores]
        return [top_mask(s.value, c) for s, c in zip(self.scores, counts, strict=True)]

    def _trained_outputs(self, inputs: tf.Tensor) -> tf.Tensor:
        masks = [
            tf.cast(m, s.dtype) + (s.value - tf.stop_gradient(s.value))
            for m, s in zip(self._current_masks(), self.scores, strict=True)
        ]
        return self._masked.trained(inputs, masks)

    def _stored(self) -> tf.Tensor:
        """bool [tasks]: whose stored mask holds; that of a task which comes again does not."""
        is_open = self.progress.task_is_open.value & tf.equal(
            tf.range(self.num_tasks, dtype=tf.int64), self.progress.task.value
        )
        return self.learned.value & ~is_open

    def _stacks(self) -> list[tf.Tensor]:
        """Masks and statistics [tasks + 1, ...] of all tasks, the current ones in the last row."""
        stored = [*self.masks, *self.statistics]
        current = [*self._current_masks(), *(v.value for v in self._masked.statistics)]
        return [
            tf.concat([s.value, tf.cast(c, s.dtype)[None]], axis=0)
            for s, c in zip(stored, current, strict=True)
        ]

    def _infer(self, inputs: tf.Tensor, stacks: list[tf.Tensor]) -> tf.Tensor:
        """int64 [n]: the row of `stacks` under which each example's output is surest."""
        stored = self._stored()
        known = tf.concat(
            [stored, [self.progress.task_is_open.value | ~tf.reduce_any(stored)]], axis=0
        )
        return surest_task(
            lambda values: self._masked.tested(inputs, values),
            [tf.cast(s, self.scores[0].dtype) for s in stacks],
            known,
            tf.shape(inputs)[0],
        )
