"""Runs that are killed, stopped or damaged go on as if nothing had happened."""

import contextlib
import json
import shutil
import signal
from unittest import mock

import pytest
from tensorflow.python.framework.config import disable_op_determinism

from nccl_tf.errors import UserError
from nccl_tf.experiment.config.resolve import resolve
from nccl_tf.experiment.run import seed as seed_of_run
from nccl_tf.experiment.run import train
from nccl_tf.experiment.run.console import Console
from nccl_tf.experiment.run.run_file import given_flags, settings_to_resume, write_run_file
from nccl_tf.experiment.run.signals import Interrupted, InterruptRequest
from nccl_tf.methods.registry import METHODS
from nccl_tf.records.checkpoints import variables_to_arrays
from nccl_tf.records.options import RunOptions
from nccl_tf.records.record import checked_record
from tests.tiny import renewed, scalars

GIVEN = {"dataset": "split_digits", "head": "single", "max_tasks": 3, "hidden": (16,)}
# A method for each kind of memory, cn_dpm's apart, whose experts take long to grow.
ONE_PER_MEMORY = sorted(
    {row.memory: row.name for row in METHODS.values() if row.memory != "short_term"}.values()
)
# Adam's slots, the place in the schedule, the draws of augmentation and the average go on. NCCL
# draws from a memory that was drawn itself: when it is stopped, reads have been drawn that no later
# step repeats. It is stopped again while it evaluates the average of its weights.
USUAL = {
    "optimizer": "adam", "optimizer_arguments": ("beta_1:0.8",), "learning_rate": 0.01,
    "schedule": "cosine", "augment": ("flip", "crop"), "average_weights": 0.9,
    "rates": ("hidden1:0.5", "logits/bias:0"), "max_tasks": 2, "examples_per_task": 40, "epochs": 2,
}  # fmt: skip
STOPS = [2, 11]  # in the second epoch, and while the average is evaluated after the last task
# What is not of the run itself.
UNTIMED = ("train_seconds", "compile_seconds", "eval_seconds", "peak_memory_bytes", "commit")


class StopAfter(InterruptRequest):
    """Asks to stop when it has been looked at a number of times."""

    def __init__(self, looks: int | None):
        self._looks = looks

    @property
    def signum(self):
        if self._looks is None:
            return None
        self._looks -= 1
        return signal.SIGTERM if self._looks < 0 else None


def run(
    folder, method: str, looks: int | None = None, seed: int = 3, more=(), console=None, **options
) -> dict:
    folder.mkdir(exist_ok=True)
    given = {"record_every": 7, "steps_per_execution": 3, "checkpoint_every": 1e9, **options}
    settings = resolve({**GIVEN, "method": method, **dict(more)})
    options, request = RunOptions(**given), StopAfter(looks)
    return seed_of_run.run_seed(settings, options, seed, folder, request, console).as_json()


def assert_stops_change_nothing(tmp_path, method: str, stops: list[int], more=()) -> dict:
    """Bit for bit: state (weights, memory, optimizer, counters), matrix and step records."""
    whole = run(tmp_path / "whole", method, more=more)
    for looks in stops:
        with pytest.raises(Interrupted):
            run(tmp_path / "stopped", method, looks, more=more)
    stopped = run(tmp_path / "stopped", method, more=more)
    for name in whole.keys() - set(UNTIMED):
        assert whole[name] == stopped[name], name
    files = [(tmp_path / name / "steps.csv").read_text() for name in ("whole", "stopped")]
    assert files[0] == files[1]
    return whole


@contextlib.contextmanager
def built_once():
    """One learner serves all runs of the body, from its first state each: its graphs are built."""
    build, built = seed_of_run.build_learner, []

    def build_again(*arguments, **more):
        if not built:
            learner = build(*arguments, **more)
            built.extend((learner, variables_to_arrays(learner.state_variables)))
        return renewed(*built)

    with mock.patch.object(seed_of_run, "build_learner", build_again):
        yield


