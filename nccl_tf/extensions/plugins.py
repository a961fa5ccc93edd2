"""Plugins: modules that the command line names, and that register methods, memories and streams.

A plugin is imported because `--plugin` on the command line names it. What a record, a checkpoint, a
saved model, a run's folder or a flag file holds is never imported: there a plugin is a name and a
SHA-256 that are compared.
"""

import hashlib
import importlib
import importlib.util
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType

from nccl_tf.errors import UserError, one_line
from nccl_tf.quiet_start import quiet_start

_hashes: dict[str, str] = {}
"""The SHA-256 of the source of each plugin that this process has imported, by its name."""


def load_plugins(names: Sequence[str]) -> None:
    """Import plugins, each once.

    Args:
        names: Of modules ("my_module", "package.module") or of files ("path/to/file.py").

    Raises:
        UserError: One cannot be imported.
    """
    for name in names:
        if name in _hashes:
            continue
        try:
            with quiet_start():  # A plugin may be the first to import TensorFlow.
                is_file = name.endswith(".py")
                module = _import_file(Path(name)) if is_file else _import_module(name)
            _hashes[name] = hashlib.sha256(Path(str(module.__file__)).read_bytes()).hexdigest()
        except (Exception, SystemExit) as error:  # Whatever the plugin's own code raises.
            raise UserError(
                f"cannot import the plugin {name} ({type(error).__name__}: {error}): expected the "
                "name of a module or of a .py file that imports without an error"
            ) from error


def plugin_hashes(names: Sequence[str]) -> dict[str, str]:
    """The SHA-256 in hexadecimal of each of these plugins' source file, as it was imported."""
    return {name: _hashes[name] for name in names}


def check_plugins(where: str, noted: Mapping[str, str], names: Sequence[str]) -> None:
    """Check that a run is made with the plugins that it was begun with.

    Args:
        where: What was begun, for the message.
        noted: SHA-256 by name of the plugins then.
        names: The plugins of this command.

    Raises:
        UserError: The sources differ; their names do not matter.
    """
    now = plugin_hashes(names)
    if sorted(noted.values()) != sorted(now.values()):
        raise UserError(
            f"{where} was begun with {describe_plugins(noted)}, this command has "
            f"{describe_plugins(now)}: give it the same plugins with --plugin, or start the run "
            "again with --overwrite"
        )


def describe_plugins(hashes: Mapping[str, str]) -> str:
    """Plugins by name and the beginning of their hash, for messages."""
    named = ", ".join(f"{name} ({sha256[:8]})" for name, sha256 in hashes.items())
    return f"the plugin {one_line(named)}" if named else "no plugin"


def _import_module(name: str) -> ModuleType:
    folder = os.getcwd()
    if folder not in sys.path:
        sys.path.append(folder)
    module = importlib.import_module(name)
    if getattr(module, "__file__", None) is None:
        raise ImportError("it has no source file")
    return module


def _import_file(path: Path) -> ModuleType:
    name = f"nccl_tf_plugin_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError("it is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module
