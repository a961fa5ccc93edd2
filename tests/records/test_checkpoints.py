import hashlib
import logging
import os
from pathlib import Path
from types import SimpleNamespace

import keras
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from nccl_tf.errors import UserError
from nccl_tf.records.checkpoints import (
    Checkpoint,
    CheckpointStore,
    assign_arrays,
    state_sha256,
    variables_to_arrays,
)


def checkpoint(number: int) -> Checkpoint:
    arrays = {
        "0000 weights": np.arange(6, dtype=np.float32).reshape(2, 3) + number,
        "0001 images": np.full((3, 2), number, np.uint8),
        "0002 open": np.array(True),
    }
    return Checkpoint(arrays, {"task": number})


def number_of(found: Checkpoint | None) -> int | None:
    return None if found is None else found.meta["task"]


def test_the_last_two_are_kept_and_the_newest_is_read(tmp_path):
    store = CheckpointStore(tmp_path / "checkpoints")
    assert store.last() is None
    for number in range(4):
        store.save(checkpoint(number))
    assert len(list(store.folder.iterdir())) == 2
    found = store.last()
    assert found.meta == {"task": 3}
    for name, array in checkpoint(3).arrays.items():
        assert found.arrays[name].dtype == array.dtype
        np.testing.assert_array_equal(found.arrays[name], array)


@settings(max_examples=25, deadline=None)
@given(damage=st.sampled_from(["cut", "flip", "empty"]), where=st.floats(0, 0.999))
def test_a_damaged_one_is_passed_over(tmp_path_factory, damage, where):
    store = CheckpointStore(tmp_path_factory.mktemp("run"))
    store.save(checkpoint(1))
    path = store.save(checkpoint(2))
    content = bytearray(path.read_bytes())
    position = int(where * len(content))
    if damage == "flip":
        content[position] ^= 1 << (position % 8)
    else:
        content = content[: 0 if damage == "empty" else position]
    path.write_bytes(content)
    assert number_of(store.last()) == 1


@pytest.mark.parametrize("payload", [b"", b"junk", b"PK\x03\x04", b"\x93NUMPY"])
def test_a_whole_one_of_something_else_is_passed_over(tmp_path, payload):
    store = CheckpointStore(tmp_path)
    magic = store.save(checkpoint(1)).read_bytes().partition(b"\n")[0]
    content = b"\n".join([magic, hashlib.sha256(payload).hexdigest().encode(), payload])
    (tmp_path / "000002.checkpoint").write_bytes(content)
    assert number_of(store.last()) == 1


@pytest.mark.parametrize("call", ["write", "fsync", "replace"])
def test_a_write_that_fails_leaves_the_one_before_good(tmp_path, monkeypatch, call):
    store = CheckpointStore(tmp_path)
    store.save(checkpoint(1))

    def fail(*args, **kwargs):
        raise OSError(28, "No space left on device")

    place, name = (Path, "write_bytes") if call == "write" else (os, call)
    monkeypatch.setattr(place, name, fail)
    with pytest.raises(UserError, match="No space left on device"):
        store.save(checkpoint(2))
    monkeypatch.undo()
    assert number_of(store.last()) == 1
    assert [p.name for p in tmp_path.iterdir()] == ["000001.checkpoint"]


def test_files_that_the_run_did_not_write_are_left(tmp_path):
    store = CheckpointStore(tmp_path / "checkpoints")
    for number in range(3):
        store.save(checkpoint(number))
    for name in ("notes.txt", "1.checkpoint", "000009.checkpoint.old"):
        (store.folder / name).write_text("mine")
    (tmp_path / "mine").write_text("mine")
    (store.folder / "000000.checkpoint").symlink_to(tmp_path / "mine")
    store.save(checkpoint(9))
    store.clear()
    left = {path.name for path in store.folder.iterdir()}
    assert left == {"notes.txt", "1.checkpoint", "000009.checkpoint.old"}
    assert (tmp_path / "mine").read_text() == "mine"


def test_old_ones_go_from_a_folder_that_is_reached_by_a_link(tmp_path):
    """A user's `backup_dir` may be one."""
    (tmp_path / "disk").mkdir()
    (tmp_path / "backup").symlink_to(tmp_path / "disk")
    store = CheckpointStore(tmp_path / "backup")
    for number in range(4):
        store.save(checkpoint(number))
    assert sorted(os.listdir(tmp_path / "disk")) == ["000003.checkpoint", "000004.checkpoint"]


def test_a_pipe_in_the_place_of_a_checkpoint_is_left_out_and_not_waited_for(tmp_path):
    store = CheckpointStore(tmp_path)
    store.save(checkpoint(1))
    os.mkfifo(tmp_path / "000002.checkpoint")
    assert number_of(store.last()) == 1


def test_arrays_of_another_program_are_refused():
    with pytest.raises(ValueError, match="differ in b"):
        assign_arrays({"a": keras.Variable(0.0)}, {"a": np.zeros(()), "b": np.zeros(())})


@pytest.mark.parametrize(
    "other",
    [
        np.zeros(2, np.float32), np.zeros(1), np.array(["text"]), np.array([1j], np.complex64),
        np.array([b"text"], object), np.array([True]),
    ],
    ids=lambda array: f"{array.dtype}{array.shape}",
)  # fmt: skip
def test_a_checkpoint_that_does_not_fit_changes_nothing(other):
    first, second = keras.Variable([1.0]), keras.Variable([2.0])
    with pytest.raises(ValueError, match="of shape"):
        assign_arrays({"a": first, "b": second}, {"a": np.zeros(1, np.float32), "b": other})
    assert first.numpy() == [1.0]


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float64", "int64", "bool", "string"])
def test_a_checkpoint_gives_back_each_dtype(dtype, tmp_path):
    kept = {"string": [b"a", b"bc"], "bool": [True, False]}.get(dtype, [3, 5])
    made = SimpleNamespace(value=tf.Variable(tf.constant(kept, dtype)), shape=(2,))
    made.assign = made.value.assign
    store = CheckpointStore(tmp_path)
    store.save(Checkpoint(variables_to_arrays({"a": made}), {}))
    made.assign(tf.zeros_like(made.value) if dtype != "string" else tf.constant([b"", b""]))
    assign_arrays({"a": made}, store.last().arrays)
    assert made.value.numpy().tolist() == kept


def test_that_none_is_whole_is_said(tmp_path, caplog):
    store = CheckpointStore(tmp_path)
    for number in (1, 2):
        store.save(checkpoint(number)).write_bytes(b"torn")
    with caplog.at_level(logging.WARNING, "nccl_tf"):
        assert store.last() is None
    assert "no checkpoint in" in caplog.text and "starting from the beginning" in caplog.text


def test_a_folder_of_checkpoints_that_cannot_be_listed(tmp_path):
    store = CheckpointStore(tmp_path / "checkpoints")
    store.folder.write_text("a file")
    for act in (store.last, lambda: store.save(checkpoint(1))):
        with pytest.raises(UserError, match="Not a directory"):
            act()


def test_the_hash_of_a_state_with_strings_is_of_the_strings():
    def digest(words):
        return state_sha256({"texts": SimpleNamespace(value=tf.constant(words))})

    words = ["a", "bc", "def" * 20]
    assert digest(words) == digest(list(words)) != digest(["ab", "c", "def" * 20])
