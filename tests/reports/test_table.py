"""A table in Markdown and LaTeX, and the numbers in its cells."""

import shutil
import subprocess
from pathlib import Path

import pytest

from nccl_tf.reports.table import Table, as_latex, as_markdown, folded_markdown, mean_std

ROOT = Path(__file__).parents[2]


def test_a_table_with_its_notes():
    content = Table("", "", ("a", "b"), (("x|y", "1"),), ("b",), ("One note.", "Two."))
    assert as_markdown(content) == (
        "| a | b |\n| --- | ---: |\n| x\\|y | 1 |\n\nOne note.\n\nTwo.\n"
    )


def test_a_folded_table_stands_below_its_title_and_summary():
    assert folded_markdown(Table("", "T", ("a",), (("x",),), (), ("Note.",)), "1 < 2 & 3") == (
        '### T\n\n<details markdown="1">\n<summary>1 &lt; 2 &amp; 3</summary>\n\n'
        "| a |\n| --- |\n| x |\n\nNote.\n\n</details>\n"
    )


def test_latex_acts_on_nothing_that_a_cell_holds():
    table = Table("x", "50 % of $x_1$", ("a&b",), (("{#1}~^\\ ± <|>`",),))
    text = as_latex([table]).split("\\footnotesize\n")[1]
    assert r"50 \% of \$x\_1\$" in text and r"a\&b" in text
    assert r"\{\#1\}\textasciitilde{}\textasciicircum{}\textbackslash{} $\pm$" in text


def test_latex_breaks_text_that_would_leave_the_page():
    row = ("nccl_ring over er_ring; " * 3, "one", "1" * 60)
    text = as_latex([Table("x", "", ("a", "b", "c"), (row,), ("c",))])
    assert r"\begin{longtable}{>{\raggedright\arraybackslash}p{70mm}lr}" in text
    assert r"\begin{longtable}{l}" in as_latex([Table("x", "", ("a",), ())])


@pytest.mark.pages
@pytest.mark.skipif(not shutil.which("pdflatex"), reason="needs Debian's texlive-latex-recommended")
def test_latex_of_the_published_records_fits_its_pages(command, tmp_path):
    words = [f"--output_dir={ROOT / 'results'}", f"--report_dir={tmp_path}", "--format=latex"]
    assert command("report", *words)[0] == 0
    program = ["pdflatex", "-interaction=nonstopmode", "tables.tex"]
    # Longtable finds its widths in three passes.
    done = [subprocess.run(program, cwd=tmp_path, capture_output=True, text=True) for _ in "123"]
    assert done[-1].returncode == 0, done[-1].stdout
    assert "Overfull" not in done[-1].stdout and (tmp_path / "tables.pdf").stat().st_size > 50_000


def test_latex_has_some_cells_in_bold():
    table = Table("x", "", ("a", "b"), (("ER", "1 ± 2"), ("GEM", "1 ± 2")), ("b",), bold={(1, 1)})
    text = as_latex([table])
    assert r"ER & 1 $\pm$ 2 \\" in text
    assert r"GEM & \textbf{\boldmath 1 $\pm$ 2} \\" in text and "Bold: " in text
    plain = as_latex([Table("x", "", ("a",), (("1",),))])
    assert "textbf" not in plain and "Bold" not in plain


def test_a_mean_has_the_population_std_of_several_records():
    records = [{"x": 0.8}, {"x": 0.6}]
    assert mean_std(records, "x", 100, 1) == "70.0 ± 10.0"
    assert mean_std(records[:1], "x", 1, 2) == "0.80"
    assert mean_std([*records, {"x": None}], "x", 1, 2) == "-"
