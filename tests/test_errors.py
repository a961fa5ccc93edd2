"""What errors say, and the exit codes that they have."""

import pytest

import nccl_tf
from nccl_tf.errors import LearningFailedError, UserError, format_error, translate_os_error
from nccl_tf.streams import Task


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


@pytest.mark.parametrize("seed", [1.5, 2**63, True])
def test_a_seed_that_would_be_cut_or_wrapped_is_refused(seed):
    image, task = (4, 4, 1), Task(0, (0,), 1, lambda: None, lambda: None)
    takers = [
        lambda: nccl_tf.Finetune(nccl_tf.networks.mlp(image, 2), seed=seed),
        lambda: nccl_tf.ReservoirMemory(5, seed=seed),
        lambda: nccl_tf.networks.mlp(image, 2, seed=seed),
        lambda: nccl_tf.networks.mlp(image, 2, dropout=0.5, seed=seed),
        lambda: nccl_tf.callbacks.ForgettingDiagnostics([task], seed=seed),
    ]
    for take in takers:
        with pytest.raises(UserError, match="seed="):
            take()
