"""The table of steps on a GPU in docs/speed.md, from rows that `benchmarks.gpu --output` wrote.

`python -m docs.make.speed FILE` writes it between its marks, and with `--check` compares it.
"""

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from docs.make.generated_files import make_part, read_text
from nccl_tf.errors import UserError
from nccl_tf.reports.table import markdown_table

PAGE = Path(__file__).parents[1] / "speed.md"
_NETWORKS = {
    "dense": "dense, 256-256",
    "resnet20": "reduced ResNet-18",
    "resnet64": "full ResNet-18",
}
_SIDES = ("plain", "chunk", "eager PyTorch", "PyTorch, one CUDA graph")
_MORE = ("first chunk, s", "plain in kernels", "chunk in kernels")


def gpu_steps(rows: Sequence[Mapping[str, Any]]) -> str:
    """What was measured and where, and the table, in Markdown.

    Args:
        rows: As `benchmarks.gpu.Rows` writes them. Those of the device and the commit of the last
            one are shown.

    Raises:
        UserError: There is no row.
    """
    if not rows:
        raise UserError(
            "received no row: expected lines of `python -m benchmarks.gpu --output=FILE`"
        )
    last = rows[-1]
    shown = [row for row in rows if all(row[key] == last[key] for key in ("device", "commit"))]
    # Python keeps the order of equal keys: rows of a network in the order they were measured.
    shown.sort(key=lambda row: (list(_NETWORKS).index(row["network"]), row["batch"]))
    cells = [
        [
            _NETWORKS[row["network"]],
            f"{row['batch']} + {row['batch']}",
            f"`{row['method']}`",
            "on" if row["tensorfloat32"] else "off",
            *(_number(row["milliseconds"].get(side), 3) for side in _SIDES),
            *(_number(row["more"].get(name), 2) for name in _MORE),
        ]
        for row in shown
    ]
    heads = ("network", "batches", "method", "TF32", *_SIDES, *_MORE)
    where = (
        f"Milliseconds a step, medians, of {last['device']} at commit {str(last['commit'])[:8]}, "
        f"TensorFlow {last['versions']['tensorflow']}, Keras {last['versions']['keras']}.\n"
    )
    return f"{where}\n{markdown_table(heads, cells, heads[4:])}"


def _number(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def main(argv: Sequence[str] | None = None) -> int:
    """Write the table into the page, or compare it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)

    def content(asked: argparse.Namespace) -> str:
        return gpu_steps([json.loads(line) for line in read_text(asked.file).splitlines()])

    return make_part(parser, argv, PAGE, "gpu", content)


if __name__ == "__main__":
    sys.exit(main())
