"""Data sets by name: any of TFDS, a folder or a list of images, a table in CSV files."""

import csv
import hashlib
import io
import math
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from nccl_tf.errors import UserError, check_at_least
from nccl_tf.machine import total_memory
from nccl_tf.regular_files import open_regular
from nccl_tf.streams.arrays import Examples, ImageSet, images_from_arrays
from nccl_tf.streams.sources.decoded import keep_decoded, read_decoded
from nccl_tf.streams.sources.image_files import SUFFIXES, list_visible, read_image, resized

TEST_SHARE = 5
"""Of a data set without test examples every fifth example of each class is held out."""
_TEST_NAMES = ("test", "val", "validation")
_MAX_BYTES = 2**32


class Reading(NamedTuple):
    """How a data set by name is read.

    Args:
        image_size: Side that images are resized to, in pixels; None for the size that they have.
        label: Column of the labels of a CSV file.
        domain: Column of the domains of a CSV file; None where it has none.
    """

    image_size: int | None = None
    label: str = "label"
    domain: str | None = None


class Description(NamedTuple):
    """Properties of a data set by name that a stream's settings depend on.

    Args:
        num_classes: Classes, or numbers to predict.
        has_classes: Whether targets are classes.
        is_colour: Whether inputs are images of three channels.
        domains: Domains, 0 where it has none.
        is_text: Whether inputs are texts.
    """

    num_classes: int
    has_classes: bool = True
    is_colour: bool = False
    domains: int = 0
    is_text: bool = False


def describe(images: ImageSet) -> Description:
    """Describe a data set that has been read."""
    labels, inputs = (images.train.labels, images.test.labels), images.train.inputs
    classes = int(max(part.max() for part in labels)) + 1 if images.has_classes else 0
    return Description(
        max(classes, len(images.class_names or ())) or int(np.prod(labels[0].shape[1:])),
        images.has_classes,
        inputs.ndim == 4 and inputs.shape[-1] == 3,
        0 if images.domains is None else len(np.unique(np.concatenate(images.domains))),
        inputs.dtype.kind == "U",
    )


def describe_named(
    name: str, reading: Reading, data_dir: str | os.PathLike | None = None
) -> Description:
    """Describe a data set by name, without reading images or running TensorFlow.

    Args:
        name: As for `read_named`.
        reading: How it is read.
        data_dir: TFDS's data folder.

    Raises:
        UserError: As for `read_named`.
    """
    scheme, _, rest = name.partition(":")
    if scheme == "csv":
        return describe(_read_csv(Path(rest).expanduser(), reading))
    if scheme in ("folder", "list"):
        return Description(len(_members(scheme, Path(rest).expanduser()).names), is_colour=True)
    from nccl_tf.streams.sources.tfds import builder_of

    features = builder_of(rest, data_dir).info.features
    label, key = _columns(rest, features)
    is_image = _is_image(features[key])
    return Description(
        features[label].num_classes,
        is_colour=is_image and features[key].shape[-1] == 3,
        is_text=not is_image,
    )


def read_named(name: str, reading: Reading, data_dir: str | os.PathLike | None = None) -> ImageSet:
    """Read a data set by name.

    Args:
        name: "tfds:NAME", a data set of TFDS with one class label and an image or a text;
            "folder:PATH", images in train/CLASS/ and test/CLASS/ (or val/, or as tiny-ImageNet has
            them), or in CLASS/ alone; or "csv:PATH", a CSV file with a header, or a folder with
            train.csv and test.csv.
        reading: How.
        data_dir: TFDS's data folder.

    Returns:
        Its examples. Where it has no test examples, every fifth example of each class is held out.

    Raises:
        UserError: It is not there, has another form, or images have several sizes and there is no
            `image_size`.
    """
    scheme, _, rest = name.partition(":")
    if reading.image_size is not None:
        check_at_least("image_size", reading.image_size, 1)
    if scheme == "tfds":
        return _read_tfds(rest, reading, data_dir)
    path = Path(rest).expanduser()
    return _read_csv(path, reading) if scheme == "csv" else _read_files(scheme, path, reading)