def test_a_stopped_run_ends_as_a_whole_one(tmp_path):
    with built_once():
        whole = assert_stops_change_nothing(tmp_path, "nccl_reservoir", STOPS, USUAL)
    assert (whole["steps"], whole["learning_rates"]) == (16, [0.01] * 2)
    assert whole["averaged_accuracy_matrix"]
    checked_record(whole, "here")


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("method", "stops"), [("gdumb", [8]), *((method, [0, 3, 12]) for method in ONE_PER_MEMORY)]
)
def test_a_run_in_learners_of_its_own_ends_as_a_whole_one(tmp_path, method, stops):
    assert_stops_change_nothing(tmp_path, method, stops)


@pytest.mark.nightly  # `learn` of it is in tests/session/test_backup.py
def test_a_stopped_run_under_xla_ends_as_a_whole_one(tmp_path, capsys):
    """29 steps a task, in programs of three and of one; a resumed run runs as it has begun."""
    whole = run(tmp_path / "whole", "finetune", jit_compile="true")
    with pytest.raises(Interrupted):
        run(tmp_path / "stopped", "finetune", 5, jit_compile="true")
    with pytest.raises(UserError, match=r"another jit_compile .*=3 there, false here.*began with"):
        run(tmp_path / "stopped", "finetune", jit_compile="false")
    rest = run(tmp_path / "stopped", "finetune", console=Console("plain"), steps_per_execution=None)
    assert "XLA on" in capsys.readouterr().out
    for name in whole.keys() - set(UNTIMED):
        assert whole[name] == rest[name], name
    assert (whole["xla"], whole["steps_per_program"]) == (True, 3)


@pytest.mark.nightly
def test_a_usual_run_in_learners_of_its_own_ends_as_a_whole_one(tmp_path):
    assert_stops_change_nothing(tmp_path, "nccl_reservoir", STOPS, USUAL)


@pytest.mark.nightly
def test_a_stopped_task_has_the_means_of_all_its_steps(tmp_path):
    folders = [tmp_path / "whole", tmp_path / "stopped"]
    options = {"tensorboard": True, "record_every": 1, "steps_per_execution": 1}
    run(folders[0], "finetune", **options)
    with pytest.raises(Interrupted):
        run(folders[1], "finetune", 9, **options)
    run(folders[1], "finetune", **options)
    whole, stopped = (
        scalars(events / "task1" / "train")
        for folder in folders
        for events in (folder / "tensorboard").iterdir()
    )
    for name in ("batch_loss", "batch_accuracy"):
        assert whole[name][max(whole[name])] == stopped[name][max(stopped[name])]


@pytest.fixture(scope="module")
def fine_tuned(tmp_path_factory):
    """The record of a whole run, and its rows."""
    folder = tmp_path_factory.mktemp("fine_tuned")
    return run(folder, "finetune"), (folder / "steps.csv").read_text()


@pytest.fixture(scope="module")
def folder_of_a_stopped_run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("stopped")
    with pytest.raises(Interrupted):
        run(folder, "finetune", 6)
    return folder


@pytest.fixture
def stopped(folder_of_a_stopped_run, tmp_path):
    """The folder of a run that was stopped in its midst, for each test a copy."""
    return shutil.copytree(folder_of_a_stopped_run, tmp_path / "run")


@pytest.mark.nightly
def test_resuming_with_other_options_goes_on(tmp_path, fine_tuned):
    """The bits are those of the whole run, and rows of another length follow on."""
    whole, one = fine_tuned
    with pytest.raises(Interrupted):
        run(tmp_path, "finetune", 3)
    with pytest.raises(Interrupted):
        run(tmp_path, "finetune", 3, steps_per_execution=1)
    other = run(tmp_path, "finetune", record_every=20)
    for name in ("state_sha256", "accuracy_matrix"):
        assert whole[name] == other[name]
    two = (tmp_path / "steps.csv").read_text()
    assert one.splitlines()[:3] == two.splitlines()[:3]
    steps = [int(line.split(",")[0]) for line in two.splitlines()[1:]]
    assert steps[:5] == [7, 14, 16, 20, 40]


