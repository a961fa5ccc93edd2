"""From what a user gave to settings: defaults by data set and method, and every check."""

import functools
import json
import os
import sys
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from nccl_tf.arguments.choices import ANGLES, AUGMENTATIONS, NEW_CLASSES, STEP_SCHEDULES, STORES
from nccl_tf.arguments.evaluate import ALL, checked_evaluate
from nccl_tf.arguments.hyperparameters import (
    ALIGNMENT,
    OPTIONS,
    REPLAY_LABELS,
    STREAM_MASK,
    check_replay_weights,
)
from nccl_tf.arguments.layer_rates import rates_of_layers
from nccl_tf.arguments.names import plain_name
from nccl_tf.arguments.optimizers import DEFAULT_RATE, SGD, as_texts, optimizer_arguments
from nccl_tf.errors import UnusedFlagError, UserError, checked_name
from nccl_tf.memories.kinds import get_memory
from nccl_tf.methods.registry import METHODS, get_method
from nccl_tf.methods.row import Method
from nccl_tf.quiet_start import quiet_start
from nccl_tf.records.settings import (
    MEMORY_SIZES,
    SETTINGS,
    Settings,
    hyperparameter_names,
    methods_with,
)
from nccl_tf.streams.catalog import (
    DATASETS,
    NO_CLASSES,
    StreamRow,
    get_dataset,
    scheme_of,
)

MEMORY_FLAGS = (*MEMORY_SIZES, "memory_batch_size", "reservoir")


def resolve(flag_values: Mapping[str, Any]) -> Settings:
    """Settings from flag values.

    Args:
        flag_values: Values by the name of the flag; None or absent means the default.

    Raises:
        UserError: A name is unknown, a number is out of range, settings contradict each other, or
            one was given that the method, network or head does not have.
    """
    method = get_method(SETTINGS["method"].value(flag_values))
    dataset, named = _dataset(flag_values)
    if not dataset.has_classes:
        raise UserError(
            f"--dataset={dataset.name}: {NO_CLASSES}; expected a stream of classes, or take "
            f'nccl_tf.load_stream("{dataset.name}") in Python'
        )
    stream = _stream(flag_values, dataset, method)
    reason = method.unsupported_reason(dataset.kind, stream["head"])
    if reason:
        raise UserError(
            f"{method.name} cannot learn {dataset.name} with a {stream['head']} head: {reason}"
        )
    with_or_without = _with_or_without_memory(flag_values, method, dataset)
    settings = Settings(
        method=method.name,
        dataset=dataset.name,
        **named,
        **stream,
        **_network(flag_values, dataset, stream["head"], method),
        **_memory(
            flag_values, with_or_without,
            _classes_per_task(dataset, stream["num_tasks"]),
            _run_tasks(stream["num_tasks"], stream["tuning_tasks"], stream["tasks"]),
        ),
        **_optimizer(flag_values, method),
        **_rates(flag_values, method, dataset),
        rates=_rates_of_layers(flag_values, method),
        hyperparameters=_hyperparameters(flag_values, method, dataset, stream["head"]),
        precision=SETTINGS["precision"].value(flag_values),
        deterministic=SETTINGS["deterministic"].value(flag_values),
        distribute=SETTINGS["distribute"].value(flag_values),
        **_options(flag_values, method, stream["head"]),
        augment=_augment(flag_values, method, dataset),
        evaluate=_evaluate(flag_values, method, stream["max_tasks"]),
        stores=_stores(flag_values, with_or_without, stream["epochs"]),
        keras=_unusual_keras_config(),
    )  # fmt: skip
    if settings.distribute is not None:
        _check_distributed(settings, method)
    if settings.augment and settings.hyperparameters.get("batch_norm") == "frozen":
        raise UserError(
            "--augment with --batch_norm=frozen: the memory batch passes as in evaluation then, "
            "which augments nothing; leave one of the two out"
        )
    check_rate(settings, settings.learning_rate, "--learning_rate")
    check_rate(settings, settings.first_task_learning_rate, "--first_task_learning_rate")
    return settings


_MOST_LAYERS = 1000
_OF_NAMED = ("kind", "image_size", "label", "domain", "by", "positive")
"""The flags that only a data set by name has."""


