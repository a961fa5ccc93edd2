"""Base classes of quadratic weight-space penalties: EWC, SI, MAS, online EWC."""

from collections.abc import Mapping
from typing import Any, ClassVar

import keras
import tensorflow as tf

from nccl_tf.arguments import hyperparameters as hp
from nccl_tf.batch import PLACE_WEIGHTS, Batch
from nccl_tf.errors import UserError
from nccl_tf.gradients import Gradients, sum_of_products
from nccl_tf.keras_private import graph
from nccl_tf.learner.learner import Learner
from nccl_tf.learner.step import Step
from nccl_tf.memories.forms import dtype_of, shape_of
from nccl_tf.memories.memory import Memory
from nccl_tf.memories.reservoir import ReservoirMemory
from nccl_tf.rng import with_argument


def distance(weights: Gradients, importances: Gradients, anchors: Gradients) -> tf.Tensor:
    r"""$\sum_i F_i (x_i - x^*_i)^2$ over all entries of lists of tensors of equal shapes: a
    scalar."""
    parts = zip(weights, importances, anchors, strict=True)
    return tf.add_n([sum_of_products(f, tf.square(x - a)) for x, f, a in parts])


class PenaltyLearner(Learner):
    r"""$x^+ = x - \alpha (g_J + 2 c F (x - x^*))$: the loss plus $c \sum_i F_i (x_i - x^*_i)^2$.

    A subclass makes the lists `importances` ($F$) and `anchors` ($x^*$) with `states_of_weights`.

    Args:
        network: Any Keras model from inputs to one logit per class.
        **kwargs: As for `Learner`.
    """

    _owns_private_names = True
    _input_specs: Any
    _places: tuple[int | None, ...]
    _measure: Any
    log_names: ClassVar[tuple[str, ...]] = ("loss", "penalty")
    cannot: ClassVar[Mapping[str, str]] = {"refreezing": "keeps state for each trainable weight"}

    importances: list[keras.Variable]
    anchors: list[keras.Variable]

    def states_of_weights(self, name: str, grown: str = "zeros") -> list[keras.Variable]:
        """A variable of zeros for each trainable variable, of its shape; they grow with the head.

        Args:
            name: Prefix of their names.
            grown: New entries: "zeros", or "weights" for what the weights hold.
        """
        return [
            self.state(f"{name}_{i}", v, v.dtype, grown=v if grown == "weights" else None)
            for i, v in enumerate(self.network.trainable_variables)
        ]

    def penalized(self, step: Step, strength: float, state: Any = ()) -> Step:
        """A step with the penalty in its gradients and its logs.

        Args:
            step: Of the loss alone.
            strength: c.
            state: As `Step.state`.
        """
        importances = [f.value for f in self.importances]
        anchors = [a.value for a in self.anchors]
        weights = [v.value for v in self.trainable_variables]
        penalty = strength * distance(weights, importances, anchors)
        gradients = [
            g + 2 * strength * f * (x - a)
            for g, f, x, a in zip(step.gradients, importances, weights, anchors, strict=True)
        ]
        return Step(gradients, step.logits, {**step.logs, "penalty": penalty}, state=state)


class SampledPenaltyLearner(PenaltyLearner):
    """A penalty whose importances are means over examples at the weights that a task ends with.

    It keeps a uniform sample of the open task, and empties it at the task's end: F becomes `kept` F
    plus the mean of `example_importances` over the sample, and x* the weights. Where the task has
    no more than `importance_examples`, the mean is over all of them.

    Args:
        network: Any Keras model from inputs of fixed shape to one logit per class.
        importance_examples: Examples of the open task that are kept until its end.
        **kwargs: As for `Learner`.

    Raises:
        UserError: A number is out of range, or a side of the network's inputs is unknown.
    """

    hyperparameters: ClassVar[hp.Rows] = (hp.IMPORTANCE_EXAMPLES,)
    kept = 1.0
    """Share of F that is left when another task ends."""

    def __init__(
        self,
        network: keras.Model,
        *,
        importance_examples: int = 2500,
        **kwargs: Any,
    ):
        super().__init__(network, **kwargs)
        self.importance_examples = importance_examples
        self.importances = self.states_of_weights("importance")
        self.anchors = self.states_of_weights("anchor")
        self._input_specs = _specs_of_inputs(network)
        self._places = tuple(network.output_shape[1:-1])
        self.sample = ReservoirMemory(
            self.importance_examples,
            shape_of(self._input_specs),
            dtype_of(self._input_specs),
            extras={PLACE_WEIGHTS: (self._places, "float32")} if self._places else None,
        )
        # The complement of a seed is no seed: the sample draws apart from everything else.
        object.__setattr__(self.sample, "seed", with_argument(~self.seed))

    def memories(self) -> list[Memory]:
        return [*super().memories(), self.sample]

    def make_graphs(self) -> None:
        super().make_graphs()
        self._measure = graph(self._mean_importances)

    def example_importances(self, example: Batch) -> list[tf.Tensor]:
        """The term of one example in the mean importance: a tensor per trainable variable."""
        raise NotImplementedError

    def after_step(self, batch: Batch, step: Step) -> None:
        def as_column(part: tf.Tensor, spec: tf.TensorSpec) -> tf.Tensor:
            return tf.reshape(tf.cast(part, spec.dtype), [-1, *spec.shape])

        inputs = tf.nest.map_structure(as_column, batch.inputs, self._input_specs)
        # Other targets have other forms, and no method that takes them measures with them.
        is_number = self.example_loss.takes_class_numbers
        labels = batch.labels if is_number else tf.zeros_like(batch.tasks)
        if self._places and batch.place_weights is None:
            ones = tf.ones([tf.shape(labels)[0], *self._places])
            batch = self.example_loss.counted(batch.with_place_weights(ones))
        self.sample.write(batch._replace(inputs=inputs, labels=labels))

    def on_task_end(self, task_id: int) -> None:
        for importance, anchor, new, weight in zip(
            self.importances, self.anchors, self._measure(), self.trainable_variables, strict=True
        ):
            importance.assign(self.kept * importance.value + new)
            anchor.assign(weight.value)
        self.sample.seen.assign(0)

    def _mean_importances(self) -> list[tf.Tensor]:
        count = self.sample.readable_count()

        def add(i: tf.Tensor, totals: list[tf.Tensor]) -> tuple[tf.Tensor, list[tf.Tensor]]:
            parts = self.example_importances(self.sample.rows(i[None], tf.ones(1)))
            return i + 1, [total + part for total, part in zip(totals, parts, strict=True)]

        zeros = [tf.zeros_like(v.value) for v in self.trainable_variables]
        _, totals = tf.while_loop(
            lambda i, _: i < count, add, (tf.constant(0, tf.int64), zeros), parallel_iterations=1
        )
        return [total / tf.cast(tf.maximum(count, 1), total.dtype) for total in totals]


def _specs_of_inputs(network: keras.Model) -> Any:
    """Specs of a stored example: the inputs as the network receives them."""
    inputs = network.input if len(network.inputs) > 1 else network.inputs[0]
    # Batches hold several inputs as a tuple, or by name.
    inputs = tuple(inputs) if isinstance(inputs, list) else inputs
    for tensor in network.inputs:
        if None in tensor.shape[1:]:
            raise UserError(
                f"received a network with inputs of shape {tensor.shape}, with an unknown side: "
                "a sample of the task is kept in slots of one shape, so build the network "
                "for inputs of one shape"
            )
    return tf.nest.map_structure(lambda t: tf.TensorSpec(t.shape[1:], t.dtype), inputs)
