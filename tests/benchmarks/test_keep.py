"""What benchmarks measured is kept, and the page shows it."""

import json

import pytest

from benchmarks import keep
from nccl_tf.reports.generated_files import put_between_marks

FOUND = {
    "title": "A step", "milliseconds": {"a": 2.0, "b": 1.0}, "machine": "a machine", "load": 0.25,
    "ratios": {"a / b": {"ratio": 2.0, "target": 1.5}, "c": {"ratio": 0.126, "target": None}},
}  # fmt: skip


def test_the_table_has_each_ratio_beside_its_target():
    assert keep.table({"dense_step": FOUND}).splitlines() == [
        "| command (`python -m benchmarks.`) | what | measured | target |",
        "| --- | --- | ---: | ---: |",
        "| `dense_step` | a / b | 2.00 | 1.5 |",
        "|  | c | 0.13 | - |",
        "",
        "Measured on a machine; load before a benchmark at most 0.2.",
    ]


def test_the_page_is_what_was_kept():
    kept = json.loads(keep.FILE.read_text())
    assert put_between_marks(keep.PAGE, "measured", keep.table(kept), check=True)


def test_what_a_benchmark_prints_last_is_taken(monkeypatch):
    printed = f"A step\n  1.0 ms\n{json.dumps({'title': 'A step', 'ratios': {}})}\n"
    monkeypatch.setattr(keep.subprocess, "run", lambda *_, **__: type("", (), {"stdout": printed}))
    found = keep.measure("dense_step")
    assert found["title"] == "A step" and "cores, tensorflow 2" in found["machine"]
    assert {"machine", "load"} <= set(found)


@pytest.mark.parametrize("name", ["nothing", "memory_footprint"])
def test_what_cannot_be_kept_is_refused(monkeypatch, name):
    printed = json.dumps({"title": "Memory"})
    monkeypatch.setattr(keep.subprocess, "run", lambda *_, **__: type("", (), {"stdout": printed}))
    with pytest.raises(SystemExit, match=name):
        keep.measure(name)
