"""Mutants are of this code and of these tests: a change of either may leave one behind unseen."""

import json
from pathlib import Path

import nccl_tf
from tests.mutants import MUTANTS, RESULTS, ROOT


def test_each_changes_one_place():
    package = [path.read_text() for path in Path(nccl_tf.__file__).parent.rglob("*.py")]
    places = {
        name: sum(text.count(mutant.old) for text in package) for name, mutant in MUTANTS.items()
    }
    assert {name: count for name, count in places.items() if count != 1} == {}


def test_what_caught_each_is_there():
    caught = json.loads(RESULTS.read_text())
    assert caught.keys() == MUTANTS.keys()
    for test in filter(None, caught.values()):
        path, *_, name = test.split("::")
        assert f"def {name.partition('[')[0]}(" in (ROOT / path).read_text(), test
