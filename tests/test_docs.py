"""What the README and the pages show runs as it stands, or is at least understood."""

import io
import os
import re
import shlex
import subprocess
import sys
import tokenize
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from PIL import Image

from docs.make.methods import method_page, method_picture
from nccl_tf.cli import COMMANDS, main
from nccl_tf.commands._command_line import (
    parse,
)
from nccl_tf.experiment.config.resolve import resolve
from nccl_tf.extensions.plugins import load_plugins
from nccl_tf.methods.registry import METHODS
from tests.experiment import sample

ROOT = Path(__file__).parents[1]
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "results/README.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
DIGITS = (None, "permuted_digits", "split_digits")


def name_of(page):
    return page.relative_to(ROOT).as_posix().removeprefix("docs/")


def blocks(language):
    for page in PAGES:
        for number, block in enumerate(
            re.findall(rf"```{language}\n(.*?)```", page.read_text(), re.DOTALL)
        ):
            yield f"{name_of(page)}-{number}", block


# The README's are run in processes of their own, by test_readme.py.
PYTHON = {name: block for name, block in blocks("python") if not name.startswith("README")}


@pytest.mark.pages
@pytest.mark.parametrize("name", PYTHON)
def test_python_blocks_run(name, tmp_path, monkeypatch, restored_tables):
    monkeypatch.chdir(tmp_path)
    Path("results").symlink_to(ROOT / "results")
    code = PYTHON[name].replace('weights="imagenet"', "weights=None")
    if "folder:pets" in code:
        images_of_ten_classes(tmp_path / "pets")
    if "keras_hub" in code:
        pytest.importorskip("keras_hub", reason="needs the extra hub: pip install keras-hub")
    if "text:corpora" in code:
        three_corpora(tmp_path / "corpora")
    exec(code, {"__name__": name})


def comments():
    """Those of the code in pages and examples, by their file."""
    codes = [(name, block) for language in ("py", "python") for name, block in blocks(language)]
    codes += [(path.name, path.read_text()) for path in sorted((ROOT / "examples").glob("*.py"))]
    for name, code in codes:
        for token in tokenize.generate_tokens(io.StringIO(code).readline):
            if token.type == tokenize.COMMENT:
                yield name, token.string


def test_no_code_stands_in_a_comment_where_no_test_runs_it():
    found = list(comments())
    assert len(found) > 20
    assert not [each for each in found if re.search(r"\w\(|\w = ", each[1])]


def three_corpora(folder):
    for name, text in (("letters", "abcdefgh "), ("numbers", "12345678 "), ("signs", "+-*/()<> ")):
        (folder / name).mkdir(parents=True)
        (folder / name / "all.txt").write_text(text * 400)


def images_of_ten_classes(folder):
    random = np.random.default_rng(0)
    for part, count in (("train", 6), ("test", 2)):
        for label in range(10):
            (folder / part / f"class_{label}").mkdir(parents=True)
            for number in range(count):
                image = random.integers(0, 60, (32, 32, 3)) + 20 * label
                path = folder / part / f"class_{label}" / f"{number}.png"
                Image.fromarray(image.astype(np.uint8)).save(path)


def test_a_program_in_a_page_is_its_example():
    page = (ROOT / "docs" / "update_a_trained_model.md").read_text()
    example = (ROOT / "examples" / "update_a_trained_model.py").read_text()
    assert f"```python\n{example[example.index('import keras') :]}```\n" in page


@pytest.mark.pages
@pytest.mark.parametrize(("package", "number"), [("optuna", 1), ("keras_tuner", 2)])
def test_a_tuner_finds_a_best_trial(package, number, tmp_path, monkeypatch):
    pytest.importorskip(package, reason=f"{package} is not installed")
    page = (ROOT / "docs" / "tuners.md").read_text()
    codes = re.findall(r"```py\n(.*?)```", page, re.DOTALL)
    (tmp_path / "trials.py").write_text(codes[0])
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "trials", raising=False)
    names = {"__name__": package}
    exec(codes[number], names)
    assert 0.01 <= names["best"]["rate"] <= 0.3 and names["best"]["memory"] in (50, 100)


class Line(NamedTuple):
    """A command line of a page: its words after the program, and the values of its flags."""

    argv: list[str]
    command: str
    given: dict

    @property
    def may_run(self):
        """Whether it needs neither data nor other runs nor other machines."""
        trains = self.command == "train"
        return trains and self.given["dataset"] in DIGITS


def understood(line):
    """A line of a shell block, or None where it is no command of ours."""
    found = re.match(r"(?:\S*python run\.py|nccl-tf)(?: (.*))?$", line)
    if not found:
        return None
    argv = shlex.split((found[1] or "").replace("[", "").replace("]", ""))
    # A name in capitals stands for what the reader puts there.
    argv = [word for word in argv if not re.search(r"=[A-Z_]+(\.flags)?$", word)]
    if argv == ["--help"]:
        return Line(argv, "help", {"dataset": None})
    words, values, _ = parse(["run.py", *argv])
    return Line(argv, words[0] if words else "train", values)


