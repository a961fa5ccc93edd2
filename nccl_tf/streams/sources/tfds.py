"""Loading images from TensorFlow Datasets (TFDS)."""

import contextlib
import os
import textwrap
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from nccl_tf.errors import UserError
from nccl_tf.streams.arrays import Examples
from nccl_tf.streams.sources.decoded import data_folder, keep_decoded, read_decoded

if TYPE_CHECKING:
    import tensorflow_datasets as tfds


def load_tfds(name: str, data_dir: str | os.PathLike | None = None) -> tuple[Examples, Examples]:
    """Load the training and test examples of a TFDS data set, in file order.

    A prepared data set is read without network access; otherwise it is downloaded and prepared.
    Once decoded, its images are kept beside it for the next process (`sources/decoded.py`).

    Args:
        name: TFDS's name of a data set with features "image" and "label" and splits "train" and
            "test".
        data_dir: TFDS's data folder; None for TFDS's default (the environment variable
            TFDS_DATA_DIR, else a folder in the user's home).

    Raises:
        UserError: The data set is not prepared and cannot be downloaded, or its files cannot be
            read.
    """
    folder = data_folder(data_dir)
    kept = read_decoded(name, folder)
    if kept is not None:
        return kept
    builder = prepared(name, data_dir)
    train, test = read_split(builder, "train"), read_split(builder, "test")
    counts = {split: info.num_examples for split, info in builder.info.splits.items()}
    if counts == {"train": len(train.labels), "test": len(test.labels)}:
        keep_decoded(name, folder, train, test)
    return train, test


def prepared(name: str, data_dir: str | os.PathLike | None = None) -> "tfds.core.DatasetBuilder":
    """The builder of a TFDS data set that is prepared, or is downloaded and prepared now.

    Args:
        name: TFDS's name, such as "mnist" or "glue/sst2".
        data_dir: As for `load_tfds`.

    Raises:
        UserError: It is unknown, or not prepared and cannot be downloaded.
    """
    import tensorflow_datasets as tfds

    with _translated(name, data_dir), _limit_retries():
        builder = builder_of(name, data_dir)
        builder.download_and_prepare(
            download_config=tfds.download.DownloadConfig(try_download_gcs=False)
        )
    return builder


def builder_of(name: str, data_dir: str | os.PathLike | None = None) -> "tfds.core.DatasetBuilder":
    """The builder of a TFDS data set, prepared or not; it looks at no network.

    Args:
        name: As for `prepared`.
        data_dir: As for `load_tfds`.

    Raises:
        UserError: It is unknown.
    """
    import tensorflow_datasets as tfds

    data_dir = None if data_dir is None else os.path.expanduser(data_dir)
    with _translated(name, data_dir):
        return tfds.builder(name, data_dir=data_dir, try_gcs=False)


@contextlib.contextmanager
def _translated(name: str, data_dir: str | os.PathLike | None) -> Iterator[None]:
    """Say of any error of TFDS how a data set comes to this machine."""
    import tensorflow_datasets as tfds

    try:
        yield
    except UserError:
        raise
    except Exception as error:  # Network, disk, checksum and proxy raise unrelated errors.
        where = os.path.expanduser(data_dir or tfds.core.constants.DATA_DIR)
        argument = "" if data_dir is None else f", data_dir={data_dir!r}"
        reason = textwrap.shorten(f"{type(error).__name__}: {error}", 200)
        raise UserError(
            f"TFDS data set {name!r} is not in the data folder {where} and could not be downloaded "
            f"({reason}): on a machine with a connection run "
            f'python -c "import tensorflow_datasets as tfds; tfds.load({name!r}{argument})" and '
            f"bring the folder it writes here with: cp -r {name} {where}/ ; or name a folder that "
            f"has it with --data_dir or TFDS_DATA_DIR; the digits streams need no download"
        ) from error


@contextlib.contextmanager
def _limit_retries() -> Iterator[None]:
    """Make TFDS give up on a missing connection within seconds: its ten retries take minutes."""
    from tensorflow_datasets.core.download import downloader

    before = downloader.MAX_RETRIES
    downloader.MAX_RETRIES = 3
    try:
        yield
    finally:
        downloader.MAX_RETRIES = before


def read_split(builder: "tfds.core.DatasetBuilder", split: str) -> Examples:
    """Read all examples of a split of a prepared data set, in file order.

    Sizes come from the data, because the builder's info may lack them.

    Raises:
        UserError: The prepared files are broken or the split is empty.
    """
    import tensorflow as tf
    import tensorflow_datasets as tfds

    # Read files in sequence: TFDS interleaves several by default.
    config = tfds.ReadConfig(interleave_cycle_length=1, try_autocache=False)
    try:
        dataset = builder.as_dataset(split=split, shuffle_files=False, read_config=config)
        batches = list(tfds.as_numpy(dataset.batch(1000)))
    except (tf.errors.OpError, OSError, ValueError) as error:
        raise UserError(
            f"the prepared files of {builder.name} in {builder.data_dir} cannot be read "
            f"({type(error).__name__}): delete that folder and run again"
        ) from error
    labels = np.concatenate([batch["label"] for batch in batches]).astype(np.int32)
    images = np.empty((len(labels), *batches[0]["image"].shape[1:]), np.uint8)
    end = len(labels)
    while batches:  # From the end, so that each batch is freed once it is copied.
        batch = batches.pop()["image"]
        images[end - len(batch) : end] = batch
        end -= len(batch)
    return Examples(images, labels)
