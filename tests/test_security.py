"""What SECURITY.md says of every reader of untrusted files, in one table."""

import os
import re
import resource
import tomllib
from pathlib import Path

import keras
import numpy as np
import pytest

import nccl_tf
from nccl_tf.errors import UserError
from nccl_tf.reports.records import Records

ROOT = Path(__file__).parents[1]


def network():
    dense = keras.layers.Dense(3)
    made = keras.Sequential([keras.Input((6,)), dense])
    dense.enable_lora(1)
    return made


def records(path):
    (sentence,) = Records.below(path.parent).broken
    raise UserError(sentence)


def folder_of(scheme):
    return lambda path: nccl_tf.load_stream(f"{scheme}:{path.parents[1]}", num_tasks=2)


def file_of(scheme):
    return lambda path: nccl_tf.load_stream(f"{scheme}:{path}", num_tasks=2)


def mini_imagenet(path):
    return nccl_tf.load_stream("split_mini_imagenet", manual_dir=path.parent)


MI, GI = 2**20, 2**30
READERS = {
    "model": ("model.keras", nccl_tf.load_model, 100 * GI),
    "adapters": (
        "adapters.npz", lambda path: nccl_tf.Finetune(network()).load_adapters(path), 100 * GI
    ),
    "record": ("result.json", records, 64 * MI + 1),
    "records": ("er_ring.jsonl", records, 64 * MI + 1),
    "list": ("list.txt", file_of("list"), 256 * MI + 1),
    "table": ("table.csv", file_of("csv"), 4 * GI + 1),
    "image": ("cat/0.png", folder_of("folder"), 200_000_001),
    "text": (
        "law/a.txt", lambda path: nccl_tf.load_stream(f"text:{path.parents[1]}"), GI + 1
    ),
    "pickle": ("images.pkl", mini_imagenet, 8 * GI + 1),
}  # fmt: skip


@pytest.mark.parametrize("name", READERS)
def test_a_file_beyond_the_bound_is_refused_and_not_read(name, tmp_path):
    """A sparse file, which holds no block of the disk."""
    file, read, size = READERS[name]
    path = tmp_path / file
    path.parent.mkdir(exist_ok=True)
    with path.open("wb") as sparse:
        sparse.truncate(size)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(UserError) as error:
        read(path)
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024 < 50e6
    assert path.name in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize("name", READERS)
def test_a_pipe_is_refused_and_not_waited_for(name, tmp_path):
    file, read, _ = READERS[name]
    path = tmp_path / file
    path.parent.mkdir(exist_ok=True)
    os.mkfifo(path)
    with pytest.raises(UserError) as error:
        read(path)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", ["list", "table"])
def test_lines_without_anything_take_no_memory(name, tmp_path):
    file, read, _ = READERS[name]
    path = tmp_path / file
    path.write_bytes(b"\n" * 5_000_000)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(UserError):
        read(path)
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024 < 150e6


def test_records_are_not_read_through_links(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "result.json").write_text("{}")
    (tmp_path / "runs").mkdir()
    Path(tmp_path / "runs" / "link").symlink_to(tmp_path / "elsewhere")
    assert Records.below(tmp_path / "runs") == Records([], [])


def test_the_library_may_not_use_pickle_eval_or_shells():
    """Ruff checks it: its rules are on, and where the library is let off there is a reason."""
    ruff = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["ruff"][
        "lint"
    ]
    assert {"S", "TID251"} <= set(ruff["select"])
    library = {
        path: rules
        for path, rules in ruff["per-file-ignores"].items()
        if path.startswith("nccl_tf")
    }
    reader = "nccl_tf/streams/sources/mini_imagenet/restricted_pickle.py"
    assert library == {reader: ["TID251"]}
    package = Path(nccl_tf.__file__).parent
    let_off = [
        (path.relative_to(package.parent).as_posix(), rule)
        for path in sorted(package.rglob("*.py"))
        for rule in re.findall(r"# noqa: (S\d+|TID251)", path.read_text(encoding="utf-8"))
    ]
    assert let_off == [
        ("nccl_tf/conformance/trial.py", "S102"),  # the example of a class that check_learner gets
        ("nccl_tf/experiment/config/resolve.py", "S108"),  # where Keras looks too
        ("nccl_tf/networks/inspection.py", "S112"),  # an exception of another's class
        ("nccl_tf/records/checkpoints.py", "TID251"),  # with allow_pickle=False
    ]


def test_what_loads_from_a_file_predicts_as_before(tmp_path):
    """So that a reader that refuses everything is seen."""
    learner, rows = nccl_tf.Finetune(network()), np.eye(2, 6, dtype=np.float32)
    learner.save(tmp_path / "model.keras")
    learner.save_adapters(tmp_path / "adapters.npz")
    again = nccl_tf.load_model(tmp_path / "model.keras")
    again.load_adapters(tmp_path / "adapters.npz")
    np.testing.assert_array_equal(again(rows), learner(rows))
