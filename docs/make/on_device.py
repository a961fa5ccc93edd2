"""The tables of docs/on_device.md, from the rows that `benchmarks.on_device` has written.

`python -m docs.make.on_device` writes them between their marks, and with `--check` compares them.
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.on_device import ALL, METHODS, OTHERS, ROWS, Key, read_rows
from docs.make.generated_files import make_part
from nccl_tf.errors import UserError
from nccl_tf.reports.table import markdown_table

PAGE = Path(__file__).parents[1] / "on_device.md"
_NETWORKS = {
    "mlp": "dense", "conv": "convolutional", "bn": "batch normalisation and pooling",
    "efficientnet": "EfficientNet-Lite0, frozen, under a trained head",
}  # fmt: skip
Rows = Mapping[Key, Mapping[str, Any]]


def tables(rows: Rows) -> str:
    """What was measured and where, the methods on small networks, and the rest, in Markdown.

    Args:
        rows: As `benchmarks.on_device` writes them, by method and network.

    Raises:
        UserError: There is no row.
    """
    shown = [rows[key] for key in ALL if "export" in rows.get(key, {})]
    if not shown:
        raise UserError("received no row: run python -m benchmarks.on_device --files=DIR first")
    small = [network for network in _NETWORKS if ("finetune", network) in ALL]
    cells = [
        [f"`{method}`", *(_cell(rows.get((method, network), {})) for network in small)]
        for method in METHODS
    ]
    others = [[f"`{key[0]}`", _NETWORKS[key[1]], _cell(rows.get(key, {}))] for key in OTHERS]
    return "\n".join([
        _where(shown),
        markdown_table(["method", *(_NETWORKS[network] for network in small)], cells, []),
        markdown_table(["method", "network", "file"], others, []),
    ])  # fmt: skip


def _cell(row: Mapping[str, Any]) -> str:
    """The difference, the bytes of file and state, and a device's step over one of `fit`."""
    if "export" not in row:
        return "-"
    export, times = row["export"], row.get("times")
    ratio = f"{times['device_ms'] / times['fit_ms']:.2f}" if times else "-"
    sizes = f"{_kilobytes(export['bytes'])} ({_kilobytes(export['state_bytes'])}) kB"
    return f"{export['difference']:.0e}, {sizes}, {ratio}"


def _kilobytes(count: int) -> str:
    return f"{count / 1000:,.0f}"


def _where(rows: Sequence[Mapping[str, Any]]) -> str:
    said = (
        "A cell has the largest difference of single steps from Keras's, the bytes of the file "
        "and, in brackets, of a state, and processor time of a step on one thread over one of "
        "`fit`"
    )
    timed = [row["times"] for row in rows if "times" in row]
    exports = {row["export"]["commit"][:8] for row in rows}
    last = rows[-1]["export"]["versions"]
    said += f". Files of {' and '.join(sorted(exports))}, TensorFlow {last['tensorflow']}, "
    said += f"Keras {last['keras']}"
    for machine in sorted({times["machine"] for times in timed}):
        commits = {times["commit"][:8] for times in timed if times["machine"] == machine}
        said += f"; times of {' and '.join(sorted(commits))} on {machine}"
    return f"{said}.\n"


def main(argv: Sequence[str] | None = None) -> int:
    """Write the tables into the page, or compare them."""
    parser = argparse.ArgumentParser(description=__doc__)
    return make_part(parser, argv, PAGE, "on_device", lambda _: tables(read_rows(ROWS)))


if __name__ == "__main__":
    sys.exit(main())
