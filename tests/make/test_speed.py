"""The table of steps on a GPU: of the newest device and commit, in the order of the networks."""

import json

import pytest

from docs.make import speed
from nccl_tf.errors import UserError

ROW = {
    "network": "dense",
    "batch": 10,
    "method": "er_ring",
    "tensorfloat32": False,
    "device": "GPU 0 (A card)",
    "commit": "0123456789abcdef",
    "versions": {"tensorflow": "2.21.0", "keras": "3.15.1"},
    "milliseconds": {"plain": 5.0, "chunk": 0.1594},
    "more": {"first chunk, s": 17.0, "plain in kernels": 0.05},
}


def test_a_row_has_what_was_measured_and_dashes_for_the_rest():
    page = speed.gpu_steps([ROW | {"network": "resnet64"}, ROW])
    where, _, heads, _, dense, full = page.splitlines()
    assert "GPU 0 (A card)" in where and "01234567" in where and "2.21.0" in where
    assert heads.startswith("| network | batches | method | TF32 | plain | chunk |")
    cells = "`er_ring` | off | 5.000 | 0.159 | - | - | 17.00 | 0.05 | - |"
    assert dense == f"| dense, 256-256 | 10 + 10 | {cells}"
    assert full == f"| full ResNet-18 | 10 + 10 | {cells}"


def test_rows_of_an_older_commit_are_left_out():
    page = speed.gpu_steps([ROW | {"commit": "old"}, ROW | {"method": "agem"}])
    assert "`agem`" in page and "`er_ring`" not in page


def test_no_row_is_refused():
    with pytest.raises(UserError):
        speed.gpu_steps([])


def test_the_page_takes_the_rows_of_a_file(tmp_path, monkeypatch, capsys):
    page, rows = tmp_path / "speed.md", tmp_path / "gpu.jsonl"
    page.write_text("before\n<!-- gpu:begin -->\n<!-- gpu:end -->\nafter\n")
    rows.write_text(json.dumps(ROW) + "\n")
    monkeypatch.setattr(speed, "PAGE", page)
    assert speed.main([str(rows), "--check"]) == 1 and "`er_ring`" not in page.read_text()
    assert speed.main([str(rows)]) == 0 and "`er_ring`" in page.read_text()
    assert speed.main([str(rows), "--check"]) == 0
    assert speed.main([str(tmp_path / "none")]) == 2 and capsys.readouterr().err
