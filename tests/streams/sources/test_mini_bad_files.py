"""Broken, incomplete and hostile mini-ImageNet files."""

import numpy as np
import pytest
import tensorflow as tf
from mini_files import by_class, caches, listed, single, write_image, write_pickle

from nccl_tf.errors import UserError
from nccl_tf.streams.sources.mini_imagenet.load import load_mini_imagenet
from nccl_tf.streams.sources.mini_imagenet.source import CACHE_NAMES


def broken_image(folder):
    by_class(folder)
    (folder / "n01" / "3.png").write_bytes(b"no image")


def cut_jpeg(folder):
    by_class(folder)
    noise = np.random.default_rng(0).integers(0, 256, (84, 84, 3)).astype(np.uint8)
    (folder / "n01" / "9.jpg").write_bytes(tf.io.encode_jpeg(noise).numpy()[:700])


def empty_class(folder):
    by_class(folder)
    (folder / "n09").mkdir()


def other_format(folder):
    by_class(folder)
    (folder / "n01" / "9.heic").write_bytes(b"x")


def class_in_one_part(folder):
    by_class(folder / "train")
    write_image(folder / "test" / "n01" / "0.png", 0)


def single_image(folder):
    by_class(folder)
    write_image(folder / "n09" / "0.png", 0)


def two_caches(folder):
    caches(folder)
    (folder / CACHE_NAMES[1]).unlink()


def two_pickles(folder):
    single(folder)
    write_pickle(folder / "other.pkl", {})


def unlisted(folder):
    listed(folder)
    write_image(folder / "images" / "other.png", 0)


def listed_but_missing(folder):
    listed(folder)
    (folder / "images" / "n0100000003.png").unlink()


def other_columns(folder):
    listed(folder)
    (folder / "val.csv").write_text("file,label\nn01.png,n01\n")


def names_of_other_types(folder):
    caches(folder)
    content = {"image_data": np.zeros((2, 84, 84, 3), np.uint8), "class_dict": {7: [0], "7": [1]}}
    write_pickle(folder / CACHE_NAMES[0], content)


def scalar_images(folder):
    write_pickle(folder / "x.pkl", {"images": np.array(1), "labels": [0]})


def wrong_size(folder):
    content = {"images": np.zeros((4, 32, 32, 3), np.uint8), "labels": [0, 0, 1, 1]}
    write_pickle(folder / "x.pkl", content)


def unit_pixels(folder):
    content = {"images": np.ones((4, 84, 84, 3), np.float32), "labels": [0, 0, 1, 1]}
    write_pickle(folder / "x.pkl", content)


def few_labels(folder):
    content = {"images": np.zeros((4, 84, 84, 3), np.uint8), "labels": [0, 0, 1]}
    write_pickle(folder / "x.pkl", content)


def wrong_keys(folder):
    write_pickle(folder / "x.pkl", {"data": [1]})


def wrong_indices(folder):
    caches(folder)
    content = {"image_data": np.zeros((2, 84, 84, 3), np.uint8), "class_dict": {"a": [0, 2]}}
    write_pickle(folder / CACHE_NAMES[0], content)


def shared_class(folder):
    caches(folder)
    (folder / CACHE_NAMES[0]).write_bytes((folder / CACHE_NAMES[1]).read_bytes())


def hostile(folder):
    (folder / "x.pkl").write_bytes(b"cos\nsystem\n(S'touch hostile'\ntR.")


def cut_pickle(folder):
    single(folder)
    path = folder / "mini.pkl"
    path.write_bytes(path.read_bytes()[:-1000])


def nothing_known(folder):
    (folder / "notes.txt").write_text("")


def nothing(folder):
    pass


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (broken_image, r"n01/3\.png is broken"),
        (cut_jpeg, r"n01/9\.jpg is broken"),
        (empty_class, "n09 has no images"),
        (other_format, r"1 file that would be left out: 1 \.heic in n01/"),
        (class_in_one_part, "'n02' is in only one of the training and test parts"),
        (single_image, "'n09' in .* has 1 images"),
        (two_caches, "has the pickles .*-test.pkl, mini-imagenet-cache-train.pkl: expected"),
        (two_pickles, r"has the pickles mini.pkl, other.pkl: expected one of all images"),
        (unlisted, r"1 file that would be left out: 1 \.png in images/"),
        (listed_but_missing, r"n0100000003\.png is broken"),
        (other_columns, r"val.csv has the columns file, label: expected filename"),
        (names_of_other_types, "class_dict in .* is no dictionary from class names"),
        (scalar_images, "labels in .*x.pkl are no row"),
        (wrong_size, r"x.pkl have shape \(4, 32, 32, 3\)"),
        (unit_pixels, "float32 from 1.0 to 1.0: expected 0 to 255"),
        (few_labels, r"labels in .*x.pkl are no row of integers or names, one for each image"),
        (wrong_keys, r"x.pkl holds \['data'\]: expected a dictionary"),
        (wrong_indices, "'a' in .*cache-train.pkl has indices"),
        (shared_class, "'n01' of .* in another cache file"),
        (hostile, r"refused the pickle .*os\.system"),
        (cut_pickle, r"mini\.pkl', which is broken"),
        (nothing_known, "of another layout or missing: put there one pickle"),
        (nothing, "empty or missing: put there"),
    ],
)
def test_bad_files_are_told_in_one_sentence(tmp_path, make, message):
    source = tmp_path / "source"
    source.mkdir()
    make(source)
    with pytest.raises(UserError, match=message) as caught:
        load_mini_imagenet(tmp_path / "data", source)
    assert "\n" not in str(caught.value)
    assert str(source) in str(caught.value)


def test_a_data_folder_that_cannot_be_written_keeps_nothing(tmp_path):
    first = by_class(tmp_path / "source")
    (tmp_path / "file").write_text("")
    train, _ = load_mini_imagenet(tmp_path / "file", tmp_path / "source")
    assert len(train.labels) == 5 * len(first)
