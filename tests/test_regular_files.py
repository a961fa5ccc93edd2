"""Files that somebody else may have made: pipes, devices and endless files are never waited for."""

import os
import signal

import pytest

import nccl_tf
from nccl_tf.errors import UserError
from nccl_tf.records.record import read_record
from nccl_tf.regular_files import open_regular, read_regular
from nccl_tf.reports.record_lines import read_lines
from nccl_tf.streams.sources.image_files import read_image
from nccl_tf.streams.sources.mini_imagenet.restricted_pickle import load_pickle


def read_published(path):
    (line,) = read_lines(path)
    assert line.record is None
    raise UserError(line.problem)


READERS = {
    "er_ring.jsonl": read_published,
    "result.json": read_record,
    "x.pkl": load_pickle,
    "x.png": read_image,
    "model.keras": nccl_tf.load_model,
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

    def refused():
        with pytest.raises(UserError) as caught:
            READERS[name](path)
        assert len(str(caught.value)) < 1000
        path.unlink()

    os.mkfifo(path)
    refused()
    path.symlink_to("/dev/zero")
    refused()
    with path.open("wb") as file:
        file.truncate(10**13)
    refused()


def test_sizes(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"abc")
    assert read_regular(path, 3) == b"abc"
    with pytest.raises(OSError, match="it has 3 bytes, 2 at most are read"):
        read_regular(path, 2)


def test_a_refused_file_stays_open_nowhere(tmp_path):
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        with pytest.raises(OSError, match="no regular file"), open_regular(tmp_path):
            pass
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.skipif(not os.path.exists("/proc/self/maps"), reason="needs the files of Linux")
@pytest.mark.parametrize("endless", ["/proc/self/maps", "/proc/self/pagemap"])
def test_files_of_the_system_that_claim_no_bytes_are_not_read(endless, tmp_path):
    """A table, or the file of labels in a folder, may be a link to one."""
    (tmp_path / "train.csv").symlink_to(endless)
    with pytest.raises(OSError), open_regular(tmp_path / "train.csv"):
        pytest.fail("opened")
    (tmp_path / "none").write_bytes(b"")
    assert read_regular(tmp_path / "none", 10) == b""
