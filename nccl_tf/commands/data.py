"""The command `data`: prepares a data set, checks it and describes it."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from nccl_tf.errors import UserError
from nccl_tf.experiment.config.flag_table import COMMAND_FLAGS
from nccl_tf.experiment.config.options import Options, resolve_options
from nccl_tf.experiment.config.settings import SETTINGS
from nccl_tf.quiet_start import quiet_start
from nccl_tf.reports import dataset
from nccl_tf.streams.arrays import ImageSet
from nccl_tf.streams.catalog import DATASETS, get_dataset
from nccl_tf.streams.load import cut
from nccl_tf.streams.plan import plan_stream
from nccl_tf.streams.sources.images import load_images


def run(flag_values: Mapping[str, Any]) -> int:
    """Read a data set, which prepares it where it is not, describe it and draw its contact sheet.

    Returns:
        1 if the check found a fault, else 0.

    Raises:
        UserError: The data are missing or broken, the settings do not fit, or the picture cannot be
            written.
    """
    text, faults = _describe(flag_values, resolve_options(flag_values))
    print(text)
    for fault in faults:
        print(f"fault: {fault}", file=sys.stderr)
    return 1 if faults else 0


def _describe(flag_values: Mapping[str, Any], options: Options) -> tuple[str, Sequence[str]]:
    """The description, and the faults that the check found, a sentence each."""
    row = get_dataset(SETTINGS["dataset"].value(flag_values))
    names = ("head", "num_tasks", "tuning_tasks", "max_tasks", "examples_per_task", "angles")
    plan = plan_stream(row, **{name: flag_values[name] for name in names})
    if row.make is not None:
        raise UserError(
            f"{row.name} makes its tasks itself: expected a stream that is cut from one data set, "
            f"one of {', '.join(name for name, one in DATASETS.items() if one.make is None)}"
        )
    with quiet_start():
        images = load_images(row.source, options.data_dir, options.manual_dir)
    source = row.source if isinstance(row.source, str) else row.name
    faults = dataset.faults(images, row.num_classes)
    parts = [_inputs(row.name, source, images)]
    parts.append(
        dataset.counts_table(images, row.num_classes)
        if row.has_classes
        else dataset.targets_table(images)
    )
    parts.append(_statistics(images))
    if not faults:
        parts += [dataset.tasks_text(cut(images, row, plan, s), s) for s in options.seeds]
    if dataset.is_images(images):
        path = Path(COMMAND_FLAGS["figure_dir"].value(flag_values)) / f"data_{source}.png"
        _save(dataset.contact_sheet(images.train, row.num_classes), path)
        parts.append(f"see {path}")
    return "\n\n".join(parts), faults


def _inputs(name: str, source: str, images: ImageSet) -> str:
    """The form of the inputs."""
    inputs = images.train.inputs
    shape = " x ".join(map(str, inputs.shape[1:]))
    if not dataset.is_images(images):
        return f"{name}: {source}, {shape} values of {inputs.dtype.name} an example"
    return f"{name}: {source}, {shape} (height, width, channels), values 0 to {inputs.max()}"


def _statistics(images: ImageSet) -> str:
    """Mean and spread of the inputs, and what is in both parts."""
    if dataset.is_images(images):
        statistics = dataset.channel_statistics(images.train)
        means, stds = (", ".join(f"{x:.4f}" for x in part) for part in statistics[1:])
        text = f"mean of each channel: {means} (of the largest value)\nstandard deviation:   {stds}"
        what = "images"
    else:
        inputs = images.train.inputs
        text = f"mean of the inputs: {inputs.mean():.4f}, standard deviation {inputs.std():.4f}"
        what = "examples"
    return f"{text}\ntest {what} that are in the training part too: {dataset.repeated(images)}"


def _save(sheet: np.ndarray, path: Path) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(sheet).save(path)
    except (OSError, ValueError) as error:
        raise UserError(f"cannot write {path} ({error}): choose another --figure_dir") from error
