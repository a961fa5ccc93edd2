"""LiteRT's interpreter, which an extra of the package installs."""

import importlib
from typing import Any

from nccl_tf.errors import UserError


def interpreter(content: bytes) -> Any:
    """An interpreter of a file.

    Raises:
        UserError: The extra is missing.
    """
    return _module("interpreter").Interpreter(model_content=content, num_threads=1)


def schema() -> Any:
    """The classes of what is in a file.

    Raises:
        UserError: The extra is missing.
    """
    return _module("schema_py_generated")


def _module(name: str) -> Any:
    try:
        return importlib.import_module(f"ai_edge_litert.{name}")
    except ImportError as error:
        raise UserError(
            "a file for a device needs the package ai-edge-litert, which is not installed: "
            'pip install "nccl_tf[device]"'
        ) from error
