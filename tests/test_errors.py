"""What errors say."""

import pytest

from nccl_tf.errors import UserError, writing


def test_what_cannot_be_written_is_named_with_the_reason_and_the_advice(tmp_path):
    path = tmp_path / "missing" / "x"
    with pytest.raises(UserError) as caught, writing(path, "name another"):
        path.write_text("")
    assert str(caught.value) == f"cannot write {path} (No such file or directory): name another"
    assert isinstance(caught.value.__cause__, FileNotFoundError)


@pytest.mark.parametrize("error", [UserError("as it is"), KeyError("x")])
def test_what_is_no_failed_write_is_left_as_it_is(error):
    with pytest.raises(type(error)) as caught, writing("x", "name another"):
        raise error
    assert caught.value is error
