"""How a learner weighs examples by their classes."""

from collections.abc import Mapping, Sequence
from typing import Any

import keras

from nccl_tf.batch import Batch
from nccl_tf.class_weights import ClassWeights, numbered
from nccl_tf.errors import UserError


class ClassWeighing:
    """The `class_weight` of `fit`, for examples of the stream and of memories.

    Args:
        learner: The learner.

    Attributes:
        weights: Factors by class; None where no `fit` has named one yet.
    """

    def __init__(self, learner: keras.Model) -> None:
        self._learner = learner
        self.weights: ClassWeights | None = None

    def factors(self, class_weight: Any, names: Sequence[str] | None) -> dict[int, float]:
        """The factors of classes by number, those that are not 1.

        Args:
            class_weight: As `fit` received it.
            names: Of the classes in the order of their numbers; None where they have none.

        Raises:
            UserError: They name what is no class, or have no meaning for the method or the loss.
        """
        return {} if class_weight is None else numbered(class_weight, self._count(), names)

    def weighed(self, batch: Batch) -> Batch:
        """Examples whose weights are multiplied by those of their classes. Graph code.

        Those that a memory of the learner returns are so already.
        """
        if self.weights is None:
            return batch
        return batch._replace(weights=batch.weights * self.weights.of(batch.labels))

    def set(self, factors: Mapping[int, float]) -> None:
        """Weigh examples, of the stream and of memories, by their classes from now on.

        Graphs look factors up once there were some, and have no operation for them before.

        Args:
            factors: By number; 1 for classes that are not among them.
        """
        learner, weights = self._learner, self.weights
        if weights is None and not factors:
            return
        if weights is None or weights.count < learner.num_classes:  # the head has grown
            with learner.distribute_strategy.scope():
                weights = ClassWeights(max(learner.num_classes, 2))
            self.weights = weights
            for memory in learner.memories():
                memory.weigh_by(weights)
            learner.execution.forget()
            learner.make_graphs()
        weights.set(factors)

    def _count(self) -> int:
        """How many classes there are to weigh.

        Raises:
            UserError: Weights of classes have no meaning for the method or the loss.
        """
        learner, loss = self._learner, self._learner.example_loss
        if reason := learner.why_not("class_weight"):
            raise UserError(
                f"received class_weight, but {type(learner).__name__} {reason}: leave it out"
            )
        is_binary = loss.is_binary and tuple(learner.network.output_shape[1:]) == (1,)
        if not (is_binary or loss.has_classes):
            raise UserError(
                f"received class_weight and {loss.described}, which does not have one class for "
                f"each example: {loss.instead('sample_weight')}"
            )
        return 2 if is_binary else learner.num_classes
