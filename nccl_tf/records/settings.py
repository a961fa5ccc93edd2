"""Every setting that determines a run's results, resolved to its value, and their hash."""

import functools
import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Annotated, Any

from nccl_tf.arguments.choices import (
    ANGLES,
    CONV_INITS,
    DISTRIBUTIONS,
    HEADS,
    MASKS,
    PERIODS,
    PRECISIONS,
    RESERVOIR_RULES,
    SCHEDULES,
    STORES,
    STREAM_KINDS,
    TASKS,
)
from nccl_tf.arguments.hyperparameters import (
    ALIGNMENT,
    AVERAGE_WEIGHTS,
    DARK,
    REPLAY_LABELS,
    STREAM_MASK,
    Hyperparameter,
)
from nccl_tf.arguments.optimizers import OPTIMIZERS, SGD
from nccl_tf.arguments.parameters import (
    MEMORY,
    METHOD,
    NETWORK,
    RATE,
    RUN,
    SPEED,
    STREAM,
    Setting,
    declared_settings,
    setting,
)
from nccl_tf.methods.registry import METHODS, get_method
from nccl_tf.records.defaults import (
    batch_sizes_by_method,
    by_dataset,
    epochs_by_method,
    learning_rates_by_method,
    list_values,
    stores_by_method,
)
from nccl_tf.streams.catalog import STREAMS_OF_CLASSES

EARLIER_STEPS, EARLIER_TASKS = "earlier_steps", "earlier_tasks"
"""Among the hyperparameters of a call of `learn`: what its model had learned before, if it had."""


def option(row: Hyperparameter, topic: str) -> Setting:
    """The setting of an option that methods take as an argument, with their defaults.

    Args:
        row: One of `hyperparameters.OPTIONS`.
        topic: As for `Setting`.
    """

    def default_doc() -> str:
        values = {
            name: method.options.get(row.name, row.default) for name, method in METHODS.items()
        }
        return "off" if set(values.values()) == {None} else list_values(values)

    return Setting(
        row.name, row.kind, topic=topic, symbol=row.symbol, unit=row.unit, gt=row.gt, ge=row.ge,
        lt=row.lt, choices=row.choices, help=row.help, default_doc=default_doc,
    )  # fmt: skip


