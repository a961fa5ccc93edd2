"""mini-ImageNet: a TFDS builder for the files that a user brings."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow_datasets as tfds

from nccl_tf.errors import UserError
from nccl_tf.streams.arrays import Examples
from nccl_tf.streams.sources.mini_imagenet.layouts import (
    LAYOUTS,
    fingerprint,
    locate,
    read_source,
)
from nccl_tf.streams.sources.mini_imagenet.source import SIDE, Source
from nccl_tf.streams.sources.tfds import read_split


class MiniImagenet(tfds.core.GeneratorBasedBuilder):
    """100 classes of ImageNet at 84x84 (Vinyals et al., 2016), all in training and in test.

    Features: "image" uint8 [84, 84, 3], RGB, and "label" int64, classes numbered in sorted order of
    their names. A source without training and test parts of the same classes is cut per class in
    file order: the first 5/6 train, the last 1/6 test (500/100 of 600). The examples keep the
    source's order. Raises UserError for files that are missing, broken or of another layout.
    """

    VERSION = tfds.core.Version("1.0.0")
    MANUAL_DOWNLOAD_INSTRUCTIONS = f"Put into the folder mini_imagenet of manual_dir {LAYOUTS}."

    def _info(self) -> tfds.core.DatasetInfo:
        return tfds.core.DatasetInfo(
            builder=self,
            description="mini-ImageNet: 100 classes of ImageNet at 84x84 pixels.",
            features=tfds.features.FeaturesDict(
                {
                    "image": tfds.features.Image(shape=(SIDE, SIDE, 3), encoding_format="png"),
                    "label": tfds.features.ClassLabel(),
                }
            ),
            supervised_keys=("image", "label"),
            disable_shuffling=True,
        )

    def _split_generators(self, dl_manager: Any) -> dict[str, Iterator]:
        source = read_source(locate(dl_manager.manual_dir))
        self.info.features["label"].names = source.classes
        return {
            "train": self._generate_examples(source, source.train),
            "test": self._generate_examples(source, source.test),
        }

    def _generate_examples(
        self, source: Source, examples: list[tuple[object, int]]
    ) -> Iterator[tuple[int, dict[str, Any]]]:
        for index, (key, label) in enumerate(examples):
            image: np.ndarray = source.read(key)
            yield index, {"image": image, "label": label}


def load_mini_imagenet(
    data_dir: str | os.PathLike | None = None, manual_dir: str | os.PathLike | None = None
) -> tuple[Examples, Examples]:
    """Training and test examples of a user's mini-ImageNet, prepared at first use.

    Args:
        data_dir: TFDS's data folder; None for TFDS's own choice. Prepared data lie in
            mini_imagenet/<fingerprint of the source's files>/ there.
        manual_dir: Folder with the user's files; None for TFDS's own choice,
            <data folder>/downloads/manual.

    Raises:
        UserError: The files are missing, broken or of none of the layouts, or the data folder
            cannot be written.
    """
    root = Path(os.path.expanduser(data_dir or tfds.core.constants.DATA_DIR))
    folder = locate(manual_dir or root / "downloads" / "manual")
    config = tfds.core.BuilderConfig(name=fingerprint(folder))
    try:
        builder = MiniImagenet(data_dir=root, config=config)
        builder.download_and_prepare(
            download_config=tfds.download.DownloadConfig(manual_dir=folder)
        )
    except Exception as error:
        if user_error := _user_error(error):
            raise user_error from None
        if isinstance(error, OSError):
            raise UserError(
                f"the data folder {root} cannot be written ({error.strerror or error}): give "
                f"another as --data_dir"
            ) from error
        raise
    return read_split(builder, "train"), read_split(builder, "test")


def _user_error(error: BaseException | None) -> UserError | None:
    """The UserError that TFDS wrapped into errors of its own, without the words it added."""
    found = None
    while error is not None:
        found = error if isinstance(error, UserError) else found
        error = error.__cause__ or error.__context__
    return found