def test_a_checkpoint_of_another_seed_is_refused(stopped):
    with pytest.raises(UserError, match="they are of another seed"):
        run(stopped, "finetune", seed=0)


ARGV = [
    "run.py", "--method=nccl_reservoir", "--dataset=split_digits", "--deterministic",
    "--max_tasks=4", "--checkpoint_every=0.05", "--steps_per_execution=5",
]  # fmt: skip


def result(output) -> dict:
    (path,) = output.glob("*/*/*/seed0/result.json")
    record = json.loads(path.read_text())
    return {name: value for name, value in record.items() if name not in UNTIMED}


@pytest.mark.processes  # three runs, each with graphs of its own
def test_sigterm_says_how_to_go_on(tmp_path, command, monkeypatch):
    """test_a_stopped_run_ends_as_a_whole_one shows that the bits are those of the whole run."""
    argv = [*ARGV[1:], "--method=finetune", "--max_tasks=2", "--diagnostics=subset"]

    def stopped(*words):
        with monkeypatch.context() as patch:
            patch.setattr(
                train, "interrupt_requests", lambda **hint: contextlib.nullcontext(StopAfter(5))
            )
            return command(*words)

    code, _, errors = stopped(*argv, f"--output_dir={tmp_path}")
    assert code == 143
    assert "stopped by SIGTERM; the same command, or --resume=" in errors
    (folder,) = tmp_path.glob("*/*/*/seed0")
    code, _, errors = command(*argv, f"--resume={folder}", "--learning_rate=0.05")
    assert code == 2 and "learning_rate 0.1 there, 0.05 here" in errors
    code, _, errors = stopped(f"--resume={folder}")
    assert code == 143, errors
    code, output, _ = command(f"--resume={folder}")
    disable_op_determinism()
    assert code == 0 and "going on from step" in output
    assert len(result(tmp_path)["accuracy_matrix"]) == 2
    assert len(result(tmp_path)["diagnostics"]["tasks"]) == 2


@pytest.mark.parametrize(("value", "now"), [(False, "false"), (True, "true")])
def test_a_run_of_before_has_its_switch_for_xla(value, now, tmp_path):
    """It was a setting, true or false."""
    settings = {**resolve({}).as_json(), "jit_compile": value}
    noted = {"seed": 0, "given": {"jit_compile": value, "hidden": None}, "settings": settings}
    (tmp_path / "run.json").write_text(json.dumps(noted))
    assert given_flags(tmp_path)["jit_compile"] == now
    if value:
        with pytest.raises(UserError, match="jit_compile True there, None here"):
            settings_to_resume(tmp_path, {})
    else:
        assert settings_to_resume(tmp_path, {})[2]["jit_compile"] == now


def test_resuming_lists_settings_that_differ(tmp_path):
    given = {"method": "nccl_ring", "hidden": (16,), "seeds": (0, 4)}
    write_run_file(tmp_path, resolve(given), 4, given)
    settings, seed, together = settings_to_resume(tmp_path, {"learning_rate": None, "threads": 1})
    assert (settings, seed) == (resolve(given), 4)
    assert together == {**given, "threads": 1, "resume": None}
    with pytest.raises(UserError, match=r"learning_rate 0\.1 there, 0\.05 here.*delta 0\.001 the"):
        settings_to_resume(tmp_path, {"learning_rate": 0.05, "delta": 0.01})
    with pytest.raises(UserError, match="seed 4 there, 0 here"):
        settings_to_resume(tmp_path, {"seeds": (0,)})
    seed0 = tmp_path / "seed0"
    write_run_file(seed0, resolve(given), 4, given)
    with pytest.raises(
        UserError, match=r"is the folder of seed 0, but its run\.json is that of seed 4"
    ):
        settings_to_resume(seed0, {})
    with pytest.raises(UserError, match="holds no run"):
        settings_to_resume(tmp_path / "elsewhere", {})