def content_digest(name: str) -> str | None:
    """SHA-256 of a user's files, by their names below the path and their bytes; None of TFDS.

    Of lists it is that of the images too, wherever they lie.
    """
    scheme, _, rest = name.partition(":")
    if scheme == "tfds":
        return None
    root, digest = Path(rest).expanduser(), hashlib.sha256()
    try:
        if scheme == "list":
            parts = _members(scheme, root)[:2]
            listed = [path for part in parts for paths in part.values() for path in paths]
            files = [*_files(root, "txt"), *listed]
        else:
            files = [root] if root.is_file() else sorted(p for p in root.rglob("*") if p.is_file())
        for path in files:
            inside = path != root and scheme != "list"
            relative = path.relative_to(root).as_posix() if inside else ""
            digest.update(f"{relative}\0{path.stat().st_size}\0".encode())
            digest.update(path.read_bytes())
    except OSError as error:
        raise UserError(f"cannot read {name} ({error}): name files that can be read") from error
    if not files:
        raise UserError(f"{name} is no file or folder with files: name one that is there")
    return digest.hexdigest()


# ---- TFDS --------------------------------------------------------------------------------------


def _read_tfds(name: str, reading: Reading, data_dir: str | os.PathLike | None) -> ImageSet:
    from nccl_tf.streams.sources.tfds import load_tfds, prepared

    builder = prepared(name, data_dir)
    label, key = _columns(name, builder.info.features)
    names = tuple(builder.info.features[label].names or ()) or None
    is_image = _is_image(builder.info.features[key])
    if is_image and "train" in builder.info.splits:
        shape = _shape(builder.info.features[key].shape, reading)
        _check_fits(f"tfds:{name}", builder.info.splits["train"].num_examples, shape)
    plain = (label, key) == ("label", "image") and {"train", "test"} <= set(builder.info.splits)
    if plain and reading.image_size is None and None not in builder.info.features[key].shape:
        # As the catalog's streams read it, which share what is kept.
        both = load_tfds(name, data_dir)
        if min(part.labels.min() for part in both) >= 0:
            return _image_set(*both, names)
    folder = Path(builder.data_dir_root)
    variant = f"-by-name-{reading.image_size or 'as-is'}"
    kept = read_decoded(name, folder, variant) if is_image else None
    if kept is not None:
        return _image_set(*kept, names)
    parts: dict[str, Examples] = {}
    for split in ("train", *_TEST_NAMES):
        if split in builder.info.splits and len(parts) < 2:
            size = reading.image_size if is_image else None
            part = _split(builder, split, key, label, size)
            # TFDS marks the labels that a data set keeps to itself by -1.
            if part.labels.min() >= 0:
                parts[split] = part
    if "train" not in parts:
        raise UserError(
            f"tfds:{name} has no labelled split 'train', but {', '.join(builder.info.splits)}: "
            "take nccl_tf.stream_from_arrays with what you read of it"
        )
    train, *others = parts.values()
    train, test = (train, others[0]) if others else _with_test(train)
    if is_image and train.inputs.dtype == np.uint8:
        keep_decoded(name, folder, train, test, variant)
    return _image_set(train, test, names)


def _is_image(feature: Any) -> bool:
    import tensorflow_datasets as tfds

    return isinstance(feature, tfds.features.Image)


def _columns(name: str, features: Any) -> tuple[str, str]:
    """The names of the class label and of the image or text of a TFDS data set."""
    import tensorflow_datasets as tfds

    kinds = {
        kind: [key for key, feature in features.items() if isinstance(feature, of)]
        for kind, of in (
            ("label", tfds.features.ClassLabel),
            ("image", tfds.features.Image),
            ("text", tfds.features.Text),
        )
    }
    label = [key for key in kinds["label"] if key == "label"] or kinds["label"]
    inputs = kinds["image"] or [key for key in kinds["text"] if key == "text"] or kinds["text"]
    if len(label) == 1 and len(inputs) == 1:
        return label[0], inputs[0]
    raise UserError(
        f"tfds:{name} has the features {', '.join(features)}: expected one class label and one "
        "image or text; read it with tensorflow_datasets and take nccl_tf.stream_from_arrays"
    )


