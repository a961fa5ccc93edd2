"""What the wheel holds and what the package says of itself."""

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import nccl_tf
from nccl_tf.diagnostics.callback import ForgettingDiagnostics
from nccl_tf.errors import UserError
from nccl_tf.records.options import resolve_options
from tests.commands.test_command_line import parsed

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def test_type_checkers_see_every_public_name():
    tree = ast.parse(Path(nccl_tf.__file__).read_text(encoding="utf-8"))
    (block,) = (node for node in tree.body if isinstance(node, ast.If) and "TYPE" in ast.dump(node))
    seen = {name.asname: node.module for node in block.body for name in node.names}
    assert seen == nccl_tf._HOMES | dict.fromkeys(nccl_tf._MODULES, "nccl_tf")


def test_the_version_is_the_same_everywhere():
    assert PROJECT["project"]["version"] == nccl_tf.__version__
    citation = (ROOT / "CITATION.cff").read_text()
    assert re.search(r"^version: (.+)$", citation, re.M)[1] == nccl_tf.__version__
    assert f"## {nccl_tf.__version__}" in (ROOT / "CHANGELOG.md").read_text()


def test_what_a_user_may_have_covers_what_the_results_are_made_with():
    project = PROJECT["project"]
    wanted = [Requirement(line) for line in project["dependencies"]]
    wanted += [Requirement(*project["optional-dependencies"]["tensorboard"])]
    pinned = (ROOT / "requirements.txt").read_text().splitlines()
    lowest = {
        each.name: str(each.specifier).strip("=<>~").replace("*", "0")
        for each in map(Requirement, pinned)
    }
    assert {each.name for each in wanted} == set(lowest)
    for each in wanted:
        assert lowest[each.name] in each.specifier, each
        # A bound from below alone: a library does not choose for the others beside it.
        assert {bound.operator for bound in each.specifier} == {">="}, each


def test_an_extra_is_named_where_it_is_missing(monkeypatch, tmp_path):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    stream = nccl_tf.load_stream("split_digits")
    for use in (
        lambda: resolve_options({"tensorboard": True}),
        lambda: ForgettingDiagnostics(stream, log_dir=tmp_path),
    ):
        with pytest.raises(UserError, match=r"nccl_tf\[tensorboard\]"):
            use()


@pytest.mark.processes
def test_it_learns_where_no_folder_can_be_locked(tmp_path):
    """As on Windows, which has neither module."""
    code = """
import sys
sys.modules |= {"fcntl": None, "resource": None}
import keras, nccl_tf
stream = nccl_tf.load_stream("split_digits", num_tasks=2, head="single")
network = nccl_tf.networks.mlp(stream.example_shape, stream.num_classes, pixels=stream.pixels)
model = nccl_tf.create("er_reservoir", network, stream, memory=10)
model.compile(keras.optimizers.SGD(0.1))
print(nccl_tf.learn(model, stream, batch_size=100, verbose=0))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert "average accuracy" in done.stdout


def test_every_public_name_is_listed():
    assert {"__version__", "Batch", "Step", "NCCL", "learn"} <= set(dir(nccl_tf))
    assert nccl_tf.Batch.__name__ == "Batch" and nccl_tf.Step.__name__ == "Step"


def test_flag_files_of_the_package_are_found_from_everywhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert parsed("--flagfile=flags/grids/er_ring.flags")[1]["method"] == "er_ring"
    with pytest.raises(UserError, match=r"flags/none\.flags"):
        parsed("--flagfile=flags/none.flags")
    own = tmp_path / "flags" / "grids" / "er_ring.flags"
    own.parent.mkdir(parents=True)
    own.write_text("--method=gem\n")
    assert parsed("--flagfile=flags/grids/er_ring.flags")[1]["method"] == "gem"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "expected a tag and the repository's address"),
        (("v99.0.0", "https://host/us/nccl_tf"), "the tag is v99.0.0, the version"),
        ((f"v{nccl_tf.__version__}", "https://host/us/nccl_tf"), "CHANGELOG.md has no date"),
    ],
)
def test_a_release_that_is_not_ready_is_refused(words, said, tmp_path):
    for name in ("CHANGELOG.md", "pyproject.toml", ".ci/release"):
        copy = tmp_path / name
        copy.parent.mkdir(exist_ok=True)
        copy.write_text(re.sub(r"^(## [\d.]+), .*", r"\1", (ROOT / name).read_text(), flags=re.M))
    done = subprocess.run(
        ["sh", tmp_path / ".ci/release", *words], capture_output=True, text=True, timeout=20
    )
    assert done.returncode == 2 and said in done.stderr
