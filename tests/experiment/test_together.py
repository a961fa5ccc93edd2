"""Seeds that the command trains together."""

import json
import signal

import pytest

from nccl_tf.experiment.interrupts import InterruptRequest

RUN = ("--max_tasks=2", "--seeds=0,1", "--progress=plain")


def records(output) -> list[dict]:
    paths = sorted(output.glob("*/*/*/seed*/result.json"))
    return [json.loads(path.read_text()) for path in paths]


@pytest.mark.parametrize("dataset", ["permuted_digits", "split_digits"])
def test_records_are_those_of_separate_runs(command, tmp_path, dataset):
    # Not seed 1: in its step 92 a unit of 4.5e-8 is rounded to either side of ReLU's kink, and the
    # weights of the two ways of reckoning part from there.
    argv = (*RUN[:1], "--seeds=0,2", RUN[-1], f"--dataset={dataset}")
    code, out, err = command(*argv, "--vectorize_seeds", f"--output_dir={tmp_path / 'one'}")
    assert code == 0, err
    assert out.count("task 2/2: accuracy so far") == 1 and "seeds 0, 2 together" in out
    assert command(*argv, f"--output_dir={tmp_path / 'other'}")[0] == 0
    pairs = zip(records(tmp_path / "one"), records(tmp_path / "other"), strict=True)
    for together, alone in pairs:
        assert abs(together["average_accuracy"] - alone["average_accuracy"]) <= 0.005
        for name in ("settings_hash", "seed", "steps", "task_steps", "learning_rates", "options"):
            assert together[name] == alone[name]
        assert together["seeds_together"] == [0, 2] and "seeds_together" not in alone
    steps = [(tmp_path / k).glob("*/*/*/seed*/steps.csv") for k in ("one", "other")]
    counts = [sorted((p.parent.name, len(p.read_text().splitlines())) for p in s) for s in steps]
    assert counts[0] == counts[1]


def test_finished_seeds_stay_and_a_single_one_runs_alone(command, tmp_path):
    argv = ("--max_tasks=1", "--method=finetune", f"--output_dir={tmp_path}", "--vectorize_seeds")
    assert command(*argv, "--seeds=0")[0] == 0
    assert command(*argv, "--seeds=0,1")[0] == 0
    assert all("seeds_together" not in record for record in records(tmp_path))
    code, out, _ = command(*argv, "--seeds=0,1,2,3")
    assert code == 0 and out.count("finished already") == 2
    assert [record.get("seeds_together") for record in records(tmp_path)[2:]] == [[2, 3]] * 2


def test_a_signal_stops_all_seeds_and_they_start_over(command, tmp_path, monkeypatch):
    argv = (*RUN, "--method=finetune", "--vectorize_seeds", f"--output_dir={tmp_path}")
    with monkeypatch.context() as patch:
        patch.setattr(InterruptRequest, "signum", signal.SIGTERM)
        code, _, err = command(*argv)
    assert code == 143 and "starts these seeds over" in err and not records(tmp_path)
    assert command(*argv)[0] == 0
    assert len(records(tmp_path)) == 2


@pytest.mark.parametrize(
    "flag",
    [
        "--method=gem", "--diagnostics=subset", "--jit_compile", "--distribute=mirrored",
        "--precision=mixed_bfloat16", "--smoothness_mode=secant", "--deterministic",
        "--gradients=two_tapes", "--tensorboard",
    ],
)  # fmt: skip
def test_what_cannot_be_trained_together_is_refused(command, tmp_path, flag):
    code, _, err = command(*RUN, "--vectorize_seeds", flag, f"--output_dir={tmp_path}")
    assert code == 2
    (line,) = err.splitlines()
    assert "--vectorize_seeds with" in line and flag.partition("=")[0] in line


def test_another_command_does_not_take_the_flag(command):
    assert "belongs to the command train" in command("sweep", "--vectorize_seeds")[2]
