"""mkdocs hook: the pages of the methods and of the API, made from the registry and the records."""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

import nccl_tf
from nccl_tf.methods.registry import METHODS
from nccl_tf.reports.method_docs import method_page, method_picture
from nccl_tf.reports.records import read_records

ROOT = Path(__file__).parents[2]

API = {
    "Learners": "nccl_tf.learner.",
    "Methods": "nccl_tf.methods.",
    "Memories": "nccl_tf.memories.",
    "Streams": "nccl_tf.streams.",
    "Learning a stream": "nccl_tf.session.",
    "Others": "nccl_tf.",
}
"""Pages of public classes and functions, and the beginning of the modules that they are from."""
MODULES = {
    "Networks": ["networks.mlp", "networks.resnet", "networks.experts"],
    "Callbacks": ["callbacks.step_record", "diagnostics.callback"],
    "Step sizes, gradients, metrics": ["step_sizes", "gradients", "metrics"],
    "Theory": ["theory.forgetting", "theory.overfitting", "theory.bounds", "theory.estimates"],
}
"""Pages of whole modules."""


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Put the pages that are made below into the navigation."""
    for entry in config.nav or []:
        if "Methods" in entry:
            entry["Methods"] += [{row.title: _method_file(row.name)} for row in METHODS.values()]
        if "API" in entry:
            entry["API"] = [{title: _api_file(title)} for title in (*API, *MODULES)]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Make the pages."""
    records, _ = read_records(ROOT / "results")
    for name in METHODS:
        picture = method_picture(name, records)
        if picture is not None:
            path = f"methods/{name}.svg"
            files.append(File.generated(config, path, content=picture))
        text = method_page(name, records, picture=picture is not None)
        files.append(File.generated(config, _method_file(name), content=text))
    for title, content in (*_class_pages(), *_module_pages()):
        files.append(File.generated(config, _api_file(title), content=f"# {title}\n\n{content}"))
    return files


def _class_pages() -> Iterable[tuple[str, str]]:
    left: dict[str, Any] = dict(nccl_tf._HOMES)
    for title, prefix in API.items():
        names = [name for name, home in left.items() if home.startswith(prefix)]
        yield title, "\n".join(f"::: {left.pop(name)}.{name}\n" for name in sorted(names))


def _module_pages() -> Iterable[tuple[str, str]]:
    for title, modules in MODULES.items():
        yield title, "\n".join(f"::: nccl_tf.{module}\n" for module in modules)


def _method_file(name: str) -> str:
    return f"methods/{name}.md"


def _api_file(title: str) -> str:
    return f"api/{title.split(',')[0].lower().replace(' ', '_')}.md"
