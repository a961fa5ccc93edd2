"""Locks and links in the folder of a run."""

import errno
import fcntl
import logging
import os

import pytest

from nccl_tf.errors import UserError
from nccl_tf.experiment.run import files
from nccl_tf.experiment.run.events import clear_events
from nccl_tf.experiment.run.files import lock_folder, refuse_links_in, write_file


def test_a_folder_is_held_by_one_process(tmp_path):
    refused = pytest.raises(UserError, match=f"process {os.getpid()} is running")
    with lock_folder(tmp_path), refused, lock_folder(tmp_path):
        pass
    with lock_folder(tmp_path):
        pass


def test_removing_the_lock_file_lets_nobody_in(tmp_path):
    refused = pytest.raises(UserError, match="process unknown is running")
    with lock_folder(tmp_path):
        (tmp_path / "lock").unlink()
        with refused, lock_folder(tmp_path):
            pass


def test_a_lock_dies_with_its_process(tmp_path):
    child = os.fork()
    if child == 0:
        with lock_folder(tmp_path):
            os._exit(9)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 9
    with lock_folder(tmp_path):
        pass


def unlockable(monkeypatch, *what):
    """A file system that knows no flock of folders, or of files."""
    flock = fcntl.flock

    def refuse(descriptor, operation):
        is_folder = os.path.isdir(f"/proc/self/fd/{descriptor}")
        if ("folders" if is_folder else "files") in what:
            raise OSError(errno.EBADF if is_folder else errno.ENOLCK, "not here")
        flock(descriptor, operation)

    monkeypatch.setattr(files.fcntl, "flock", refuse)


def test_without_flock_a_run_goes_on_with_a_warning(tmp_path, monkeypatch, caplog):
    unlockable(monkeypatch, "folders", "files")
    with caplog.at_level(logging.WARNING, "nccl_tf"), lock_folder(tmp_path):
        pass
    (record,) = caplog.records
    assert "cannot be locked" in record.getMessage() and "running" not in record.getMessage()


def test_where_folders_are_not_locked_the_file_is(tmp_path, monkeypatch, caplog):
    unlockable(monkeypatch, "folders")
    refused = pytest.raises(UserError, match=f"process {os.getpid()} is running")
    with lock_folder(tmp_path), refused, lock_folder(tmp_path):
        pass
    assert not caplog.records


@pytest.mark.parametrize("kind", ["link", "second name", "text", "pipe", "folder"])
def test_a_lock_that_no_run_made_is_left(tmp_path, kind):
    mine, lock = tmp_path / "mine", tmp_path / "lock"
    mine.write_text("12" if kind == "second name" else "precious")
    before = mine.read_text()
    if kind == "link":
        lock.symlink_to(mine)
    elif kind == "second name":
        lock.hardlink_to(mine)
    elif kind == "text":
        mine.rename(lock)
        mine = lock
    elif kind == "pipe":
        os.mkfifo(lock)
    else:
        lock.mkdir()
    with pytest.raises(UserError, match="lock"), lock_folder(tmp_path):
        pass
    assert mine.read_text() == before


def test_a_file_replaces_a_link_and_not_its_target(tmp_path):
    (tmp_path / "mine").write_text("precious")
    (tmp_path / "picture.png").symlink_to(tmp_path / "mine")
    write_file(tmp_path / "picture.png", b"picture")
    assert (tmp_path / "mine").read_text() == "precious"
    assert (tmp_path / "picture.png").read_bytes() == b"picture"
    assert not (tmp_path / "picture.png").is_symlink()


def test_links_are_found_at_any_depth(tmp_path):
    (tmp_path / "run" / "below").mkdir(parents=True)
    refuse_links_in(tmp_path / "run")
    refuse_links_in(tmp_path / "missing")
    (tmp_path / "run" / "below" / "link").symlink_to(tmp_path)
    with pytest.raises(UserError, match="link is a link"):
        refuse_links_in(tmp_path / "run")


def test_only_event_files_are_cleared(tmp_path, caplog):
    import tensorflow as tf

    folder = tmp_path / "tensorboard"
    for name in ("task1/train", "task2/train", "diagnostics"):
        with tf.summary.create_file_writer(str(folder / name)).as_default():
            tf.summary.scalar("a", 1.0, step=1)
    (folder / "task2" / "train" / "events.out.tfevents.1.host.v2").touch()
    (folder / "task1" / "events.out.tfevents.mine").write_text("precious")
    (folder / "task1" / "notes.txt").write_text("precious")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "events.out.tfevents.1.host.v2").touch()
    (folder / "link").symlink_to(tmp_path / "elsewhere")
    with caplog.at_level(logging.WARNING, "nccl_tf"):
        clear_events(folder)
    left = {str(path.relative_to(folder)) for path in folder.rglob("*")}
    assert left == {"task1", "task1/notes.txt", "task1/events.out.tfevents.mine", "link"}
    assert len(list((tmp_path / "elsewhere").iterdir())) == 1
    assert "task1/notes.txt" in caplog.text
    clear_events(tmp_path / "missing")
