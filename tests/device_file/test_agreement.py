"""A log of a step is compared by its size, one whose terms cancel by that of its terms."""

import numpy as np
import pytest
import tensorflow as tf

from nccl_tf.device_file.agreement import _Comparison
from nccl_tf.errors import UserError


def differences(wanted, off):
    """The largest difference that is found where a file's logs are off by so much."""
    comparison = object.__new__(_Comparison)
    comparison._name, comparison.largest = "learner", 0.0
    found = {name: np.float32(value + off.get(name, 0.0)) for name, value in wanted.items()}
    comparison._compare_outputs(found, {name: tf.constant(v) for name, v in wanted.items()})
    return comparison.largest


LOGS = {"lambda": 0.5, "memory_gradient_norm": 4.0, "stream_gradient_norm": 5.0, "loss": 2.0}


def test_a_log_is_compared_by_its_value():
    assert differences(LOGS, {"loss": 1e-5}) == pytest.approx(5e-6, rel=0.05)
    with pytest.raises(UserError, match="loss differ"):
        differences(LOGS, {"loss": 4e-5})


def test_an_inner_product_is_compared_by_the_norms_of_its_vectors():
    assert differences(LOGS, {"lambda": 1e-4}) == pytest.approx(5e-6, rel=0.05)
    with pytest.raises(UserError, match="lambda differ"):
        differences(LOGS, {"lambda": 4e-4})


def test_small_values_are_compared_by_one():
    logs = {"lambda": 0.0, "memory_gradient_norm": 0.1, "stream_gradient_norm": 0.1}
    assert differences(logs, {"lambda": 5e-6}) == pytest.approx(5e-6, rel=0.05)
    with pytest.raises(UserError, match="lambda differ"):
        differences(logs, {"lambda": 4e-5})
