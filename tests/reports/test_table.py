"""A table in Markdown and LaTeX, and the numbers in its cells."""

from nccl_tf.reports.table import Table, as_latex, as_markdown, mean_std


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