def _dataset(flag_values: Mapping[str, Any]) -> tuple[StreamRow, dict[str, Any]]:
    """The row of the data set, and the settings that one by name has besides."""
    name = flag_values.get("dataset")
    scheme = scheme_of(name)
    if scheme is None:
        # One without classes is in the catalog, but is no choice.
        row = get_dataset(name if name in DATASETS else SETTINGS["dataset"].value(flag_values))
        for flag in _OF_NAMED:
            _refuse(flag_values, flag, f"{row.name} is no data set by name, such as tfds:mnist")
        return row, {}
    given = {flag: SETTINGS[flag].value(flag_values) for flag in _OF_NAMED}
    for flag in ("label", "domain", "by"):
        if scheme != "csv":
            _refuse(flag_values, flag, f"{scheme} data have no columns to name")
    if scheme == "csv":
        _refuse(flag_values, "image_size", "a table has no images")
    data_dir = flag_values.get("data_dir")
    reading = (None, given["label"] or "label", given["domain"], given["positive"], given["by"])
    num_tasks = SETTINGS["num_tasks"].value(flag_values)
    found, content = _look_at(str(name), reading, num_tasks is None, data_dir)
    if found.is_text:
        raise UserError(
            f"--dataset={name} has texts, which need a network of your own: take "
            f'nccl_tf.load_stream("{name}", num_tasks=...) in Python'
        )
    from nccl_tf.streams.load import named_row

    row = named_row(str(name), found, given["kind"], num_tasks)
    texts = ("label", "domain", "positive")
    plain = {flag: given[flag] and plain_name(given[flag]) for flag in texts}
    return row, {
        "kind": row.kind, "image_size": given["image_size"], **plain, "by": given["by"],
        "content": content,
    }  # fmt: skip


@functools.lru_cache
def _look_at(name: str, reading: tuple[Any, ...], tells: bool, data_dir: str | None) -> Any:
    """Describe a data set by name; also returns the start of the digest of a user's files.

    The values of a `ReadArguments` come as a tuple, and what is to be told of is told once.
    Imports NumPy, and of TFDS TensorFlow, which other data sets wait with until a run begins.
    """
    with quiet_start():
        from nccl_tf.streams.sources.named import ReadArguments, content_digest, describe_named

        found = describe_named(name, ReadArguments(*reading), data_dir, tells)
        digest = content_digest(name)
    return found, digest and digest[:16]


def _check_distributed(settings: Settings, method: Method) -> None:
    if not method.on_replicas:
        able = ", ".join(row.name for row in METHODS.values() if row.on_replicas)
        raise UserError(
            f"--distribute={settings.distribute} with --method={method.name}: expected one of "
            f"{able}; the others run on one device, and a sweep runs many of them at once"
        )
    one_device = {
        "deterministic": settings.deterministic,
        "precision=mixed_float16": settings.precision == "mixed_float16",
        "augment": bool(settings.augment),
    }
    for flag, asked in one_device.items():
        if asked:
            raise UserError(
                f"--distribute={settings.distribute} with --{flag}: that runs on one device only; "
                "leave one of the two out"
            )


def check_rate(settings: Settings, alpha: float, where: str) -> None:
    """Check alpha L < 1 where the method's row asks it: without it, its step sizes are undefined.

    Args:
        settings: Of the run.
        alpha: A learning rate of the run.
        where: What the rate is, for the message.

    Raises:
        UserError: alpha L is 1 or more.
    """
    smoothness = get_method(settings.method).bounding_smoothness(settings.hyperparameters)
    if alpha * smoothness >= 1:
        raise UserError(
            f"{where} {alpha:g} times --smoothness={smoothness:g} is {alpha * smoothness:g}: "
            f"expected alpha L below 1; lower the rate or take --smoothness below {1 / alpha:g}"
        )


def _get(flag_values: Mapping[str, Any], name: str, default: Any) -> Any:
    value = flag_values.get(name)
    return default if value is None else value


def _refuse(flag_values: Mapping[str, Any], name: str, why: str) -> None:
    if flag_values.get(name) is not None:
        value = flag_values[name]
        shown = ",".join(map(str, value)) if isinstance(value, tuple) else value
        raise UnusedFlagError(name, f"--{name}={shown} has no effect here: {why}; leave it out")