@dataclass(frozen=True)
class Settings:
    """The settings that determine the results of a run, except for the seed.

    None stands where a setting does not exist for the method, network or head, and for an option
    (`hyperparameters.OPTIONS`) that is not used; None as `stores` stands for "every_epoch", which
    records of runs before there was a choice have. An annotated field is a flag of the command too;
    flags, help and simple checks are made of the annotation.

    Args:
        method: Name in the table of methods.
        dataset: Name in the catalog of streams.
        tasks: "tuning" for a run on what is held out for tuning; None for the evaluated tasks.
        max_tasks: Tasks that are trained, the first ones.
        memory: Kind of the memory, or None.
        memory_slots: Slots of each class (of each task in a ring); None where a total is shared.
        memory_capacity: Examples the memory holds in all.
        hyperparameters: The method's own numbers by name.
        content: Of a user's files, how the SHA-256 of their names and bytes begins.
        keras: What Keras is set to for the whole process, where it is not the usual.
    """

    method: Annotated[
        str,
        setting(
            topic=RUN,
            default="nccl_ring",
            choices=METHODS,
            help="a method of the table below, or several, such as nccl_ring,er_ring",
        ),
    ]
    dataset: Annotated[
        str,
        setting(
            topic=RUN,
            default="permuted_digits",
            choices=STREAMS_OF_CLASSES,
            help="",
            more=(
                "; or any data set by name: tfds:NAME (of TensorFlow Datasets), folder:PATH "
                '(images in train/CLASS/ and test/CLASS/), list:PATH (lines "path label") or '
                "csv:PATH, with --num_tasks"
            ),
        ),
    ]
    head: Annotated[
        str,
        setting(
            topic=STREAM,
            choices=HEADS,
            default_doc=by_dataset("default_head"),
            help="single (all classes compete) or multi (a task's own classes; split streams only)",
        ),
    ]
    num_tasks: Annotated[
        int,
        setting(
            topic=STREAM,
            unit="tasks",
            ge=1,
            le=10_000,
            default_doc=by_dataset("num_tasks"),
            help="tasks in all, with those held out for tuning",
        ),
    ]
    tuning_tasks: Annotated[
        int,
        setting(
            topic=STREAM,
            unit="tasks",
            ge=0,
            default_doc=by_dataset("tuning_tasks"),
            help=("of these, tasks held out for tuning, which only --tasks=tuning trains on"),
        ),
    ]
    tasks: Annotated[
        str | None,
        setting(
            topic=STREAM,
            default="evaluated",
            choices=TASKS,
            help=(
                "evaluated, or tuning: the tasks held out for tuning or, where there are none, a "
                "fixed tenth of the training images in place of the test images, as the command "
                "sweep has it"
            ),
        ),
    ]
    max_tasks: Annotated[
        int,
        setting(
            topic=STREAM,
            symbol="K",
            unit="tasks",
            ge=1,
            default_doc="all",
            help="train and evaluate the first N tasks only; the split into tasks stays",
        ),
    ]
    examples_per_task: Annotated[
        int | None,
        setting(
            topic=STREAM,
            unit="examples",
            ge=1,
            default_doc=by_dataset("examples_per_task"),
            help="training examples of each task",
        ),
    ]
    batch_size: Annotated[
        int,
        setting(
            topic=STREAM,
            symbol="|J_t|",
            unit="examples",
            ge=1,
            default_doc=batch_sizes_by_method,
            help="examples from the stream in a step",
        ),
    ]
    epochs: Annotated[
        int,
        setting(
            topic=STREAM,
            unit="passes",
            ge=1,
            default_doc=epochs_by_method,
            help="passes over each task, or over all tasks at once",
        ),
    ]
    network: Annotated[
        str,
        setting(
            topic=NETWORK,
            default_doc=(
                "mlp or mlp_experts on MNIST and digits, else resnet18_reduced or conv_experts"
            ),
            help=(
                "mlp, resnet18_reduced (20 filters), resnet18 (64) or resnet18_one_conv (20, with "
                "the blocks of Stable SGD's code); of cn_dpm mlp_experts or conv_experts"
            ),
        ),
    ]
    hidden: Annotated[
        tuple[int, ...] | None,
        setting(
            topic=NETWORK,
            unit="units",
            default=(256, 256),
            help="widths of the hidden layers of the mlp",
        ),
    ]
    conv_init: Annotated[
        str | None,
        setting(
            topic=NETWORK,
            default="reference",
            choices=CONV_INITS,
            help=("reference (uniform, as the paper's code base) or he; first weights of a ResNet"),
        ),
    ]
    mask: Annotated[
        str | None,
        setting(
            topic=NETWORK,
            default="own",
            choices=MASKS,
            help=(
                "multi-head: own (logits of each example's own task) or union (of the tasks in "
                "the batch)"
            ),
        ),
    ]
    memory: str | None
    memory_slots: int | None
    memory_capacity: int | None
    memory_batch_size: Annotated[
        int | None,
        setting(
            topic=MEMORY,
            symbol="|I_t|",
            unit="examples",
            ge=1,
            default_doc="10",
            help="examples drawn from memory in a step",
        ),
    ]
    reservoir: Annotated[
        str | None,
        setting(
            topic=MEMORY,
            default="exact",
            choices=RESERVOIR_RULES,
            help=(
                "exact (each example seen is kept with probability |M|/n) or off_by_one (as the "
                "paper's code base)"
            ),
        ),
    ]
    learning_rate: Annotated[
        float,
        setting(
            topic=RATE,
            symbol="α",
            unit="step size",
            gt=0.0,
            default_doc=learning_rates_by_method,
            help="step size of the optimizer; finite and above 0",
        ),
    ]
    first_task_learning_rate: Annotated[
        float,
        setting(
            topic=RATE,
            symbol="α",
            unit="step size",
            gt=0.0,
            default_doc="--learning_rate",
            help="step size in the first task",
        ),
    ]
    schedule: Annotated[
        str,
        setting(
            topic=RATE,
            default="constant",
            choices=SCHEDULES,
            help=(
                "constant; inverse_sqrt: α √(1000/T), T the number of steps of the task; or a rate "
                "that falls within every task: cosine (from α to 0) or piecewise (α, α/10 after "
                "half of its steps, α/100 after three quarters)"
            ),
        ),
    ]
    hyperparameters: Mapping[str, Any]
    precision: Annotated[
        str,
        setting(
            topic=SPEED,
            default="float32",
            choices=PRECISIONS,
            help=(
                "float32; tensorfloat32 (of newer NVIDIA GPUs: float32 whose products and "
                "convolutions have 10 bits, faster); mixed_bfloat16 or mixed_float16 (emulated and "
                "slow on a CPU), in which weights and the paper's quantities stay float32"
            ),
        ),
    ]
    deterministic: Annotated[
        bool,
        setting(
            topic=SPEED,
            default=False,
            help="only operations that give the same bits every time (slower on a GPU)",
        ),
    ]
    distribute: Annotated[
        str | None,
        setting(
            topic=SPEED,
            choices=DISTRIBUTIONS,
            default_doc="one device",
            help=(
                "mirrored (over all devices of this machine); batch sizes are of all devices "
                "together"
            ),
        ),
    ] = None
    angles: Annotated[
        str | None,
        setting(
            topic=STREAM,
            default="ordered",
            choices=ANGLES,
            help=(
                "of rotated_mnist: ordered (each task's in its own part of the half turn, as "
                "Lopez-Paz and Ranzato, 2017) or any (anywhere in it, as Buzzega et al., 2020)"
            ),
        ),
    ] = None
    dark: Annotated[float | None, option(DARK, MEMORY)] = None
    replay_labels: Annotated[float | None, option(REPLAY_LABELS, MEMORY)] = None
    stream_mask: Annotated[str | None, option(STREAM_MASK, NETWORK)] = None
    average_weights: Annotated[float | None, option(AVERAGE_WEIGHTS, RUN)] = None
    alignment: Annotated[str | None, option(ALIGNMENT, NETWORK)] = None
    evaluate: Annotated[
        str | None,
        setting(
            topic=SPEED,
            default="all",
            help=(
                "tasks that are evaluated after each task: all (those so far and the next one), "
                "new (the task itself; after the last task all) or every:N (as all after every "
                "N-th task and the last one, else as new); what is not measured is left out of "
                "forgetting and forward transfer (docs/outputs.md)"
            ),
        ),
    ] = None
    kind: Annotated[
        str | None,
        setting(
            topic=STREAM,
            choices=STREAM_KINDS,
            default_doc="domain with --domain, else split",
            help="of a data set by name, how it is cut into tasks",
        ),
    ] = None
    image_size: Annotated[
        int | None,
        setting(
            topic=STREAM,
            unit="pixels",
            ge=1,
            le=4096,
            default_doc="the size that all have",
            help="of a data set by name, the side that images are resized to",
        ),
    ] = None
    label: Annotated[
        str | None,
        setting(topic=STREAM, default_doc="label", help="of csv:PATH, the column of the labels"),
    ] = None
    domain: Annotated[
        str | None,
        setting(topic=STREAM, default_doc="none", help="of csv:PATH, the column of the domains"),
    ] = None
    by: Annotated[
        str | None,
        setting(
            topic=STREAM,
            choices=PERIODS,
            default_doc="none",
            help="of csv:PATH with dates as domains, the period of the calendar that is a task",
        ),
    ] = None
    positive: Annotated[
        str | None,
        setting(
            topic=STREAM,
            default_doc="the second by name",
            help=(
                "of a data set by name with two classes, the name of the one that metrics of two "
                "classes judge: it gets the number 1"
            ),
        ),
    ] = None
    content: str | None = None
    optimizer: Annotated[
        str | None,
        setting(
            topic=RATE,
            default=SGD,
            choices=OPTIMIZERS,
            help=(
                "Keras's optimizer of that name; of another than sgd the learning rate is 0.001 by "
                "default"
            ),
        ),
    ] = None
    optimizer_arguments: Annotated[
        tuple[str, ...] | None,
        setting(
            topic=RATE,
            default_doc="those of Keras",
            help=(
                "arguments of the optimizer by Keras's names, such as momentum:0.9,nesterov:true "
                "or weight_decay:0.01"
            ),
        ),
    ] = None
    augment: Annotated[
        tuple[str, ...] | None,
        setting(
            topic=NETWORK,
            default_doc="none",
            help=(
                "random changes of images in training, a new draw each time an image is passed, "
                "from the stream or the memory, which keeps images as they came: flip "
                "(left to right) and crop (moved by up to an eighth of the side, 0 outside)"
            ),
        ),
    ] = None
    keras: str | None = None
    rates: Annotated[
        tuple[str, ...] | None,
        setting(
            topic=RATE,
            default_doc="1 for all weights",
            help=(
                "factors from 0 on the update of layers, by the name of a layer or a part of a "
                "weight's path, such as hidden1:0.1 or stem:0.01,stem_norm/gamma:1"
            ),
        ),
    ] = None
    stores: Annotated[
        str | None,
        setting(
            topic=MEMORY,
            choices=STORES,
            default_doc=stores_by_method,
            help=(
                "of several epochs, when the memory, or the sample or the statistics that a method "
                "keeps, take an example: in the first_epoch, once, or in every_epoch"
            ),
        ),
    ] = None

    @property
    def evaluated_tasks(self) -> int:
        """Tasks that are not held out, whether or not `max_tasks` stops before the last."""
        return self.num_tasks - self.tuning_tasks

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> "Settings":
        """The settings of a record, whose lists are tuples; others than these are left out.

        A setting that did not exist when the run was made is None, and `precision`, which was
        single, "float32".
        """
        known = {"precision": "float32", **values}
        given: dict[str, Any] = {one.name: known.get(one.name) for one in fields(cls)}
        lists = {name: tuple(value) for name, value in given.items() if isinstance(value, list)}
        return cls(**given | lists)

    def as_json(self) -> dict[str, Any]:
        """The settings as JSON values."""
        return json.loads(json.dumps(asdict(self)))

    def digest(self) -> str:
        """SHA-256 of the canonical JSON, 64 hexadecimal digits."""
        return settings_digest(self.as_json())


