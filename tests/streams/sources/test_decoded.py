"""Decoded images that are kept beside a prepared data set."""

import numpy as np
import pytest
import tensorflow_datasets as tfds

from nccl_tf.streams.arrays import Examples
from nccl_tf.streams.sources.decoded import FOLDER, keep_decoded, read_decoded
from nccl_tf.streams.sources.tfds import load_tfds


def examples(count):
    """Random images with labels."""
    draw = np.random.default_rng(count)
    images = draw.integers(0, 256, (count, 3, 2, 1), dtype=np.uint8)
    return Examples(images, draw.integers(0, 10, count).astype(np.int32))


@pytest.fixture
def data_dir(tmp_path):
    """A folder of a prepared data set whose images are kept."""
    (tmp_path / "mnist" / "3.0.1").mkdir(parents=True)
    (tmp_path / "mnist" / "3.0.1" / "mnist.tfrecord").write_bytes(b"records")
    keep_decoded("mnist", tmp_path, examples(7), examples(4))
    return tmp_path


def test_what_is_kept_comes_back(data_dir):
    for kept, whole in zip(
        read_decoded("mnist", data_dir), (examples(7), examples(4)), strict=True
    ):
        for column, other in zip(kept, whole, strict=True):
            np.testing.assert_array_equal(column, other)
            assert column.dtype == other.dtype and column.flags.writeable
    (file,) = (data_dir / FOLDER).iterdir()
    assert file.name == "mnist.images"


def test_it_takes_the_place_of_decoding(data_dir, monkeypatch):
    monkeypatch.delattr(tfds, "builder")
    train, test = load_tfds("mnist", data_dir)
    assert (len(train.labels), len(test.labels)) == (7, 4)


@pytest.mark.parametrize("place", [0, 30, -1])
def test_other_bytes_are_not_used(data_dir, place):
    path = data_dir / FOLDER / "mnist.images"
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)
    assert read_decoded("mnist", data_dir) is None
    path.write_bytes(content[:-5])
    assert read_decoded("mnist", data_dir) is None


def test_of_other_files_nothing_is_used(data_dir):
    (data_dir / "mnist" / "3.0.1" / "mnist.tfrecord").write_bytes(b"other records")
    assert read_decoded("mnist", data_dir) is None
    assert read_decoded("cifar10", data_dir) is None
    keep_decoded("mnist", data_dir, examples(2), examples(2))
    assert len(read_decoded("mnist", data_dir)[0].labels) == 2
