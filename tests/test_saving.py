"""A saved learner of any kind can be loaded where only `nccl_tf` was imported."""

import pathlib
import subprocess
import sys

import keras
import pytest

import nccl_tf
from nccl_tf.saving import load_model

CODE = """
import sys
import nccl_tf.saving
nccl_tf.saving.register_classes()
print(*(name for name in sys.modules if name.startswith("nccl_tf")))
"""


def test_every_module_with_a_class_that_is_saved_is_imported():
    root = pathlib.Path(nccl_tf.__file__).parent
    saved = {
        ".".join(["nccl_tf", *path.relative_to(root).with_suffix("").parts])
        for path in root.rglob("*.py")
        if "@keras.saving.register_keras_serializable" in path.read_text()
    }
    printed = subprocess.run(
        [sys.executable, "-c", CODE], check=True, capture_output=True, text=True
    ).stdout
    assert len(saved) > 25
    assert saved <= set(printed.split())


def test_a_file_with_code_in_it_is_refused(tmp_path):
    layers = [keras.Input((2,)), keras.layers.Lambda(lambda x: 2 * x)]
    keras.Sequential(layers).save(tmp_path / "model.keras")
    with pytest.raises((TypeError, ValueError), match="unsafe"):
        load_model(tmp_path / "model.keras")
