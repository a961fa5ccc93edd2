"""A table in Markdown and LaTeX, and the numbers in its cells."""

import subprocess
from pathlib import Path

import pytest

from nccl_tf.reports.table import Table, as_latex, as_markdown, as_tabular, mean_std
from tests.experiment import sample
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


def test_a_fragment_is_a_tabular_for_each_table_and_says_which_deviation():
    table = Table(
        "x", "50 %", ("a&b", "n"), (("m", "1 ± 2"), ("k", "3")), ("n",), bold=frozenset({(1, 1)})
    )
    first, second = as_tabular([table, table]).split("\n\n")
    assert first.splitlines() == second.splitlines()
    title, deviation, *lines = first.splitlines()
    assert title == "% 50 %" and deviation.startswith("% ± is the population standard deviation")
    assert lines == [
        r"\begin{tabular}{lr}", r"\toprule a\&b & n \\ \midrule", r"m & 1 $\pm$ 2 \\",
        r"k & \textbf{\boldmath 3} \\", r"\bottomrule", r"\end{tabular}",
    ]  # fmt: skip
    document = as_latex([table])
    assert "population standard deviation" in document.split("longtable}")[-1]


@pytest.mark.pages
def test_fragments_stand_in_a_document(command, tmp_path):
    needs("pdflatex")
    words = [f"--output_dir={ROOT / 'results'}", f"--report_dir={tmp_path}", "--format=tabular"]
    assert command("report", *words, "--dataset=rotated_mnist")[0] == 0
    (tmp_path / "paper.tex").write_text(
        r"\documentclass{article}\usepackage[T1]{fontenc}\usepackage{booktabs}"
        r"\begin{document}\input{results}\end{document}"
    )
    program = ["pdflatex", "-interaction=nonstopmode", "paper.tex"]
    done = subprocess.run(program, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


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
    records = [sample.record([[0.9, 0.1], [x, x]]) for x in (0.8, 0.6)]
    assert mean_std(records, "average_accuracy", 100, 1) == "70.0 ± 10.0"
    assert mean_std(records[:1], "average_accuracy", 1, 2) == "0.80"
    one_task = sample.record([[0.9]])
    assert mean_std([*records, one_task], "forgetting", 1, 2) == "-"
