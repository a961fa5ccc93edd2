"""The flagfiles of the published cells.

`python -m nccl_tf.reports.paper.flag_files flags` writes them into the folder `flags`.
"""

import sys
from pathlib import Path

from nccl_tf.errors import UserError
from nccl_tf.experiment.config.flags import as_arguments
from nccl_tf.experiment.run.files import write_file
from nccl_tf.reports.paper.published import published
from nccl_tf.reports.paper.rivals import rivals

_METRICS = {
    "accuracy": ("accuracy", " %"), "forgetting": ("forgetting", ""),
    "train_time_s": ("training time", " s"),
}  # fmt: skip


def flag_files() -> dict[str, str]:
    """What each file holds, by its path below `flags`: the numbers as comments, then the flags."""
    comments: dict[str, list[str]] = {}
    flags: dict[str, list[str]] = {}
    for cell in (*published(), *rivals()):
        name, unit = _METRICS[cell.metric]
        std = "" if cell.std is None else f" +- {cell.std:g}"
        lines = comments.setdefault(cell.flag_file(), [f"# Published in {cell.table}:"])
        lines.append(f"# {name} {cell.mean:g}{std}{unit}")
        if cell.doubt:
            lines.append(f"# {cell.doubt}")
        flags[cell.flag_file()] = as_arguments(cell.flags())
    return {path: "\n".join([*comments[path], *flags[path], ""]) for path in flags}


def main(argv: list[str]) -> None:
    """Write every file below the folder that the one argument names."""
    if len(argv) != 2:
        raise UserError("expected one argument, the folder of the flagfiles")
    for path, text in flag_files().items():
        write_file(Path(argv[1]) / path, text.encode())


if __name__ == "__main__":
    main(sys.argv)
