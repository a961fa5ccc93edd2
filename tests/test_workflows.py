"""What holds in every workflow."""

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_actions_are_commits_and_jobs_end(path):
    text = path.read_text()
    for action in re.findall(r"uses: (\S+)", text):
        assert action.startswith("./") or re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", action), action
    jobs = text.partition("\njobs:\n")[2]
    for job in re.split(r"^(?=  \w+:$)", jobs, flags=re.M)[1:]:
        assert "timeout-minutes: " in job or "    uses: ./" in job, job


def test_every_version_of_python_that_may_install_it_runs_the_tests():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    bounds = re.fullmatch(r">=3\.(\d+),<3\.(\d+)", project["requires-python"])
    first, end = map(int, bounds.groups())
    (matrix,) = re.findall(r"python: \[(.*)\]", (ROOT / ".github/workflows/test.yml").read_text())
    assert re.findall(r'"(.*?)"', matrix) == [f"3.{minor}" for minor in range(first, end)]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_scripts_of_the_repository_exist(path):
    for script in re.findall(r"run: (\.ci/\w+)", path.read_text()):
        assert (ROOT / script).stat().st_mode & 0o100, script
