"""Options of a run that do not change its results: where it reads and writes, how it reports.

With them the flags of a run are whole, of which parser, help and checks are made.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

from nccl_tf.arguments.choices import AUTO, DIAGNOSTICS, ON, PROGRESS_MODES, XLA
from nccl_tf.arguments.parameters import OUTPUT, RUN, SPEED, Setting, declared_settings, setting
from nccl_tf.errors import UserError, check_tensorboard
from nccl_tf.methods.registry import get_method
from nccl_tf.records.settings import MEMORY_SIZES, SETTINGS, Settings, hyperparameter_flags
from nccl_tf.streams.catalog import scheme_of

DEVICES = re.compile(r"auto|cpu(:[1-9][0-9]?)?|gpu(:[0-9]{1,3})?")
"""Values of `device`: everything, the CPU (split into N devices), all GPUs, or GPU N."""


class NamedSource(NamedTuple):
    """Where a data set by name lies, as a user gave it.

    Args:
        name: Such as "folder:/data/pets".
        label: Column of the labels of a CSV file; None for the default.
        domain: Column of its domains; None where it has none.
        positive: Name of the positive of two classes; None for the second.
    """

    name: str
    label: str | None = None
    domain: str | None = None
    positive: str | None = None


@dataclass(frozen=True)
class RunOptions:
    """Where a run reads and writes, and which seeds are run: each field is a flag of the command.

    Args:
        steps_per_execution: None for a number that is fast.
        threads: None for a number that is fast.
        workers: None for as many as fit.
        progress: None for "bar" on a terminal, else "plain".
        compile_cache: None for the user's own folder, "off" for none.
        data_dir: None for TensorFlow Datasets' own default.
        manual_dir: None for the default below `data_dir`.
        source: A data set by name with its path, which is no part of the settings; None of a
            stream of the catalog.
    """

    seeds: Annotated[
        tuple[int, ...],
        setting(
            topic=RUN,
            help="one run each; a seed fixes the stream, the weights and the draws from memory",
        ),
    ] = (0,)
    plugin: Annotated[
        tuple[str, ...],
        setting(
            topic=RUN,
            default_doc="none",
            help=(
                "modules or .py files to import first, which register methods, memories and "
                "streams of your own; only on the command line itself, not in a flag file"
            ),
        ),
    ] = ()
    output_dir: Annotated[
        str,
        setting(
            topic=OUTPUT,
            help="folder of the runs",
        ),
    ] = "runs"
    overwrite: Annotated[
        bool,
        setting(
            topic=OUTPUT,
            help="repeat finished runs",
        ),
    ] = False
    record_every: Annotated[
        int | None,
        setting(
            topic=OUTPUT,
            unit="steps",
            ge=1,
            default_doc="50, or as many as give a shorter run 200 rows",
            help="steps in one row of steps.csv",
        ),
    ] = None
    steps_per_execution: Annotated[
        int | None,
        setting(
            topic=SPEED,
            unit="steps",
            ge=1,
            le=100_000,
            default_doc="50 with convolutions, else 200",
            help="steps in one call of the graph; changes speed, not results",
        ),
    ] = None
    jit_compile: Annotated[
        str,
        setting(
            topic=SPEED,
            choices=XLA,
            help=(
                "whether XLA compiles whole steps, many in one program, which changes rounding: "
                "true, false, or auto (on a GPU, and on a CPU where a dense network takes steps "
                "enough to pay for compiling); result.json says which (docs/speed.md)"
            ),
        ),
    ] = AUTO
    compile_cache: Annotated[
        str | None,
        setting(
            topic=SPEED,
            default_doc="nccl_tf in XDG_CACHE_HOME, or in ~/.cache",
            help=(
                "folder that keeps programs of XLA for the next run, or off; programs of a GPU are "
                "not kept; changes speed, not results"
            ),
        ),
    ] = None
    tensorboard: Annotated[
        bool,
        setting(topic=OUTPUT, help="write TensorBoard events into the run's folder"),
    ] = False
    save_model: Annotated[
        bool,
        setting(
            topic=OUTPUT,
            help=(
                "write the trained model with its memory into the run's folder, as model.keras for "
                "nccl_tf.load_model"
            ),
        ),
    ] = False
    diagnostics: Annotated[
        str,
        setting(
            topic=OUTPUT,
            choices=DIAGNOSTICS,
            help=(
                "measure the theory's quantities: off, subset (gradients over 200 examples of "
                "each task; Gamma every 10th step where the method does not measure it) or full "
                "(all examples, every step; docs/theory.md has the cost)"
            ),
        ),
    ] = "off"
    checkpoint_every: Annotated[
        float,
        setting(
            topic=OUTPUT,
            unit="seconds",
            gt=0.0,
            help="time between checkpoints inside a task; one is written at every task end too",
        ),
    ] = 60.0
    device: Annotated[
        str,
        setting(
            topic=SPEED,
            help=(
                "auto (the GPUs, or the CPU where there is none), cpu, gpu, gpu:N for one of "
                "several, or cpu:N for the CPU as N devices to try --distribute on"
            ),
        ),
    ] = "auto"
    threads: Annotated[
        int | None,
        setting(
            topic=SPEED,
            unit="threads",
            ge=1,
            le=4096,
            default_doc="the run's share of the cores, 1 for a dense network",
            help=(
                "threads of a run among which TensorFlow divides one operation; with convolutions "
                "the number changes rounding"
            ),
        ),
    ] = None
    workers: Annotated[
        int | None,
        setting(
            topic=SPEED,
            unit="processes",
            ge=1,
            le=4096,
            default_doc="one for each core or GPU, as far as there are runs and free memory",
            help=(
                "processes that make runs side by side, each with an equal share of the cores, and "
                "with one GPU where there are any; more than 1 only without --distribute"
            ),
        ),
    ] = None
    progress: Annotated[
        str | None,
        setting(
            topic=OUTPUT,
            choices=PROGRESS_MODES,
            default_doc="bar on a terminal, else plain",
            help=(
                "bar (one line, redrawn), plain (a line a task), json (an object a line, for "
                "scripts) or none"
            ),
        ),
    ] = None
    data_dir: Annotated[
        str | None,
        setting(
            topic=OUTPUT,
            default_doc="the environment variable TFDS_DATA_DIR, else ~/tensorflow_datasets",
            help="folder of TensorFlow Datasets",
        ),
    ] = None
    manual_dir: Annotated[
        str | None,
        setting(
            topic=OUTPUT,
            default_doc="downloads/manual below --data_dir",
            help="folder or file that you bring (mini-ImageNet)",
        ),
    ] = None
    source: NamedSource | None = None


RUN_OPTIONS = declared_settings(RunOptions)
"""The flags that do not change a run's results, by name."""

