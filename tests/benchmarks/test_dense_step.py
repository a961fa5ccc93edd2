"""The bare loop that steps on a dense network are compared with."""

from benchmarks import dense_step


def test_the_bare_loop_learns(monkeypatch):
    monkeypatch.setattr(dense_step, "STEPS", 20)
    loop = dense_step.bare_loop()
    first, second = float(loop()), float(loop())
    assert 0 < second < first
