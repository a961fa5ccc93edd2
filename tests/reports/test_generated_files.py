"""Tables in Markdown, and their place in a README."""

import pytest

from nccl_tf.errors import UserError
from nccl_tf.reports.generated_files import as_markdown, put_between_marks
from nccl_tf.reports.table import Table

BEGIN, END = "<!-- results:begin -->", "<!-- results:end -->"
README = f"# Title\n\n{BEGIN}\nold\n{END}\n\nmore\n"


def test_a_table_with_its_notes():
    content = Table("", "", ("a", "b"), (("x|y", "1"),), ("b",), ("One note.", "Two."))
    assert as_markdown(content) == (
        "| a | b |\n| --- | ---: |\n| x\\|y | 1 |\n\nOne note.\n\nTwo.\n"
    )


def test_readme_is_replaced_between_its_marks_only(tmp_path):
    path = tmp_path / "README.md"
    path.write_text(README)
    assert not put_between_marks(path, "results", "| new |\n", check=True)
    assert path.read_text() == README
    assert not put_between_marks(path, "results", "| new |\n", check=False)
    assert path.read_text() == README.replace("old", "| new |")
    assert put_between_marks(path, "results", "| new |\n", check=True)


@pytest.mark.parametrize("text", ["none", BEGIN, f"{END}\n{BEGIN}", README + README])
def test_a_readme_without_its_marks(tmp_path, text):
    path = tmp_path / "README.md"
    path.write_text(text)
    with pytest.raises(UserError, match="results:begin"):
        put_between_marks(path, "results", "x\n", check=False)
    assert path.read_text() == text


def test_a_readme_that_is_not_there(tmp_path):
    with pytest.raises(UserError, match="cannot read"):
        put_between_marks(tmp_path / "none.md", "results", "x\n", check=False)
