"""The README's Python runs as it stands, and its install commands are those that CI uses."""

import pathlib
import re
import subprocess
import sys

import pytest

import nccl_tf

PACKAGE = pathlib.Path(nccl_tf.__file__).parent  # elsewhere, when a wheel is tested
ROOT = pathlib.Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
PYTHON = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


@pytest.mark.pages
def test_python_blocks_run(tmp_path):
    """Each with names of its own, in a process that imports nothing but what they import."""
    code = f"import sys; sys.path.insert(0, {str(ROOT)!r})\n"
    for number, block in enumerate(PYTHON):
        code += f"exec(compile({block!r}, 'block {number}', 'exec'), {{'__name__': '__main__'}})\n"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


PAGES = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")]
PAGES += [ROOT / folder / "README.md" for folder in ("results", "examples", "benchmarks")]
PAGES += sorted((ROOT / "docs").rglob("*.md"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_pictures_and_pages_that_are_linked_exist(page):
    text = re.sub(r"```.*?```|`[^`\n]*`|\$[^$\n]*\$", "", page.read_text(), flags=re.DOTALL)
    for link in re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", text):
        _, is_of_package, rest = link.rpartition("../nccl_tf/")
        target = PACKAGE / rest if is_of_package else page.parent / link
        assert link.startswith("http") or target.exists(), link
