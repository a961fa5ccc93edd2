"""`--memory_dir`: the record of a run with its memory in main memory, and no checkpoints."""

import json

import pytest

from nccl_tf.errors import UserError
from nccl_tf.experiment.config.resolve import resolve
from nccl_tf.experiment.run.build import build_memory
from nccl_tf.experiment.run.checkpoints import CheckpointStore
from nccl_tf.experiment.run.memory_check import bytes_needed
from nccl_tf.streams import load_stream

FLAGS = (
    "--method=er_reservoir", "--dataset=permuted_digits", "--max_tasks=2",
    "--examples_per_task=60", "--hidden=8", "--memory_size=20", "--progress=none",
)  # fmt: skip


def test_a_run_with_its_memory_on_disk_has_the_same_results(command, tmp_path, monkeypatch):
    saved = []
    monkeypatch.setattr(CheckpointStore, "save", lambda self, checkpoint: saved.append(checkpoint))
    results, more = [], ()
    for name in ("plain", "disk"):
        code, _, err = command(*FLAGS, f"--output_dir={tmp_path / name}", *more)
        assert code == 0, err
        (path,) = (tmp_path / name).rglob("result.json")
        results.append(json.loads(path.read_text()))
        assert len(saved) == 2  # after each task, and none on disk
        more = (f"--memory_dir={tmp_path}",)
    for key in ("accuracy_matrix", "average_accuracy", "forgetting"):
        assert results[0][key] == results[1][key]


def test_what_has_no_memory_has_none_on_disk(tmp_path):
    stream, settings = load_stream("permuted_digits"), resolve({"method": "finetune"})
    with pytest.raises(UserError, match="finetune has no replay memory to be kept there"):
        build_memory(settings, stream, 0, str(tmp_path))


def test_inputs_on_disk_need_no_main_memory():
    settings = resolve({"method": "er_reservoir", "memory_size": 10**6})
    plain, disk = (
        bytes_needed(settings, 84 * 84 * 3, 10, 100, on_disk)["the replay memory"]
        for on_disk in (False, True)
    )
    assert plain - disk == 3 * 10**6 * 84 * 84 * 3
