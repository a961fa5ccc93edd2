"""Text that is put between the marks of a README."""

import pytest

from docs.make.generated_files import put_between_marks
from nccl_tf.errors import UserError

BEGIN, END = "<!-- results:begin -->", "<!-- results:end -->"
README = f"# Title\n\n{BEGIN}\nold\n{END}\n\nmore\n"


def test_readme_is_replaced_between_its_marks_only(tmp_path):
    path = tmp_path / "README.md"
    path.write_text(README)
    assert not put_between_marks(path, "results", "| new |\n", check=True)
    assert path.read_text() == README
    assert not put_between_marks(path, "results", "| new |\n", check=False)
    assert path.read_text() == README.replace("old", "| new |")
    assert put_between_marks(path, "results", "| new |\n", check=True)


def test_a_full_disk_leaves_the_readers_own_file(tmp_path, full_disk):
    """What stands below the marks is the reader's, and is nowhere else."""
    path = tmp_path / "README.md"
    path.write_text(README + "my own text\n" * 500)
    before = path.read_bytes()
    with pytest.raises(UserError, match="cannot write"), full_disk(len(before) // 2):
        put_between_marks(path, "results", "| new |\n", check=False)
    assert path.read_bytes() == before and len(list(tmp_path.iterdir())) == 1


def test_a_link_to_a_readme_stays_one(tmp_path):
    path, link = tmp_path / "README.md", tmp_path / "link.md"
    path.write_text(README)
    link.symlink_to(path)
    put_between_marks(link, "results", "| new |\n", check=False)
    assert link.is_symlink() and "| new |" in path.read_text()


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
