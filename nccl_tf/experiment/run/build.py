"""Settings and a seed -> stream, network, memory, rates and compiled learner."""

import importlib
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import keras

import nccl_tf.networks as networks
from nccl_tf.arguments.choices import STEP_SCHEDULES, STORES, TENSORFLOAT32
from nccl_tf.arguments.hyperparameters import OPTIONS
from nccl_tf.arguments.layer_rates import rates_of_layers
from nccl_tf.arguments.optimizers import SGD, optimizer_arguments
from nccl_tf.errors import UserError, one_line
from nccl_tf.experiment.config.resolve import check_rate
from nccl_tf.learner.columns import extras_of, with_logits
from nccl_tf.learner.options.option import config_of
from nccl_tf.learner.task_schedule import TaskSchedule
from nccl_tf.methods.create import make_learner, make_memory
from nccl_tf.methods.registry import get_method
from nccl_tf.records.options import RunOptions
from nccl_tf.records.settings import Settings
from nccl_tf.streams import Stream, load_stream

REFERENCE_STEPS = 1000
"""Steps of a task for which --schedule=inverse_sqrt leaves the rate as it is."""


def build_stream(settings: Settings, options: RunOptions, seed: int) -> Stream:
    """The stream of tasks; it depends on the settings and the seed, not on the method.

    Raises:
        UserError: The data are missing or broken.
    """
    named: dict[str, Any] = {}
    name = settings.dataset
    if options.source is not None:
        name, label, domain, positive = options.source
        named = {"label": label, "domain": domain, "positive": positive}
        named["image_size"] = settings.image_size
        named["kind"], named["by"] = settings.kind, settings.by
    return load_stream(
        name,
        **named,
        head=settings.head,
        seed=seed,
        num_tasks=settings.num_tasks,
        tuning_tasks=settings.tuning_tasks,
        tasks=settings.tasks or "evaluated",
        max_tasks=settings.max_tasks,
        examples_per_task=settings.examples_per_task,
        angles=settings.angles,
        data_dir=options.data_dir,
        manual_dir=options.manual_dir,
    )


def build_network(settings: Settings, stream: Stream, seed: int) -> keras.Model:
    """The network from raw images to logits; its weights depend on the seed alone."""
    arguments: dict[str, Any] = {"hidden": settings.hidden} if settings.network == "mlp" else {}
    if settings.conv_init is not None:
        arguments["conv_init"] = settings.conv_init
    if settings.augment is not None:
        arguments["augment"] = settings.augment
    arguments |= hyperparameters_of(settings, "network")
    outputs = stream.num_classes + sum(hyperparameters_of(settings, "outputs").values())
    if settings.network.endswith("_experts"):  # of one method, which others need not import
        home = importlib.import_module("nccl_tf.methods.cn_dpm.networks")
    else:
        home = networks
    make = getattr(home, settings.network)
    return make(stream.example_shape, outputs, pixels=stream.pixels, seed=seed, **arguments)


def hyperparameters_of(settings: Settings, part: str) -> dict[str, Any]:
    """The hyperparameters of a part, such as those that the "learner" takes."""
    rows = get_method(settings.method).hyperparameters
    return {row.name: settings.hyperparameters[row.name] for row in rows if row.part == part}


def build_memory(settings: Settings, stream: Stream, seed: int) -> Any:
    """The empty memory of the method, or None.

    Args:
        settings: What is built.
        stream: The tasks.
        seed: Seed of the draws.
    """
    if settings.memory is None:
        return None
    method = get_method(settings.method)
    columns = with_logits(method.learner_class().columns, settings.dark)
    extras = extras_of(columns, stream.num_classes)
    return make_memory(
        method,
        stream,
        capacity=settings.memory_capacity,
        slots=settings.memory_slots,
        rule=settings.reservoir,
        seed=seed,
        example_shape=stream.example_shape,
        example_dtype=stream.example_dtype,
        **({"extras": extras} if extras else {}),
    )


