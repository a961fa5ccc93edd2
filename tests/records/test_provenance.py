"""What a record says of the code that made it."""

import shutil
import subprocess

import pytest

from nccl_tf.records.provenance import source_below, variables_that_decide_bits

UNKNOWN = {"commit": None, "package_modified": None}


@pytest.fixture
def checkout(tmp_path):
    """A repository with one commit of a package, and its hash."""
    if shutil.which("git") is None:
        pytest.skip("git is not installed")

    def git(*words):
        who = ["-c", "user.name=x", "-c", "user.email=x@example.org"]
        done = subprocess.run(
            ["git", "-C", str(tmp_path), *who, *words], capture_output=True, text=True, check=True
        )
        return done.stdout.strip()

    (tmp_path / "nccl_tf").mkdir()
    (tmp_path / "nccl_tf" / "step.py").write_text("beta = 1\n")
    (tmp_path / "page.md").write_text("text\n")
    (tmp_path / ".gitignore").write_text("__pycache__/\n")
    git("init", "-q")
    git("add", ".")
    git("commit", "-q", "-m", "first")
    return tmp_path, git("rev-parse", "HEAD")


@pytest.mark.parametrize(
    ("path", "content", "modified"),
    [
        ("nccl_tf/step.py", "beta = 2\n", True),
        ("nccl_tf/step.py", "beta = 1\n", False),
        ("nccl_tf/new.py", "", True),
        ("nccl_tf/__pycache__/step.pyc", "", False),
        ("page.md", "other text\n", False),
    ],
)
def test_a_source_is_modified_where_a_file_of_the_package_is(checkout, path, content, modified):
    root, commit = checkout
    assert source_below(root) == {"commit": commit, "package_modified": False}
    (root / path).parent.mkdir(exist_ok=True)
    (root / path).write_text(content)
    assert source_below(root) == {"commit": commit, "package_modified": modified}


def test_a_removed_file_is_a_modification(checkout):
    root, commit = checkout
    (root / "nccl_tf" / "step.py").unlink()
    assert source_below(root) == {"commit": commit, "package_modified": True}


def test_what_is_no_checkout_has_an_unknown_source(checkout, tmp_path):
    assert source_below(tmp_path / "nccl_tf") == UNKNOWN  # Its top is the folder above.
    shutil.rmtree(tmp_path / ".git")
    assert source_below(tmp_path) == UNKNOWN
    (tmp_path / ".git").write_text("no repository\n")
    assert source_below(tmp_path) == UNKNOWN


def test_variables_that_decide_bits_are_those_that_are_set(monkeypatch):
    for name in ("XLA_FLAGS", "TF_ENABLE_ONEDNN_OPTS"):
        monkeypatch.delenv(name, raising=False)
    decide = {"TF_XLA_FLAGS": "--tf_xla_auto_jit=2", "TF_DETERMINISTIC_OPS": "1"}
    for name, value in {**decide, "TF_CPP_MIN_LOG_LEVEL": "3"}.items():
        monkeypatch.setenv(name, value)
    assert variables_that_decide_bits() == decide
    cache = "--tf_xla_persistent_cache_directory=/x"
    monkeypatch.setenv("TF_XLA_FLAGS", f"{cache} --tf_xla_auto_jit=2")
    assert variables_that_decide_bits() == decide
    monkeypatch.setenv("TF_XLA_FLAGS", cache)
    assert variables_that_decide_bits() == {"TF_DETERMINISTIC_OPS": "1"}
