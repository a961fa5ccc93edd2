"""A signal stops a run with a checkpoint, whenever it comes."""

import signal
from types import SimpleNamespace

import pytest

from nccl_tf.experiment.run.resume import Checkpointing
from nccl_tf.experiment.run.signals import Interrupted, InterruptRequest


class After(InterruptRequest):
    """Has received a signal when it has been looked at a number of times."""

    def __init__(self, looks):
        self._looks = looks

    @property
    def signum(self):
        self._looks -= 1
        return signal.SIGTERM if self._looks < 0 else None


@pytest.mark.parametrize("looks", range(4))
def test_a_stop_has_written_a_checkpoint(looks):
    saves = []
    state = SimpleNamespace(save=lambda: saves.append(1), interrupted=Interrupted)
    callback = Checkpointing(state, 1e9, After(looks))
    callback.set_model(SimpleNamespace(skipped_in_a_row=SimpleNamespace(numpy=lambda: 0)))
    with pytest.raises(Interrupted):
        for batch in range(2):
            callback.on_train_batch_end(batch)
            callback.save_if_asked()
    assert len(saves) == 1
