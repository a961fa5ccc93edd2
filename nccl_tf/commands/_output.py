"""Console messages that several commands print."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nccl_tf.errors import UserError, one_line
from nccl_tf.experiment.run.console import Console, describe_speed, task_name
from nccl_tf.experiment.run.train import Run
from nccl_tf.methods.registry import get_method
from nccl_tf.records.options import resolve_options

if TYPE_CHECKING:
    from nccl_tf.reports.records import Records

_MOST_SHOWN = 20


def program_name(path: str) -> str:
    """How to call the command again, from the program that the process was started with."""
    file = Path(path).name
    if file == "__main__.py":
        return "python -m nccl_tf"
    return f"python {file}" if file.endswith(".py") else file or "nccl-tf"


def print_event(seed_run: Run, name: str, event: Mapping[str, Any], console: Console) -> None:
    """Print what the process of a run reports.

    Args:
        seed_run: The run.
        name: Its name, such as "er_ring, seed 0".
        event: As `Console` prints it with "json".
        console: Where it is printed.
    """
    kind = event["event"]
    values = {**event, "method": seed_run.settings.method, "seed": seed_run.seed}
    del values["event"]
    if kind not in ("task", "step"):
        if kind == "resumed":
            console.say(f"{name}: going on in task {values['task']}")
        console.event(kind, **values)
        return
    joint = get_method(seed_run.settings.method).joint
    place = f"{name}, {task_name(values['task'], values['tasks'], joint)}"
    if kind == "task":
        console.task(place, values)
    else:
        console.step(place, values)
        console.draw(f"{place}: {describe_speed(values)}")


def warn_left_out(given: Mapping[str, Any], used: Mapping[str, Any], of: str) -> None:
    """Name on stderr the flags that are given and not used.

    Args:
        given: Flag values by name.
        used: Those that are used, None for what is left out.
        of: What they are left out of, in words.
    """
    left = [f"--{name}" for name, v in given.items() if v is not None and used[name] is None]
    if left:
        print(f"left out {of}: {', '.join(left)}", file=sys.stderr)


def warn_skipped_records(broken: Sequence[str], whole: int) -> None:
    """Warn on stderr of records that are skipped: broken ones, and those of an unknown plugin.

    Args:
        broken: What is wrong with each, a sentence.
        whole: Number of records that are read.
    """
    for sentence in broken[:_MOST_SHOWN]:
        print(f"left out: {one_line(sentence)}", file=sys.stderr)
    if len(broken) > _MOST_SHOWN:
        print(f"left out: {len(broken) - _MOST_SHOWN} more", file=sys.stderr)
    if broken:
        print(f"left out {len(broken)} of {whole + len(broken)}", file=sys.stderr)


def read_asked(flag_values: Mapping[str, Any]) -> "Records":
    """The finished runs below --output_dir that --dataset, --method and --seeds ask for, one at
    least.

    Records that are left out are named on stderr.

    Args:
        flag_values: Of all flags by name.

    Raises:
        UserError: The folder is missing or holds no record, or none that is asked for.
    """
    # Imported late: it needs NumPy.
    from nccl_tf.reports.records import Records

    folder = resolve_options(flag_values).output_dir
    found = Records.required(Path(folder))
    warn_skipped_records(found.broken, len(found.runs))
    asked = found.of(*(flag_values[name] for name in ("dataset", "method", "seeds")))
    if not asked.runs:
        raise UserError(
            f"no record below {folder} has that --dataset, --method and --seeds: leave them out, "
            "or give another --output_dir"
        )
    return asked
