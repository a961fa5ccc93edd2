"""The flagfiles of the published cells: one a table and setting, which its methods share.

`python -m docs.make.flag_files` writes them into `flags`.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from docs.make.generated_files import print_file_status, put_text, read_text
from nccl_tf.commands.paper.published import Published, published
from nccl_tf.commands.paper.rivals import rivals
from nccl_tf.errors import UserError
from nccl_tf.experiment.config.resolve import leave_out, resolve
from nccl_tf.records.options import as_arguments

FLAGS = Path(__file__).parents[2] / "flags"

_METRICS = {
    "accuracy": ("accuracy", " %"), "forgetting": ("forgetting", ""),
    "train_time_s": ("training time", " s"),
}  # fmt: skip


def flag_files() -> dict[str, str]:
    """Contents of the flag files by path below `flags`: the printed numbers as comments, each
    method with its additional flags, then the flags."""
    files = {}
    for path, cells in _by_file().items():
        shared = shared_flags(cells)
        lines = [f"# Published in {cells[0].table}; with --flagfile=flags/{path} give:"]
        by_method: dict[str, list[str]] = {}
        for cell in cells:
            words = as_arguments({"method": cell.method, **own_flags(cell, shared)})
            by_method.setdefault(" ".join(words), []).append(_printed(cell))
        lines += [f"# {words}: {'; '.join(said)}" for words, said in by_method.items()]
        files[path] = "\n".join([*lines, *as_arguments(shared), ""])
    return files


def _by_file() -> dict[str, list[Published]]:
    files: dict[str, list[Published]] = {}
    for cell in (*published(), *rivals()):
        files.setdefault(cell.flag_file(), []).append(cell)
    return files


def shared_flags(cells: Sequence[Published]) -> dict[str, Any]:
    """For each flag the value with which the most methods need no other flag."""
    given = [cell.flags() for cell in cells]
    names = [
        name for name in dict.fromkeys(n for flags in given for n in flags) if name != "method"
    ]
    values = {name: Counter(flags.get(name) for flags in given) for name in names}
    shared = {
        name: Counter({v: n for v, n in values[name].items() if v is not None}).most_common(1)[0][0]
        for name in names
    }

    def fits(flags: Mapping[str, Any]) -> tuple[int, int]:
        """How many cells can be run with the flags, and how many of them with no other ones."""
        own = [_own(cell, flags) for cell in cells]
        return sum(one is not None for one in own), own.count({})

    for name in names:
        shared = max([shared, *({**shared, name: value} for value in values[name])], key=fits)
    return {name: value for name, value in shared.items() if value is not None}


def own_flags(cell: Published, shared: Mapping[str, Any]) -> dict[str, Any]:
    """Flags of a cell that its file does not hold.

    Raises:
        UserError: No flags say it.
    """
    own = _own(cell, shared)
    if own is None:
        raise UserError(f"no flags beside {cell.flag_file()} run {cell.label}")
    return own


def _own(cell: Published, shared: Mapping[str, Any]) -> dict[str, Any] | None:
    flags, settings = cell.flags(), cell.settings()
    differing = {n: v for n, v in flags.items() if n != "method" and shared.get(n) != v}
    usual = {name: getattr(settings, name, None) for name in shared if name not in flags}
    defaults = {name: value for name, value in usual.items() if value is not None}
    choices: tuple[dict[str, Any], ...] = ({}, differing, {**differing, **defaults})
    return next((own for own in choices if _run(cell, shared, own) == settings), None)


def _run(cell: Published, shared: Mapping[str, Any], own: Mapping[str, Any]) -> Any:
    values = leave_out({**shared, **own, "method": cell.method}, set(shared) - set(own))
    try:
        return resolve(values)
    except UserError:
        return None


def _printed(cell: Published) -> str:
    name, unit = _METRICS[cell.metric]
    std = "" if cell.std is None else f" +- {cell.std:g}"
    return f"{name} {cell.mean:g}{std}{unit}" + (f" ({cell.doubt})" if cell.doubt else "")


def main() -> None:
    """Write every file, and print whether it was up to date."""
    for name, text in flag_files().items():
        path = FLAGS / name
        before = read_text(path) if path.exists() else None
        print_file_status(path, put_text(path, before, text, check=False), check=False)


if __name__ == "__main__":
    main()