def commands():
    lines = {line for _, block in blocks("sh") for line in block.strip().splitlines()}
    for line in sorted(part for whole in lines for part in whole.split(" && ")):
        found = understood(line)
        if found:
            yield pytest.param(found, id=" ".join(found.argv)[:60] or "nothing")


EVERY = list(commands())
MAY_RUN = [p for p in EVERY if p.values[0].may_run]
ALONE = [p for p in MAY_RUN if p.values[0].given["device"]]
# Training without flags, and the plugin of an example, are run by test_quiet_start.py.
QUIET = [p for p in MAY_RUN if not p.values[0].argv or p.values[0].given["plugin"]]
SEEDS = [p for p in MAY_RUN if p.values[0].given["seeds"]]  # test_train.py has several at once
RUN = [p for p in MAY_RUN if p not in (*ALONE, *QUIET, *SEEDS)]
RUN += [pytest.param(*p.values, id=p.id, marks=pytest.mark.nightly) for p in SEEDS]


@pytest.mark.parametrize("line", EVERY)
def test_every_command_is_understood(line, monkeypatch, restored_tables):
    monkeypatch.chdir(ROOT)
    load_plugins(line.given.get("plugin") or ())
    assert line.command in (*COMMANDS, "help")
    if line.command == "train":
        resolve(line.given)


@pytest.mark.pages
@pytest.mark.parametrize("line", RUN)
def test_commands_on_the_digits_run(line, tmp_path, monkeypatch, restored_tables):
    monkeypatch.chdir(tmp_path)
    argv = [word.replace("=examples/", f"={ROOT}/examples/") for word in line.argv]
    with pytest.raises(SystemExit) as end:
        main(["run.py", *argv, "--max_tasks=1"])
    assert not end.value.code


@pytest.mark.nightly
@pytest.mark.parametrize("line", ALONE)
def test_commands_that_choose_devices_run(line, tmp_path):
    argv = [sys.executable, str(ROOT / "run.py"), *line.argv, "--max_tasks=1"]
    done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


SHOWN = {
    f"{name_of(page)}-{number}": found
    for page in PAGES
    for number, found in enumerate(
        re.findall(
            r"(?:```python\n((?:(?!```).)*)```\n\n)?<!-- shows: (.*?) -->\n```text\n(.*?)```",
            page.read_text(),
            re.DOTALL,
        )
    )
}


@pytest.mark.nightly
@pytest.mark.parametrize("name", SHOWN)
def test_output_in_pages_is_what_is_printed(name, tmp_path):
    """Apart from rounding, which differs between machines: numbers within 5 %, or 0.05."""
    above, command, shown = SHOWN[name]
    argv = ["-c", above] if command == "the block above" else shlex.split(command)[1:]
    argv = [word.replace("examples/", f"{ROOT}/examples/") for word in argv]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "MPLBACKEND": "agg"}
    done = subprocess.run(
        [sys.executable, *argv], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    number = r"\d+(?:\.\d+)?"
    assert re.sub(number, "n", done.stdout) == re.sub(number, "n", shown)
    pairs = zip(re.findall(number, shown), re.findall(number, done.stdout), strict=True)
    for value, printed in pairs:
        within = 0.05 if re.search(r"\.\d\d$", value) else 5
        assert float(printed) == pytest.approx(float(value), abs=within), done.stdout


def test_a_page_of_a_method_without_runs():
    name = "gem"
    page = method_page(name, [], picture=False)
    assert f"python run.py --method={name}\n" in page
    assert "no finished run" in page and METHODS[name].source in page
    assert method_picture(name, []) is None


@pytest.mark.parametrize(
    ("name", "table", "published"),
    [("der", "DER", "90.0 ± 2.6"), ("er_ace", "ER-ACE", "25.8 ± 1.2")],
)
def test_a_page_shows_numbers_of_later_papers(name, table, published):
    page = method_page(name, [], picture=False)
    assert f"### {table}: " in page and published in page


def test_a_page_of_a_method_with_runs():
    records = [
        sample.record([[0.8, 0.1], [0.6, 0.8]], seed=k, method="nccl_ring") for k in range(2)
    ]
    page = method_page("nccl_ring", records, picture=True)
    assert "70.0 ± 0.0" in page and "(nccl_ring.svg)" in page
    assert r"$\Lambda \le 0$ (interference)" in page and "### T9: permuted MNIST" in page
    assert method_picture("nccl_ring", records).lstrip().startswith("<")
