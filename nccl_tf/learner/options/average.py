"""A model that keeps a moving average of its weights, and is evaluated with it."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import keras
import tensorflow as tf

from nccl_tf.arguments.hyperparameters import AVERAGE_WEIGHTS
from nccl_tf.errors import UserError, check_name
from nccl_tf.learner.growth import Growth
from nccl_tf.learner.optimized_model import OptimizedModel
from nccl_tf.learner.options.refused import check_refused

WEIGHTS = ("averaged", "plain")
"""What `AveragedModel.use_weights` takes."""


class AveragedModel(OptimizedModel):
    """Evaluates with an exponential moving average of the weights, beside which it trains as ever.

    With theta the weights after a step that was applied,
    theta_avg <- m theta_avg + (1 - m) theta (Soutif-Cormerais et al., CoLLAs 2023, "temporal
    ensembles"). A step is one of the learner, on one stream batch, also for a method that walks
    or takes several updates in it. As in the authors' code (github.com/AlbinSou/online_ema,
    `MeanEvaluation`) the average starts at the weights that the first task begins with, without
    correction for that bias, and goes on over the ends of tasks; and it takes in the moving
    statistics of batch normalisation like weights, with the same m. Their experiments take
    0.9 in place of m over the first task, which forgets the first weights; here m is the same in
    all steps, so that m^n of them is left after n. What is no float (generators
    of dropout, counters) is not averaged. Weights of classes that are added start at their first
    value in the average too.

    Args:
        network: Any Keras model from inputs to one logit per class.
        average_weights: m, above 0 and below 1; the authors' code has 0.99 by default. None
            keeps no average.
        **kwargs: As for `learner.optimized_model.OptimizedModel`.

    Raises:
        UserError: `average_weights` is out of range, or an average of the method's weights has no
            meaning.
    """

    def __init__(
        self, network: keras.Model, *, average_weights: float | None = None, **kwargs: Any
    ):
        super().__init__(network, **kwargs)
        self.average_weights: float | None = None
        self._plain: list[tf.Tensor] | None = None
        self._evaluated = "plain"
        if average_weights is None:
            return
        self.average_weights = float(AVERAGE_WEIGHTS.check(average_weights))
        check_refused(self, "average_weights", average_weights)
        self._evaluated = "averaged"
        self.averages = [
            self._state(f"average_{i}", v.shape, keras.backend.result_type(v.dtype, "float32"), 0)
            for i, v in enumerate(self.averaged_variables())
        ]
        self.averaged_steps = self._state("averaged_steps", (), "int32", 0)

    def averaged_variables(self) -> list[keras.Variable]:
        """The network's variables that are averaged, in the order of `averages`."""
        return [v for v in self.network.variables if keras.backend.is_float_dtype(v.dtype)]

    def on_task_begin(self, task_id: int) -> None:
        super().on_task_begin(task_id)
        # Weights may have been loaded since the learner was built.
        if self.average_weights is not None and not int(self.averaged_steps.numpy()):
            _assign(self.averages, [v.value for v in self.averaged_variables()])

    def average_step(self, applied: tf.Tensor) -> None:
        """Take the weights into the average. Graph code.

        Args:
            applied: bool scalar; where it is False the average stays as it is.
        """
        if self.average_weights is None:
            return
        for average, variable in zip(self.averages, self.averaged_variables(), strict=True):
            share = tf.constant(1 - self.average_weights, average.dtype)
            change = share * (tf.cast(variable.value, average.dtype) - average.value)
            average.assign_add(tf.where(applied, change, tf.zeros_like(change)))
        self.averaged_steps.assign_add(tf.cast(applied, tf.int32))

    @contextmanager
    def use_weights(self, which: str) -> Iterator[None]:
        """Let the network hold its averaged or its plain weights, and evaluation take them.

        Without it `evaluate`, `predict` and `accuracy` take the average where there is one, and a
        call of the learner or its network takes the plain weights, those that are trained. At the
        end of the body, and if it raises, the network has its weights back to the bit. Within the
        body of "averaged" the learner can neither be trained nor saved; its network can be saved.

        Args:
            which: "averaged" or "plain".

        Raises:
            UserError: `which` is unknown, or the learner keeps no average.

        Example:

        ```python
        images = np.random.default_rng(0).integers(0, 256, (40, 8, 8, 1), np.uint8)
        labels = np.arange(40) % 2
        network = nccl_tf.networks.mlp((8, 8, 1), 2)
        learner = nccl_tf.Finetune(network, average_weights=0.9)
        learner.compile(keras.optimizers.SGD(0.1), metrics=["accuracy"])
        learner.fit(images, labels, verbose=0)
        learner.evaluate(images, labels, verbose=0)  # averaged
        with learner.use_weights("plain"):
            learner.evaluate(images, labels, verbose=0)
        with learner.use_weights("averaged"):
            logits = network(images)
        ```
        """
        check_name("which", which, WEIGHTS)
        if self.average_weights is None and which == "averaged":
            raise UserError(
                'received "averaged", but the learner keeps no average of its weights: build it '
                "with average_weights=0.99"
            )
        before, self._evaluated = self._evaluated, which
        try:
            with self._holding(which):
                yield
        finally:
            self._evaluated = before

    def evaluation_weights(self) -> Any:
        """`use_weights` with what evaluation takes here."""
        return self.use_weights(self._evaluated)

    def check_holds_plain_weights(self, done: str) -> None:
        """Raise UserError where the network holds the average, which is not to be trained on.

        Args:
            done: What is about to be done with the learner, a participle for the message.
        """
        if self._plain is not None:
            raise UserError(
                f'received a learner to be {done} within use_weights("averaged"), where its '
                "network does not hold the weights that it trains: do it outside of it"
            )

    def save_own_variables(self, store: Any) -> None:
        """As in Keras."""
        self.check_holds_plain_weights("saved")
        super().save_own_variables(store)

    def grow_state(self, growth: Growth) -> None:
        """Grow what is kept for each class or weight; the network has grown already.

        For methods to override that keep more.
        """
        if self.average_weights is not None:
            growth.per_weight(self.averages, self.averaged_variables(), fill=None)

    def get_config(self) -> dict[str, Any]:
        average = self.average_weights
        more = {} if average is None else {"average_weights": average}
        return {**super().get_config(), **more}

    @contextmanager
    def _holding(self, which: str) -> Iterator[None]:
        holds = "plain" if self._plain is None else "averaged"
        # Before the first step the average is the weights.
        if which == holds or not int(self.averaged_steps.numpy()):
            yield
            return
        self._exchange()
        try:
            yield
        finally:
            self._exchange()

    def _exchange(self) -> None:
        """Put the average into the network, or the plain weights back."""
        variables = self.averaged_variables()
        if self._plain is None:
            self._plain = [tf.identity(v.value) for v in variables]
            _assign(variables, [average.value for average in self.averages])
        else:
            _assign(variables, self._plain)
            self._plain = None


def _assign(variables: list[keras.Variable], values: list[Any]) -> None:
    for variable, value in zip(variables, values, strict=True):
        variable.assign(tf.cast(value, variable.dtype))