OF_THE_COMMAND = ("seeds", "plugin", "output_dir", "overwrite", "workers", "progress")
"""Options that say what a command does, and not how a run is made: a run that is resumed has those
of the command that resumes it."""


def run_flags() -> tuple[Setting, ...]:
    """Every flag of a run; those of a command stand in its module of `nccl_tf.commands`."""
    return (
        *SETTINGS.values(),
        *MEMORY_SIZES.values(),
        *hyperparameter_flags(),
        *RUN_OPTIONS.values(),
    )


def as_arguments(flag_values: Mapping[str, Any]) -> list[str]:
    """Values by name as a command line would give them; None is left out."""
    return [
        f"--{name}={_as_text(value)}" for name, value in flag_values.items() if value is not None
    ]


def _as_text(value: Any) -> str:
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def resolve_options(flag_values: Mapping[str, Any]) -> RunOptions:
    """Options from flag values by name; None or absent means the default.

    Raises:
        UserError: A seed is negative or named twice, a number is out of range, a name is unknown,
            or the package for `tensorboard` is missing.
    """
    named = flag_values.get("dataset")
    columns = (flag_values.get(name) for name in NamedSource._fields[1:])
    options = RunOptions(
        **{name: row.value(flag_values) for name, row in RUN_OPTIONS.items()},
        source=NamedSource(str(named), *columns) if scheme_of(named) else None,
    )
    if not options.seeds or min(options.seeds) < 0 or len(set(options.seeds)) < len(options.seeds):
        raise UserError(
            f"--seeds={','.join(map(str, options.seeds))}: expected different integers of at "
            "least 0, such as --seeds=0,1,2"
        )
    if not DEVICES.fullmatch(options.device):
        raise UserError(f"--device={options.device}: expected auto, cpu, cpu:N, gpu or gpu:N")
    if options.tensorboard:
        check_tensorboard("--tensorboard", "leave the flag out")
    return options


def check_options(settings: Settings, options: RunOptions) -> None:
    """Check that the options have a meaning for the settings.

    Raises:
        UserError: Diagnostics are asked for, and the run is spread over devices, replays logits, or
            learns by a method that refuses them; or XLA is, and the run is spread over devices or
            augments images.
    """
    _check_xla(settings, options)
    _check_diagnostics(settings, options)


def _check_xla(settings: Settings, options: RunOptions) -> None:
    without = {
        "distribute": (settings.distribute, "replicas run without XLA"),
        "augment": (
            ",".join(settings.augment or ()), "XLA has no operation that moves images"
        ),
    }  # fmt: skip
    for flag, (value, why) in without.items():
        if value and options.jit_compile == ON:
            raise UserError(
                f"--jit_compile={ON} with --{flag}={value}: {why}; leave one of the two out"
            )


def _check_diagnostics(settings: Settings, options: RunOptions) -> None:
    if options.diagnostics == "off":
        return
    if settings.distribute is not None:
        raise UserError(
            f"--diagnostics={options.diagnostics} with --distribute={settings.distribute}: "
            "diagnostics look at one device; leave one of the two out"
        )
    if settings.dark:
        raise UserError(
            f"--diagnostics={options.diagnostics} with --dark={settings.dark:g}: diagnostics take "
            "the loss on all examples of past tasks, whose logits are not stored; leave one of "
            "the two out"
        )
    reason = get_method(settings.method).refuses.get("diagnostics")
    if reason:
        raise UserError(
            f"--diagnostics={options.diagnostics} has no meaning for {settings.method}: it "
            f"{reason}; leave one of the two out"
        )
