"""What the module of a command declares: its help, and the flags that it reads."""

from collections.abc import Callable, Collection, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from nccl_tf.arguments.parameters import SPEED, Setting

OF_RECORDS = ("output_dir", "dataset", "method", "seeds")
"""The flags of a command that takes records, of all those that there are."""

ALL = MappingProxyType(dict.fromkeys(("dataset", "method", "seeds"), "all"))
"""The defaults of these flags in such a command."""

FILTERS = MappingProxyType({
    "output_dir": "folder of finished runs, or of published records",
    "dataset": "only what is of this stream: the name in tables and records, or a path as in train",
    "method": "only what is of this method, or of one of several, such as er_ring,derpp",
    "seeds": "only runs with one of these seeds",
})  # fmt: skip
"""What these flags mean in such a command."""

RAY_ADDRESS = Setting(
    "ray_address", "text", topic=SPEED, default_doc="this machine, without Ray",
    help="Ray cluster to run on, such as auto or host:6379 (needs the package ray)",
)  # fmt: skip


class Command(NamedTuple):
    """A command, which its module declares.

    Attributes:
        name: Its name, the word on the command line.
        usage: An example of its flags.
        does: What it does, in a few words.
        run: Takes the values of all flags by name, None where not set, and returns the exit code.
        first: The flags that matter most, ten at most, in the order of the help.
        flags: Its own flags, which a run does not have.
        flags_of_runs: The flags of a run that it reads beside `first` and --plugin; None for all.
        flags_with_run_missing: Those of them that it reads only with --run_missing.
        defaults: In words, of flags that have another default than elsewhere.
        helps: Texts, of flags that mean something else here than in a run.
        advice: What to do where one of its own flags is given to another command, by name.
    """

    name: str
    usage: str
    does: str
    run: Callable[[Mapping[str, Any]], int]
    first: tuple[str, ...] = ()
    flags: tuple[Setting, ...] = ()
    flags_of_runs: Collection[str] | None = ()
    flags_with_run_missing: Collection[str] = ()
    defaults: Mapping[str, str] = MappingProxyType({})
    helps: Mapping[str, str] = MappingProxyType({})
    advice: Mapping[str, str] = MappingProxyType({})
