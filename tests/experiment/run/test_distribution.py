"""What tells the workers of a run apart, and what is refused before they meet."""

import json

import pytest

from nccl_tf.errors import UserError
from nccl_tf.experiment.run.distribution import worker_number
from nccl_tf.learner.devices import check_divides

CLUSTER = {"worker": ["host0:2222", "host1:2222"]}


def config(index, cluster=CLUSTER):
    return json.dumps({"cluster": cluster, "task": {"type": "worker", "index": index}})


def test_the_number_of_the_worker_is_in_tf_config(monkeypatch):
    monkeypatch.setenv("TF_CONFIG", config(1))
    assert worker_number("multi_worker") == 1
    assert worker_number("mirrored") == worker_number(None) == 0


BAD = (None, "", "{", "{}", "[]", config(2), config("a"), config(0, {}))


@pytest.mark.parametrize("value", BAD)
def test_a_bad_tf_config_is_told_with_an_example(monkeypatch, value):
    monkeypatch.delenv("TF_CONFIG", raising=False)
    if value is not None:
        monkeypatch.setenv("TF_CONFIG", value)
    with pytest.raises(UserError, match=r"TF_CONFIG on every worker .*host1:2222"):
        worker_number("multi_worker")


def test_batches_are_cut_into_equal_slices():
    check_divides("--batch_size", 10, 5)
    with pytest.raises(UserError, match=r"--batch_size=10 cannot be cut .* a multiple of 4"):
        check_divides("--batch_size", 10, 4)