SETTINGS = declared_settings(Settings)
"""The flags that determine a run's results and that `Settings` declares, by name."""

MEMORY_SIZES = {
    row.name: row
    for row in (
        Setting(
            "memory_per_class",
            "int",
            5,
            topic=MEMORY,
            symbol="m",
            unit="examples",
            ge=1,
            help=(
                "examples for each class of each task; a reservoir holds this times all classes "
                "of all evaluated tasks"
            ),
        ),
        Setting(
            "memory",
            "int",
            topic=MEMORY,
            symbol="|M|",
            unit="examples",
            ge=1,
            default_doc="m x classes per task x evaluated tasks",
            help="examples that the memory holds in all, in place of --memory_per_class",
        ),
    )
}
"""The flags that size a memory, by name."""


def methods_with(hyperparameter: str) -> dict[str, Hyperparameter]:
    """The methods that have a hyperparameter of that name, each with its own row of it."""
    return {
        method.name: row
        for method in METHODS.values()
        for row in method.hyperparameters
        if row.name == hyperparameter
    }


def hyperparameter_names() -> tuple[str, ...]:
    """Names of all methods' hyperparameters, each once, in the registry's order."""
    rows = (row for method in METHODS.values() for row in method.hyperparameters)
    return tuple(dict.fromkeys(row.name for row in rows))


