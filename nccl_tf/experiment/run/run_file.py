"""run.json: the settings of a run folder, written before training so that it can be resumed."""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from nccl_tf.errors import UserError, one_line
from nccl_tf.experiment.config.resolve import resolve
from nccl_tf.extensions.plugins import check_plugins, plugin_hashes
from nccl_tf.records.files import write_file
from nccl_tf.records.options import RUN_OPTIONS, resolve_options
from nccl_tf.records.settings import Settings, flattened
from nccl_tf.regular_files import read_regular

FILE_NAME = "run.json"
_MAX_BYTES = 2**20


def write_run_file(
    folder: Path, settings: Settings, seed: int, flag_values: Mapping[str, Any]
) -> None:
    """Note the flags that are set, what they resolve to, the seed, and any plugins.

    Raises:
        UserError: The file cannot be written.
    """
    content: dict[str, Any] = {
        "seed": seed,
        "given": dict(flag_values),
        "settings": settings.as_json(),
    }
    plugins = plugin_hashes(flag_values.get("plugin") or ())
    if plugins:
        content["plugins"] = plugins
    write_file(folder / FILE_NAME, (json.dumps(content, indent=1) + "\n").encode())


def check_run_plugins(folder: Path, names: Sequence[str]) -> None:
    """Check that a run resumes, or is finished, with the plugins that it began with.

    Args:
        folder: The run's folder; nothing is checked where it holds no run.
        names: The plugins of this command.

    Raises:
        UserError: The plugins' sources differ.
    """
    try:
        noted = _read(folder).get("plugins", {})
        noted = {str(name): str(sha256) for name, sha256 in noted.items()}
    except (OSError, ValueError, AttributeError, RecursionError):
        return
    check_plugins(f"the run in {folder}", noted, names)


def given_flags(folder: Path) -> dict[str, Any]:
    """The flag values that the run in a folder was made of, by name.

    Raises:
        OSError: There is no such run.
        ValueError: Its file is broken.
    """
    return _as_parsed(_read(folder)["given"])


def _read(folder: Path) -> Any:
    return json.loads(read_regular(folder / FILE_NAME, _MAX_BYTES))


def _as_parsed(given: Mapping[str, Any]) -> dict[str, Any]:
    """Flag values of a file as the parser gives them."""
    values = {name: tuple(v) if isinstance(v, list) else v for name, v in given.items()}
    # Earlier runs have true and false of a switch that takes a third value now.
    for name in RUN_OPTIONS.keys() & values.keys():
        if RUN_OPTIONS[name].kind == "choice" and isinstance(values[name], bool):
            values[name] = str(values[name]).lower()
    return values


def settings_to_resume(
    folder: Path, flag_values: Mapping[str, Any]
) -> tuple[Settings, int, dict[str, Any]]:
    """The settings and the seed of the run in a folder, and the flag values of both commands.

    What is set now holds; what is not is as the run was begun, its options too, so that a run that
    was begun with --diagnostics or --data_dir resumes with them.

    Args:
        folder: A run's folder, of one seed.
        flag_values: Values of flags by name that the user sets now; None where not set.

    Raises:
        UserError: The folder holds no run or is that of another seed, or a flag differs from that
            run's settings or plugins; the message lists what differs.
    """
    path = folder / FILE_NAME
    check_run_plugins(folder, flag_values.get("plugin") or ())
    try:
        noted = _read(folder)
        before = _as_parsed(noted["given"])
        seed, settings = int(noted["seed"]), noted["settings"]
        resolve(before)
        resolve_options(before)
        settings = flattened(settings)
    except (
        OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError
    ) as error:  # fmt: skip
        raise UserError(
            f"--resume={folder} holds no run that can be resumed ({path.name} is missing or "
            "broken): give the folder of one seed, such as runs/DATASET-HEAD/METHOD/HASH/seed0"
        ) from error
    now = {name: value for name, value in flag_values.items() if value is not None}
    # Without --resume: they are noted again, for the next command that resumes the run.
    together = {**before, **now, "resume": None}
    resolved = resolve(together)
    differences = _differences(settings, flattened(resolved.as_json()))
    named = re.fullmatch(r"seed(\d+)", folder.resolve().name)
    if named and int(named[1]) != seed:
        raise UserError(
            f"--resume={folder} is the folder of seed {int(named[1])}, but its {path.name} is that "
            f"of seed {seed}: run the command of seed {int(named[1])} instead of --resume"
        )
    if "seeds" in now and tuple(now["seeds"]) != (seed,):
        differences.append(f"seed {seed} there, {','.join(map(str, now['seeds']))} here")
    if differences:
        raise UserError(
            f"--resume={folder} is a run of other settings: {one_line('; '.join(differences))}; "
            "leave these flags out, or start a run of its own without --resume"
        )
    return resolved, seed, together


def _differences(there: Mapping[str, Any], here: Mapping[str, Any]) -> list[str]:
    names = [name for name in {**there, **here} if there.get(name) != here.get(name)]
    return [f"{name} {there.get(name)} there, {here.get(name)} here" for name in names]
