"""What names a row of a table beside its method: how its settings differ from the defaults."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from nccl_tf.arguments.choices import STORES
from nccl_tf.arguments.hyperparameters import OPTIONS
from nccl_tf.methods.registry import METHODS
from nccl_tf.methods.row import Method
from nccl_tf.records.record import Record
from nccl_tf.records.settings import EARLIER_STEPS, EARLIER_TASKS, SETTINGS, Settings, flattened
from nccl_tf.streams.catalog import DATASETS

_ELSEWHERE = frozenset({
    "method", "dataset", "head", "num_tasks", "tuning_tasks", "tasks", "examples_per_task",
    "max_tasks", "angles", "kind", "image_size", "label", "domain", "by", "positive", "content",
    "learning_rate", "memory", "memory_slots", "memory_capacity", "batch_size", "epochs",
    "precision",
    EARLIER_STEPS, EARLIER_TASKS,
})  # fmt: skip
"""Settings that a table has in its title, in other cells or in the method's title."""


def changes(groups: Sequence[Sequence[Record]]) -> list[str]:
    """How each settings differs from its method's defaults, such as "dark 1.0, stream_mask seen".

    Where settings of a method read alike, what differs between these follows.

    Args:
        groups: Records of the same settings each, that other cells do not tell apart.
    """
    texts = [in_words(changed(group[0])) for group in groups]
    return told_apart(
        texts, [(group[0].method, _compared(group[0].settings_json)) for group in groups]
    )


def told_apart(
    texts: Sequence[str], settings: Sequence[tuple[str, Mapping[str, Any]]]
) -> list[str]:
    """Texts, with what differs between settings of a method whose texts are alike.

    Args:
        texts: One for each settings.
        settings: The method, and settings as in `result.json`.
    """
    found = list(texts)
    keys = [(text, method) for text, (method, _) in zip(texts, settings, strict=True)]
    for key in set(keys):
        alike = [place for place, other in enumerate(keys) if other == key]
        more = differences([settings[place][1] for place in alike]) if len(alike) > 1 else []
        for place, change in zip(alike, more, strict=False):
            found[place] = ", ".join(filter(None, (found[place], change)))
    return found


def changed(record: Record) -> dict[str, Any]:
    """The settings of a record that are not the defaults of its method, by name.

    A setting that a run does not have is not among them, nor is a hyperparameter of a method that
    the registry does not know.
    """
    method, settings = METHODS.get(record.method), record.settings
    values = flattened(record.settings_json)
    if settings.stores is None and _stores(method, settings) is not None:
        values["stores"] = STORES[1]
    found = {}
    for name, value in values.items():
        if name in _ELSEWHERE or (value is None and name not in settings.hyperparameters):
            continue
        usual = _usual(name, method, settings)
        if value not in usual:
            found[name] = value
    return found


def differences(settings: Sequence[Mapping[str, Any]]) -> list[str]:
    """Differences between settings of a method, such as "beta_max 0.2"; "" for the usual ones.

    Named are the values that at most half of the settings share. None is the default of a
    hyperparameter; of another setting it means that the run has none, which is not named.

    Args:
        settings: As in `result.json`; where one lacks a name, its value counts as None.
    """
    flat = [flattened(one) for one in settings]
    names = set().union(*flat)
    counts = Counter((name, _key(one.get(name))) for one in flat for name in names)
    return [
        in_words({
            name: value
            for name, value in flattened(one).items()
            if (value is not None or name in one["hyperparameters"])
            and 2 * counts[name, _key(value)] <= len(settings)
        })
        for one in settings
    ]  # fmt: skip


def _usual(name: str, method: Method | None, settings: Settings) -> tuple[Any, ...]:
    """The values of a setting that need no word."""
    if name in settings.hyperparameters:
        return _usual_hyperparameter(name, method, settings)
    options = {row.name: row.default for row in OPTIONS}
    if name in options:
        return ((method.options if method else {}).get(name, options[name]),)
    row = DATASETS.get(settings.dataset)
    if name == "network":
        if method is None or settings.network not in method.networks:
            return (settings.network,)  # one's own, which nothing is a default of
        return (method.network_of(row.family),) if row else method.networks[:2]
    special = {
        "memory_batch_size": method.memory_batch if method else settings.memory_batch_size,
        "first_task_learning_rate": settings.learning_rate,
        "stores": _stores(method, settings),
    }
    if name in special:
        return (special[name],)
    default = SETTINGS[name].default if name in SETTINGS else None
    return (list(default) if isinstance(default, tuple) else default, None)


def _usual_hyperparameter(name: str, method: Method | None, settings: Settings) -> tuple[Any, ...]:
    rows = {row.name: row for row in method.hyperparameters} if method else {}
    if name in rows and rows[name].part == "outputs":
        return (0 if settings.head == "multi" else 100, None)
    if name in rows:
        row, data = rows[name], DATASETS.get(settings.dataset)
        return (row.default_of(data.family if data else ""), None)
    if name == "optimizer":  # of a call of `learn`, by its class
        return ("SGD",)
    return (None, False) if method else (settings.hyperparameters[name],)


def _stores(method: Method | None, settings: Settings) -> str | None:
    """When a method stores by default, where there is a choice; None where there is none."""
    return method.stores if method and settings.epochs > 1 else None


def _compared(settings: Mapping[str, Any]) -> Mapping[str, Any]:
    """Settings without those that other cells tell."""
    shown = {"learning_rate", "memory_capacity", "batch_size", "epochs"}
    return {name: value for name, value in settings.items() if name not in shown}


def in_words(values: Mapping[str, Any]) -> str:
    """Settings by name, such as "dark 1.0, stream_mask seen"; None is a default."""
    return ", ".join(f"{name} {_in_words(value)}" for name, value in values.items())


def _in_words(value: Any) -> str:
    """A value, a list as the command takes it."""
    if isinstance(value, (list, tuple)):
        return ",".join(map(str, value))
    return "default" if value is None else str(value)


def _key(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
