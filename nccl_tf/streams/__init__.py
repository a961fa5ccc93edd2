"""Streams of tasks: named data sets or your own, cut into tasks by class, permutation or domain.

Names are imported on first use, so that importing the catalog needs neither NumPy nor TensorFlow.
"""

import importlib
from typing import Any

_MODULES = {
    "DATASETS": "catalog",
    "Examples": "arrays",
    "JointTask": "task",
    "PixelScaling": "arrays",
    "Stream": "stream",
    "Task": "task",
    "load_stream": "load",
    "stream_from_arrays": "load",
    "stream_from_datasets": "datasets",
}
__all__ = sorted(_MODULES)


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
