"""The methods that learn all tasks at once."""

import numpy as np
import pytest
import tensorflow as tf

from nccl_tf.experiment.config.resolve import resolve
from nccl_tf.experiment.run.seed import run_seed
from nccl_tf.experiment.run.signals import InterruptRequest
from nccl_tf.methods.finetune import MultiTask
from nccl_tf.methods.registry import METHODS
from nccl_tf.records.options import RunOptions
from tests.methods.hand import ALPHA, STREAM, WEIGHTS, gradient, network, one_step
from tests.tiny import TASK_CLASSES, tiny_batches, tiny_network


def test_multi_task_trains_every_logit_whatever_the_heads():
    learner = MultiTask(network(), heads=((0, 2), (1,)))
    expected = WEIGHTS - ALPHA * gradient(*STREAM)
    np.testing.assert_allclose(one_step(learner), expected, rtol=1e-12)


def test_multi_task_is_masked_at_test():
    learner = MultiTask(tiny_network(), heads=TASK_CLASSES)
    for inputs, _, _ in tiny_batches(1).take(1):
        logits = learner(inputs).numpy()
        trained = learner.forward(batch_of(inputs), training=True).masked.numpy()
    assert (logits[:, :2] == -1e9).all()
    assert (trained > -1e8).all()


def batch_of(inputs):
    from nccl_tf.batch import as_batch

    return as_batch((inputs, tf.zeros_like(inputs["task"])), 0)


@pytest.mark.parametrize(
    "method", ["multi_task", pytest.param("iid_online", marks=pytest.mark.nightly)]
)
def test_joint_methods_fill_the_last_row_alone(method, tmp_path):
    """The rest is undefined."""
    settings = resolve({"method": method, "dataset": "split_digits", "max_tasks": 3})
    record = run_seed(settings, RunOptions(), 0, tmp_path, InterruptRequest())
    *others, last = record.accuracy_matrix
    assert others == [[None] * 3] * 2
    assert min(last) > 0.85
    assert record.average_accuracy == np.mean(last)
    names = {"forgetting", "learning_accuracy", "backward_transfer", "forward_transfer"}
    assert set(record.undefined) == names
    assert all("at once" in reason for reason in record.undefined.values())
    assert all(getattr(record, name) is None for name in names)


def test_passes_by_default():
    def epochs(**given):
        return resolve({"dataset": "split_digits", "head": "single", **given}).epochs

    assert epochs(method="iid_offline") == 100
    assert epochs(method="iid_offline", epochs=2) == 2
    assert {epochs(method=name) for name in METHODS if name != "iid_offline"} == {1}
