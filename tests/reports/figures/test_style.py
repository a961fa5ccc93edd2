"""How pictures are written."""

import pytest

from nccl_tf.reports.figures.style import new_figure, save


def test_a_full_disk_leaves_the_earlier_picture(tmp_path, full_disk):
    png, pdf = save(new_figure((1, 1)), tmp_path, "picture", dpi=50)
    before = png.read_bytes(), pdf.read_bytes()
    with pytest.raises(OSError), full_disk(100):
        save(new_figure((2, 2)), tmp_path, "picture", dpi=50)
    assert (png.read_bytes(), pdf.read_bytes()) == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["picture.pdf", "picture.png"]
