"""Data sets by name: of TFDS, folders of images and tables, all made here."""

import csv

import numpy as np
import pytest
import tensorflow_datasets as tfds
from PIL import Image

from nccl_tf.errors import UserError
from nccl_tf.streams import load_stream, stream_from_arrays
from nccl_tf.streams.catalog import short_name
from nccl_tf.streams.sources import named
from nccl_tf.streams.sources.named import (
    ReadArguments,
    content_digest,
    describe,
    describe_named,
    read_named,
)
from nccl_tf.streams.sources.tfds import load_tfds

SIDE = 6


def picture(number, side=SIDE):
    return np.random.default_rng(number).integers(0, 256, (side, side, 3), np.uint8)


class Shapes(tfds.core.GeneratorBasedBuilder):
    """Six classes of 15 images, of which the first 10 are for training."""

    VERSION = tfds.core.Version("1.0.0")
    names, shape = tuple("abcdef"), (None, None, 3)
    side, splits = SIDE, {"train": range(10), "test": range(10, 15)}

    def _info(self):
        features = {
            "id": tfds.features.Text(),
            "image": tfds.features.Image(shape=self.shape),
            "label": tfds.features.ClassLabel(names=list(self.names)),
        }
        return tfds.core.DatasetInfo(builder=self, features=tfds.features.FeaturesDict(features))

    def _split_generators(self, dl_manager):
        return {split: self._examples(numbers) for split, numbers in self.splits.items()}

    def _generate_examples(self):
        raise NotImplementedError

    def _examples(self, numbers):
        for label in range(len(self.names)):
            for i in numbers:
                number = 100 * label + i
                image = picture(number, self.side + (self.side != SIDE) * (i % 2))
                yield f"{number:04d}", {"id": "x", "image": image, "label": label}


class Fixed(Shapes):
    """The same, which say their size."""

    shape = (SIDE, SIDE, 3)


class Sizes(Shapes):
    """The same with images of two sizes, and no test images."""

    side, splits = SIDE + 2, {"train": range(10)}


class Words(tfds.core.GeneratorBasedBuilder):
    """Texts of two classes, whose test labels are kept back."""

    VERSION = tfds.core.Version("1.0.0")

    def _info(self):
        features = {"text": tfds.features.Text(), "label": tfds.features.ClassLabel(num_classes=2)}
        return tfds.core.DatasetInfo(builder=self, features=tfds.features.FeaturesDict(features))

    def _split_generators(self, dl_manager):
        return {"train": self._examples(12), "validation": self._examples(4), "test": self._none()}

    def _generate_examples(self):
        raise NotImplementedError

    def _examples(self, count):
        for i in range(count):
            yield i, {"text": f"word {i}", "label": i % 2}

    def _none(self):
        for i in range(3):
            yield i, {"text": "?", "label": -1}


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory):
    """A TFDS folder with these data sets, prepared."""
    folder = tmp_path_factory.mktemp("tfds")
    for builder in (Shapes, Fixed, Sizes, Words):
        builder(data_dir=folder).download_and_prepare()
    return folder


def test_a_data_set_of_tfds(data_dir):
    stream = load_stream("tfds:shapes", num_tasks=3, head="multi", seed=1, data_dir=data_dir)
    assert (stream.name, stream.example_shape, stream.num_classes) == ("tfds:shapes", (6, 6, 3), 6)
    assert stream.class_names == Shapes.names
    assert stream.pixels.scale == pytest.approx(1 / 255)
    train, test = stream[0].train, stream[0].test
    assert (len(train.labels), len(test.labels)) == (20, 10)
    expected = {
        picture(100 * label + i).tobytes() for label in stream[0].classes for i in range(10)
    }
    assert {image.tobytes() for image in train.inputs} == expected
    # Once decoded they are kept, and read without the files' images.
    (kept,) = (data_dir / "nccl_tf").glob("shapes-by-name-*.images")
    again = load_stream("tfds:shapes", num_tasks=3, head="multi", seed=1, data_dir=data_dir)
    np.testing.assert_array_equal(again[0].train.inputs, train.inputs)
    assert kept.stat().st_size > 90 * SIDE * SIDE * 3