def task_learning_rates(settings: Settings, steps: Sequence[int]) -> list[float]:
    """The rates alpha, one a task: those that it begins with.

    "constant" takes the settings' rate as it is. "inverse_sqrt" is the paper's alpha = c / sqrt(T)
    (decisions, Methods): constant inside a task, T its number of steps, c = rate x sqrt(1000).

    Args:
        settings: With the rate, the first task's rate and the schedule.
        steps: Number of steps T of each task.

    Raises:
        UserError: The schedule raises alpha to where alpha L >= 1 for NCCL.
    """
    rates = []
    for task, count in enumerate(steps):
        rate = settings.first_task_learning_rate if task == 0 else settings.learning_rate
        if settings.schedule == "inverse_sqrt":
            rate *= math.sqrt(REFERENCE_STEPS / count)
            check_rate(settings, rate, f"--schedule=inverse_sqrt: over {count} steps the rate")
        rates.append(rate)
    return rates


def training_rate(settings: Settings, rates: Sequence[float], steps: Sequence[int]) -> Any:
    """The optimizer's learning rate: that of the first task, or a schedule over all steps.

    Args:
        settings: With the schedule.
        rates: As `task_learning_rates` has them.
        steps: Number of steps of each task.
    """
    if settings.schedule in STEP_SCHEDULES:
        return TaskSchedule(settings.schedule, rates, steps)
    return rates[0]


def build_learner(
    settings: Settings,
    stream: Stream,
    seed: int,
    steps_per_execution: int | None = None,
    learning_rate: Any = None,
    jit_compile: bool | None = None,
) -> keras.Model:
    """The learner, compiled with its optimizer.

    Args:
        settings: What is built.
        stream: The tasks.
        seed: Seed of the weights and the draws.
        steps_per_execution: Steps in one call of the graph; None for a number that is fast.
        learning_rate: Of what is trained first, or a schedule; None for the settings' rate of the
            first task.
        jit_compile: As for `Learner.compile`.

    Raises:
        UserError: XLA is asked for and cannot compile the method, Keras refuses an argument of the
            optimizer, or the learner of a plugin's method has an option of its own that its row
            does not name.
    """
    arguments = hyperparameters_of(settings, "learner")
    method = get_method(settings.method)
    memory = build_memory(settings, stream, seed)
    if settings.memory_batch_size is not None:
        arguments["memory_batch_size"] = settings.memory_batch_size
    if settings.mask is not None:
        arguments["mask"] = settings.mask
    options = {row.name: getattr(settings, row.name) for row in OPTIONS}
    arguments |= {name: value for name, value in options.items() if value is not None}
    if settings.rates is not None:
        arguments["rates"] = rates_of_layers(settings.rates)
    if settings.epochs > 1 and method.stores is not None:
        arguments["stores"] = settings.stores or STORES[1]
    # TensorFloat-32 is no dtype of tensors: `use_precision` sets it.
    with _dtype_policy("float32" if settings.precision == TENSORFLOAT32 else settings.precision):
        network = build_network(settings, stream, seed)
        learner = make_learner(
            method, network, memory, stream, seed, settings.evaluated_tasks, arguments
        )
        learner.compile(
            optimizer=_build_optimizer(
                settings,
                settings.first_task_learning_rate if learning_rate is None else learning_rate,
            ),
            metrics=["accuracy"],
            jit_compile=jit_compile,
            steps_per_execution=steps_per_execution,
        )
    _check_options(config_of(learner.options), settings)
    return learner


def _build_optimizer(settings: Settings, rate: Any) -> keras.Optimizer:
    """The optimizer with a rate, a number or a schedule."""
    name = settings.optimizer or SGD
    given = optimizer_arguments(name, settings.optimizer_arguments or ())
    kind = type(keras.optimizers.get(name))
    try:
        return kind(rate, **given, **hyperparameters_of(settings, "optimizer"))
    except ValueError as error:
        raise UserError(
            f"Keras's {kind.__name__} refuses {given} ({one_line(str(error))})"
        ) from error


def _check_options(config: Mapping[str, Any], settings: Settings) -> None:
    """Check that a learner has the options that its record will name.

    Args:
        config: Of its options.
        settings: Of the run.

    Raises:
        UserError: It has another one, which its constructor takes by default.
    """
    for row in OPTIONS:
        given = getattr(settings, row.name)
        told = row.default if given is None else given
        held = config.get(row.name, row.default)
        if held != told:
            raise UserError(
                f"{settings.method} has {row.name}={held} by default, and its row says {told}, "
                f"which the record would name: register the method with options={{'{row.name}': "
                f"{held!r}}}"
            )


@contextmanager
def _dtype_policy(name: str) -> Iterator[None]:
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(name)
    try:
        yield
    finally:
        keras.config.set_dtype_policy(before)
