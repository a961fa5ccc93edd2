"""What a record has of a run beside settings and metrics."""

from types import SimpleNamespace

import pytest

from nccl_tf.session.measurements import entries_of_xla


@pytest.mark.parametrize(
    ("compiles", "steps", "expected"), [(True, 5, 5), (None, 5, 5), (False, 5, None)]
)
def test_steps_that_xla_has_refused_ran_without_it(compiles, steps, expected):
    found = entries_of_xla(SimpleNamespace(under_xla=compiles, per_program=steps))
    assert found == {"xla": compiles is not False, "steps_per_program": expected}