@pytest.mark.parametrize(("kind", "tasks"), [("permuted", 2), ("rotated", 3), ("split", 6)])
def test_every_kind_of_stream(data_dir, kind, tasks):
    stream = load_stream("tfds:shapes", kind=kind, num_tasks=tasks, data_dir=data_dir)
    assert len(stream) == tasks
    assert len(stream[0].classes) == (1 if kind == "split" else 6)


def test_images_of_several_sizes_are_resized_and_a_fifth_is_held_out(data_dir):
    with pytest.raises(UserError, match="2 sizes"):
        load_stream("tfds:sizes", num_tasks=2, data_dir=data_dir)
    stream = load_stream("tfds:sizes", num_tasks=2, image_size=4, data_dir=data_dir)
    assert stream.example_shape == (4, 4, 3)
    assert [(len(task.train.labels), len(task.test.labels)) for task in stream] == [(24, 6)] * 2


def test_texts_and_labels_that_are_kept_back(data_dir):
    stream = load_stream("tfds:words", num_tasks=2, data_dir=data_dir)
    assert stream.example_dtype == "string"
    texts = {text for task in stream for text in task.test.inputs}
    assert texts == {f"word {i}" for i in range(4)}  # those of "validation"


def test_a_set_that_is_unknown_is_told(data_dir):
    with pytest.raises(UserError, match="no_such_set"):
        load_stream("tfds:no_such_set", num_tasks=2, data_dir=data_dir)


def save(path, number, side=SIDE):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(picture(number, side)).save(path)


def test_folders_of_classes(tmp_path):
    for label, name in enumerate(("cat", "dog")):
        for i in range(5):
            save(
                tmp_path / "pets" / ("train" if i < 3 else "test") / name / f"{i}.png",
                10 * label + i,
            )
    stream = load_stream(f"folder:{tmp_path / 'pets'}", num_tasks=2)
    assert (stream.name, stream.class_names) == ("folder:pets", ("cat", "dog"))
    assert stream.family == "cifar"  # colour images, for the command's defaults
    by_class = {task.classes[0]: task for task in stream}
    for label in (0, 1):
        for part, numbers in (("train", range(3)), ("test", range(3, 5))):
            images = getattr(by_class[label], part).inputs
            expected = np.stack([picture(10 * label + i) for i in numbers])
            np.testing.assert_array_equal(np.sort(images, axis=0), np.sort(expected, axis=0))


def test_classes_without_parts_and_the_layout_of_tiny_imagenet(tmp_path):
    tiny = tmp_path / "tiny"
    lines = []
    for label, name in enumerate(("n01", "n02")):
        for i in range(10):
            save(tmp_path / "plain" / name / f"{i}.png", 100 * label + i)
            save(tiny / "train" / name / "images" / f"{name}_{i}.png", 100 * label + i)
        save(tiny / "val" / "images" / f"val_{label}.png", 500 + label)
        lines.append(f"val_{label}.png\t{name}\t0\t0\t6\t6\n")
    save(tiny / "test" / "images" / "test_0.png", 900)  # without a label
    (tiny / "val" / "val_annotations.txt").write_text("".join(lines))
    plain = load_stream(f"folder:{tmp_path / 'plain'}", num_tasks=2)
    assert [len(task.test.labels) for task in plain] == [2, 2]
    stream = load_stream(f"folder:{tiny}", num_tasks=2)
    for task in stream:
        assert len(task.train.labels) == 10
        np.testing.assert_array_equal(task.test.inputs[0], picture(500 + task.classes[0]))


def test_lists_of_images(tmp_path):
    for number in range(24):
        save(tmp_path / "images" / f"a {number}.png", number)
    lines = [f"images/a {i}.png {(9, 10)[i % 2]}" for i in range(24)]
    (tmp_path / "all.txt").write_text("\n".join(lines) + "\n\n")
    (tmp_path / "train.txt").write_text("\r\n".join(lines[:20]))
    (tmp_path / "test.txt").write_text("\n".join(f"{tmp_path}/{line}" for line in lines[20:]))
    whole = load_stream(f"list:{tmp_path / 'all.txt'}", num_tasks=2)
    assert (whole.name, whole.class_names) == ("list:all.txt", ("9", "10"))
    assert [(task.num_train, len(task.test.labels)) for task in whole] == [(10, 2)] * 2
    for task in load_stream(f"list:{tmp_path}", num_tasks=2):
        (label,) = task.classes
        for part, numbers in ((task.train, range(20)), (task.test, range(20, 24))):
            expected = np.stack([picture(i) for i in numbers if i % 2 == label])
            np.testing.assert_array_equal(part.inputs, expected)
    digests = [content_digest(f"list:{tmp_path}")]
    save(tmp_path / "images" / "a 0.png", 99)
    assert digests[0] != content_digest(f"list:{tmp_path}")


