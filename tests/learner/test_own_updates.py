"""The step that a method's own `update` returns."""

import keras
import numpy as np
import pytest

import nccl_tf
from nccl_tf.errors import UserError
from tests.tiny import tiny_batches, tiny_network


class Unapplied(nccl_tf.Learner):
    """Takes gradients, and forgets to apply them."""

    def update(self, batch):
        return self.learn(batch)


class Nothing(nccl_tf.Learner):
    """Applies a step, and forgets to return it."""

    def update(self, batch):
        self.learn_and_apply(self.learn, batch)


class Lossless(nccl_tf.Learner):
    """Logs everything but the loss."""

    log_names = ("loss", "half")

    def training_loss(self, logits, batch):
        loss = self.stream_loss(logits, batch)
        return loss, {"half": loss / 2}


class LosslessReplay(nccl_tf.ReplayLearner):
    """Logs everything but the loss where it replays."""

    log_names = ("loss", "half")

    def replay_loss(self, logits, batch, replay):
        loss = self.stream_loss(logits.stream, batch)
        return loss, {"half": loss / 2}


class Exchanged(nccl_tf.Learner):
    """Makes a step of its own, whose logs come in another order than the names."""

    log_names = ("loss", "half", "double")

    def update(self, batch):
        step = self.learn_and_apply(self.learn, batch)
        loss = step.logs["loss"]
        return nccl_tf.Step([], step.logits, {"double": 2 * loss, "half": loss / 2, "loss": loss})


def fitted(kind):
    learner = kind(tiny_network(), kind.memory_class and nccl_tf.ReservoirMemory(5))
    learner.compile(keras.optimizers.SGD(0.1))
    return learner.fit(tiny_batches(0, count=10), verbose=0).history


@pytest.mark.parametrize("kind", [Unapplied, Nothing])
def test_an_update_that_returns_no_applied_step_is_refused(kind):
    with pytest.raises(UserError, match="from update"):
        fitted(kind)


@pytest.mark.parametrize("kind", [Lossless, LosslessReplay])
def test_a_step_without_its_loss_is_refused(kind):
    with pytest.raises(UserError, match="'half'"):
        fitted(kind)


def test_logs_of_a_new_step_keep_their_names():
    history = fitted(Exchanged)
    np.testing.assert_allclose(history["half"][0], history["loss"][0] / 2, rtol=1e-6)
    np.testing.assert_allclose(history["double"][0], 2 * history["loss"][0], rtol=1e-6)
