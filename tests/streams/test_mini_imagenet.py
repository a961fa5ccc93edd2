"""The mini-ImageNet builder on the three layouts that users have, and on broken ones."""

import pickle

import numpy as np
import pytest
import tensorflow as tf

from nccl_tf.errors import UserError
from nccl_tf.streams import load_stream
from nccl_tf.streams.mini_folder import read_image
from nccl_tf.streams.mini_imagenet import load_mini_imagenet
from nccl_tf.streams.mini_source import CACHE_NAMES, fingerprint, locate, read_source

CLASSES = ("n03", "n01", "n02")


def image(value):
    """A plain image, so that its pixels name it."""
    return np.full((84, 84, 3), value, np.uint8)


def write_image(path, value, side=84):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(tf.io.encode_png(np.full((side, side, 3), value, np.uint8)).numpy())


def write_pickle(path, content):
    path.write_bytes(pickle.dumps(content, 2))


def values(examples):
    """The images' values by class number."""
    assert examples.images.dtype == np.uint8
    assert (examples.images == examples.images[:, :1, :1, :1]).all()
    found = {}
    for picture, label in zip(examples.images, examples.labels, strict=True):
        found.setdefault(int(label), []).append(int(picture[0, 0, 0]))
    return found


def single(folder):
    labels = np.tile([7, 3, 5], 6)
    images = np.stack([image(10 * label + i // 3) for i, label in enumerate(labels)])
    write_pickle(folder / "mini.pkl", {"images": images, "labels": labels})
    return {0: 30, 1: 50, 2: 70}


def caches(folder):
    for number, (name, label) in enumerate(zip(CACHE_NAMES, CLASSES, strict=True)):
        images = np.stack([image(40 * number + i) for i in range(6)])
        write_pickle(folder / name, {"image_data": images, "class_dict": {label: list(range(6))}})
    return {0: 40, 1: 80, 2: 0}


def by_class(folder):
    for number, label in enumerate(CLASSES):
        for i in range(6):
            write_image(folder / label / f"{i}.png", 40 * number + i)
    return {0: 40, 1: 80, 2: 0}


def few_shot(folder):
    for number, (label, part) in enumerate(zip(CLASSES, ("train", "val", "test"), strict=True)):
        for i in range(6):
            write_image(folder / part / label / f"{i}.png", 40 * number + i)
    return {0: 40, 1: 80, 2: 0}


@pytest.mark.parametrize("layout", [single, caches, by_class, few_shot])
def test_layouts_without_parts_are_cut_per_class(tmp_path, layout):
    source = tmp_path / "source"
    source.mkdir()
    first = layout(source)
    train, test = load_mini_imagenet(tmp_path / "data", source)
    assert values(train) == {label: list(range(v, v + 5)) for label, v in first.items()}
    assert values(test) == {label: [v + 5] for label, v in first.items()}


def test_train_and_test_folders_are_taken_as_they_are(tmp_path):
    for number, label in enumerate(CLASSES):
        for part, count in (("train", 2), ("test", 3)):
            for i in range(count):
                write_image(
                    tmp_path / part / label / f"{i}.png", 40 * number + i + 10 * (part == "test")
                )
    train, test = load_mini_imagenet(tmp_path / "data", locate(tmp_path))
    assert values(train) == {0: [40, 41], 1: [80, 81], 2: [0, 1]}
    assert values(test) == {0: [50, 51, 52], 1: [90, 91, 92], 2: [10, 11, 12]}


def test_six_hundred_images_are_cut_at_five_hundred(tmp_path):
    images = np.zeros((600, 84, 84, 3), np.uint8)
    write_pickle(tmp_path / "x.pkl", {"images": images, "labels": [0] * 600})
    source = read_source(tmp_path)
    assert [key for key, _ in source.train] == list(range(500))
    assert [key for key, _ in source.test] == list(range(500, 600))


def test_another_source_is_not_taken_for_an_earlier_one(tmp_path):
    for name, value in (("one", 1), ("two", 2)):
        (tmp_path / name).mkdir()
        for i in range(2):
            write_image(tmp_path / name / "c" / f"{i}.png", value)
    for name, value in (("one", 1), ("two", 2), ("one", 1)):
        train, _ = load_mini_imagenet(tmp_path / "data", tmp_path / name)
        assert values(train) == {0: [value]}
    before = fingerprint(tmp_path / "one")
    write_image(tmp_path / "one" / "c" / "2.png", 3)
    assert fingerprint(tmp_path / "one") != before


def test_prepared_data_are_read_again(tmp_path, monkeypatch):
    by_class(tmp_path / "source")
    first = load_mini_imagenet(tmp_path / "data", tmp_path / "source")
    monkeypatch.setattr("nccl_tf.streams.mini_imagenet.read_source", None)
    again = load_mini_imagenet(tmp_path / "data", tmp_path / "source")
    for one, other in zip(first, again, strict=True):
        np.testing.assert_array_equal(one.images, other.images)


def test_default_folder_is_that_of_tfds(tmp_path):
    by_class(tmp_path / "downloads" / "manual" / "mini_imagenet")
    (tmp_path / "downloads" / "manual" / "other.zip").write_bytes(b"")
    train, _ = load_mini_imagenet(tmp_path)
    assert len(train.labels) == 15


def test_folder_in_a_folder_is_found(tmp_path):
    by_class(tmp_path / "unpacked" / "mini")
    assert locate(tmp_path) == tmp_path / "unpacked" / "mini"
    write_image(tmp_path / "other" / "only" / "0.png", 0)
    assert locate(tmp_path / "other") == tmp_path / "other"


def test_stream(tmp_path):
    images = np.repeat(np.arange(100, dtype=np.uint8), 2)[:, None, None, None]
    images = np.broadcast_to(images, (200, 84, 84, 3)).copy()
    write_pickle(tmp_path / "x.pkl", {"images": images, "labels": np.repeat(np.arange(100), 2)})
    stream = load_stream(
        "split_mini_imagenet", data_dir=tmp_path / "data", manual_dir=tmp_path, max_tasks=3
    )
    assert (len(stream), stream.num_tasks, stream.image_shape) == (3, 20, (84, 84, 3))
    assert stream.heads == stream.task_classes
    np.testing.assert_allclose(stream.pixels.mean, [0.485, 0.456, 0.406])
    np.testing.assert_allclose(stream.pixels.std, [0.229, 0.224, 0.225])
    for task in stream:
        assert (task.train.images[:, 0, 0, 0] == task.train.labels).all()


def test_images_of_other_sizes_are_resized(tmp_path):
    write_image(tmp_path / "x.png", 77, side=200)
    picture = read_image(tmp_path / "x.png")
    assert (picture.shape, picture.dtype) == ((84, 84, 3), np.uint8)
    assert (picture == 77).all()


def test_grey_images_become_rgb(tmp_path):
    grey = np.arange(84 * 84, dtype=np.int64).reshape(84, 84, 1).astype(np.uint8)
    (tmp_path / "x.png").write_bytes(tf.io.encode_png(grey).numpy())
    np.testing.assert_array_equal(read_image(tmp_path / "x.png"), np.repeat(grey, 3, axis=-1))


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
        (class_in_one_part, "'n02' is in only one of the training and test parts"),
        (single_image, "'n09' has 1 images"),
        (two_caches, "but not mini-imagenet-cache-val.pkl"),
        (two_pickles, r"2 pickles \(mini.pkl, other.pkl\)"),
        (wrong_size, r"x.pkl have shape \(4, 32, 32, 3\)"),
        (unit_pixels, "float32 from 1.0 to 1.0: expected 0 to 255"),
        (few_labels, r"labels in .*x.pkl have shape \(3,\)"),
        (wrong_keys, r"x.pkl holds \['data'\]: expected a dictionary"),
        (wrong_indices, "'a' in .*cache-train.pkl has indices"),
        (shared_class, "'n01' of .* in another cache file"),
        (hostile, r"refused the pickle .*os\.system"),
        (cut_pickle, r"mini\.pkl' is broken"),
        (nothing_known, "looked for one pickle"),
        (nothing, "missing or empty: put there"),
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


def test_data_folder_that_cannot_be_written(tmp_path):
    by_class(tmp_path / "source")
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="data folder .*file cannot be written"):
        load_mini_imagenet(tmp_path / "file", tmp_path / "source")
