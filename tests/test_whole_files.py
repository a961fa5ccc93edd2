"""Files that are there as they were, or whole."""

import os

import pytest

from nccl_tf.whole_files import replaced

OLD, NEW = b"old\n", b"n" * 5000


def put(path, content=NEW):
    with replaced(path) as temporary:
        temporary.write_bytes(content)


def test_a_file_is_new_or_replaced_and_keeps_its_mode(tmp_path):
    path = tmp_path / "file"
    put(path)
    assert path.read_bytes() == NEW and path.stat().st_mode & 0o777 == 0o644
    path.chmod(0o750)
    put(path, OLD)
    assert path.read_bytes() == OLD and path.stat().st_mode & 0o777 == 0o750
    assert os.listdir(tmp_path) == ["file"]


def test_a_full_disk_leaves_the_old_file(tmp_path, full_disk):
    path = tmp_path / "file"
    path.write_bytes(OLD)
    with pytest.raises(OSError), full_disk(1000):
        put(path)
    assert os.listdir(tmp_path) == ["file"] and path.read_bytes() == OLD


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_what_the_body_raises_leaves_the_old_file(tmp_path, error):
    path = tmp_path / "file"
    path.write_bytes(OLD)
    with pytest.raises(error), replaced(path) as temporary:
        temporary.write_bytes(NEW)
        raise error
    assert os.listdir(tmp_path) == ["file"] and path.read_bytes() == OLD


def test_the_ending_of_the_temporary_name_can_be_chosen(tmp_path):
    with replaced(tmp_path / "model.keras", ".keras") as temporary:
        assert temporary.suffix == ".keras"
    assert os.listdir(tmp_path) == ["model.keras"]
