"""The loop over tasks, of `nccl_tf.learn` and of the command alike."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras

from nccl_tf.learner import task_pass
from nccl_tf.learner.hints import earlier_steps_warning
from nccl_tf.learner.learner import Learner
from nccl_tf.learner.preprocessor import prepared_batch
from nccl_tf.session.evaluation import Evaluation
from nccl_tf.session.loggers import counting_on, forget_epochs
from nccl_tf.session.state import Checkpoints, Place, SessionCallback, SessionState


class Session:
    """A learner on its way through a stream: it trains, evaluates and keeps checkpoints.

    Args:
        model: A compiled learner.
        parts: What is trained on in turn: the tasks, or their union alone.
        evaluation: The matrix that is filled, a row after each part.
        batch_size: Examples in a batch.
        epochs: Passes over each part, each in another order; or a number for each part.
        seed: Seed of the orders.
        class_weight: As for `fit`, by number.
        callbacks: Keras callbacks; each part is a training of its own to them, whose epochs and
            batches are counted from 0, but for Keras's loggers (`loggers.py`). A `SessionCallback`
            is told of tasks too.
        state: Where checkpoints are kept; None for none.
        every: Seconds between two checkpoints within a part.
        interruption: Returns what is raised to stop the session after a checkpoint, or None.
    """

    def __init__(
        self,
        model: Learner,
        parts: Sequence[Any],
        evaluation: Evaluation,
        *,
        batch_size: int,
        epochs: int | Sequence[int],
        seed: int,
        class_weight: Mapping[int, float] | None = None,
        callbacks: Sequence[keras.callbacks.Callback] = (),
        state: SessionState | None = None,
        every: float = 60.0,
        interruption: Callable[[], BaseException | None] = lambda: None,
    ):
        self._model, self._parts, self._evaluation = model, parts, evaluation
        self._batch_size, self._seed = batch_size, seed
        self._epochs = [epochs] * len(parts) if isinstance(epochs, int) else list(epochs)
        self._class_weight = class_weight
        self._callbacks, self._state, self._every = list(callbacks), state, every
        self._interruption = interruption
        self._told = [c for c in callbacks if isinstance(c, SessionCallback)]
        checkpoints = [c for c in callbacks if isinstance(c, keras.callbacks.ModelCheckpoint)]
        self._first_best = [(checkpoint, checkpoint.best) for checkpoint in checkpoints]

    def choose_execution(self, resumed: int | None = None) -> None:
        """Choose how the steps of all parts run, as `Execution.choose` does; the first call counts.

        Nothing depends on how much of them is left.

        Args:
            resumed: As for `Execution.choose`.
        """
        steps = [part.steps(self._batch_size) for part in self._parts]
        total = sum(self._steps_of(part) for part in range(len(self._parts)))
        self._model.execution.choose(steps[0], total, self._callbacks, resumed)

    def run(self) -> None:
        """Learn the rest of the stream.

        Raises:
            UserError: A checkpoint does not fit or cannot be written, or as for `fit`.
            LearningFailedError: As for `fit`.
        """
        self.choose_execution()
        place = self._restore_or_begin()
        while place.task < len(self._parts):
            place = self._learn(place)

    def _restore_or_begin(self) -> Place:
        restored = self._state.restore(len(self._parts)) if self._state else None
        if restored is None:
            if steps := int(self._model.optimizer.iterations.numpy()):
                self._model.warn_once("earlier", earlier_steps_warning(steps))
            self._evaluation.evaluate_initial()
            # It keeps the first weights, which may be drawn anew in another process.
            return self._saved(Place())
        for callback in self._told:
            callback.on_resume(restored)
        if restored.task < len(self._parts):
            forget_epochs(self._callbacks, sum(self._epochs[: restored.task]) + restored.epoch)
        return restored

    def _learn(self, place: Place) -> Place:
        """Train the rest of a part, evaluate, save, and return the place after it."""
        for callback in self._told:
            callback.before_task(place)
        if place == Place(place.task):
            # Values on other examples do not compare; Keras's other callbacks forget them.
            for checkpoint, best in self._first_best:
                checkpoint.best = best
        self._fit(place)
        self._end_task(self._parts[place.task])
        for callback in self._told:
            callback.after_training()
        # Trained at once, every task is learned when the one part ends: the last row.
        row = len(self._evaluation.matrix) - len(self._parts) + place.task
        trained = Place(place.task, self._epochs[place.task])
        self._evaluation.evaluate_after(row, lambda: self._stop_if_asked(trained))
        for callback in self._told:
            callback.after_task(row)
        after = self._saved(Place(place.task + 1))
        self._stop_if_asked(None)
        return after

    def _fit(self, place: Place) -> None:
        part, epochs = self._parts[place.task], self._epochs[place.task]
        steps, epoch, callbacks = part.steps(self._batch_size), place.epoch, [*self._callbacks]
        if self._state and self._state.may_split_tasks:
            callbacks.append(
                Checkpoints(self._state, place, steps, self._every, self._interruption)
            )
        stopped = False
        if place.step:
            skip, epoch = epoch * steps + place.step, epoch + 1
            # What is left of an epoch has a training of its own: Keras expects equal epochs.
            rest = part.train_batches(self._batch_size, self._seed, passes=epoch, skip=skip)
            summed = [self._state.rest_of_epoch(rest, steps)] if self._state else []
            self._fit_epochs(place, rest, epoch, [*summed, *callbacks])
            # By a callback, such as EarlyStopping, at the end of that epoch.
            stopped = self._model.stop_training
        if epoch < epochs and not stopped:
            place = Place(place.task, epoch)
            data = part.epochs(self._batch_size, self._seed, epochs)
            self._fit_epochs(place, data, epochs, callbacks)

    def _end_task(self, part: Any) -> None:
        """End the task of a part, after the pass over its examples that an option asks for."""
        model = self._model
        if task_pass.asking(model.options, task_pass.END) and model.progress.task_is_open.numpy():
            batches = part.train_batches(self._batch_size, self._seed)
            prepared = (prepared_batch(model.network, batch) for batch in batches)
            task_pass.pass_task(model.options, task_pass.END, prepared, model.as_batch)
        model.end_task()

    def _steps_of(self, part: int) -> int:
        """Steps of the training of a part."""
        return self._epochs[part] * self._parts[part].steps(self._batch_size)

    def _fit_epochs(self, place: Place, batches: Any, end: int, callbacks: Sequence[Any]) -> None:
        """Train from a place to the end of an epoch of its part."""
        part = self._parts[place.task]
        done = sum(map(self._steps_of, range(place.task)))
        done += place.epoch * part.steps(self._batch_size) + place.step
        epochs = sum(self._epochs[: place.task])
        with counting_on(self._callbacks, epochs, done, begins=place == Place()):
            self._model.fit(
                batches,
                task_id=part.task_id,
                initial_epoch=place.epoch,
                epochs=end,
                resumes=place.epoch > 0,
                end_task=False,
                shuffle=False,
                verbose=0,
                class_weight=self._class_weight or None,
                callbacks=callbacks,
                validation_data=part.validation,
            )

    def _saved(self, place: Place) -> Place:
        if self._state:
            self._state.save(place)
        return place

    def _stop_if_asked(self, place: Place | None) -> None:
        """Stop where it is asked for, with a checkpoint where a place is given."""
        interruption = self._interruption()
        if interruption is None:
            return
        if place is not None:
            self._saved(place)
        raise interruption
