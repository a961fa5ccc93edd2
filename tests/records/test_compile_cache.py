"""Kept programs of XLA: the folder without TensorFlow, and whole processes that use it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from nccl_tf.errors import UserError
from nccl_tf.records import compile_cache
from nccl_tf.records.compile_cache import _Kept, _key

KEY = "xla-0123456789abcdef"


@pytest.fixture
def processes():
    """Makes what a process holds of a folder, and ends it."""
    made = []

    def start(root, key=KEY):
        made.append(_Kept(root, key))
        return made[-1]

    yield start
    for kept in made:
        kept._close()


def names(folder):
    return sorted(path.name for path in folder.glob("*.pb"))


def keep(kept, name, content=b"program"):
    (kept.own / name).write_bytes(content)
    return kept.publish()


def test_a_later_process_has_what_an_earlier_one_compiled(tmp_path, processes):
    first = processes(tmp_path)
    assert first.publish() == 0
    assert keep(first, "a.pb") == 1 and first.publish() == 0
    second = processes(tmp_path)
    assert (second.own / "a.pb").read_bytes() == b"program" and second.publish() == 0


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: os.truncate(path, 3),
        lambda path: path.write_bytes(b"another"),
        lambda path: path.write_bytes(b""),
        lambda path: path.rename(path.with_name(path.name.replace("a.pb", "b.pb"))),
        lambda path: path.rename(path.with_name("foreign.pb")),
    ],
)
def test_a_damaged_or_foreign_file_is_removed(tmp_path, processes, damage):
    keep(processes(tmp_path), "a.pb")
    (path,) = (tmp_path / KEY).glob("*.pb")
    damage(path)
    later = processes(tmp_path)
    assert names(later.own) == [] == names(tmp_path / KEY)
    assert keep(later, "a.pb") == 1 and names(processes(tmp_path).own) == ["a.pb"]


def test_a_file_larger_than_all_may_be_together_is_not_read(tmp_path, processes, monkeypatch):
    keep(processes(tmp_path), "a.pb", 11 * b"x")
    monkeypatch.setattr(compile_cache, "MOST_BYTES", 10)
    later = processes(tmp_path)
    assert names(later.own) == [] == names(tmp_path / KEY)


def test_a_link_is_neither_read_nor_counted(tmp_path, processes):
    keep(processes(tmp_path), "a.pb")
    (path,) = (tmp_path / KEY).glob("*.pb")
    outside = path.rename(tmp_path / path.name)
    path.symlink_to(outside)
    assert names(processes(tmp_path).own) == [] and outside.exists()


def test_two_processes_that_compile_the_same_keep_it_once(tmp_path, processes):
    one, other = processes(tmp_path), processes(tmp_path)
    assert keep(one, "a.pb") == keep(other, "a.pb") == 1
    assert len(names(tmp_path / KEY)) == 1
    keep(other, "c.pb", b"one"), keep(one, "c.pb", b"other")
    assert names(processes(tmp_path).own) == ["a.pb", "c.pb"]


def test_another_key_reads_nothing(tmp_path, processes):
    keep(processes(tmp_path), "a.pb")
    assert names(processes(tmp_path, KEY.replace("0", "f")).own) == []


@pytest.mark.parametrize(
    "change",
    [
        lambda patch: patch.setattr(compile_cache, "_processor", lambda: "another"),
        lambda patch: patch.setattr(compile_cache, "count_cores", lambda: 99),
        lambda patch: patch.setattr(compile_cache.metadata, "distributions", lambda name: ()),
        lambda patch: patch.setenv("XLA_FLAGS", "--xla_cpu_enable_fast_math=true"),
    ],
)
def test_another_tensorflow_or_processor_has_another_key(monkeypatch, change):
    before = _key(1)
    assert before == _key(1) != _key(2)
    change(monkeypatch)
    assert _key(1) != before


def test_the_oldest_go(tmp_path, processes, monkeypatch):
    monkeypatch.setattr(compile_cache, "MOST_BYTES", 25)
    other = processes(tmp_path, KEY.replace("0", "f"))
    keep(other, "old.pb", b"0123456789")
    for path in other.own.parent.glob("*.pb"):
        os.utime(path, (1, 1))
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "large").write_bytes(bytes(100))
    kept = processes(tmp_path)
    for name in ("b.pb", "c.pb"):
        keep(kept, name, b"0123456789")
    assert names(other.own.parent) == [] and len(names(tmp_path / KEY)) == 2
    assert (tmp_path / "theirs" / "large").exists()


def test_the_folder_of_a_killed_process_goes(tmp_path, processes):
    alive, killed = processes(tmp_path), tmp_path / KEY / "process-killed"
    killed.mkdir()
    (killed / "half.pb.tmp").write_bytes(b"ha")
    processes(tmp_path)
    assert not killed.exists() and alive.own.exists()


def test_folders_are_for_their_user_alone(tmp_path, processes):
    root = tmp_path / "programs"
    kept = processes(root)
    for folder in (root, root / KEY, kept.own):
        assert folder.stat().st_mode & 0o777 == 0o700
    root.chmod(0o777)
    with pytest.raises(OSError, match="alone"):
        processes(root)


def test_a_folder_that_cannot_be_made_is_told(tmp_path, processes):
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError):
        processes(tmp_path / "file" / "folder")


@pytest.mark.parametrize(("given", "place"), [("/x", "/x"), ("x", "~/.cache"), ("", "~/.cache")])
def test_the_users_own_folder(monkeypatch, given, place):
    monkeypatch.setenv("XDG_CACHE_HOME", given)
    assert compile_cache.default_folder() == Path(place).expanduser() / "nccl_tf"


def test_a_tensorflow_that_runs_takes_no_cache(tmp_path):
    import tensorflow as tf

    tf.config.list_physical_devices()
    with pytest.raises(UserError):
        compile_cache.use_compile_cache(tmp_path)
    assert compile_cache.publish(True) is None


def compiled(folder, seed=0):
    command = [sys.executable, "-m", "tests.records.compile_process", str(folder), str(seed)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    words = done.stdout.split()
    assert words[2:] == ["refused"]
    return words[0], words[1], done.stderr


@pytest.mark.processes
@pytest.mark.seconds(120)
def test_bits_are_the_same_with_without_and_after_a_damaged_cache(tmp_path):
    folder = tmp_path / 'a user\'s "programs"'
    cold, bits, _ = compiled(folder)
    kept = list(folder.glob("xla-*/*.pb"))
    assert cold == "miss" and kept
    assert compiled(folder)[:2] == ("hit", bits)
    served, other, _ = compiled(folder, seed=1)  # of another seed, which has the same programs
    assert served == "hit" and other != bits
    for path in kept:
        os.truncate(path, path.stat().st_size // 2)
    assert compiled(folder)[:2] == ("miss", bits)
    assert not list(folder.glob("xla-*/process-*"))
    assert compiled("off")[:2] == ("None", bits)
    (tmp_path / "file").write_text("")
    served, state, said = compiled(tmp_path / "file")
    assert (served, state) == ("None", bits)
    assert said.count("compiled programs are not kept") == 1
