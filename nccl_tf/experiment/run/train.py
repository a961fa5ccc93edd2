"""One seed from its settings to its record on disk, unless it is there already."""

import importlib.util
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, NamedTuple

from nccl_tf.errors import LearningFailedError, UserError, translate_os_error
from nccl_tf.experiment.config.resolve import resolve
from nccl_tf.experiment.run.console import Console
from nccl_tf.experiment.run.run_file import check_run_plugins, write_run_file
from nccl_tf.experiment.run.signals import InterruptRequest, interrupt_requests
from nccl_tf.machine import count_cores, threads_of_environment
from nccl_tf.quiet_start import quiet_start
from nccl_tf.records.files import check_no_links, lock_folder, remove_left_over
from nccl_tf.records.options import RunOptions, check_options
from nccl_tf.records.record import (
    CHECKPOINTS,
    FILE_NAME,
    MODEL_NAME,
    Record,
    read_result,
    write_record,
)
from nccl_tf.records.settings import Settings, run_folder

Plot = Callable[[Record, Path], list[Path]]
"""Makes pictures of a record in a folder, and returns their paths."""


class Run(NamedTuple):
    """One seed of an experiment.

    Attributes:
        settings: What is run.
        options: How, and where data are.
        seed: Its seed.
        folder: Where its record and checkpoints are.
        flag_values: The flag values it was made of, by name.
    """

    settings: Settings
    options: RunOptions
    seed: int
    folder: Path
    flag_values: Mapping[str, Any]

    @classmethod
    def from_flags(cls, flag_values: Mapping[str, Any], options: RunOptions, seed: int) -> "Run":
        """The run of flag values in its own folder below the output folder.

        Raises:
            UserError: A setting is bad, or diagnostics or XLA are asked for and have no meaning.
        """
        settings = resolve(flag_values)
        check_options(settings, options)
        folder = run_folder(settings, options.output_dir, seed)
        return cls(settings, options, seed, folder, flag_values)

    @property
    def is_finished(self) -> bool:
        """Whether its record is there, and need not be made again."""
        # Not `Path.exists`, which raises for a name that is too long.
        return not self.options.overwrite and os.path.exists(self.folder / FILE_NAME)

    def check_plugins(self) -> None:
        """Check that the run starts or resumes with the plugins of this command.

        Raises:
            UserError: It was begun with others, and is not to be run again.
        """
        if not self.options.overwrite:
            check_run_plugins(self.folder, self.options.plugin)


def no_plots(record: Record, folder: Path) -> list[Path]:
    """Make no pictures."""
    return []


def train_seed(
    run: Run,
    plot: Plot = no_plots,
    console: Console | None = None,
) -> tuple[Record, list[Path]]:
    """Read the record of a run or, where there is none, train, evaluate and write it.

    Args:
        run: The run.
        plot: Makes the pictures of the record, before the record is written.
        console: Takes what there is to say; that of `--progress` by default.

    Returns:
        The record, and the files that were made.

    Raises:
        UserError: Data are missing, the folder cannot be written or another process runs in it,
            the run was begun with other plugins, or the machine has too little memory.
        Interrupted: A signal came; a checkpoint is written, or the record is.
        LearningFailedError: Ten steps in a row were not finite.
    """
    settings, folder = run.settings, run.folder
    console = console or Console(run.options.progress)
    run.check_plugins()
    if run.is_finished:
        return _finished(run, console)
    _check_system()
    if run.options.device.startswith("gpu"):
        # Refused before a folder is made; with other devices the run is named before the seconds
        # that importing TensorFlow takes.
        _use_processors(run)
    make_folder(run)
    hint = f"{how_to_resume(run)}, resumes it"
    with lock_folder(folder), interrupt_requests(resume_hint=hint) as request:
        if run.is_finished:  # by a process that had the lock since
            return _finished(run, console)
        remove_left_over(folder)
        write_run_file(folder, settings, run.seed, run.flag_values)
        title = f"{settings.method} on {settings.dataset} ({settings.head}-head), seed {run.seed}"
        console.say(
            f"{console.styled(title, 'bold')}, learning rate {settings.learning_rate:g}\n"
            f"{settings.num_tasks} tasks: {settings.tuning_tasks} held out for tuning, "
            f"{settings.evaluated_tasks} for evaluation; "
            f"{settings.max_tasks} {settings.tasks or 'evaluated'} tasks are run"
        )
        record = _train(run, folder, request, console)
        from nccl_tf.records.checkpoints import CheckpointStore

        pictures, steps = plot(record, folder), folder / "steps.csv"
        if not steps.is_file():
            raise UserError(
                f"{steps} was removed before the record was written: restore it and give the same "
                "command, or run it again with --overwrite"
            )
        model = [folder / MODEL_NAME] if run.options.save_model else []
        files = [write_record(record, folder), steps, *pictures, *model]
        CheckpointStore(folder / CHECKPOINTS).clear()
        if interruption := request.interruption():
            raise interruption
    return record, files


