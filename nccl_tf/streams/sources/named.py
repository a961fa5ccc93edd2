"""Data sets by name: any of TFDS, a folder or a list of images, a table in CSV files."""

import hashlib
import logging
import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from nccl_tf.errors import UserError, checked_at_least
from nccl_tf.machine import total_memory
from nccl_tf.regular_files import open_regular
from nccl_tf.streams.arrays import (
    Examples,
    ExampleSet,
    dtype_name,
    set_from_arrays,
    warn_of_missing,
)
from nccl_tf.streams.domains import domain_count
from nccl_tf.streams.sources.csv_files import (
    are_codes,
    domains_of,
    inputs_of,
    read_table,
    targets_of,
)
from nccl_tf.streams.sources.decoded import keep_decoded, read_decoded
from nccl_tf.streams.sources.image_files import read_image, resized
from nccl_tf.streams.sources.image_folders import TEST_NAMES, files_of_parts, list_members
from nccl_tf.user_data import text_array

_LOGGER = logging.getLogger("nccl_tf")
_AT_ONCE = 2**20
_MOST_BYTES = {"csv": 2**32, "folder": 2**28, "list": 2**28}
"""Of a file whose digest is taken: a larger one is refused when it is read."""


class ReadArguments(NamedTuple):
    """How a data set by name is read.

    Args:
        image_size: Side that images are resized to, in pixels; None for the size that they have.
        label: Column of the labels of a CSV file.
        domain: Column of the domains of a CSV file; None where it has none.
        positive: Name of the positive of two classes; None for the second.
        by: The period of the calendar that dates among the domains are cut into; None for none.
    """

    image_size: int | None = None
    label: str = "label"
    domain: str | None = None
    positive: str | None = None
    by: str | None = None


class Description(NamedTuple):
    """Properties of a data set by name that a stream's settings depend on.

    Args:
        num_classes: Classes, or numbers to predict.
        has_classes: Whether targets are classes.
        is_colour: Whether inputs are images of three channels.
        domains: Domains of the training examples, 0 where it has none.
        is_text: Whether inputs are texts.
    """

    num_classes: int
    has_classes: bool = True
    is_colour: bool = False
    domains: int = 0
    is_text: bool = False


def describe(data: ExampleSet, by: str | None = None, tells: bool = False) -> Description:
    """Describe a data set that has been read.

    Args:
        data: The data set.
        by: As of `ReadArguments`.
        tells: Whether a task for each of many dates or numbers is told of.

    Raises:
        UserError: As for `periods`.
    """
    inputs = data.train.inputs
    return Description(
        max(data.num_outputs, len(data.class_names or ())),
        data.has_classes,
        inputs.ndim == 4 and inputs.shape[-1] == 3,
        0 if data.domains is None else domain_count(data.domains[0], by, tells),
        dtype_name(inputs) == "string",
    )


def describe_named(
    name: str,
    reading: ReadArguments,
    data_dir: str | os.PathLike | None = None,
    tells: bool = False,
) -> Description:
    """Describe a data set by name, without reading images or running TensorFlow.

    Args:
        name: As for `read_named`.
        reading: How it is read.
        data_dir: TFDS's data folder.
        tells: As for `describe`.

    Raises:
        UserError: As for `read_named`.
    """
    scheme, _, rest = name.partition(":")
    if scheme == "csv":
        return describe(read_named(name, reading), reading.by, tells)
    if scheme in ("folder", "list"):
        return Description(len(list_members(scheme, Path(rest).expanduser()).names), is_colour=True)
    from nccl_tf.streams.sources.tfds import builder_of

    features = builder_of(rest, data_dir).info.features
    label, key = _columns(rest, features)
    is_image = _is_image(features[key])
    return Description(
        features[label].num_classes,
        is_colour=is_image and features[key].shape[-1] == 3,
        is_text=not is_image,
    )


def read_named(
    name: str, reading: ReadArguments, data_dir: str | os.PathLike | None = None
) -> ExampleSet:
    """Read a data set by name.

    Args:
        name: "tfds:NAME", a data set of TFDS with one class label and an image or a text;
            "folder:PATH", images in train/CLASS/ and test/CLASS/ (or val/, or as tiny-ImageNet has
            them), or in CLASS/ alone; or "csv:PATH", a CSV file with a header, or a folder with
            train.csv and test.csv.
        reading: How.
        data_dir: TFDS's data folder.

    Returns:
        Its examples; where it has no test examples, none of them is for the test.

    Raises:
        UserError: It is not there, has another form, or images have several sizes and there is no
            `image_size`, or as for `ExampleSet.with_positive`.
    """
    scheme, _, rest = name.partition(":")
    if reading.image_size is not None:
        checked_at_least("image_size", reading.image_size, 1)
    if scheme == "tfds":
        data = _read_tfds(rest, reading, data_dir)
    elif scheme == "csv":
        data = _read_csv(Path(rest).expanduser(), reading)
    else:
        data = _read_files(scheme, Path(rest).expanduser(), reading)
    return data.with_positive(reading.positive)


