"""From what a user gave to settings: defaults by data set and method, and every check."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from nccl_tf.errors import UserError, check_name
from nccl_tf.experiment.config.flag_table import hyperparameter_names, methods_with
from nccl_tf.experiment.config.memory import MEMORY_FLAGS, resolve_memory
from nccl_tf.experiment.config.settings import Settings
from nccl_tf.experiment.config.validation import (
    at_least,
    at_most,
    below_smoothness,
    positive_rate,
)
from nccl_tf.methods.registry import METHODS, Method, get_method
from nccl_tf.streams.catalog import DATASETS, DatasetRow

_HIDDEN = (256, 256)
_MOST_TASKS = 10_000
PRECISIONS = ("float32", "mixed_bfloat16", "mixed_float16")


def resolve(given: Mapping[str, Any]) -> Settings:
    """Settings from flag values.

    Args:
        given: Values by the name of the flag; None or absent means the default.

    Raises:
        UserError: A name is unknown, a number is out of range, settings contradict each other, or
            one was given that the method, network or head does not have.
    """
    method = get_method(_get(given, "method", "nccl_ring"))
    dataset = DATASETS[check_name("dataset", _get(given, "dataset", "permuted_digits"), DATASETS)]
    stream = _stream(given, dataset, method)
    reason = method.unsupported_reason(dataset.kind, stream["head"])
    if reason:
        raise UserError(
            f"{method.name} cannot learn {dataset.name} with a {stream['head']} head: {reason}"
        )
    settings = Settings(
        method=method.name,
        dataset=dataset.name,
        **stream,
        **_network(given, dataset, stream["head"], method),
        **resolve_memory(
            given, _with_or_without_memory(given, method, dataset),
            _classes_per_task(dataset, stream["num_tasks"]),
            _run_tasks(stream["num_tasks"], stream["tuning_tasks"], stream["tasks"]),
        ),
        **_rates(given, method, dataset),
        hyperparameters=_hyperparameters(given, method),
        precision=check_name(
            "precision", _get(given, "precision", "float32"), PRECISIONS
        ),
        jit_compile=_get(given, "jit_compile", False),
        deterministic=_get(given, "deterministic", False),
        distribute=given.get("distribute"),
    )  # fmt: skip
    if settings.distribute is not None:
        _check_distributed(settings, method)
    check_rate(settings, settings.learning_rate, "--learning_rate")
    check_rate(settings, settings.first_task_learning_rate, "--first_task_learning_rate")
    return settings


def _check_distributed(settings: Settings, method: Method) -> None:
    check_name("distribute", str(settings.distribute), ("mirrored", "multi_worker"))
    if not method.on_replicas:
        able = ", ".join(row.name for row in METHODS.values() if row.on_replicas)
        raise UserError(
            f"--distribute={settings.distribute} with --method={method.name}: expected one of "
            f"{able}; the others run on one device, and a sweep runs many of them at once"
        )
    numbers = settings.hyperparameters
    one_device = {
        "jit_compile": settings.jit_compile,
        "deterministic": settings.deterministic,
        "precision=mixed_float16": settings.precision == "mixed_float16",
        "mask=union": settings.mask == "union",
        "er_weighting=sum_of_means": numbers.get("er_weighting") == "sum_of_means",
        "smoothness_mode": numbers.get("smoothness_mode", "fixed") != "fixed",
    }
    for flag, asked in one_device.items():
        if asked:
            raise UserError(
                f"--distribute={settings.distribute} with --{flag}: that runs on one device only; "
                "leave one of the two out"
            )


def check_rate(settings: Settings, alpha: float, where: str) -> None:
    """Check alpha L < 1 where the method takes NCCL's step sizes with an L that is given.

    `delta` tells: it is the margin of NCCL's beta_H, and no other method has it.

    Raises:
        UserError: alpha L is 1 or more.
    """
    numbers = settings.hyperparameters
    if "delta" in numbers and numbers["smoothness_mode"] == "fixed":
        below_smoothness(alpha, numbers["smoothness"], where)


def _get(given: Mapping[str, Any], name: str, default: Any) -> Any:
    value = given.get(name)
    return default if value is None else value


def _refuse(given: Mapping[str, Any], name: str, why: str) -> None:
    if given.get(name) is not None:
        value = given[name]
        shown = ",".join(map(str, value)) if isinstance(value, tuple) else value
        raise UserError(f"--{name}={shown} has no effect here: {why}; leave it out")


def _stream(given: Mapping[str, Any], dataset: DatasetRow, method: Method) -> dict[str, Any]:
    head = check_name("head", _get(given, "head", dataset.default_head), ("single", "multi"))
    if head not in dataset.heads:
        raise UserError(
            f"--head={head} with --dataset={dataset.name}: expected "
            f"--head={' or '.join(dataset.heads)}, since every task of a permuted stream has the "
            "same classes; choose a split stream for a multi-head"
        )
    num_tasks = at_least("num_tasks", _get(given, "num_tasks", dataset.num_tasks), 1, "tasks")
    at_most("num_tasks", num_tasks, _MOST_TASKS, "tasks")
    tuning = at_least("tuning_tasks", _get(given, "tuning_tasks", dataset.tuning_tasks), 0, "tasks")
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
    which = check_name("tasks", _get(given, "tasks", "evaluated"), ("evaluated", "tuning"))
    tasks = "tuning" if which == "tuning" else None
    there = _run_tasks(num_tasks, tuning, tasks)
    max_tasks = at_least("max_tasks", _get(given, "max_tasks", there), 1, "tasks")
    if max_tasks > there:
        raise UserError(
            f"--max_tasks={max_tasks}: expected at most the {there} {which} tasks "
            f"({num_tasks} tasks, {tuning} held out for tuning)"
        )
    examples = _get(given, "examples_per_task", dataset.examples_per_task)
    if examples is not None:
        at_least("examples_per_task", examples, 1, "examples")
    return {
        "head": head,
        "num_tasks": num_tasks,
        "tuning_tasks": tuning,
        "tasks": tasks,
        "max_tasks": max_tasks,
        "examples_per_task": examples,
        "batch_size": at_least("batch_size", _get(given, "batch_size", 10), 1, "examples"),
        "epochs": at_least("epochs", _get(given, "epochs", method.epochs), 1, "passes"),
    }


def _run_tasks(num_tasks: int, tuning_tasks: int, tasks: str | None) -> int:
    """Tasks of a run; tuning without tuning tasks holds out images of the evaluated ones."""
    return tuning_tasks if tasks == "tuning" and tuning_tasks else num_tasks - tuning_tasks


def _with_or_without_memory(
    given: Mapping[str, Any], method: Method, dataset: DatasetRow
) -> Method:
    """The method's row, without its memory where it can do without one and is to."""
    if not any(row.part == "memory" for row in method.hyperparameters):
        return method
    if _get(given, "orthog_memory", "off" if dataset.kind == "permuted" else "on") == "on":
        return method
    for name in MEMORY_FLAGS:
        _refuse(given, name, f"{method.name} has no memory unless told --orthog_memory=on")
    return replace(method, memory=None)


