"""An optimizer that begins every task as a new one."""

from typing import Any

from nccl_tf import keras_private as private
from nccl_tf.learner.losses import ExampleLoss
from nccl_tf.learner.options.option import Option

_KEPT = ("learning_rate", "model_variables_moving_average")


class NewOptimizer(Option):
    """Gives the optimizer the state of a new one when a task begins: moments and steps.

    Adam's moments of the task before would move weights whose gradient is zero. A schedule of rates
    begins again with its steps; a rate that was set stays.
    """

    def __init__(self) -> None:
        self._optimizer: Any = None

    def on_compile(self, optimizer: Any, loss: ExampleLoss) -> None:
        self._optimizer = optimizer

    def on_task_begin(self, task_id: int) -> None:
        if self._optimizer is None:
            return
        optimizer = getattr(self._optimizer, "inner_optimizer", self._optimizer)
        # Most are zero; the sums of Adagrad, for one, are not.
        fresh = type(optimizer).from_config(optimizer.get_config())
        fresh.build(private.trained_by(optimizer))
        for variable, new in zip(optimizer.variables, fresh.variables, strict=True):
            if not variable.path.rpartition("/")[2].startswith(_KEPT):
                variable.assign(new.numpy())
