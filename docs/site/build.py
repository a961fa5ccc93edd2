"""Builds the site into build/site: pages by hand, and those of the methods and of the API.

The pages of the methods and the API are made from the registry and the records. In the folder of
the checkout: `python -m docs.site.build`.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import nccl_tf
from docs.make.methods import method_page, method_picture, methods_overview
from nccl_tf.commands._command_line import COMMANDS
from nccl_tf.commands._help import help_text
from nccl_tf.methods.registry import METHODS
from nccl_tf.quiet_start import quiet_start
from nccl_tf.reports.records import Records

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "build/site_sources"  # the names are those in mkdocs.yml
CONFIG = ROOT / "build/mkdocs.yml"

API = {
    "Learners": "nccl_tf.learner.",
    "Methods": "nccl_tf.methods.",
    "Memories": "nccl_tf.memories.",
    "Streams": "nccl_tf.streams.",
    "Learning a stream": "nccl_tf.session.",
    "Checks of a class of your own": "nccl_tf.conformance.",
    "Compiled programs": "nccl_tf.records.compile_cache",
    "Others": "nccl_tf.",
}
"""Pages of public classes and functions, and the beginning of the modules that they are from."""
WITH_BASE = ("JointTask", "Task")
"""Classes shown with what they have from a base that has no entry of its own."""
MODULES = {
    "Networks": ["networks.mlp", "networks.resnet", "networks.logits"],
    "Callbacks": ["callbacks.step_record", "diagnostics.callback"],
    "Step sizes, gradients, metrics": ["step_sizes", "gradients", "metrics"],
    "Theory": ["theory.forgetting", "theory.overfitting", "theory.bounds", "theory.estimates"],
}
"""Pages of whole modules."""

PAGES = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "benchmarks/README.md": "benchmarks.md",
    "results/README.md": "records.md",
    "examples": "examples.md",
    **{
        f"studies/{name}/README.md": f"study_{name}.md"
        for name in ("pretrained", "passes", "readings", "step_sizes", "training_times")
    },
}
"""Pages of the site by what of the repository they show."""


def write_sources() -> None:
    """Write all pages into `SOURCES`, and the configuration with their navigation."""
    shutil.rmtree(SOURCES, ignore_errors=True)
    shutil.copytree(ROOT / "docs", SOURCES, ignore=shutil.ignore_patterns("site"))
    for path, content in _made_pages():
        page = SOURCES / path
        page.parent.mkdir(exist_ok=True)
        page.write_text(content)
    CONFIG.write_text(with_made_pages((ROOT / "mkdocs.yml").read_text()))


def build() -> None:
    """Build the site; a warning, such as of a link to nowhere, ends it."""
    with quiet_start():
        write_sources()
    program = Path(sys.executable).with_name("zensical")
    subprocess.run([program, "build", "--strict", "--clean", "-f", CONFIG], check=True)


def _made_pages() -> Iterable[tuple[str, str]]:
    records = Records.required(ROOT / "results").records
    for name in METHODS:
        picture = method_picture(name, records)
        if picture is not None:
            yield f"methods/{name}.svg", picture
        yield _method_file(name), method_page(name, records, picture=picture is not None)
    for source in (ROOT / "docs").glob("*.md"):
        yield source.name, with_links_of_the_site(source.read_text(), Path("docs"))
    yield "methods.md", methods_overview(lambda row: _method_file(row.name))
    yield "command.md", _command_page()
    yield "examples.md", _examples_page()
    for source, page in PAGES.items():
        if source.endswith(".md"):
            yield page, with_links_of_the_site((ROOT / source).read_text(), Path(source).parent)
    for title, content in (*_class_pages(), *_module_pages()):
        yield _api_file(title), f"# {title}\n\n{content}"


def with_links_of_the_site(text: str, folder: Path) -> str:
    """A page of the repository as one at the top of the site; a link to what is no page is text.

    Args:
        text: The page.
        folder: Where it stands in the repository.
    """

    def to_page(found: re.Match[str]) -> str:
        label, target, anchor = found.groups()
        path = os.path.normpath(folder / target)
        page = PAGES.get(path, path.removeprefix("docs/") if path.startswith("docs/") else None)
        return label if page is None else f"[{label}]({page}{anchor or ''})"

    return re.sub(r"\[([^\]]*)\]\((?!\w+:)([^)#]+)(#[^)]*)?\)", to_page, text)


def _examples_page() -> str:
    """Every example with its code, below the first line of its docstring."""
    parts = ["# Examples\n\nScripts of the folder `examples`, each of which runs as it stands.\n"]
    for path in sorted((ROOT / "examples").glob("*.py")):
        code = path.read_text()
        first = code.removeprefix('"""').splitlines()[0].removesuffix('"""')
        parts.append(f"## {path.name}\n\n{first}\n\n```python\n{code.rstrip()}\n```\n")
    return "\n".join(parts)


def _command_page() -> str:
    """The help of every command, as a terminal shows it."""
    parts = [f"# The command\n\n```text\n{help_text()}\n```\n"]
    for name, command in COMMANDS.items():
        parts.append(f"## {name}\n\n```text\n{help_text(command, full=True)}\n```\n")
    return "\n".join(parts)


def with_made_pages(config: str) -> str:
    """The configuration with the pages of methods and API in its navigation, below their marks."""
    pages = {
        "# methods": [(row.title, _method_file(row.name)) for row in METHODS.values()],
        "# api": [(title, _api_file(title)) for title in (*API, *MODULES)],
    }
    lines = []
    for line in config.splitlines():
        indent = line[: len(line) - len(line.lstrip())]
        made = pages.get(line.strip())
        lines += [line] if made is None else [f"{indent}- {json.dumps(t)}: {p}" for t, p in made]
    return "\n".join([*lines, ""])


def _class_pages() -> Iterable[tuple[str, str]]:
    left: dict[str, Any] = dict(nccl_tf._HOMES)
    for title, prefix in API.items():
        names = [name for name, home in left.items() if home.startswith(prefix)]
        yield title, "\n".join(_class_entry(left.pop(name), name) for name in sorted(names))


def _class_entry(module: str, name: str) -> str:
    options = "    options:\n      inherited_members: true\n" if name in WITH_BASE else ""
    return f"::: {module}.{name}\n{options}"


def _module_pages() -> Iterable[tuple[str, str]]:
    for title, modules in MODULES.items():
        yield title, "\n".join(f"::: nccl_tf.{module}\n" for module in modules)


def _method_file(name: str) -> str:
    return f"methods/{name}.md"


def _api_file(title: str) -> str:
    return f"api/{title.split(',')[0].lower().replace(' ', '_')}.md"


if __name__ == "__main__":
    build()