def hyperparameter_flags() -> list[Setting]:
    """The flag of each hyperparameter, which several methods may have."""
    result = []
    for name in hyperparameter_names():
        rows = methods_with(name)
        row = next(iter(rows.values()))
        help_text = f"{row.help}; {row.describe_range()}; of {', '.join(rows)}"
        result.append(
            Setting(
                name,
                row.kind,
                topic=METHOD,
                symbol=row.symbol,
                unit=row.unit,
                choices=row.choices,
                default_doc=functools.partial(_list_defaults, rows),
                help=help_text,
            )
        )
    return result


def _list_defaults(rows: Mapping[str, Hyperparameter]) -> str:
    return list_values({method: row.describe_default() for method, row in rows.items()})


_XLA = {"jit_compile": False}
"""A setting of earlier runs, which is an option now: what settings that lack it stand for."""


def flattened(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings as JSON values, with the hyperparameters beside the others."""
    rest = {
        name: value
        for name, value in settings.items()
        if name != "hyperparameters" and (name, value) not in _XLA.items()
    }
    return rest | settings["hyperparameters"]


def run_folder(settings: Settings, output_dir: str, seed: int) -> Path:
    """`<output_dir>/<dataset>-<head>/<method>/<first 8 digits of the hash>/seed<k>`.

    Of a data set by name, such as "folder:pets", the folder is that of "folder_pets", because
    Windows has no colons in names.
    """
    dataset = settings.dataset.replace(":", "_")
    cell = Path(output_dir) / f"{dataset}-{settings.head}" / settings.method
    return cell / settings.digest()[:8] / f"seed{seed}"


def settings_digest(settings: Mapping[str, Any]) -> str:
    """SHA-256, in hexadecimal, of settings as JSON values with sorted keys.

    Settings that are None and hyperparameters at their default are left out: a setting or
    hyperparameter that is added later does not rename the runs made before.
    """
    defaults = {row.name: row.default for row in get_method(settings["method"]).hyperparameters}
    kept = _XLA | {name: value for name, value in settings.items() if value is not None}
    kept["hyperparameters"] = {
        name: value
        for name, value in settings["hyperparameters"].items()
        if name not in defaults or value != defaults[name]
    }
    text = json.dumps(kept, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