def leave_out(flag_values: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
    """The flag values without those that the method, network or head does not have.

    Args:
        flag_values: Values by the name of the flag; None where not set.
        names: Of the flags that may be left out: those that flag files set.

    Returns:
        The values, None for what is left out. `resolve` says what else is wrong.
    """
    values = dict(flag_values)
    while True:
        try:
            resolve(values)
        except UnusedFlagError as error:
            if error.flag not in names:
                return values
            values[error.flag] = None
        except UserError:
            return values
        else:
            return values


def _stream(flag_values: Mapping[str, Any], dataset: StreamRow, method: Method) -> dict[str, Any]:
    head = SETTINGS["head"].value(flag_values, dataset.default_head)
    if head not in dataset.heads:
        raise UserError(
            f"--head={head} with --dataset={dataset.name}: expected "
            f"--head={' or '.join(dataset.heads)}, since every task of a {dataset.kind} stream has "
            "the same classes; choose a split stream for a multi-head"
        )
    num_tasks = SETTINGS["num_tasks"].value(flag_values, dataset.num_tasks)
    tuning = SETTINGS["tuning_tasks"].value(flag_values, dataset.tuning_tasks)
    if dataset.kind == "split" and dataset.num_classes % num_tasks:
        divisors = [n for n in range(1, dataset.num_classes + 1) if dataset.num_classes % n == 0]
        raise UserError(
            f"--num_tasks={num_tasks} does not divide the {dataset.num_classes} classes of "
            f"{dataset.name}: expected one of {', '.join(map(str, divisors))}"
        )
    if tuning >= num_tasks:
        raise UserError(
            f"--tuning_tasks={tuning} of --num_tasks={num_tasks} leaves no task to evaluate: "
            f"expected fewer tuning tasks than tasks; give --tuning_tasks={max(num_tasks - 1, 0)} "
            "or less, or more tasks"
        )
    which = SETTINGS["tasks"].value(flag_values)
    tasks = "tuning" if which == "tuning" else None
    there = _run_tasks(num_tasks, tuning, tasks)
    max_tasks = SETTINGS["max_tasks"].value(flag_values, there)
    if max_tasks > there:
        raise UserError(
            f"--max_tasks={max_tasks}: expected at most the {there} {which} tasks "
            f"({num_tasks} tasks, {tuning} held out for tuning)"
        )
    if dataset.kind != "rotated":
        _refuse(flag_values, "angles", f"{dataset.name} is no rotated stream")
    angles = SETTINGS["angles"].value(flag_values)
    return {
        "head": head,
        "angles": None if angles == ANGLES[0] else angles,
        "num_tasks": num_tasks,
        "tuning_tasks": tuning,
        "tasks": tasks,
        "max_tasks": max_tasks,
        "examples_per_task": SETTINGS["examples_per_task"].value(
            flag_values, dataset.examples_per_task
        ),
        "batch_size": SETTINGS["batch_size"].value(
            flag_values, method.batch_sizes[0 if dataset.family == "mnist" else 1]
        ),
        "epochs": SETTINGS["epochs"].value(flag_values, method.epochs),
    }


def _run_tasks(num_tasks: int, tuning_tasks: int, tasks: str | None) -> int:
    """Tasks of a run; tuning without tuning tasks holds out images of the evaluated ones."""
    return tuning_tasks if tasks == "tuning" and tuning_tasks else num_tasks - tuning_tasks


def _with_or_without_memory(
    flag_values: Mapping[str, Any], method: Method, dataset: StreamRow
) -> Method:
    """The method's row, without its memory where it can do without one and is to."""
    for row in method.hyperparameters:
        usual = "off" if dataset.kind == "permuted" else "on"
        if row.part == "memory" and _get(flag_values, row.name, usual) == "off":
            for name in MEMORY_FLAGS:
                why = f"{method.name} has no memory unless told --{row.name}=on"
                _refuse(flag_values, name, why)
            return replace(method, memory=None)
    return method


def _memory(
    flag_values: Mapping[str, Any], method: Method, classes_per_task: int, evaluated_tasks: int
) -> dict[str, Any]:
    """The memory's settings, by the names of `Settings`.

    A ring has m slots for each class of each task, or floor(total / (classes per task x evaluated
    tasks)) of a total; exemplars are m for each class, or share the total among the classes so far;
    every other memory holds m x classes per task x evaluated tasks, or the total.

    Args:
        flag_values: Flag values by name; None or absent means the default.
        method: Row of the registry.
        classes_per_task: Classes of one task.
        evaluated_tasks: Tasks that are not held out; `max_tasks` does not shorten this.

    Raises:
        UserError: The method has no memory or no reservoir, a size is out of range or leaves a
            class without a slot, both sizes are given, or the memory batch exceeds the capacity.
    """
    _check_method_has_them(flag_values, method)
    if method.memory is None:
        return dict.fromkeys(
            ("memory", "memory_slots", "memory_capacity", "memory_batch_size", "reservoir")
        )
    cells = classes_per_task * evaluated_tasks
    capacity, kind = _capacity(flag_values, cells), get_memory(method.memory)
    capacity, slots = kind.shares(capacity, cells, f"--memory={capacity}")
    if kind.sizing == "per_class" and flag_values.get("memory") is None:
        slots = capacity // cells
    rule = SETTINGS["reservoir"].value(flag_values) if kind.has_rule else None
    batch = None
    if method.memory_batch:
        batch = SETTINGS["memory_batch_size"].value(flag_values, method.memory_batch)
        if batch > capacity:
            raise UserError(
                f"--memory_batch_size={batch} is above the memory's capacity of {capacity} "
                "examples: draw fewer, or give a larger --memory_per_class or --memory"
            )
    return {
        "memory": method.memory,
        "memory_slots": slots,
        "memory_capacity": capacity,
        "memory_batch_size": batch,
        "reservoir": rule,
    }


def _capacity(flag_values: Mapping[str, Any], cells: int) -> int:
    per_class, total = flag_values.get("memory_per_class"), flag_values.get("memory")
    if per_class is not None and total is not None:
        raise UserError(
            f"--memory_per_class={per_class} and --memory={total} both size the memory: "
            "give one of them"
        )
    if total is not None:
        return MEMORY_SIZES["memory"].value(flag_values)
    return cells * MEMORY_SIZES["memory_per_class"].value(flag_values)


def _check_method_has_them(flag_values: Mapping[str, Any], method: Method) -> None:
    if (
        method.memory
        and not method.memory_batch
        and flag_values.get("memory_batch_size") is not None
    ):
        raise UnusedFlagError(
            "memory_batch_size",
            f"--memory_batch_size={flag_values['memory_batch_size']}: {method.name} draws no batch "
            "from its memory; leave it out",
        )
    for name in MEMORY_FLAGS:
        kind = "reservoir" if name == "reservoir" else "memory"
        having = [row.name for row in METHODS.values() if _has(row, kind)]
        if flag_values.get(name) is not None and method.name not in having:
            raise UnusedFlagError(
                name,
                f"--{name}={flag_values[name]}: {method.name} has no {kind}; leave it out or "
                f"choose one of {', '.join(having)}",
            )


def _has(method: Method, kind: str) -> bool:
    if method.memory is None:
        return False
    return kind != "reservoir" or get_memory(method.memory).has_rule


def _classes_per_task(dataset: StreamRow, num_tasks: int) -> int:
    return dataset.num_classes // (num_tasks if dataset.kind == "split" else 1)


def _network(
    flag_values: Mapping[str, Any], dataset: StreamRow, head: str, method: Method
) -> dict[str, Any]:
    network = SETTINGS["network"].value(flag_values, method.network_of(dataset.family))
    if network not in method.networks and any(network in row.networks for row in METHODS.values()):
        raise UnusedFlagError(
            "network",
            f"--network={network}: {method.name} trains {', '.join(method.networks)}; leave it out "
            "or take one of these",
        )
    checked_name("network", network, method.networks)
    hidden = conv_init = mask = None
    if network == "mlp":
        hidden = tuple(SETTINGS["hidden"].value(flag_values))
        if len(hidden) > _MOST_LAYERS:
            raise UserError(
                f"--hidden: received {len(hidden)} layers, expected at most {_MOST_LAYERS}"
            )
        if not hidden or min(hidden) < 1:
            raise UserError(
                f"--hidden={','.join(map(str, hidden))}: expected widths of 1 or more units, "
                "such as --hidden=256,256"
            )
    else:
        _refuse(flag_values, "hidden", f"{network} has no hidden layers to size, only the mlp has")
    if network.startswith("resnet18"):
        conv_init = SETTINGS["conv_init"].value(flag_values)
    else:
        why = f"it initialises the convolutions of a ResNet-18, and {network} is no ResNet-18"
        _refuse(flag_values, "conv_init", why)
    if head == "multi":
        mask = SETTINGS["mask"].value(flag_values)
    else:
        _refuse(flag_values, "mask", "only a multi-head masks logits")
    return {"network": network, "hidden": hidden, "conv_init": conv_init, "mask": mask}


def _rates(flag_values: Mapping[str, Any], method: Method, dataset: StreamRow) -> dict[str, Any]:
    if method.joint:
        _refuse(flag_values, "first_task_learning_rate", f"{method.name} learns all tasks at once")
    default = method.learning_rates.of_family(dataset.family)
    if SETTINGS["optimizer"].value(flag_values) != SGD:
        default = DEFAULT_RATE
    rate = SETTINGS["learning_rate"].value(flag_values, default)
    schedule = SETTINGS["schedule"].value(flag_values)
    if schedule in STEP_SCHEDULES:
        _refuse_option("schedule", schedule, method)
        if any(row.name == "rate_decay" for row in method.hyperparameters):
            raise UserError(
                f"--schedule={schedule} with --method={method.name}, which has a decay of its own "
                "(--rate_decay): leave the schedule out, or take another method"
            )
    return {
        "learning_rate": rate,
        "first_task_learning_rate": SETTINGS["first_task_learning_rate"].value(flag_values, rate),
        "schedule": schedule,
    }


def _rates_of_layers(flag_values: Mapping[str, Any], method: Method) -> tuple[str, ...] | None:
    """The factors on the update of layers; None for none."""
    texts = SETTINGS["rates"].value(flag_values)
    if not texts:
        return None
    rates = rates_of_layers(texts)
    _refuse_option("rates", ",".join(texts), method)
    return as_texts(rates)


def _refuse_option(name: str, value: Any, method: Method, flag: str | None = None) -> None:
    """Refuse an option that is set, where the method says why it has no meaning for it.

    Args:
        name: Of the option.
        value: Of the flag.
        method: The method.
        flag: The flag that is about the option; None for that of its name.
    """
    reason, flag = method.option_refusal(name), flag or name
    if reason:
        raise UnusedFlagError(
            flag,
            f"--{flag}={value} with --method={method.name}, which {reason}: leave it out, or take "
            "another method",
        )


def _optimizer(flag_values: Mapping[str, Any], method: Method) -> dict[str, Any]:
    """The optimizer and its arguments; None for SGD, and for Keras's defaults."""
    optimizer = SETTINGS["optimizer"].value(flag_values)
    texts = SETTINGS["optimizer_arguments"].value(flag_values)
    arguments = optimizer_arguments(optimizer, texts) if texts else {}
    if optimizer != SGD:
        _refuse_option("optimizer", optimizer, method)
    if arguments:
        _refuse_option("optimizer", ",".join(texts or ()), method, "optimizer_arguments")
    own = [row.name for row in method.hyperparameters if row.part == "optimizer"]
    if own and optimizer != SGD:
        raise UserError(
            f"--optimizer={optimizer} with --method={method.name}, whose recipe is of SGD with "
            f"--{' and --'.join(own)}: leave it out, or take another method"
        )
    for name in own:
        if name in arguments:
            raise UserError(
                f"--optimizer_arguments={name}:{arguments[name]:g} with --method={method.name}, "
                f"which has a number of that name: take --{name}={arguments[name]:g}"
            )
    return {
        "optimizer": None if optimizer == SGD else optimizer,
        "optimizer_arguments": as_texts(arguments) if arguments else None,
    }


def _augment(
    flag_values: Mapping[str, Any], method: Method, dataset: StreamRow
) -> tuple[str, ...] | None:
    """The random changes of images in training, in the order in which they are applied."""
    names = SETTINGS["augment"].value(flag_values)
    if not names:
        return None
    for name in names:
        checked_name("--augment", name, AUGMENTATIONS)
    _refuse_option("augment", ",".join(names), method)
    if dataset.kind == "permuted":
        raise UserError(
            f"--augment={','.join(names)} with --dataset={dataset.name}, whose pixels are "
            "permuted, so that none has its neighbours: leave it out, or take another stream"
        )
    return tuple(name for name in AUGMENTATIONS if name in names)


def _hyperparameters(
    flag_values: Mapping[str, Any], method: Method, dataset: StreamRow, head: str
) -> dict[str, Any]:
    rows = {row.name: row for row in method.hyperparameters}
    for name in hyperparameter_names():
        if name not in rows and flag_values.get(name) is not None:
            raise UnusedFlagError(
                name,
                f"--{name}={flag_values[name]} is no hyperparameter of {method.name}: it "
                "belongs to "
                f"{', '.join(methods_with(name))}; leave it out or choose one of these methods",
            )
    values = {
        name: row.check(_get(flag_values, name, row.default_of(dataset.family)))
        for name, row in rows.items()
    }
    outputs = [name for name, row in rows.items() if row.part == "outputs"]
    return values | {name: _added_outputs(flag_values, name, head) for name in outputs}


def _added_outputs(flag_values: Mapping[str, Any], name: str, head: str) -> int:
    """Outputs beside those of the classes, where none are masked."""
    if head == "multi":
        _refuse(flag_values, name, "a multi-head masks all outputs but those of the task")
    return _get(flag_values, name, 0 if head == "multi" else 100)


def _evaluate(flag_values: Mapping[str, Any], method: Method, tasks: int) -> str | None:
    """The value of `--evaluate`; None for all tasks."""
    if method.joint:
        why = f"{method.name} learns all tasks at once and evaluates them when it is done"
        _refuse(flag_values, "evaluate", why)
    given = flag_values.get("evaluate")
    evaluate = None if given is None else checked_evaluate(given, tasks)
    return None if evaluate == ALL else evaluate


def _stores(flag_values: Mapping[str, Any], method: Method, epochs: int) -> str | None:
    """The value of `--stores`; None for every epoch, and where there is no choice."""
    if method.stores is None:
        _refuse(flag_values, "stores", f"{method.name} stores and counts no examples")
        return None
    if epochs == 1:
        _refuse(flag_values, "stores", "there is one epoch")
        return None
    stores = SETTINGS["stores"].value(flag_values, method.stores)
    return None if stores == STORES[1] else stores


_ONE_HEAD = {
    STREAM_MASK.name: "a head is its mask already",
    ALIGNMENT.name: "an alignment trains one head of all classes",
}
"""Options of a single head, and why."""


def _options(flag_values: Mapping[str, Any], method: Method, head: str) -> dict[str, Any]:
    """The options by name; None where the method is as it is without."""
    values: dict[str, Any] = {}
    for row in OPTIONS:
        default = method.options.get(row.name, row.default)
        value = SETTINGS[row.name].value(flag_values, default)
        if value != row.default:
            _refuse_option(row.name, value, method)
        if row.name in _ONE_HEAD and head == "multi" and value != row.default:
            raise UserError(
                f"--{row.name}={value} with --head=multi: {_ONE_HEAD[row.name]}; leave one of the "
                "two out"
            )
        if row is STREAM_MASK and value in NEW_CLASSES and method.memory:
            _check_reads_open_task(method, f"--{row.name}={value}")
        values[row.name] = None if value == default == row.default else value
        if row is REPLAY_LABELS:
            check_replay_weights(values["dark"] or 0.0, value)
    if None not in (values["alignment"], values["average_weights"]):
        raise UserError(
            f"--alignment={values['alignment']} with --average_weights={values['average_weights']}:"
            " the head that is aligned when a task ends is no average; leave one of the two out"
        )
    return values


def _check_reads_open_task(method: Method, given: str) -> None:
    kind = get_memory(str(method.memory))
    if not kind.reads_open_task:
        raise UserError(
            f"{given} with --method={method.name}, whose {kind.name} memory reads nothing of the "
            "open task: no loss compares new classes with old ones then, and new ones are not "
            "learned; leave it out, or take a method with a reservoir"
        )


_USUAL: Mapping[str, Any] = {
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


def _unusual_keras_config() -> str | None:
    """Settings that differ from Keras's defaults, such as "floatx=float16"; None without any.

    Keras takes seconds to import. Where nobody has imported it yet, what it will read is read: the
    file keras.json and the environment.
    """
    found = _set_in_keras() if "keras" in sys.modules else _read_by_keras()
    unusual = [f"{name}={found[name]}" for name in _USUAL if found[name] != _USUAL[name]]
    return ", ".join(unusual) or None


def _set_in_keras() -> dict[str, Any]:
    import keras

    return {name: getattr(keras.config, name)() for name in _USUAL}


def _read_by_keras() -> dict[str, Any]:
    home = Path.home() if os.access(Path.home(), os.W_OK) else Path("/tmp")  # noqa: S108 (where Keras looks then)
    folder = Path(os.environ.get("KERAS_HOME") or home / ".keras").expanduser()
    try:
        written = json.loads((folder / "keras.json").read_text())
    except (OSError, ValueError):
        written = {}
    found = {**_USUAL, **{name: written[name] for name in _IN_FILE if name in written}}
    return found | {name: os.environ.get(variable) for name, variable in _IN_ENVIRONMENT.items()}
