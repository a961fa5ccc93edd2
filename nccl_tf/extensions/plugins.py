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
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType
from typing import Any

from nccl_tf.errors import UserError, named_error, one_line
from nccl_tf.quiet_start import quiet_start
from nccl_tf.regular_files import read_regular

_MAX_BYTES = 2**24
"""Of a plugin's file: a pipe, or a link to what has no end, would be read for ever."""
_hashes: dict[str, str] = {}
"""The SHA-256 of the source of each plugin that this process has imported, by its name."""


class _Loader(SourceFileLoader):
    """Runs the very bytes that it hashes: it reads the file once, and no bytecode of before.

    Args:
        plugin: Its name on the command line.
        module: Name of its module.
        path: Its file.
    """

    def __init__(self, plugin: str, module: str, path: str):
        super().__init__(module, path)
        self._plugin = plugin

    def get_code(self, fullname: str) -> CodeType:
        source = read_regular(self.path, _MAX_BYTES)
        code = self.source_to_code(source, self.path)
        _hashes[self._plugin] = hashlib.sha256(source).hexdigest()
        return code


class _Finder:
    """Finds modules that are plugins as Python does, also where another plugin imports them.

    Args:
        plugins: Names of plugins.
    """

    def __init__(self, plugins: Sequence[str]):
        self._plugins = plugins

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        spec = PathFinder.find_spec(name, path, target) if name in self._plugins else None
        if spec is not None and isinstance(spec.loader, SourceFileLoader):
            spec.loader = _Loader(name, name, spec.loader.path)
        return spec


def load_plugins(names: Sequence[str]) -> None:
    """Import plugins, each once.

    Args:
        names: Of modules ("my_module", "package.module") or of files ("path/to/file.py").

    Raises:
        UserError: One cannot be imported.
    """
    finder: Any = _Finder(names)
    sys.meta_path.insert(0, finder)
    try:
        for name in names:
            _load(name)
    finally:
        sys.meta_path.remove(finder)


def _load(name: str) -> None:
    if name in _hashes:
        return
    try:
        with quiet_start():  # A plugin may be the first to import TensorFlow.
            _import_file(name) if name.endswith(".py") else _import_module(name)
    except KeyboardInterrupt:  # as a rule the user's
        raise
    except BaseException as error:  # Whatever the plugin's own code raises.
        _hashes.pop(name, None)
        raise UserError(
            f"cannot import the plugin {name} ({named_error(error)}): expected the name of a "
            "module or of a .py file that imports without an error"
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


def _import_module(name: str) -> None:
    folder = os.getcwd()
    if folder not in sys.path:
        sys.path.append(folder)
    importlib.import_module(name)
    if name not in _hashes:
        raise ImportError("it has no source file, or was imported before --plugin named it")


def _import_file(plugin: str) -> None:
    name = f"nccl_tf_plugin_{Path(plugin).stem}"
    loader = _Loader(plugin, name, plugin)
    spec = ModuleSpec(name, loader, origin=plugin)
    spec.has_location = True
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
