"""All flags of the command: parser, help and checks are made of these rows.

Most are declared by the fields of `Settings` and `Options`, and by the methods' hyperparameters;
here stand those of single commands, and what sizes the memory. Imports nothing heavy.
"""

from nccl_tf.arguments.choices import FIGURES, REPORT_FORMATS
from nccl_tf.arguments.hyperparameters import Hyperparameter
from nccl_tf.errors import UserError
from nccl_tf.methods.registry import METHODS
from nccl_tf.records.options import OPTIONS
from nccl_tf.records.setting import (
    MEMORY,
    METHOD,
    OUTPUT,
    RUN,
    SPEED,
    TOPICS,
    Setting,
    list_values,
)
from nccl_tf.records.settings import SETTINGS

MEMORY_SIZES = {
    row.name: row
    for row in (
        Setting(
            "memory_per_class",
            "int",
            5,
            topic=MEMORY,
            symbol="m",
            unit="examples",
            ge=1,
            help=(
                "examples for each class of each task; a reservoir holds this times all classes "
                "of all evaluated tasks"
            ),
        ),
        Setting(
            "memory_size",
            "int",
            topic=MEMORY,
            symbol="|M|",
            unit="examples",
            ge=1,
            default_doc="m x classes per task x evaluated tasks",
            help="size of the whole memory, in place of --memory_per_class",
        ),
    )
}
"""The flags that size a memory, by name."""

COMMAND_FLAGS = {
    row.name: row
    for row in (
        Setting(
            "sweep",
            "sweep",
            topic=RUN,
            commands=("sweep",),
            advice=(
                "flag files of flags/grids are read by that command; for one run give the flag "
                "itself a single value"
            ),
            default_doc="none",
            help=(
                "values of another flag for the command sweep to try, such as "
                "learning_rate:0.01,0.1; once for each flag; flagfiles of flags/grids hold the "
                "published grids"
            ),
        ),
        Setting(
            "ray_address",
            "text",
            topic=SPEED,
            commands=("sweep", "parity"),
            default_doc="this machine, without Ray",
            help=(
                "`sweep`, and `parity --run_missing`: Ray cluster to run on, such as "
                "auto or host:6379 (needs the package ray)"
            ),
        ),
        Setting(
            "resume",
            "text",
            topic=OUTPUT,
            commands=("train",),
            advice="rerun the same command: it resumes what is not finished",
            default_doc="the unfinished run of the same settings",
            help=("folder of the run to resume; other settings than that run's raise an error"),
        ),
        Setting(
            "settings",
            "names",
            topic=OUTPUT,
            commands=("tables",),
            default_doc="all",
            help=(
                "`tables`: first digits of the hashes of the settings to show; with --readme "
                "method, accuracy and forgetting alone"
            ),
        ),
        Setting(
            "readme",
            "text",
            topic=OUTPUT,
            commands=("tables", "parity"),
            default_doc="print it",
            help=(
                "`tables` and `parity`: put the tables between `<!-- results:begin -->` "
                "(`parity:begin`) and the mark that ends in `:end` of this file; `parity` with a "
                "folder: of its index.md and the page of each stream"
            ),
        ),
        Setting(
            "figure",
            "choice",
            "2",
            topic=OUTPUT,
            commands=("figures",),
            choices=FIGURES,
            help=(
                "`figures`: 2 (the paper's figure 2, at the runs' L or that of --smoothness), "
                "bound (gradient norms and the theorem's bound) or steps (step sizes of one "
                "run over time)"
            ),
        ),
        Setting(
            "figure_dir",
            "text",
            "figures",
            topic=OUTPUT,
            commands=("figures",),
            help="`figures`: folder of the pictures",
        ),
        Setting(
            "check",
            "bool",
            False,
            topic=OUTPUT,
            commands=("tables", "parity"),
            help="`tables` and `parity --readme`: write nothing, exit 1 if a file is out of date",
        ),
        Setting(
            "table",
            "text",
            topic=OUTPUT,
            commands=("parity",),
            default_doc="all",
            help=(
                "`parity`: table of the paper, T1 to T13; --dataset and --method choose among "
                "its cells"
            ),
        ),
        Setting(
            "json",
            "bool",
            False,
            topic=OUTPUT,
            commands=("parity",),
            help="`parity`: print the cells as one JSON object",
        ),
        Setting(
            "strict",
            "bool",
            False,
            topic=OUTPUT,
            commands=("parity",),
            help="`parity`: exit 1 if a cell differs",
        ),
        Setting(
            "run_missing",
            "bool",
            False,
            topic=OUTPUT,
            commands=("parity",),
            help=("`parity`: first run what a cell lacks of --seeds (here 0,1,2,3,4 by default)"),
        ),
        Setting(
            "format",
            "choice",
            "html",
            topic=OUTPUT,
            commands=("report",),
            choices=REPORT_FORMATS,
            help=(
                "`report`: html (one page), latex (the tables), csv or parquet (a row for each run)"
            ),
        ),
        Setting(
            "report_dir",
            "text",
            "report",
            topic=OUTPUT,
            commands=("report",),
            help="`report`: folder of its files",
        ),
        Setting(
            "publish_dir",
            "text",
            "results",
            topic=OUTPUT,
            commands=("publish",),
            help=(
                "folder of published records; `publish` adds to it those below --output_dir of "
                "--dataset, --method and --seeds"
            ),
        ),
    )
}
"""The flags that say what a command does or how it starts runs, by name."""


def all_flags() -> tuple[Setting, ...]:
    """Every flag, topic by topic as in the help.

    Raises:
        UserError: A hyperparameter of a registered method has the name of another flag.
    """
    rows = (
        *SETTINGS.values(),
        *MEMORY_SIZES.values(),
        *_hyperparameter_flags(),
        *COMMAND_FLAGS.values(),
        *OPTIONS.values(),
    )
    numbers = set(hyperparameter_names())
    for row in rows:
        if row.name in numbers and row.topic != METHOD:
            raise UserError(
                f"the method {next(iter(methods_with(row.name)))} has a hyperparameter "
                f"{row.name!r}, which is the name of another flag: choose another name"
            )
    return tuple(sorted(rows, key=lambda row: TOPICS.index(row.topic)))


def methods_with(hyperparameter: str) -> dict[str, Hyperparameter]:
    """The methods that have a hyperparameter of that name, each with its own row of it."""
    return {
        method.name: row
        for method in METHODS.values()
        for row in method.hyperparameters
        if row.name == hyperparameter
    }


def hyperparameter_names() -> tuple[str, ...]:
    """Names of all methods' hyperparameters, each once, in the registry's order."""
    rows = (row for method in METHODS.values() for row in method.hyperparameters)
    return tuple(dict.fromkeys(row.name for row in rows))


def _hyperparameter_flags() -> list[Setting]:
    result = []
    for name in hyperparameter_names():
        rows = methods_with(name)
        row = next(iter(rows.values()))
        default = list_values({method: r.describe_default() for method, r in rows.items()})
        help_text = f"{row.help}; {row.describe_range()}; of {', '.join(rows)}"
        result.append(
            Setting(
                name,
                row.kind,
                topic=METHOD,
                symbol=row.symbol,
                unit=row.unit,
                choices=row.choices,
                default_doc=default,
                help=help_text,
            )
        )
    return result
