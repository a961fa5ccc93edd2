"""A saved learner of any kind can be loaded where only `nccl_tf` was imported."""

import pathlib
import subprocess
import sys

import nccl_tf

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
