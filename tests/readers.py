"""What reads files of strangers, by name: for the corpus and the fuzzer."""

import hashlib
from collections.abc import Callable
from pathlib import Path

from absl import flags

from nccl_tf.errors import UserError
from nccl_tf.experiment.config.flags import define_flags, parse_flags
from nccl_tf.experiment.run import run_file
from nccl_tf.experiment.run.checkpoints import CheckpointStore
from nccl_tf.experiment.run.record import read_record
from nccl_tf.reports.figures.steps import read_steps
from nccl_tf.reports.page.distributions import distributions
from nccl_tf.reports.record_lines import read_lines
from nccl_tf.streams.sources import decoded
from nccl_tf.streams.sources.mini_imagenet.folder import read_image
from nccl_tf.streams.sources.mini_imagenet.restricted_pickle import load_pickle

_VALUES = flags.FlagValues()
define_flags(_VALUES)


def read_checkpoint(path: Path) -> None:
    """Read a checkpoint of this payload, with a checksum that is right."""
    payload = path.read_bytes()
    digest = hashlib.sha256(payload).hexdigest().encode()
    folder = path.with_suffix(".folder")
    folder.mkdir(exist_ok=True)
    (folder / "000001.checkpoint").write_bytes(b"nccl_tf checkpoint 2\n" + digest + b"\n" + payload)
    CheckpointStore(folder).last()


def read_flags(path: Path) -> None:
    """Read flags from a file."""
    _VALUES.unparse_flags()
    parse_flags(_VALUES, ["run.py", f"--flagfile={path}"])


def read_run(path: Path) -> None:
    """Read what a run is about, as --resume does."""
    folder = path.with_suffix(".run")
    folder.mkdir(exist_ok=True)
    (folder / run_file.FILE_NAME).write_bytes(path.read_bytes())
    run_file.settings_to_resume(folder, {})


def read_images(path: Path) -> None:
    """Read images that were kept decoded."""
    folder = path.with_suffix(".data")
    kept = folder / decoded.FOLDER / "x.images"
    kept.parent.mkdir(parents=True, exist_ok=True)
    kept.write_bytes(path.read_bytes())
    decoded.read_decoded("x", folder)


def read_steps_of_run(path: Path) -> None:
    """Read a steps.csv, for a figure and for the report."""
    folder = path.with_suffix(".steps")
    folder.mkdir(exist_ok=True)
    (folder / "steps.csv").write_bytes(path.read_bytes())
    read_steps(folder / "steps.csv")
    distributions([folder])


READERS: dict[str, Callable[[Path], object]] = {
    "pickle": load_pickle,
    "record": read_record,
    "lines": read_lines,
    "checkpoint": read_checkpoint,
    "flags": read_flags,
    "run": read_run,
    "image": read_image,
    "images": read_images,
    "steps": read_steps_of_run,
}


def read_or_refuse(reader: str, path: Path) -> None:
    """Read a file; the project's own error will do too, in a short sentence."""
    try:
        READERS[reader](path)
    except UserError as error:
        assert len(str(error)) < 2000, f"an error of {len(str(error))} characters"