def _split(builder: Any, split: str, key: str, label: str, size: int | None) -> Examples:
    """The examples of a split in file order, images resized where there is a size."""
    import tensorflow as tf
    import tensorflow_datasets as tfds

    config = tfds.ReadConfig(interleave_cycle_length=1, try_autocache=False)
    inputs, labels = [], []
    try:
        for row in builder.as_dataset(split=split, shuffle_files=False, read_config=config):
            value = row[key]
            inputs.append(value.numpy() if size is None else resized(value, size).numpy())
            labels.append(int(row[label]))
    except (tf.errors.OpError, OSError, ValueError) as error:
        raise UserError(
            f"the prepared files of {builder.name} in {builder.data_dir} cannot be read "
            f"({type(error).__name__}): delete that folder and run again"
        ) from error
    return Examples(_stacked(inputs, f"tfds:{builder.name}"), np.array(labels, np.int32))


# ---- folders and lists of images ---------------------------------------------------------------


class _Members(NamedTuple):
    """The images of each class, for training and for the test; none where all are together."""

    train: dict[str, list[Path]]
    test: dict[str, list[Path]]
    names: tuple[str, ...]


def _read_files(scheme: str, path: Path, reading: Reading) -> ImageSet:
    train, test, names = _members(scheme, path)
    title = f"{scheme}:{path}"
    examples = _read_images(train, names, reading, title)
    if not test:
        return _image_set(*_with_test(examples), names)
    return _image_set(examples, _read_images(test, names, reading, title), names)


def _members(scheme: str, path: Path) -> _Members:
    if scheme == "list":
        train, *others = [_read_list(file) for file in _files(path, "txt")]
        test = others[0] if others else {}
        names = sorted({*train, *test})
        # Numbers in their order: 10 comes after 9.
        if all(name.isdecimal() for name in names):
            names.sort(key=int)
        return _Members(train, test, tuple(names))
    train, test = _class_folders(path)
    return _Members(train, test, tuple(sorted({*train, *test})))


def _files(path: Path, ending: str) -> list[Path]:
    """The files of a data set: that for training and that for the test, or one for both."""
    if path.is_dir():
        return [path / f"{part}.{ending}" for part in ("train", "test")]
    return [path]


def _read_list(path: Path) -> dict[str, list[Path]]:
    """The images of each class in a file with lines "path label"."""
    members: dict[str, list[Path]] = {}
    for name, label in _pairs(path, lambda line: line.rsplit(maxsplit=1)):
        members.setdefault(label, []).append(path.parent / name.strip())
    if not members:
        raise UserError(f"{path} lists no images: expected lines with a path and a label")
    return members


def _pairs(path: Path, cut: Callable[[str], list[str]]) -> list[tuple[str, str]]:
    """An image and its label of each line of a file, in whose parts a line is `cut`."""
    try:
        with open_regular(path, _MAX_BYTES) as file:
            lines = file.read().decode("utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(
            f"cannot read {path} ({error}): expected a file in UTF-8 with an image and its label "
            "on each line"
        ) from error
    rows = [cut(line) for line in lines if line.strip()]
    for row in rows:
        if len(row) < 2:
            raise UserError(
                f"{path} has the line {row[0][:40]!r}: expected an image and its label on each line"
            )
    return [(row[0], row[1]) for row in rows]


