"""Training on all examples so far at every task: what it costs to forget nothing."""

from collections.abc import Mapping
from typing import Any, ClassVar

import keras

from nccl_tf.arguments.hyperparameters import Rows
from nccl_tf.errors import UserError
from nccl_tf.learner.copies import WeightCopy
from nccl_tf.learner.learner import Learner
from nccl_tf.learner.options.average import AverageWeights
from nccl_tf.learner.options.new_optimizer import NewOptimizer
from nccl_tf.methods.rows import cumulative as rows


@keras.saving.register_keras_serializable(package="nccl_tf")
class Cumulative(Learner):
    r"""Trains at every task on the examples of all tasks so far, $x^+ = x - \alpha g$.

    The baseline of every method that forgets: it stores all examples, and the work of a task grows
    with the number of tasks. `nccl_tf.learn` and the command join the tasks of a stream; the
    learner itself keeps no example, so that `fit` takes a `nccl_tf.JointTask` of all tasks so far,
    or, with `joined=True`, any data of all examples so far.

    Args:
        network: Any Keras model from inputs to one output per class.
        restart: Whether every task trains anew, from the weights that the first one began with
            and with a new optimizer; otherwise it goes on from those that the task before left.
        joined: Whether each `fit` is given all examples so far, in data of any form.
        **kwargs: As for `Learner`.

    Raises:
        UserError: An argument is out of range, `restart` comes with `average_weights`, or as for
            `Learner`.

    Example:

    ```python
    stream = nccl_tf.load_stream("split_digits", head="single", max_tasks=2)
    network = nccl_tf.networks.mlp(stream.example_shape, stream.num_classes, pixels=stream.pixels)
    learner = nccl_tf.Cumulative(network)
    learner.compile(keras.optimizers.SGD(0.1))
    result = nccl_tf.learn(learner, stream, verbose=0)
    ```
    """

    on_replicas = True
    one_pass = True
    hyperparameters: ClassVar[Rows] = rows.NUMBERS
    cannot: ClassVar[Mapping[str, str]] = {
        "tasks_alone": "trains on all examples so far and keeps none",
        "export_learner": "trains on all examples so far, which no device keeps",
        **rows.CUMULATIVE.refuses,
    }

    def __init__(
        self,
        network: keras.Model,
        *,
        restart: bool = False,
        joined: bool = False,
        **kwargs: Any,
    ):
        super().__init__(network, **kwargs)
        self.restart, self.joined = restart, joined
        self._first: WeightCopy | None = None
        if restart:
            if self.option(AverageWeights):
                raise UserError(
                    "received average_weights and restart=True, which puts the first weights back "
                    "when a task begins, where no step leads: leave one of the two out"
                )
            self._first = WeightCopy(self.network, self.state, "first")
            self.add_option(NewOptimizer())

    def compile(self, optimizer: Any = "sgd", *args: Any, **kwargs: Any) -> None:
        """As `Learner.compile`.

        Raises:
            UserError: As there, or the learning rate is a schedule and `restart` is set.
        """
        super().compile(optimizer, *args, **kwargs)
        if self.restart and not isinstance(self.optimizer.learning_rate, keras.Variable):
            raise UserError(
                "received a learning rate schedule with restart=True, which begins every task with "
                "a new optimizer and so with the schedule's first step: give the rate as a number"
            )

    def fit(self, x: Any = None, *args: Any, **kwargs: Any) -> Any:
        """Train on all examples so far, as `Learner.fit`.

        Args:
            x: A `nccl_tf.JointTask` of all tasks so far, or its batches; with `joined`, as for
                `Learner.fit`.
            *args, **kwargs: As for `Learner.fit`.

        Raises:
            UserError: As there, or the data are those of a task alone.
        """
        self._check_joined(x)
        return super().fit(x, *args, **kwargs)

    def train_on_batch(self, x: Any, *args: Any, **kwargs: Any) -> Any:
        """Train on a batch of all examples so far, as `Learner.train_on_batch`.

        Raises:
            UserError: As there, or `joined` is not set.
        """
        self._check_joined(x)
        return super().train_on_batch(x, *args, **kwargs)

    def on_task_begin(self, task_id: int) -> None:
        """Put the weights of the first task's beginning back, where every task trains anew."""
        if self._first is None:
            return
        if int(self.progress.tasks_ended.numpy()):
            self._first.put()
        else:  # The network may have other weights than when it was built.
            self._first.take()

    def _check_joined(self, x: Any) -> None:
        if self.joined or getattr(x, "joins_tasks", False):
            return
        raise UserError(
            f"received data of one task for {type(self).__name__}, which trains on all examples so "
            "far and keeps none: call nccl_tf.learn(model, stream), which joins the tasks, or "
            "fit(nccl_tf.JointTask(stream.tasks[:2])) of the first two; with joined=True each fit "
            "is to be given all examples so far"
        )
