"""Images through TFDS, on TFDS's own mock data and, where they are prepared, on the real sets."""

import os
import socket

import numpy as np
import pytest
import tensorflow_datasets as tfds

from nccl_tf.errors import UserError
from nccl_tf.streams import load_stream
from nccl_tf.streams.sources.examples import load_examples


@pytest.mark.parametrize(
    ("name", "settings", "shape", "tasks"),
    [
        ("permuted_mnist", {"examples_per_task": 30}, (28, 28, 1), 20),
        ("split_cifar100", {}, (32, 32, 3), 17),
    ],
)
def test_streams_from_mock_data(tmp_path, name, settings, shape, tasks):
    with tfds.testing.mock_data(num_examples=1200 if "100" in name else 200):
        stream = load_stream(name, data_dir=tmp_path, **settings)
    assert stream.example_shape == shape
    assert len(stream) == tasks
    for task in stream.tasks[:2]:
        assert task.train.inputs.dtype == np.uint8
        assert task.train.labels.dtype == np.int32
        assert set(task.test.labels) == set(task.classes)
    assert not list(tmp_path.iterdir())


def test_cifar_mean_is_over_the_whole_training_set(tmp_path):
    with tfds.testing.mock_data(num_examples=100):
        images = load_examples("cifar10", tmp_path)
    expected = images.train.inputs.astype(np.float64).mean(0) / 255
    np.testing.assert_allclose(images.pixels.mean, expected, atol=1e-6)
    assert (images.pixels.scale, images.pixels.std) == (1 / 255, None)


def test_a_class_without_images_is_told(tmp_path):
    with tfds.testing.mock_data(num_examples=20), pytest.raises(UserError, match=r"class .* no"):
        load_stream("split_cifar100", data_dir=tmp_path)


def test_missing_set_says_how_to_get_it(tmp_path, monkeypatch):
    def fail(self, **kwargs):
        raise ConnectionError("no route to host")

    monkeypatch.setattr(tfds.core.DatasetBuilder, "download_and_prepare", fail)
    with pytest.raises(UserError) as caught:
        load_stream("split_mnist", data_dir=tmp_path)
    message = str(caught.value)
    for part in (
        "'mnist'", "tfds.load('mnist'", f"cp -r mnist {tmp_path}/", "no route", "--data_dir",
        "TFDS_DATA_DIR", "digits",
    ):  # fmt: skip
        assert part in message


def test_broken_prepared_files_are_told(tmp_path, monkeypatch):
    def fail(self, **kwargs):
        raise OSError("truncated record")

    with tfds.testing.mock_data(num_examples=20):
        monkeypatch.setattr(tfds.core.DatasetBuilder, "as_dataset", fail)
        with pytest.raises(UserError, match=r"prepared files of mnist .* cannot be read"):
            load_stream("split_mnist", data_dir=tmp_path)


def prepared(name):
    folder = os.path.join(os.path.expanduser(tfds.core.constants.DATA_DIR), name)
    return pytest.mark.skipif(not os.path.isdir(folder), reason=f"TFDS has not prepared {name}")


@pytest.fixture
def a_tenth(monkeypatch):
    """Of each split, its first tenth is read: the decoding of all images takes long."""
    as_dataset = tfds.core.DatasetBuilder.as_dataset

    def read(self, split, **kwargs):
        return as_dataset(self, split=f"{split}[:10%]", **kwargs)

    monkeypatch.setattr(tfds.core.DatasetBuilder, "as_dataset", read)
    monkeypatch.setattr("nccl_tf.streams.sources.tfds.read_decoded", lambda *names: None)


@pytest.mark.real_data
@prepared("mnist")
def test_real_mnist_without_the_network(monkeypatch, a_tenth):
    def fail(*args, **kwargs):
        raise AssertionError("the network was asked")

    for name in ("connect", "connect_ex", "sendto"):
        monkeypatch.setattr(socket.socket, name, fail)
    monkeypatch.setattr(socket, "getaddrinfo", fail)
    stream = load_stream("permuted_mnist", examples_per_task=6_000)
    assert (len(stream), len(stream.tuning), stream[0].num_train) == (20, 3, 6_000)
    assert len(stream[0].test.labels) == 1_000 and stream[0].train.inputs.max() == 255


@pytest.mark.real_data
@prepared("cifar100")
def test_real_cifar100(a_tenth):
    stream = load_stream("split_cifar100")
    assert len(stream) == 17 and all(len(task.classes) == 5 for task in stream)
    assert sum(len(task.test.labels) for task in (*stream.tuning, *stream)) == 1_000
    assert stream.pixels.mean.shape == (32, 32, 3) and 0.3 < stream.pixels.mean.mean() < 0.7


@pytest.mark.nightly
@pytest.mark.real_data
@prepared("cifar100")
def test_every_task_of_real_cifar100():
    stream = load_stream("split_cifar100")
    assert {task.steps() for task in stream} == {250}
    assert {len(task.test.labels) for task in stream} == {500}
