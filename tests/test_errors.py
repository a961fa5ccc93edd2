"""What errors say, and the exit codes that they have."""

import pytest

from nccl_tf.errors import LearningFailedError, UserError, format_error, translate_os_error


def test_a_failed_write_is_told_with_reason_and_advice(tmp_path):
    path = tmp_path / "missing" / "x"
    with pytest.raises(UserError) as caught, translate_os_error(path, "name another"):
        path.write_text("")
    assert str(caught.value) == f"cannot write {path} (No such file or directory): name another"
    assert isinstance(caught.value.__cause__, FileNotFoundError)


@pytest.mark.parametrize("error", [UserError("as it is"), KeyError("x")])
def test_what_is_no_failed_write_is_left_as_it_is(error):
    with pytest.raises(type(error)) as caught, translate_os_error("x", "name another"):
        raise error
    assert caught.value is error


@pytest.mark.parametrize(
    ("said", "line"),
    [
        ("two\n  lines\tand\x1c more", "error: two lines and more"),
        ("a\x1b[2J \x00 \udcff ±", r"error: a\x1b[2J \x00 \udcff ±"),
        ("a" * 1000, f"error: {'a' * 1000}"),
        ("a" * 600 + "b" * 600, f"error: {'a' * 500} [...] {'b' * 500}"),
    ],
    ids=["lines", "controls", "long", "too long"],
)
def test_an_error_is_one_line_that_a_terminal_can_show(said, line):
    assert format_error(UserError(said)) == line
    # Of a trial it is printed twice: by the trial into its log, and by the sweep.
    assert format_error(UserError(line.removeprefix("error: "))) == line


def test_exit_codes():
    assert (UserError.exit_code, LearningFailedError.exit_code) == (2, 3)