def _class_folders(folder: Path) -> tuple[dict[str, list[Path]], dict[str, list[Path]]]:
    if not folder.is_dir():
        raise UserError(f"folder:{folder} is no folder: name one with train/CLASS/ and test/CLASS/")
    has_parts = (folder / "train").is_dir()
    train, test = _listed(folder / "train" if has_parts else folder), {}
    if has_parts:
        test = _annotated(folder / "val")
        for part in _TEST_NAMES:
            test = test or _listed(folder / part)
    if not train:
        raise UserError(
            f"folder:{folder} has no images ({', '.join(SUFFIXES)}) in folders of classes: "
            "expected train/CLASS/ and test/CLASS/, or CLASS/"
        )
    return train, test


def _listed(folder: Path) -> dict[str, list[Path]]:
    """The images of each class, which lie in its folder or in the folder `images` of that."""
    members: dict[str, list[Path]] = {}
    for path in list_visible(folder) if folder.is_dir() else ():
        inner = path / "images" if (path / "images").is_dir() else path
        files = list_visible(inner) if inner.is_dir() else []
        files = [file for file in files if file.suffix.lower() in SUFFIXES and file.is_file()]
        if files:
            members[path.name] = files
    return members


def _annotated(folder: Path) -> dict[str, list[Path]]:
    """The images of each class of tiny-ImageNet's val/, whose classes stand in a file."""
    path = folder / "val_annotations.txt"
    members: dict[str, list[Path]] = {}
    if not path.is_file():
        return {}
    for name, label in _pairs(path, lambda line: line.split("\t")):
        members.setdefault(label, []).append(folder / "images" / name)
    return {label: sorted(files) for label, files in members.items()}


def _read_images(
    members: dict[str, list[Path]], names: Sequence[str], reading: Reading, title: str
) -> Examples:
    rows = [(file, number) for number, name in enumerate(names) for file in members.get(name, ())]
    _check_fits(title, len(rows), _shape(read_image(rows[0][0]).shape, reading))
    images = [read_image(file, reading.image_size) for file, _ in rows]
    labels = np.array([number for _, number in rows], np.int32)
    return Examples(_stacked(images, title), labels)


# ---- tables in CSV files -----------------------------------------------------------------------


def _read_csv(path: Path, reading: Reading) -> ImageSet:
    files = _files(path, "csv")
    tables = [_table(file) for file in files]
    header = list(tables[0])
    for file, table in zip(files[1:], tables[1:], strict=True):
        if list(table) != header:
            raise UserError(
                f"{file} has the columns {', '.join(table)}, and {files[0]} {', '.join(header)}: "
                "expected the same in both"
            )
    for flag, column in (("label", reading.label), ("domain", reading.domain)):
        if column is not None and column not in header:
            raise UserError(
                f"csv:{path} has no column {column!r}: name one of {', '.join(header)} with "
                f"--{flag}"
            )
    inputs = [name for name in header if name not in (reading.label, reading.domain)]
    if not inputs:
        raise UserError(f"csv:{path} has no column but its labels and domains: expected inputs")
    parts = [(_inputs(table, inputs, path), _numbers(table[reading.label])) for table in tables]
    domains = [] if reading.domain is None else [_numbers(t[reading.domain]) for t in tables]
    if len(parts) == 1:
        held = _held_out(parts[0][1])
        parts = [(x[rows], y[rows]) for x, y in parts for rows in (~held, held)]
        domains = [column[rows] for column in domains for rows in (~held, held)]
    train, test = parts
    return images_from_arrays(train, test, None, (domains[0], domains[1]) if domains else None)


def _table(path: Path) -> dict[str, list[str]]:
    """The columns of a CSV file by their names."""
    try:
        with open_regular(path, _MAX_BYTES) as file:
            rows = list(csv.reader(io.TextIOWrapper(file, "utf-8-sig", newline="")))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise UserError(
            f"cannot read {path} ({error}): expected a CSV file in UTF-8, its first line the names "
            "of the columns"
        ) from error
    rows = [row for row in rows if row]
    if len(rows) < 2 or len(set(rows[0])) != len(rows[0]):
        raise UserError(f"{path} has no header of different names with rows below it")
    short = next((i for i, row in enumerate(rows, 1) if len(row) != len(rows[0])), None)
    if short is not None:
        raise UserError(
            f"row {short} of {path} has {len(rows[short - 1])} values, expected {len(rows[0])}"
        )
    return dict(zip(rows[0], map(list, zip(*rows[1:], strict=True)), strict=True))


