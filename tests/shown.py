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
IMAGES = ROOT / "docs" / "images"
BLOCK_ABOVE = "the block above"
"""In place of a command: the Python block before the mark."""

_MARK = re.compile(r"(<!-- shows: (.*?) -->\n```text\n)(.*?)```", re.DOTALL)
_NUMBER = re.compile(r"(\d+\.\d+|\d+(?=\s?%))")

TRAINED = "run.py --progress=none --output_dir={}"
"""The command whose picture is of a run that it makes."""
_STUDY = "run.py study --plugin=flags/study/candidates.py --output_dir=docs/study/records"
PICTURES = {
    TRAINED: {"permuted_digits.png": "accuracy_over_time.png"},
    **{
        f"run.py figures --figure=2 --dataset={dataset} --output_dir=results --figure_dir={{}}": {
            name: "figure_2.png"
        }
        for dataset, name in (
            ("permuted_mnist", "figure_2.png"),
            ("split_cifar100", "figure_2_cifar100.png"),
        )
    },
    "run.py study --plan=flags/comparison/plan.toml --output_dir=results --figure_dir={}": (
        "comparison_*.png"
    ),
    **{
        f"{_STUDY} --plan=flags/{name}/plan.toml --figure_dir={{}}": f"{name}_*.png"
        for name in ("study", "ablations", "measures")
    },
    **{
        "run.py figures --figure=sensitivity --plugin=flags/study/candidates.py "
        f"--output_dir=docs/study/{records} --figure_dir={{}}": {picture: "figure_sensitivity.png"}
        for records, picture in (
            ("sensitivity", "sensitivity_average_loss.png"),
            ("sensitivity_of_rules", "sensitivity_rules.png"),
        )
    },
    "-m benchmarks.growth --figure_dir={}": "growth_*.png",
}
"""By the command that draws them, the pictures in docs/images with the names that it gives them, or
what the names of all that it draws match."""


def pictures(command: str) -> set[str]:
    """The names of a command's pictures in docs/images."""
    names = PICTURES[command]
    return {path.name for path in IMAGES.glob(names)} if isinstance(names, str) else set(names)


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


def draw(command: str, folder: Path) -> dict[str, Path]:
    """Draw the pictures of a command into a folder; their files by the names in docs/images."""
    _run(*command.format(folder).split(), cwd=ROOT)
    return drawn(command, folder)


def drawn(command: str, folder: Path) -> dict[str, Path]:
    """The files that a command has drawn into a folder, by their names in docs/images.

    Those that match and are not in docs/images yet are there too.
    """
    names = PICTURES[command]
    if isinstance(names, str):
        return {path.name: path for path in folder.rglob(names)}
    return {name: next(folder.rglob(file)) for name, file in names.items()}


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
    for command in PICTURES:
        with tempfile.TemporaryDirectory() as folder:
            for name, file in draw(command, Path(folder)).items():
                (IMAGES / name).write_bytes(file.read_bytes())


if __name__ == "__main__":
    main()
