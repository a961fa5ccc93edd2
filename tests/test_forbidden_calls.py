"""The library runs nothing that it reads: no eval, no pickle but the restricted one, no shell."""

import ast
from pathlib import Path

import pytest

import nccl_tf

PACKAGE = Path(nccl_tf.__file__).parent
FILES = sorted(PACKAGE.rglob("*.py"))
NAMES = {"eval", "exec", "compile", "__import__", "execfile"}
MODULES = {"pickle", "cPickle", "dill", "cloudpickle", "joblib", "shelve", "marshal", "yaml",
           "runpy", "code", "pty"}  # fmt: skip
ATTRIBUTES = {
    "os": {"system", "popen", "execv", "execve", "execvp", "spawnl", "spawnv"},
    "subprocess": {"getoutput", "getstatusoutput"},
    "keras.config": {"enable_unsafe_deserialization"},
}
KEYWORDS = {"shell": True, "allow_pickle": True, "safe_mode": False}


def findings(source: str, may_unpickle: bool = False) -> list[str]:
    """What of a module's source is forbidden, with the number of its line."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Name) and node.id in NAMES:
            found.append((node.lineno, node.id))
        if isinstance(node, ast.Attribute):
            owner = ast.unparse(node.value)
            if node.attr in ATTRIBUTES.get(owner, ()):
                found.append((node.lineno, f"{owner}.{node.attr}"))
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            names += [f"{'.'.join(names)}.{alias.name}".lstrip(".") for alias in node.names]
            for name in names:
                top, _, rest = name.partition(".")
                if rest in ATTRIBUTES.get(top, ()) or (top in MODULES and not may_unpickle):
                    found.append((node.lineno, f"import {name}"))
        if isinstance(node, ast.Call):
            for keyword in node.keywords:
                forbidden = KEYWORDS.get(keyword.arg or "")
                if forbidden is None:
                    continue
                value = keyword.value
                if not isinstance(value, ast.Constant) or bool(value.value) is forbidden:
                    found.append((node.lineno, f"{keyword.arg}={ast.unparse(value)}"))
            if ast.unparse(node.func) in ("np.load", "numpy.load") and not any(
                keyword.arg == "allow_pickle" for keyword in node.keywords
            ):
                found.append((node.lineno, "np.load without allow_pickle=False"))
    return [f"line {line}: {what}" for line, what in found]


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_nothing_forbidden(path):
    assert findings(path.read_text(), path.name == "restricted_pickle.py") == []


def test_the_restricted_reader_is_the_only_use_of_pickle():
    source = (PACKAGE / "streams" / "restricted_pickle.py").read_text()
    used = {
        node.attr
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "pickle"
    }
    opcodes = {name for name in used if name.isupper()}
    assert used - opcodes == {"UnpicklingError", "_Unpickler"}


@pytest.mark.parametrize(
    "source",
    [
        "eval('1')", "exec('1')", "import pickle", "from pickle import loads", "import yaml",
        "import os\nos.system('x')", "from os import popen", "subprocess.run('x', shell=True)",
        "subprocess.run('x', shell=on)", "np.load('x')", "np.load('x', allow_pickle=True)",
        "keras.models.load_model('x', safe_mode=False)",
        "run = eval", "import a.b, joblib", "keras.config.enable_unsafe_deserialization()",
    ],
)  # fmt: skip
def test_what_is_forbidden_is_found(source):
    assert findings(source)
