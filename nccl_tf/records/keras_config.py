"""Process-wide Keras settings that differ from Keras's defaults."""

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

USUAL: Mapping[str, Any] = {
    "floatx": "float32",
    "epsilon": 1e-7,
    "image_data_format": "channels_last",
    "max_epochs": None,
    "max_steps_per_epoch": None,
}
"""Settings of `keras.config` that may change a run, at their defaults.

The dtype policy is not among them: a run sets its own, `precision`.
"""

_IN_FILE = ("floatx", "epsilon", "image_data_format")
_IN_ENVIRONMENT = {
    "max_epochs": "KERAS_MAX_EPOCHS", "max_steps_per_epoch": "KERAS_MAX_STEPS_PER_EPOCH",
}  # fmt: skip


def unusual_keras_config() -> str | None:
    """Settings that differ from Keras's defaults, such as "floatx=float16"; None without any.

    Keras takes seconds to import. Where nobody has imported it yet, what it will read is read: the
    file keras.json and the environment.
    """
    found = _set_in_keras() if "keras" in sys.modules else _read_by_keras()
    unusual = [f"{name}={found[name]}" for name in USUAL if found[name] != USUAL[name]]
    return ", ".join(unusual) or None


def _set_in_keras() -> dict[str, Any]:
    import keras

    return {name: getattr(keras.config, name)() for name in USUAL}


def _read_by_keras() -> dict[str, Any]:
    home = Path.home() if os.access(Path.home(), os.W_OK) else Path("/tmp")  # noqa: S108 (where Keras looks then)
    folder = Path(os.environ.get("KERAS_HOME") or home / ".keras").expanduser()
    try:
        written = json.loads((folder / "keras.json").read_text())
    except (OSError, ValueError):
        written = {}
    found = {**USUAL, **{name: written[name] for name in _IN_FILE if name in written}}
    return found | {name: os.environ.get(variable) for name, variable in _IN_ENVIRONMENT.items()}
