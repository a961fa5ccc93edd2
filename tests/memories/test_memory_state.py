"""The variables that a memory of one's own makes."""

import pytest

import nccl_tf
from nccl_tf.errors import UserError


class Doubled(nccl_tf.Memory):
    """Names a variable as one of the base is named."""

    def make_state(self):
        self.last = self.state("labels", (), "int64")


def test_a_second_variable_of_one_name_is_refused():
    with pytest.raises(UserError, match="'labels'"):
        Doubled(3, (2,))
