"""Whole runs by the clock: their arithmetic and their table."""

import pytest

from benchmarks import short_runs


def test_the_products_of_a_step():
    """Of 20 examples, 784-256-256-10: 10.8 million forward, 13.4 backward."""
    assert short_runs.flops() == 40 * (3 * 268_800 - 200_704) == 24_227_840


@pytest.mark.parametrize("peers", [(), short_runs.PEERS])
def test_the_table_has_the_sides_that_ran(peers, monkeypatch):
    monkeypatch.setattr(short_runs, "flops_a_second", lambda: 48_455_680_000.0)
    sides = [*short_runs.HOW[:4], *peers]
    seconds = {f"{n} {name}": n / 1000 + i for n in (1000, 3600) for i, name in enumerate(sides)}
    heads, _, first, second = [
        line.strip("| ").split(" | ")
        for line in short_runs.shown(seconds, [1000, 3600], [1.5, 0.5]).splitlines()
        if line.startswith("|")
    ]
    assert heads == ["steps", *sides, "limit"]
    assert first == ["1,000", *(f"{1 + i:.2f}" for i in range(len(sides))), "0.50"]
    assert second[0] == "3,600" and second[-1] == "1.80"
