"""The tables of learners on devices: a cell for each method and network that was measured."""

import pytest

from benchmarks import on_device as benchmark
from docs.make import on_device
from nccl_tf.errors import UserError

EXPORT = {
    "bytes": 254_321, "state_bytes": 80_200, "operations": 1600, "difference": 1.23e-7,
    "export_seconds": 9.0, "commit": "0123456789abcdef",
    "versions": {"tensorflow": "2.21.0", "keras": "3.15.1"},
}  # fmt: skip
TIMES = {
    "device_ms": 0.9, "fit_ms": 1.2, "steps": 200, "machine": "2 CPU cores", "commit": "9876543210",
}  # fmt: skip
ROWS = {
    ("derpp", "conv"): {"method": "derpp", "network": "conv", "export": EXPORT},
    ("er_reservoir", "mlp"): {
        "method": "er_reservoir", "network": "mlp", "export": EXPORT, "times": TIMES,
    },
    ("er_reservoir", "efficientnet"): {
        "method": "er_reservoir", "network": "efficientnet", "export": EXPORT, "times": TIMES,
    },
}  # fmt: skip


def test_a_cell_has_difference_sizes_and_time_and_dashes_for_the_rest():
    lines = on_device.tables(ROWS).splitlines()
    where = lines[0]
    assert all(word in where for word in ("01234567", "98765432", "2.21.0", "2 CPU cores"))
    (er,) = (line for line in lines if line.startswith("| `er_reservoir` | 1"))
    assert er == "| `er_reservoir` | 1e-07, 254 (80) kB, 0.75 | - | - |"
    (derpp,) = (line for line in lines if "`derpp`" in line)
    assert derpp == "| `derpp` | - | 1e-07, 254 (80) kB, - | - |"
    (last,) = (line for line in lines if "EfficientNet" in line)
    assert last.endswith("| 1e-07, 254 (80) kB, 0.75 |")
    assert len([line for line in lines if line.startswith("| `")]) == len(benchmark.METHODS) + 2


def test_no_row_is_refused():
    with pytest.raises(UserError, match="python -m benchmarks"):
        on_device.tables({})


def test_the_page_takes_the_rows_of_the_file(tmp_path, monkeypatch, capsys):
    page, rows = tmp_path / "on_device.md", tmp_path / "on_device.jsonl"
    page.write_text("before\n<!-- on_device:begin -->\n<!-- on_device:end -->\nafter\n")
    benchmark.write_rows(ROWS, rows)
    monkeypatch.setattr(on_device, "PAGE", page)
    monkeypatch.setattr(on_device, "ROWS", rows)
    assert on_device.main(["--check"]) == 1 and "`derpp`" not in page.read_text()
    assert on_device.main([]) == 0 and "`derpp`" in page.read_text()
    assert on_device.main(["--check"]) == 0
    rows.unlink()
    assert on_device.main([]) == 2 and capsys.readouterr().err


def test_the_page_has_the_rows_that_were_measured():
    """`python -m docs.make.on_device` writes it."""
    assert on_device.main(["--check"]) == 0
