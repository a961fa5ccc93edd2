"""`learn(validation=...)`: examples of each task are held out, and callbacks watch them."""

import keras
import numpy as np
import pytest

import nccl_tf
from nccl_tf.errors import UserError
from nccl_tf.records.record import read_record
from tests.session.test_learn import again, assert_equal, tiny_stream, weights

GIVEN = {"batch_size": 5, "verbose": 0}


class Logs(keras.callbacks.Callback):
    """The logs of every epoch, and the losses on held-out examples right after it.

    Of the classes that have been seen: the others are masked.
    """

    def __init__(self, held=None):
        super().__init__()
        self.epochs, self.expected, self._held = [], [], held

    def on_epoch_end(self, epoch, logs=None):
        self.epochs.append(dict(logs))
        if self._held is not None:
            images, labels = self._held[int(self.model.progress.task.numpy())].validation
            logits = keras.ops.convert_to_numpy(self.model.network(images))
            logits = np.where(self.model.progress.seen_classes.numpy(), logits, -1e9)
            log_p = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
            self.expected.append(-log_p[np.arange(len(labels)), labels].mean())


def test_a_share_of_each_task_is_measured_and_not_trained_on():
    held = tiny_stream().with_validation(0.25, seed=3)
    logs = Logs(held)
    model = again()
    nccl_tf.learn(
        model, tiny_stream(), epochs=2, seed=3, validation=0.25, callbacks=[logs], **GIVEN
    )
    found = weights(model)
    losses = [each["val_loss"] for each in logs.epochs]
    assert len(losses) == 4
    np.testing.assert_allclose(losses, logs.expected, rtol=1e-4)
    nccl_tf.learn(other := again(), held, epochs=2, seed=3, **GIVEN)
    assert_equal(weights(other), found)


def test_early_stopping_begins_anew_in_each_task():
    """As one of its own in each fit of a loop."""
    tasks, given = tiny_stream().with_validation(0.25), {"patience": 1, "min_delta": 0.02}
    stopped, looped = Logs(), Logs()
    stop = keras.callbacks.EarlyStopping("val_loss", restore_best_weights=True, **given)
    model = again()
    nccl_tf.learn(
        model, tiny_stream(), epochs=30, validation=0.25, callbacks=[stop, stopped], **GIVEN
    )
    found = weights(model)
    model = again()
    for task in tasks:
        own = keras.callbacks.EarlyStopping("val_loss", restore_best_weights=True, **given)
        model.fit(task, batch_size=5, epochs=30, callbacks=[own, looped], verbose=0)
    assert len(stopped.epochs) == len(looped.epochs) < 60
    assert_equal(weights(model), found)


def test_a_plateau_is_one_of_a_task_and_its_rate_stays():
    plateau = keras.callbacks.ReduceLROnPlateau("val_loss", factor=0.5, patience=1, min_delta=9.0)
    rates = []
    note = keras.callbacks.LambdaCallback(
        on_epoch_end=lambda epoch, logs: rates.append(float(model.optimizer.learning_rate))
    )
    model = again()
    nccl_tf.learn(
        model, tiny_stream(), epochs=3, validation=0.25, callbacks=[plateau, note], **GIVEN
    )
    model.optimizer.learning_rate = 0.2
    # The first epoch of a task is the best so far, and each later one halves the rate.
    np.testing.assert_allclose(rates, [0.2, 0.1, 0.05, 0.05, 0.025, 0.0125])


def test_the_best_file_is_that_of_each_task(tmp_path):
    """Whatever the task before was worth."""
    file = keras.callbacks.ModelCheckpoint(
        tmp_path / "{epoch}.weights.h5", "val_loss", save_best_only=True, save_weights_only=True
    )
    logs = Logs()
    nccl_tf.learn(
        again(), tiny_stream(), epochs=3, validation=0.25, callbacks=[file, logs], **GIVEN
    )
    losses = np.reshape([each["val_loss"] for each in logs.epochs], (2, 3))
    best = [
        3 * task + epoch + 1
        for task, epoch in np.ndindex(2, 3)
        if losses[task, epoch] < min(losses[task, :epoch], default=np.inf)
    ]
    names = [int(path.name.split(".")[0]) for path in tmp_path.iterdir()]
    assert sorted(names) == best and 4 in names and losses[1, 0] > losses[0].min()


def test_all_tasks_at_once_are_validated_with_their_heads():
    images = tiny_stream().with_validation(0.25)
    joint = nccl_tf.JointTask(images.tasks)
    inputs, labels = joint.validation
    parts = [task.validation for task in images]
    np.testing.assert_array_equal(labels, np.concatenate([part.labels for part in parts]))
    np.testing.assert_array_equal(inputs["inputs"], np.concatenate([part.inputs for part in parts]))
    assert inputs["task"].tolist() == [0] * len(parts[0].labels) + [1] * len(parts[1].labels)
    logs = Logs()
    model = again()
    nccl_tf.learn(model, tiny_stream(), joint=True, validation=0.25, callbacks=[logs], **GIVEN)
    expected = model.evaluate(inputs, labels, verbose=0, return_dict=True)["loss"]
    assert logs.epochs[0]["val_loss"] == pytest.approx(expected, rel=1e-6)
    assert nccl_tf.JointTask(tiny_stream().tasks).validation is None


@pytest.mark.parametrize("share", [0, 1.0, True, "0.1", (np.zeros((2, 2)), np.zeros(2))])
def test_what_is_no_share_is_refused(share):
    with pytest.raises(UserError, match=r"expected a number in \(0, 1\)"):
        nccl_tf.learn(again(), tiny_stream(), validation=share, verbose=0)


def test_examples_are_held_out_once():
    with pytest.raises(UserError, match="leave one of the two out"):
        nccl_tf.learn(again(), tiny_stream().with_validation(0.1), validation=0.1, verbose=0)


def test_backups_and_records_know_the_share(tmp_path):
    for share in (None, 0.25):
        record = read_record(
            nccl_tf.learn(again(), tiny_stream(), validation=share, verbose=0).save(tmp_path)
        )
        assert record.settings.hyperparameters.get("validation") == share
    assert len(list(tmp_path.rglob("result.json"))) == 2
    nccl_tf.learn(again(), tiny_stream(), validation=0.25, backup_dir=tmp_path / "b", verbose=0)
    with pytest.raises(UserError, match="another model, stream or setting"):
        nccl_tf.learn(again(), tiny_stream(), backup_dir=tmp_path / "b", verbose=0)
