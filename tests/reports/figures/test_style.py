"""How pictures are written."""

import pytest

from nccl_tf.reports.figures.style import new_figure, paper_style, save


def test_a_full_disk_leaves_the_earlier_picture(tmp_path, full_disk):
    png, pdf = save(new_figure((1, 1)), tmp_path, "picture", dpi=50)
    before = png.read_bytes(), pdf.read_bytes()
    with pytest.raises(OSError), full_disk(100):
        save(new_figure((2, 2)), tmp_path, "picture", dpi=50)
    assert (png.read_bytes(), pdf.read_bytes()) == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["picture.pdf", "picture.png"]


def test_a_picture_is_the_same_bytes_every_time(tmp_path):
    with paper_style():
        first, again = (
            [path.read_bytes() for path in save(new_figure((1, 1)), tmp_path / name, "picture")]
            for name in "ab"
        )
    assert first == again
    assert b"/CreationDate" not in first[1]  # of the same second in both
