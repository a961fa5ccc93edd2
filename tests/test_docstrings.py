"""The examples in docstrings run, and the names of the package are there."""

import importlib
import inspect
import pkgutil
import re
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf

import nccl_tf

MODULES = [info.name for info in pkgutil.walk_packages(nccl_tf.__path__, "nccl_tf.")]


def public(owner, home):
    """(name, object) of what `owner` itself defines under a public name in the module `home`."""
    for name, value in vars(owner).items():
        value = inspect.unwrap(getattr(value, "__func__", value))
        is_ours = getattr(value, "__module__", None) == home
        if is_ours and not name.startswith("_") and callable(value):
            yield name, value


def examples():
    for module in MODULES:
        for name, value in public(importlib.import_module(module), module):
            for code in re.findall(r"```python\n(.*?)```", inspect.getdoc(value) or "", re.DOTALL):
                marks = [pytest.mark.seconds(40)] if "export_learner(" in code else []
                yield pytest.param(code, id=name, marks=marks)


@pytest.mark.parametrize("code", list(examples()))
def test_examples_run(code, tmp_path, monkeypatch):
    """A line that ends in a number as a comment has that value; `results` lies in the folder."""
    monkeypatch.chdir(tmp_path)
    Path("results").symlink_to(Path(__file__).parents[1] / "results")
    names = {"keras": keras, "nccl_tf": nccl_tf, "np": np, "tf": tf}
    exec(code, names)
    for line, value in re.findall(r"^(.+)  # (-?[\d.]+)$", code, re.MULTILINE):
        assert eval(line, names) == pytest.approx(float(value))


def test_every_name_of_the_package_is_there():
    assert [name for name in nccl_tf.__all__ if getattr(nccl_tf, name) is None] == []