def _classes_per_task(dataset: DatasetRow, num_tasks: int) -> int:
    return dataset.num_classes // (num_tasks if dataset.kind == "split" else 1)


def _network(
    given: Mapping[str, Any], dataset: DatasetRow, head: str, method: Method
) -> dict[str, Any]:
    dense, convolutional, *_ = method.networks
    default = dense if dataset.family == "mnist" else convolutional
    network = check_name("network", _get(given, "network", default), method.networks)
    hidden = conv_init = mask = None
    if network == "mlp":
        hidden = tuple(_get(given, "hidden", _HIDDEN))
        if not hidden or min(hidden) < 1:
            raise UserError(
                f"--hidden={','.join(map(str, hidden))}: expected widths of 1 or more units, "
                "such as --hidden=256,256"
            )
    else:
        _refuse(given, "hidden", f"{network} has no hidden layers to size, only the mlp has")
    if network.startswith("resnet18"):
        conv_init = check_name(
            "conv_init", _get(given, "conv_init", "reference"), ("reference", "he")
        )
    else:
        why = f"it initialises the convolutions of a ResNet-18, and {network} is no ResNet-18"
        _refuse(given, "conv_init", why)
    if head == "multi":
        mask = check_name("mask", _get(given, "mask", "own"), ("own", "union"))
    else:
        _refuse(given, "mask", "only a multi-head masks logits")
    return {"network": network, "hidden": hidden, "conv_init": conv_init, "mask": mask}


def _rates(given: Mapping[str, Any], method: Method, dataset: DatasetRow) -> dict[str, Any]:
    if method.joint:
        _refuse(given, "first_task_learning_rate", f"{method.name} learns all tasks at once")
    default = getattr(method.learning_rates, dataset.family)
    rate = positive_rate("learning_rate", _get(given, "learning_rate", default))
    first = positive_rate("first_task_learning_rate", _get(given, "first_task_learning_rate", rate))
    schedule = check_name(
        "schedule", _get(given, "schedule", "constant"), ("constant", "inverse_sqrt")
    )
    return {"learning_rate": rate, "first_task_learning_rate": first, "schedule": schedule}


def _hyperparameters(given: Mapping[str, Any], method: Method) -> dict[str, Any]:
    rows = {row.name: row for row in method.hyperparameters}
    for name in hyperparameter_names():
        if name not in rows and given.get(name) is not None:
            raise UserError(
                f"--{name}={given[name]} is not a number of {method.name}: it belongs to "
                f"{', '.join(methods_with(name))}; leave it out or choose one of these methods"
            )
    return {name: row.check(_get(given, name, row.default)) for name, row in rows.items()}
