"""What pages show of commands, text and pictures: where it stands, and how it is made.

    python -m tests.shown    # makes all of it again; `pytest -m pages` compares

A page shows a command's output in a block of text below a mark that names it:

    <!-- shows: python examples/text.py -->
"""

import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK_ABOVE = "the block above"
"""In place of a command: the Python block before the mark."""

_MARK = re.compile(r"(<!-- shows: (.*?) -->\n```text\n)(.*?)```", re.DOTALL)
_NUMBER = re.compile(r"(\d+\.\d+|\d+(?=\s?%))")

PICTURES = {
    "permuted_digits.png": ("run.py --progress=none --output_dir={}", "accuracy_over_time.png"),
    "figure_2.png": (
        "run.py figures --figure=2 --dataset=permuted_mnist --output_dir=results --figure_dir={}",
        "figure_2.png",
    ),
    "figure_2_cifar100.png": (
        "run.py figures --figure=2 --dataset=split_cifar100 --output_dir=results --figure_dir={}",
        "figure_2.png",
    ),
    **{
        f"comparison_{setting}.png": (
            "run.py study --plan=flags/comparison/plan.toml --output_dir=results --figure_dir={}",
            f"comparison_{setting}.png",
        )
        for setting in (
            "permuted_mnist_1000",
            "permuted_mnist_200",
            "split_cifar100_425",
            "split_mnist_50",
            "split_mnist_500",
        )
    },
    **{
        f"study_{setting}.png": (
            "run.py study --plugin=flags/study/candidates.py --plan=flags/study/plan.toml "
            "--output_dir=docs/study/records --figure_dir={}",
            f"study_{setting}.png",
        )
        for setting in ("permuted_mnist_200", "split_mnist_50", "split_mnist_500")
    },
    **{
        f"growth_{axis}.png": ("-m benchmarks.growth --figure_dir={}", f"growth_{axis}.png")
        for axis in ("slots", "tasks", "width", "batch", "evaluation")
    },
}
"""The pictures in docs/images: the command that draws each, and the name it gives it."""


class Shown(NamedTuple):
    """Output on a page.

    Attributes:
        page: The page.
        command: What makes it.
        code: The Python block above it.
        text: The output.
    """

    page: Path
    command: str
    code: str
    text: str

    def make(self) -> str:
        """Run the command in an empty folder; returns what it prints."""
        if self.command == BLOCK_ABOVE:
            return _run("-c", self.code)
        program, script, *words = shlex.split(self.command)
        assert program == "python", self.command
        return _run(str(ROOT / script), *words)


def outputs() -> Iterator[Shown]:
    """Every output that a page shows."""
    for page in PAGES:
        text = page.read_text()
        for found in _MARK.finditer(text):
            code = re.findall(r"```python\n(.*?)```", text[: found.start()], re.DOTALL)
            yield Shown(page, found[2], code[-1] if code else "", found[3])


def draw(picture: str, folder: Path) -> Path:
    """Draw one of `PICTURES` into a folder; returns the file."""
    command, name = PICTURES[picture]
    _run(*command.format(folder).split(), cwd=ROOT)
    (path,) = folder.rglob(name)
    return path


def agree(one: str, other: str) -> bool:
    """Whether two outputs are the same, to a point of percent and 0.01 of a decimal number.

    Other processors round otherwise, and training carries that on.
    """
    parts, others = _NUMBER.split(one), _NUMBER.split(other)
    return parts[::2] == others[::2] and all(
        abs(float(a) - float(b)) <= (0.0101 if "." in a else 1)
        for a, b in zip(parts[1::2], others[1::2], strict=True)
    )


def _run(*argv: str, cwd: Path | None = None) -> str:
    paths = [str(ROOT), os.environ.get("PYTHONPATH", "")]
    # One set of instructions: products round otherwise on each, and training carries that on.
    fixed = {"MPLBACKEND": "agg", "ONEDNN_MAX_CPU_ISA": "AVX2"}
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), **fixed}
    with tempfile.TemporaryDirectory() as empty:
        done = subprocess.run(
            [sys.executable, *argv], cwd=cwd or empty, env=env, capture_output=True, text=True
        )
    assert done.returncode == 0, done.stderr
    return done.stdout


def main() -> None:
    """Put every output and picture in its place."""
    for shown in outputs():
        made = shown.make()

        def put(found: re.Match[str], shown: Shown = shown, made: str = made) -> str:
            same = (found[2], found[3]) == (shown.command, shown.text)
            return f"{found[1]}{made}```" if same else found[0]

        shown.page.write_text(_MARK.sub(put, shown.page.read_text()))
    for picture in PICTURES:
        with tempfile.TemporaryDirectory() as folder:
            drawn = draw(picture, Path(folder)).read_bytes()
        (ROOT / "docs" / "images" / picture).write_bytes(drawn)


if __name__ == "__main__":
    main()
