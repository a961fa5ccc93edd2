"""mini-ImageNet in the layouts that users have."""

import numpy as np
import pytest
from mini_files import (
    CLASSES,
    by_class,
    caches,
    few_shot,
    listed,
    single,
    write_image,
    write_pickle,
)

from nccl_tf.streams import load_stream
from nccl_tf.streams.sources.image_files import read_image
from nccl_tf.streams.sources.mini_imagenet.load import load_mini_imagenet


def values(examples):
    """The images' values by class number."""
    assert examples.inputs.dtype == np.uint8
    assert (examples.inputs == examples.inputs[:, :1, :1, :1]).all()
    found = {}
    for picture, label in zip(examples.inputs, examples.labels, strict=True):
        found.setdefault(int(label), []).append(int(picture[0, 0, 0]))
    return found


@pytest.mark.parametrize("layout", [single, caches, by_class, few_shot, listed])
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
    train, test = load_mini_imagenet(tmp_path / "data", tmp_path)
    assert values(train) == {0: [40, 41], 1: [80, 81], 2: [0, 1]}
    assert values(test) == {0: [50, 51, 52], 1: [90, 91, 92], 2: [10, 11, 12]}


def test_another_source_is_not_taken_for_an_earlier_one(tmp_path):
    for name, value in (("one", 1), ("two", 2)):
        (tmp_path / name).mkdir()
        for i in range(2):
            write_image(tmp_path / name / "c" / f"{i}.png", value)
    for name, value in (("one", 1), ("two", 2), ("one", 1)):
        train, _ = load_mini_imagenet(tmp_path / "data", tmp_path / name)
        assert values(train) == {0: [value]}
    write_image(tmp_path / "one" / "c" / "2.png", 3)
    assert values(load_mini_imagenet(tmp_path / "data", tmp_path / "one")[1]) == {0: [3]}


def test_links_are_followed_and_what_they_lead_to_is_looked_at(tmp_path):
    by_class(tmp_path / "source")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "source" / "n01").rename(tmp_path / "elsewhere" / "n01")
    (tmp_path / "source" / "n01").symlink_to(tmp_path / "elsewhere" / "n01")
    train, _ = load_mini_imagenet(tmp_path / "data", tmp_path / "source")
    assert values(train)[0] == list(range(40, 45))
    write_image(tmp_path / "elsewhere" / "n01" / "0.png", 99)
    train, _ = load_mini_imagenet(tmp_path / "data", tmp_path / "source")
    assert values(train)[0] == [99, 41, 42, 43, 44]


def test_files_in_the_folder_of_that_name_are_found(tmp_path):
    first = by_class(tmp_path / "manual" / "mini_imagenet")
    train, _ = load_mini_imagenet(tmp_path / "data", tmp_path / "manual")
    assert values(train) == {label: list(range(v, v + 5)) for label, v in first.items()}


def test_prepared_data_are_read_again(tmp_path, monkeypatch):
    by_class(tmp_path / "source")
    first = load_mini_imagenet(tmp_path / "data", tmp_path / "source")
    monkeypatch.setattr("nccl_tf.streams.sources.mini_imagenet.load.read_source", None)
    again = load_mini_imagenet(tmp_path / "data", tmp_path / "source")
    for one, other in zip(first, again, strict=True):
        np.testing.assert_array_equal(one.inputs, other.inputs)


def test_stream(tmp_path):
    images = np.repeat(np.arange(100, dtype=np.uint8), 2)[:, None, None, None]
    images = np.broadcast_to(images, (200, 84, 84, 3)).copy()
    write_pickle(tmp_path / "x.pkl", {"images": images, "labels": np.repeat(np.arange(100), 2)})
    stream = load_stream(
        "split_mini_imagenet", data_dir=tmp_path / "data", manual_dir=tmp_path, max_tasks=3
    )
    assert (len(stream), stream.num_tasks, stream.example_shape) == (3, 20, (84, 84, 3))
    assert stream.heads == stream.task_classes
    np.testing.assert_allclose(stream.pixels.mean, [0.485, 0.456, 0.406])
    np.testing.assert_allclose(stream.pixels.std, [0.229, 0.224, 0.225])
    for task in stream:
        assert (task.train.inputs[:, 0, 0, 0] == task.train.labels).all()


def test_images_of_other_sizes_are_resized(tmp_path):
    write_image(tmp_path / "x.png", 77, side=200)
    picture = read_image(tmp_path / "x.png", 84)
    assert (picture.shape, picture.dtype) == ((84, 84, 3), np.uint8)
    assert (picture == 77).all()