def how_to_resume(run: Run) -> str:
    """What to give for a run that was stopped."""
    same = "" if run.options.overwrite else "the same command, or "
    return f"{same}--resume={run.folder}"


def _finished(run: Run, console: Console) -> tuple[Record, list[Path]]:
    record = read_result(run.folder, run.settings, run.seed)
    console.say(f"finished already (--overwrite runs it again): {run.folder / FILE_NAME}")
    return record, sorted(run.folder.glob("*.png"))


def _check_system() -> None:
    """A record has the peak of memory, which Windows tells in no way that Python has."""
    if importlib.util.find_spec("resource") is None:
        raise UserError(
            "received a system whose Python has no module resource, such as Windows: expected "
            "Linux, macOS or WSL; use one of them, or nccl_tf.learn"
        )


def _use_processors(run: Run) -> None:
    with quiet_start():
        from nccl_tf.experiment.run.devices import (
            use_device,
            use_kept_programs,
            use_precision,
            use_threads,
        )

        use_threads(run.options.threads, default_threads(run.settings, count_cores()))
        use_kept_programs(run.options.compile_cache)
        use_device(run.options.device)
        use_precision(run.settings.precision)


def _train(run: Run, folder: Path, request: InterruptRequest, console: Console) -> Record:
    """Train a run in a folder and return its record."""
    _use_processors(run)
    import tensorflow as tf

    from nccl_tf.experiment.run.seed import run_seed

    try:
        with translate_oom_error():
            return run_seed(run.settings, run.options, run.seed, folder, request, console)
    except LearningFailedError as error:
        raise learning_failed(run) from error
    except tf.errors.OpError as error:
        if not run.options.tensorboard:
            raise
        raise UserError(
            f"cannot write into {folder / 'tensorboard'} ({type(error).__name__}): free space or "
            "leave --tensorboard out; the same command resumes from the last checkpoint"
        ) from error


def learning_failed(run: Run) -> LearningFailedError:
    """The error of a run whose learning failed."""
    return LearningFailedError(
        "ten steps in a row had no finite loss and gradient, so the run has ended; its "
        f"last checkpoint is in {run.folder}: try a lower --learning_rate (it was "
        f"{run.settings.learning_rate:g})"
    )


@contextmanager
def translate_oom_error() -> Iterator[None]:
    """Turn the errors of a machine that is out of memory, or of disk, into one sentence.

    Raises:
        UserError: The body ran out of memory, or TensorFlow of disk.
    """
    import tensorflow as tf

    try:
        yield
    except (MemoryError, tf.errors.ResourceExhaustedError) as error:
        if "No space left on device" in str(error):
            raise UserError(
                "the disk of the output folder is full (No space left on device): free space or "
                "choose another --output_dir; the same command resumes from the last checkpoint"
            ) from error
        raise UserError(
            "this machine ran out of memory: lower --batch_size, the network's --hidden or the "
            "size of the replay memory"
        ) from error


def make_folder(run: Run) -> None:
    """Make the folder of a run, which can be written into.

    Raises:
        UserError: It cannot, or leads through a link elsewhere.
    """
    folder = run.folder
    check_no_links(folder, Path(run.options.output_dir))
    check_no_links(folder / CHECKPOINTS, folder)
    with translate_os_error(f"into {folder}", "choose another --output_dir"):
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=folder):
            pass


def default_threads(settings: Settings, cores: int) -> int:
    """TensorFlow's intra-op threads of a run for which `--threads` is not given.

    A second thread makes a dense network's steps slower, and its evaluation, which takes two
    batches at a time, hardly faster (docs/scale.md). Convolutions, and replicas made of the CPU's
    cores, use all cores they get.

    Args:
        settings: What is run.
        cores: The run's share of the machine.
    """
    dense = settings.network in ("mlp", "mlp_experts") and settings.distribute is None
    return threads_of_environment() or (1 if dense else cores)