def _numbers(values: Iterable[str]) -> np.ndarray:
    """A column as whole numbers, else as numbers, else as text."""
    column = np.array(list(values), str)
    for dtype in (np.int64, np.float64):
        try:
            return column.astype(dtype)
        except ValueError:
            pass
    return column


def _inputs(table: dict[str, list[str]], names: Sequence[str], path: Path) -> np.ndarray:
    """float32 [n, columns]; or one column of text, [n]."""
    columns = [_numbers(table[name]) for name in names]
    texts = [name for name, column in zip(names, columns, strict=True) if column.dtype.kind == "U"]
    if texts and len(names) > 1:
        raise UserError(
            f"the column {texts[0]!r} of csv:{path} has text beside other columns: expected "
            "numbers, or a single column of text; encode it, or leave it out"
        )
    return columns[0] if texts else np.stack(columns, axis=1).astype(np.float32)


# ---- all ---------------------------------------------------------------------------------------


def _shape(shape: Sequence[int | None], reading: Reading) -> tuple[int | None, ...]:
    """The shape that images are read in, of the one that they have."""
    size = reading.image_size
    return tuple(shape) if size is None else (size, size, *shape[2:])


def _check_fits(name: str, count: int, shape: Sequence[int | None]) -> None:
    """Check that images fit into memory: else the system would kill the process without a word.

    Args:
        name: Of the data set.
        count: Its training images, uint8.
        shape: Of one; None where it is not known, and nothing is checked.

    Raises:
        UserError: They do not.
    """
    known = [length for length in shape if length is not None]
    needed, there = count * math.prod(known), total_memory()
    if len(known) == len(shape) and needed > there:
        raise UserError(
            f"{name} has {count:,} training images of {' x '.join(map(str, known))} numbers, which "
            f"take {needed / 1e9:,.1f} GB, and this machine has {there / 1e9:,.1f} GB: read them "
            "smaller, image_size=32 or --image_size=32, or take nccl_tf.stream_from_datasets"
        )


def _stacked(inputs: list[np.ndarray], name: str) -> np.ndarray:
    """Images of one size, or texts, as an array."""
    if inputs and isinstance(inputs[0], bytes):
        return np.array([text.decode("utf-8", "replace") for text in inputs], str)
    shapes = sorted({image.shape for image in inputs})
    if len(shapes) > 1:
        shown = " and ".join(" x ".join(map(str, shape)) for shape in shapes[:2])
        raise UserError(
            f"{name} has images of {len(shapes)} sizes, such as {shown}: give a size that all are "
            "resized to, image_size=64 or --image_size=64"
        )
    return np.stack(inputs) if inputs else np.zeros((0,), np.uint8)


def _held_out(labels: np.ndarray) -> np.ndarray:
    """bool [n]: every fifth example of each class, of fewer the last one; else of all."""
    groups = np.zeros(len(labels)) if labels.dtype.kind == "f" else labels
    held = np.zeros(len(labels), bool)
    for label in np.unique(groups):
        members = np.flatnonzero(groups == label)
        held[
            members[TEST_SHARE - 1 :: TEST_SHARE] if len(members) >= TEST_SHARE else members[-1:]
        ] = True
    return held


def _with_test(examples: Examples) -> tuple[Examples, Examples]:
    """The examples that are trained on, and those that are held out."""
    held = _held_out(examples.labels)
    return examples.take(~held), examples.take(held)


def _image_set(train: Examples, test: Examples, names: tuple[str, ...] | None) -> ImageSet:
    """A data set with the scaling of its training images."""
    found = images_from_arrays((train.inputs, train.labels), (test.inputs, test.labels))
    return found._replace(class_names=names)
