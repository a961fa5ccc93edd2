"""A table in Markdown and LaTeX, and the numbers in its cells."""

import subprocess
from pathlib import Path

import pytest

from nccl_tf.reports.table import Table, as_latex, as_markdown, mean_std
from tests.programs import needs

ROOT = Path(__file__).parents[2]


def test_a_table_with_its_notes():
    content = Table("", "", ("a", "b"), (("x|y", "1"),), ("b",), ("One note.", "Two."))
    assert as_markdown(content) == (
        "| a | b |\n| --- | ---: |\n| x\\|y | 1 |\n\nOne note.\n\nTwo.\n"
    )


def test_latex_acts_on_nothing_that_a_cell_holds():
    table = Table("x", "50 % of $x_1$", ("a&b",), (("{#1}~^\\ ± <|>`",),))
    text = as_latex([table]).split("\\footnotesize\n")[1]
    assert r"50 \% of \$x\_1\$" in text and r"a\&b" in text
    assert r"\{\#1\}\textasciitilde{}\textasciicircum{}\textbackslash{} $\pm$" in text


@pytest.mark.pages
def test_latex_of_the_published_records_fits_its_pages(command, tmp_path):
    needs("pdflatex")
    words = [f"--output_dir={ROOT / 'results'}", f"--report_dir={tmp_path}", "--format=latex"]
    assert command("report", *words)[0] == 0
    program = ["pdflatex", "-interaction=nonstopmode", "tables.tex"]
    # Longtable finds its widths in three passes.
    done = [subprocess.run(program, cwd=tmp_path, capture_output=True, text=True) for _ in "123"]
    assert done[-1].returncode == 0, done[-1].stdout
    assert "Overfull" not in done[-1].stdout and (tmp_path / "tables.pdf").stat().st_size > 50_000


def test_a_mean_has_the_population_std_of_several_records():
    records = [{"x": 0.8}, {"x": 0.6}]
    assert mean_std(records, "x", 100, 1) == "70.0 ± 10.0"
    assert mean_std(records[:1], "x", 1, 2) == "0.80"
    assert mean_std([*records, {"x": None}], "x", 1, 2) == "-"