def content_digest(name: str) -> str | None:
    """SHA-256 of a user's files, by their names below the path and their bytes; None of TFDS.

    Of lists it is that of the images too, wherever they lie.
    """
    scheme, _, rest = name.partition(":")
    if scheme == "tfds":
        return None
    root, digest = Path(rest).expanduser(), hashlib.sha256()
    if scheme == "csv":
        files = sorted(files_of_parts(root, "csv")[0])
    else:
        members = list_members(scheme, root)
        files = [*members.lists, *members.images]
        files = sorted(files) if scheme == "folder" else files
    try:
        for path in files:
            relative = (
                path.relative_to(root).as_posix() if root.is_dir() and scheme != "list" else ""
            )
            with open_regular(path, _MOST_BYTES[scheme]) as file:
                size = os.fstat(file.fileno()).st_size
                digest.update(f"{relative}\0{size}\0".encode(errors="surrogateescape"))
                for start in range(0, size, _AT_ONCE):
                    digest.update(file.read(min(_AT_ONCE, size - start)))
    except OSError as error:
        raise UserError(f"cannot read {name} ({error}): name files that can be read") from error
    return digest.hexdigest()


# ---- TFDS --------------------------------------------------------------------------------------


def _read_tfds(name: str, reading: ReadArguments, data_dir: str | os.PathLike | None) -> ExampleSet:
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
            return _example_set(*both, names)
    folder = Path(builder.data_dir_root)
    variant = f"-by-name-{reading.image_size or 'as-is'}"
    kept = read_decoded(name, folder, variant) if is_image else None
    if kept is not None:
        return _example_set(kept[0], kept[1] if len(kept[1].labels) else None, names)
    parts: dict[str, Examples] = {}
    for split in ("train", *TEST_NAMES):
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
    test = others[0] if others else None
    if is_image and train.inputs.dtype == np.uint8:
        keep_decoded(name, folder, train, test or train.take(slice(0)), variant)
    return _example_set(train, test, names)


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


# ---- files -------------------------------------------------------------------------------------


def _read_files(scheme: str, path: Path, reading: ReadArguments) -> ExampleSet:
    members = list_members(scheme, path)
    if members.left_out:
        _LOGGER.warning("%s", members.left_out)
    title, names = f"{scheme}:{path}", members.names
    if scheme == "list":
        warn_of_missing(names)
    train = _read_images(members.train, names, reading, title)
    test = _read_images(members.test, names, reading, title) if members.test else None
    return _example_set(train, test, names)


def _read_images(
    members: dict[str, list[Path]], names: Sequence[str], reading: ReadArguments, title: str
) -> Examples:
    rows = [(file, number) for number, name in enumerate(names) for file in members.get(name, ())]
    _check_fits(title, len(rows), _shape(read_image(rows[0][0]).shape, reading))
    images = [read_image(file, reading.image_size) for file, _ in rows]
    labels = np.array([number for _, number in rows], np.int32)
    return Examples(_stacked(images, title), labels)


def _read_csv(path: Path, reading: ReadArguments) -> ExampleSet:
    files, left_out = files_of_parts(path, "csv")
    if left_out:
        _LOGGER.warning("%s", left_out)
    tables = [read_table(file) for file in files]
    header = list(tables[0].columns)
    for table in tables[1:]:
        if list(table.columns) != header:
            raise UserError(
                f"{table.path} has the columns {', '.join(table.columns)}, and {files[0]} "
                f"{', '.join(header)}: expected the same in both"
            )
    for flag, column in (("label", reading.label), ("domain", reading.domain)):
        if column is not None and column not in header:
            raise UserError(
                f"csv:{path} has no column {column!r}: name one of {', '.join(header)} with "
                f"--{flag}"
            )
    names = [name for name in header if name not in (reading.label, reading.domain)]
    if not names:
        raise UserError(f"csv:{path} has no column but its labels and domains: expected inputs")
    codes = {name for name in (reading.label, reading.domain) if name and are_codes(tables, name)}
    for name in sorted(codes):
        _LOGGER.warning(
            "the column %r of csv:%s has whole numbers that are written differently, such as 007 "
            "and 7: each text is a name of its own; write them alike where they are the same",
            name, path,
        )  # fmt: skip
    train, *others = [
        (inputs_of(table, names), targets_of(table, reading.label, reading.label in codes))
        for table in tables
    ]
    domains = None
    if reading.domain is not None:
        columns = [domains_of(table, reading.domain, reading.domain in codes) for table in tables]
        domains = columns[0], columns[-1]
    return set_from_arrays(train, others[0] if others else None, None, domains)


# ---- all ---------------------------------------------------------------------------------------


def _shape(shape: Sequence[int | None], reading: ReadArguments) -> tuple[int | None, ...]:
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
        return text_array([text.decode("utf-8", "replace") for text in inputs])
    shapes = sorted({image.shape for image in inputs})
    if len(shapes) > 1:
        shown = " and ".join(" x ".join(map(str, shape)) for shape in shapes[:2])
        raise UserError(
            f"{name} has images of {len(shapes)} sizes, such as {shown}: give a size that all are "
            "resized to, image_size=64 or --image_size=64"
        )
    return np.stack(inputs) if inputs else np.zeros((0,), np.uint8)


def _example_set(
    train: Examples, test: Examples | None, names: tuple[str, ...] | None
) -> ExampleSet:
    """A data set with the scaling of its training images."""
    return set_from_arrays(train, test)._replace(class_names=names)
