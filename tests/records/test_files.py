"""Locks, atomic writes and left-over files in the folder of a run."""

import errno
import fcntl
import logging
import os
import threading

import pytest

from nccl_tf.errors import UserError
from nccl_tf.records import files
from nccl_tf.records.files import (
    is_locked,
    lock_folder,
    lock_of,
    one_at_a_time,
    remove_left_over,
    write_file,
)


def test_a_folder_is_held_by_one_process(tmp_path):
    refused = pytest.raises(UserError, match=f"process {os.getpid()} is running")
    with lock_folder(tmp_path), refused, lock_folder(tmp_path):
        pass
    with lock_folder(tmp_path):
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


@pytest.mark.parametrize("error", [errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP])
def test_where_no_file_can_be_locked_work_goes_on_with_a_warning(
    error, tmp_path, monkeypatch, caplog
):
    def refuse(descriptor, operation):
        raise OSError(error, "not here")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with caplog.at_level(logging.WARNING, "nccl_tf"):
        with lock_folder(tmp_path):
            pass
        with one_at_a_time(tmp_path, ""):
            pass
    assert [record.getMessage().count("cannot be locked") for record in caplog.records] == [1, 1]
    assert is_locked(tmp_path)  # as far as anybody can tell


def test_a_lock_that_is_waited_for_keeps_others_out_and_is_gone_afterwards(tmp_path):
    with one_at_a_time(tmp_path / "new", ""):
        assert is_locked(tmp_path / "new")
        with pytest.raises(UserError, match="is running"), lock_folder(tmp_path / "new"):
            pass
    assert list((tmp_path / "new").iterdir()) == []
    with lock_folder(tmp_path / "new"):
        pass


def test_who_waits_is_let_in_by_one_that_removes_its_lock(tmp_path, monkeypatch):
    order, refused, flock = [], threading.Event(), fcntl.flock

    def tell(descriptor, operation):
        try:
            flock(descriptor, operation)
        except BlockingIOError:
            refused.set()
            raise

    def wait():
        with one_at_a_time(tmp_path, ""):
            order.append("second" if is_locked(tmp_path) else "unlocked")

    monkeypatch.setattr(fcntl, "flock", tell)
    waiting = threading.Thread(target=wait)
    with one_at_a_time(tmp_path, ""):
        waiting.start()
        assert refused.wait(60)
        order.append("first")
    waiting.join()
    assert order == ["first", "second"]


def test_a_lock_is_kept_until_it_is_released(tmp_path):
    held = lock_of(tmp_path)
    assert is_locked(tmp_path)
    with pytest.raises(OSError):
        lock_of(tmp_path)
    held.release()
    assert not is_locked(tmp_path)
    with pytest.raises(FileNotFoundError):
        lock_of(tmp_path / "missing")
    assert not (tmp_path / "missing").exists()


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
