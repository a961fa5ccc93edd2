"""Locks, atomic writes and left-over files in the folder of a run."""

import errno
import fcntl
import logging
import os

import pytest

from nccl_tf.errors import UserError
from nccl_tf.records import files
from nccl_tf.records.files import lock_folder, remove_left_over, write_file


def test_a_folder_is_held_by_one_process(tmp_path):
    refused = pytest.raises(UserError, match=f"process {os.getpid()} is running")
    with lock_folder(tmp_path), refused, lock_folder(tmp_path):
        pass
    with lock_folder(tmp_path):
        pass


def test_a_system_without_locks_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "fcntl", None)
    for lock in (lock_folder(tmp_path), files.one_at_a_time(tmp_path, "")):
        with pytest.raises(UserError, match="expected Linux"), lock:
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


def test_a_pipe_in_the_place_of_a_lock_is_refused_and_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "lock")
    with pytest.raises(UserError, match=r"lock.*no regular file"), lock_folder(tmp_path):
        pass


def test_links_below_what_the_user_chose_are_refused(tmp_path):
    mine, chosen = tmp_path / "mine", tmp_path / "chosen"
    (mine / "hash" / "seed0").mkdir(parents=True)
    chosen.symlink_to(mine)
    files.check_no_links(chosen / "hash" / "seed0", chosen)
    files.check_no_links(chosen / "missing" / "seed0", chosen)
    files.check_no_links(mine / "hash", chosen)
    (mine / "link").symlink_to(mine / "hash")
    for folder in ("link", "link/seed0"):
        with pytest.raises(UserError, match=r"chosen/link is a link.*--output_dir"):
            files.check_no_links(chosen / folder, chosen)


def test_a_lock_is_not_written_through_a_link(tmp_path):
    mine = tmp_path / "mine"
    mine.write_text("precious")
    (tmp_path / "lock").symlink_to(mine)
    with pytest.raises(UserError, match="lock"), lock_folder(tmp_path):
        pass
    assert mine.read_text() == "precious"


def test_a_file_replaces_a_link_and_not_its_target(tmp_path):
    (tmp_path / "mine").write_text("precious")
    (tmp_path / "picture.png").symlink_to(tmp_path / "mine")
    write_file(tmp_path / "picture.png", b"picture")
    assert (tmp_path / "mine").read_text() == "precious"
    assert (tmp_path / "picture.png").read_bytes() == b"picture"
    assert not (tmp_path / "picture.png").is_symlink()


def test_what_a_killed_writer_left_is_removed(tmp_path):
    child = os.fork()
    if child == 0:
        files.os.replace = lambda *_: os._exit(9)
        write_file(tmp_path / "result.json", b"{}")
    os.waitpid(child, 0)
    (left_over,) = tmp_path.iterdir()
    assert left_over.name.startswith("result.json.")
    (tmp_path / "result.json1234.tmp").write_text("mine")
    remove_left_over(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["result.json1234.tmp"]
    remove_left_over(tmp_path / "missing")
