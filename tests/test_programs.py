"""What happens where a program of the system is missing."""

import pytest

from tests import programs


@pytest.mark.parametrize(("ci", "outcome"), [("", pytest.skip), ("true", pytest.fail)])
def test_a_missing_program_fails_in_ci(monkeypatch, ci, outcome):
    monkeypatch.setenv("CI", ci)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(outcome.Exception, match="apt-get install chromium chromium-driver"):
        programs.needs("chromium", "chromedriver")
