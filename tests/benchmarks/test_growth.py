"""How cost grows: exponents, the table and the pictures of what was measured."""

import json

import numpy as np
import pytest

from benchmarks import growth
from tests.shown import IMAGES


def kept(power):
    return {
        "points": {
            name: {
                curve: [{"milliseconds": 3 * x**power, "bytes": 2**20} for x in axis.values]
                for curve in axis.curves
            }
            for name, axis in growth.AXES.items()
        }
    }


@pytest.mark.parametrize("power", [0.0, 0.5, 2.0])
def test_the_exponent_is_that_of_a_power(power):
    x = np.array([5, 20, 200])
    np.testing.assert_allclose(growth.exponent(x, 7 * x**power), power, atol=1e-9)


def test_the_table_has_every_point_and_both_exponents():
    lines = growth.table(kept(2.0)).splitlines()
    points = sum(len(axis.values) * len(axis.curves) for axis in growth.AXES.values())
    exponents = [line for line in lines if "exponent" in line]
    assert len(lines) == 1 + points + len(exponents)
    assert all(line.split()[-2:] == ["2.00", "0.00"] for line in exponents)


def test_each_axis_has_a_picture_with_its_exponents():
    for name, axis in growth.AXES.items():
        assert (IMAGES / f"growth_{name}.png").exists()
        time, _ = growth.figure(name, kept(1.0)).axes
        said = [text.get_text() for text in time.get_legend().get_texts()]
        assert said == [f"{curve}, exponent 1.00" for curve in axis.curves]


def test_measuring_an_axis_leaves_the_others(tmp_path, monkeypatch):
    monkeypatch.setattr(growth, "FILE", tmp_path / "growth.json")
    monkeypatch.setattr(growth, "_point", lambda *asked: {"milliseconds": 1.0, "bytes": 2})
    before = kept(1.0)
    growth.FILE.write_text(json.dumps(before))
    growth.measure(["width"])
    after = json.loads(growth.FILE.read_text())["points"]
    assert after["slots"] == before["points"]["slots"]
    assert after["width"]["NCCL"] == [{"milliseconds": 1.0, "bytes": 2}] * 4
