"""The names that a subclass of a learner inherits, and which modules need which."""

import ast
import re
from pathlib import Path

import keras
import pytest

import nccl_tf
from tests.tiny import tiny_network

ROOT = Path(nccl_tf.__file__).parent
PAGE = Path(__file__).parents[2] / "docs" / "extending.md"


def beyond(kind, base):
    return {name for name in set(dir(kind)) - set(dir(base)) if not name.startswith("_")}


def listed():
    section = PAGE.read_text().partition("## Names of a learner")[2].partition("\n## ")[0]
    tables = re.findall(r"^\|[^\n]*what it is \|\n.*?\n\n", section + "\n\n", re.M | re.S)
    return [re.findall(r"^\| `(\w+)` \| .+ \|$", table, re.M) for table in tables]


def attributes():
    learner = nccl_tf.Finetune(tiny_network())
    learner.compile(keras.optimizers.SGD(0.1))
    plain = keras.Model(learner.network.inputs, learner.network.outputs)
    plain.compile(keras.optimizers.SGD(0.1))
    return {name for name in vars(learner).keys() - vars(plain).keys() if not name.startswith("_")}


def test_a_page_lists_every_name_once():
    of_learner, own, of_replay, of_two = listed()
    keras_s_own = vars(keras.Model()).keys()
    assert of_learner == sorted(beyond(nccl_tf.Learner, keras.Model) - keras_s_own)
    assert own == sorted(attributes())
    assert of_replay == sorted(beyond(nccl_tf.ReplayLearner, nccl_tf.Learner))
    assert of_two == sorted(beyond(nccl_tf.TwoGradientLearner, nccl_tf.ReplayLearner))


def imports(folder):
    """The modules of a folder, each with those of them that it imports, for types too."""
    names = {path: ".".join(path.relative_to(ROOT.parent).with_suffix("").parts)
             for path in folder.rglob("*.py") if path.name != "__init__.py"}  # fmt: skip
    graph = {}
    for path, name in names.items():
        found = set()
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module:
                found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
            elif isinstance(node, ast.Import):
                found |= {alias.name for alias in node.names}
        graph[name] = found & set(names.values())
    return graph


def in_circles(graph):
    """The modules that need themselves, by way of others."""

    def reached(start):
        seen, rest = set(), [start]
        while rest:
            new = graph[rest.pop()] - seen
            seen |= new
            rest += new
        return seen

    return sorted(name for name in graph if name in reached(name))


def test_circles_are_found():
    graph = {"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": {"a"}}
    assert in_circles(graph) == ["b", "c"]


@pytest.mark.parametrize("folder", ["learner", "memories", "methods"])
def test_no_module_needs_itself(folder):
    graph = imports(ROOT / folder)
    assert len(graph) > 5 and any(graph.values())
    assert in_circles(graph) == []


def test_no_method_reads_the_table_that_names_it():
    graph = imports(ROOT / "methods")
    table = "nccl_tf.methods.registry"
    assert {name for name in graph if table in graph[name]} == {"nccl_tf.methods.create"}


RETURN_REPORTS = {"check_learner", "check_memory"}
FUNCTIONS = ast.FunctionDef, ast.Lambda


def returns_something(node):
    """Whether a function returns a value itself; one within it returns its own."""
    if isinstance(node, ast.Return):
        return node.value is not None
    own = (part for part in ast.iter_child_nodes(node) if not isinstance(part, FUNCTIONS))
    return any(map(returns_something, own))


def test_what_checks_raises_and_what_is_checked_returns():
    functions = [
        node
        for path in ROOT.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef)
    ]
    raising = [each for each in functions if each.name.lstrip("_").startswith("check_")]
    returning = [each for each in functions if each.name.lstrip("_").startswith("checked_")]
    assert len(raising) > 50 and len(returning) > 5
    assert {each.name for each in raising if returns_something(each)} <= RETURN_REPORTS
    assert [each.name for each in returning if not returns_something(each)] == []