def stream_of_names(form, folder, names):
    """A stream of 12 examples with these names in turn, from one of three sources."""
    labels = [names[i % len(names)] for i in range(12)]
    if form == "list":
        for i in range(12):
            save(folder / f"{i}.png", i)
        (folder / "all.txt").write_text("\n".join(f"{i}.png {n}" for i, n in enumerate(labels)))
        return load_stream(f"list:{folder}/all.txt", num_tasks=1)
    if form == "csv":
        rows = [f"{i},{i % 5},{n}" for i, n in enumerate(labels)]
        (folder / "all.csv").write_text("\n".join(["a,b,label", *rows]))
        return load_stream(f"csv:{folder}/all.csv", num_tasks=1)
    x, y = np.arange(24.0).reshape(12, 2), np.array(labels, object)
    return stream_from_arrays((x[:9], y[:9]), (x[9:], y[9:]), num_tasks=1)


@pytest.mark.parametrize("form", ["list", "csv", "arrays"])
def test_names_have_one_rule_in_every_source(form, tmp_path, caplog):
    """True, TRUE and true are one class, and what often is a missing label is told of once."""
    stream = stream_of_names(form, tmp_path, ["True", "FALSE", "true", "TRUE"])
    assert stream.class_names == ("False", "True")
    task = stream[0]
    count = task.num_train + len(task.test.labels)
    assert (count, int(task.train.labels.sum() + task.test.labels.sum())) == (12, 9)
    assert not caplog.messages
    stream = stream_of_names(form, tmp_path, ["NA", "ant", "None"])
    assert set(stream.class_names) == {"NA", "None", "ant"}
    (said,) = caplog.messages
    assert "'NA' and 'None'" in said


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "lists no images"),
        ("a.png\n", "the line .a.png."),
        ("x.png 0\n", "x.png"),
        ("\xff 0", "UTF-8"),
    ],
)
def test_what_is_no_list_is_refused(tmp_path, content, said):
    (tmp_path / "x.txt").write_bytes(content.encode("latin-1"))
    with pytest.raises(UserError, match=said):
        load_stream(f"list:{tmp_path / 'x.txt'}", num_tasks=1)


def write(path, header, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([header, *rows])


def test_tables_by_class_and_by_domain(tmp_path):
    rows = [(i, 0.5 * i, "ab"[i % 2], f"site{i % 3}") for i in range(60)]
    write(tmp_path / "sick.csv", ("age", "dose", "outcome", "site"), rows)
    name = f"csv:{tmp_path / 'sick.csv'}"
    stream = load_stream(name, label="outcome", domain="site")
    assert (len(stream), stream.example_shape, stream.class_names) == (3, (2,), ("a", "b"))
    assert {int(age) % 3 for age in stream[1].train.inputs[:, 0]} == {1}
    by_class = load_stream(name, label="outcome", domain="site", kind="split", num_tasks=2)
    assert sum(len(task.test.labels) for task in by_class) == 12
    with pytest.raises(UserError, match="--label"):
        load_stream(name, num_tasks=2)
    with pytest.raises(UserError, match=r"'site' of .* has 'site0', text beside other"):
        load_stream(name, label="outcome", num_tasks=2)


def test_a_folder_of_two_tables_of_text(tmp_path):
    for part, count in (("train", 8), ("test", 4)):
        rows = [(f"text {i}", i % 2) for i in range(count)]
        write(tmp_path / f"{part}.csv", ("text", "label"), rows)
    stream = load_stream(f"csv:{tmp_path}", num_tasks=2)
    assert stream.example_dtype == "string"
    assert [len(task.test.labels) for task in stream] == [2, 2]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "no header"), ("a,label\n", "no header"), ("a,a\n1,2\n", "no header"),
        ("a,label\n1\n", "row 2"), ("label\n1\n2\n", "no column but"),
        ("a,label\n\xff,1\n", "UTF-8"),
    ],
)  # fmt: skip
def test_what_is_no_table_is_refused(tmp_path, content, said):
    (tmp_path / "x.csv").write_bytes(content.encode("latin-1"))
    with pytest.raises(UserError, match=said):
        load_stream(f"csv:{tmp_path / 'x.csv'}", num_tasks=1)


