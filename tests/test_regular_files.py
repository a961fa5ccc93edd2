"""Pipes, devices and endless files are refused by every reader, and never waited for."""

import os
import signal

import pytest

import nccl_tf
from nccl_tf.errors import UserError
from nccl_tf.experiment.run.checkpoints import CheckpointStore
from nccl_tf.experiment.run.record import read_record
from nccl_tf.experiment.run.run_file import settings_to_resume
from nccl_tf.regular_files import open_regular, read_regular
from nccl_tf.reports.figures.steps import read_steps
from nccl_tf.reports.generated_files import read_text
from nccl_tf.reports.record_lines import diagnostics_path, read_lines
from nccl_tf.streams.sources.mini_imagenet.folder import read_image
from nccl_tf.streams.sources.mini_imagenet.restricted_pickle import load_pickle


def read_published(path):
    (line,) = read_lines(path)
    assert line.record is None
    raise UserError(line.problem)


READERS = {
    "result.json": read_record,
    "er_ring.jsonl": read_published,
    "x.pkl": load_pickle,
    "x.png": read_image,
    "steps.csv": read_steps,
    "README.md": lambda path: read_text(path, "--readme"),
    "model.keras": nccl_tf.load_model,
    "run.json": lambda path: settings_to_resume(path.parent, {}),
}


@pytest.fixture(autouse=True)
def in_a_moment():
    """Ends a test that waits for a pipe."""

    def give_up(*_):
        raise KeyboardInterrupt("it waits")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(20)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("name", READERS)
def test_what_is_no_regular_file_or_has_no_end(tmp_path, name):
    path = tmp_path / name
    read = READERS[name]

    def refused():
        with pytest.raises(UserError) as caught:
            read(path)
        assert len(str(caught.value)) < 1000
        path.unlink()

    os.mkfifo(path)
    refused()
    path.symlink_to("/dev/zero")
    refused()
    with path.open("wb") as file:
        file.truncate(10**13)
    refused()
    path.symlink_to(path)
    refused()
    path.mkdir()
    with pytest.raises(UserError):
        read(path)


def test_a_checkpoint_that_is_a_pipe_or_a_folder_is_left_out(tmp_path):
    store = CheckpointStore(tmp_path)
    os.mkfifo(tmp_path / "000007.checkpoint")
    (tmp_path / "000008.checkpoint").symlink_to("/dev/zero")
    (tmp_path / "000009.checkpoint").mkdir()
    assert store.last() is None
    store.clear()
    assert len(list(tmp_path.iterdir())) == 3


def test_diagnostics_that_are_a_pipe_or_unpack_without_end(tmp_path, monkeypatch):
    import gzip

    from nccl_tf.reports import record_lines

    path = diagnostics_path(tmp_path / "er_ring.jsonl")
    os.mkfifo(path)
    with pytest.raises(OSError, match="no regular file"):
        record_lines._unpack(path)
    path.unlink()
    path.write_bytes(gzip.compress(bytes(10**6)))
    monkeypatch.setattr(record_lines, "MAX_BYTES", 10**6)
    assert len(record_lines._unpack(path)) == 10**6
    monkeypatch.setattr(record_lines, "MAX_BYTES", 10**6 - 1)
    with pytest.raises(OSError, match="more than 999,999 bytes"):
        record_lines._unpack(path)


def test_sizes_and_links(tmp_path):
    path, link = tmp_path / "file", tmp_path / "link"
    path.write_bytes(b"abc")
    link.symlink_to(path)
    assert read_regular(link, 3) == b"abc"
    with pytest.raises(OSError, match="it has 3 bytes, 2 at most are read"):
        read_regular(link, 2)
    with pytest.raises(OSError), open_regular(link, follow=False):
        pass


def test_a_refused_file_stays_open_nowhere(tmp_path):
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        with pytest.raises(OSError, match="no regular file"), open_regular(tmp_path):
            pass
    assert len(os.listdir("/proc/self/fd")) == before
