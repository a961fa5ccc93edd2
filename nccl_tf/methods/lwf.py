"""LwF (Li and Hoiem, TPAMI 2018, "Learning without forgetting")."""

from collections.abc import Mapping
from typing import Any, ClassVar

import keras
import numpy as np
import tensorflow as tf

from nccl_tf.arguments.hyperparameters import Rows
from nccl_tf.batch import Batch
from nccl_tf.learner.copies import WeightCopy
from nccl_tf.learner.heads import select_logits
from nccl_tf.learner.learner import Learner
from nccl_tf.learner.losses import weighted_mean
from nccl_tf.learner.step import Logits, Logs
from nccl_tf.methods.rows import lwf as rows


def distillation(
    logits: tf.Tensor, before: tf.Tensor, units: tf.Tensor, temperature: float
) -> tf.Tensor:
    r"""$-\sum_k q_k \log p_k$ of each example, with $q$ and $p$ softmaxes at a temperature: [n].

    Each row of `units` is a softmax of its own, over its units alone; their terms are summed, and a
    row without units adds nothing.

    Args:
        logits: float32 or float64 [n, classes], of which p is made.
        before: The same of the network before, of which q is made.
        units: bool [rows, classes].
        temperature: $T$, above 0.
    """
    units = units[:, None]
    q = tf.nn.softmax(select_logits(units, before / temperature))
    log_p = tf.nn.log_softmax(select_logits(units, logits / temperature))
    return -tf.reduce_sum(tf.where(units, q * log_p, 0), axis=[0, 2])


@keras.saving.register_keras_serializable(package="nccl_tf")
class LwF(Learner):
    r"""Keeps the outputs for old classes as they were when the task began, on the new inputs.

    The loss of a step is
    $\operatorname{CE}(J) - \lambda \operatorname{mean}_J \sum_k q_k \log p_k$, where
    $q = \operatorname{softmax}(z'/T)$ and $p = \operatorname{softmax}(z/T)$ over the old classes,
    $z'$ are the logits of the network when the task began, and $z$ those of the step. As in
    the authors' code it is the cross-entropy and not the divergence, which has the same gradient,
    and there is no factor $T^2$. Multi-head: the sum over the heads of ended tasks, each with a
    softmax of its own. Single head: one softmax over all classes seen before the task, and CE runs
    over all classes. The first task is plain training, but for `known_classes`, which are old from
    the start.

    The authors train the weights of the new classes alone at first; in one pass over the stream
    there is no such time, and it is left out. Their code takes a step on each part of the loss in
    turn; here it is one on the sum, as in the paper. Other codes put zeros in q for the new classes
    (continual-learning, G. van de Ven), or take sigmoids (LwF.MC): other methods.

    Args:
        network: Any Keras model from inputs to one logit per class.
        lwf_weight: $\lambda$, weight of the old outputs.
        lwf_temperature: $T$ of both softmaxes.
        **kwargs: As for `Learner`.

    Raises:
        UserError: A number is out of range.

    Example:
        >>> import nccl_tf
        >>> learner = nccl_tf.LwF(nccl_tf.networks.mlp((28, 28, 1), 10), lwf_weight=1.0)
    """

    hyperparameters: ClassVar[Rows] = rows.NUMBERS
    cannot: ClassVar[Mapping[str, str]] = {
        "targets": "distils the softmax over logits of old classes"
    }
    log_names: ClassVar[tuple[str, ...]] = ("loss", "distillation")

    def __init__(
        self,
        network: keras.Model,
        *,
        lwf_weight: float = 1.0,
        lwf_temperature: float = 2.0,
        **kwargs: Any,
    ):
        super().__init__(network, **kwargs)
        self.lwf_weight = lwf_weight
        self.lwf_temperature = lwf_temperature
        self.before = WeightCopy(self.network, self.state, "before")
        # A softmax a row: the classes seen before the task, or those of each head of an ended one.
        self.old_units = self.state("old_units", self._shape_of_units, "bool")

    def _shape_of_units(self) -> tuple[int, int]:
        # As many as a single head has seen: one output may be for two classes.
        count = self.num_classes if self.heads is not None else self.progress.seen_classes.shape[0]
        return 1 if self.heads is None else len(self.heads.classes), count

    def training_loss(self, logits: Logits, batch: Batch) -> tuple[tf.Tensor, Logs]:
        loss, logs = super().training_loss(logits, batch)
        now, before = (
            self.example_loss.class_logits(raw)
            for raw in (logits.raw, self.before.outputs(batch.inputs))
        )
        units = self.old_units.value
        if units.shape[1] > now.shape[1]:  # one output of a softmax
            units = units[:, : now.shape[1]]
        losses = distillation(now, before, units, self.lwf_temperature)
        distilled = weighted_mean(losses, batch.weights)
        return loss + self.lwf_weight * distilled, {**logs, "distillation": distilled}

    def on_task_begin(self, task_id: int) -> None:
        self.before.take()
        if self.heads is None:
            self.old_units.assign(self.progress.seen_classes.value[None])

    def on_task_end(self, task_id: int) -> None:
        if self.heads is not None:
            ended = np.arange(len(self.heads.classes)) == task_id
            seen = self.heads.table & self.progress.seen_among(self.num_classes)
            self.old_units.assign(tf.where(ended[:, None], seen, self.old_units.value))