def test_arguments_that_are_missing_or_have_no_meaning(tmp_path):
    for number in range(2):
        save(tmp_path / "a" / f"{number}.png", number)
    with pytest.raises(UserError, match=r"no num_tasks .* 1 classes"):
        load_stream(f"folder:{tmp_path}")
    with pytest.raises(UserError, match="no domains"):
        load_stream(f"folder:{tmp_path}", kind="domain")
    with pytest.raises(UserError, match="is no folder"):
        load_stream(f"folder:{tmp_path / 'none'}", num_tasks=1)
    with pytest.raises(UserError, match="no images"):
        load_stream(f"folder:{tmp_path / 'a'}", num_tasks=1)
    with pytest.raises(UserError, match="image_size=4 for split_digits"):
        load_stream("split_digits", image_size=4)


def test_a_user_s_files_are_known_by_their_bytes_and_not_by_their_place(tmp_path):
    digests = []
    for place, number in (("one/pets", 0), ("two/pets", 0), ("two/pets", 1)):
        save(tmp_path / place / "train" / "cat" / "0.png", number)
        digests.append(content_digest(f"folder:{tmp_path / place}"))
    assert digests[0] == digests[1] != digests[2]
    assert short_name(f"folder:{tmp_path}/two/../one/pets/") == "folder:pets"
    assert (content_digest("tfds:mnist"), short_name("tfds:glue/sst2")) == (None, "tfds:glue_sst2")


def test_what_is_said_without_reading_is_what_is_read(data_dir, tmp_path):
    save(tmp_path / "train" / "cat" / "0.png", 0)
    save(tmp_path / "val" / "dog" / "0.png", 0)
    rows = [(i, i % 3, f"site{i % 2}") for i in range(30)]
    write(tmp_path / "x.csv", ("age", "label", "site"), rows)
    table = f"csv:{tmp_path / 'x.csv'}"
    (tmp_path / "x.txt").write_text("train/cat/0.png 3\n" * 2 + "val/dog/0.png 4\n" * 2)
    for name, domain in (
        (f"folder:{tmp_path}", None), (f"list:{tmp_path / 'x.txt'}", None), (table, "site"),
        ("tfds:shapes", None), ("tfds:words", None),
    ):  # fmt: skip
        reading = ReadArguments(domain=domain)
        read = describe(read_named(name, reading, data_dir))
        assert describe_named(name, reading, data_dir) == read


def test_images_of_one_size_are_read_and_kept_as_the_catalog_s(data_dir):
    stream = load_stream("tfds:fixed", num_tasks=1, data_dir=data_dir)
    train, test = load_tfds("fixed", data_dir)
    np.testing.assert_array_equal(stream[0].train.inputs, train.inputs)
    np.testing.assert_array_equal(stream[0].test.labels, test.labels)
    assert [path.name for path in (data_dir / "nccl_tf").glob("fixed*")] == ["fixed.images"]


def test_images_that_are_more_than_the_machine_s_memory_are_not_read(
    data_dir, tmp_path, monkeypatch
):
    save(tmp_path / "big" / "cat" / "0.png", 0)
    monkeypatch.setattr(named, "total_memory", lambda: 3 * SIDE**2 - 1)
    for name in ("tfds:fixed", f"folder:{tmp_path / 'big'}"):
        with pytest.raises(UserError, match=r"6 x 6 x 3 numbers, .* GB: read them smaller"):
            load_stream(name, num_tasks=1, data_dir=data_dir)
    with pytest.raises(UserError, match="64 x 64 x 3"):
        load_stream("tfds:sizes", num_tasks=2, image_size=64, data_dir=data_dir)
    monkeypatch.setattr(named, "total_memory", lambda: 60 * 3 * SIDE**2)
    load_stream("tfds:fixed", num_tasks=1, data_dir=data_dir)
