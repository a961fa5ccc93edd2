"""Images from TensorFlow Datasets."""

import contextlib
import os
import textwrap
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from nccl_tf.errors import UserError
from nccl_tf.streams.arrays import Examples

if TYPE_CHECKING:
    import tensorflow_datasets as tfds


def load_tfds(name: str, data_dir: str | os.PathLike | None = None) -> tuple[Examples, Examples]:
    """Training and test examples of a TFDS set, in file order.

    A prepared set is read without touching the network; another is downloaded and prepared first.

    Args:
        name: TFDS's name of a set with features "image" and "label" and splits "train" and "test".
        data_dir: TFDS's data folder; None for TFDS's own choice (the environment variable
            TFDS_DATA_DIR, else a folder in the user's home).

    Raises:
        UserError: The set is not prepared and cannot be downloaded, or its files cannot be read.
    """
    import tensorflow_datasets as tfds

    data_dir = None if data_dir is None else os.path.expanduser(data_dir)
    try:
        builder = tfds.builder(name, data_dir=data_dir, try_gcs=False)
        with _few_retries():
            builder.download_and_prepare(
                download_config=tfds.download.DownloadConfig(try_download_gcs=False)
            )
    except Exception as error:  # Network, disk, checksum, proxy: each has errors of its own.
        where = os.path.expanduser(data_dir or tfds.core.constants.DATA_DIR)
        argument = "" if data_dir is None else f", data_dir={data_dir!r}"
        reason = textwrap.shorten(f"{type(error).__name__}: {error}", 200)
        raise UserError(
            f"TFDS set {name!r} is not in the data folder {where} and could not be downloaded "
            f"({reason}): on a machine with a connection run "
            f'python -c "import tensorflow_datasets as tfds; tfds.load({name!r}{argument})" and '
            f"bring the folder it writes here with: cp -r {name} {where}/ ; or name a folder that "
            f"has it with --data_dir or TFDS_DATA_DIR; the digits streams need no download"
        ) from error
    return read_split(builder, "train"), read_split(builder, "test")


@contextlib.contextmanager
def _few_retries() -> Iterator[None]:
    """Let TFDS give up on a missing connection after seconds: its ten retries take minutes."""
    from tensorflow_datasets.core.download import downloader

    before = downloader.MAX_RETRIES
    downloader.MAX_RETRIES = 3
    try:
        yield
    finally:
        downloader.MAX_RETRIES = before


def read_split(builder: "tfds.core.DatasetBuilder", split: str) -> Examples:
    """All examples of a prepared set's split, in file order.

    Sizes are taken from the data: the builder's info may not know them.

    Raises:
        UserError: The prepared files are broken or the split is empty.
    """
    import tensorflow as tf
    import tensorflow_datasets as tfds

    # One file after the other: TFDS interleaves several by default.
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
    while batches:  # From the back, so that each batch is freed once it is copied.
        batch = batches.pop()["image"]
        images[end - len(batch) : end] = batch
        end -= len(batch)
    return Examples(images, labels)
