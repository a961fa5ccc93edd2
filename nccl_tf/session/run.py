"""A call of `learn` as a run: the settings and measurements that the record of its result names."""

import dataclasses
import hashlib
import inspect
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np

from nccl_tf.arguments.choices import STORES, TENSORFLOAT32
from nccl_tf.arguments.evaluate import ALL
from nccl_tf.arguments.hyperparameters import DARK, REPLAY_LABELS, STREAM_MASK
from nccl_tf.arguments.names import plain_name
from nccl_tf.arguments.optimizers import as_texts
from nccl_tf.errors import UserError
from nccl_tf.learner.features import FeatureLearner
from nccl_tf.learner.learner import Learner
from nccl_tf.learner.options.alignment import AlignHead
from nccl_tf.learner.options.option import config_of
from nccl_tf.learner.options.rates import Rates
from nccl_tf.learner.replay import ReplayLearner
from nccl_tf.learner.variable_flags import EXCLUDED, VariableFlags
from nccl_tf.memories.kinds import get_memory
from nccl_tf.methods.registry import METHODS
from nccl_tf.records.provenance import computes_in_tensorfloat32
from nccl_tf.records.settings import EARLIER_STEPS, EARLIER_TASKS, Settings
from nccl_tf.session.measurements import measured_entries

_MOST_NAMED = 60
"""Letters of a list in a record, which has a hash of a longer one."""
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")
"""Of an object without a text of its own, another in each process."""
_OF_EVERY_LEARNER = ("rate_decay", "rate_decay_steps")
"""Arguments that few rows of the registry name, and that every learner takes."""


@dataclass(frozen=True)
class LearnedRun:
    """The entries of a record of `learn`, besides its matrices.

    Args:
        settings: Of the call; its method is "" where the registry has no row for the model.
        seed: Of the call.
        learner: Name of the model's class, and that of its memory.
        measured: Times in seconds, steps, rates, parameters and bytes that the method keeps.
    """

    settings: Settings
    seed: int
    learner: str
    measured: Mapping[str, Any]


def check_compiled(model: Any) -> None:
    """Check that a model is a compiled learner.

    Raises:
        UserError: It is no learner, or not compiled.
    """
    if not isinstance(model, Learner):
        raise UserError(
            f"received a {type(model).__name__} as model: expected a learner, such as "
            "nccl_tf.NCCL(network, memory), compiled"
        )
    if not model.compiled:
        raise UserError(
            f"received a {type(model).__name__} that is not compiled: call "
            "compile(keras.optimizers.SGD(0.1)) before learn"
        )


def describe_call(
    model: Learner,
    tasks: Sequence[Any],
    data: str,
    *,
    batch_size: int,
    epochs: Sequence[int],
    joint: bool,
    evaluate: str,
    class_weight: Mapping[int, float],
    validation: float | None,
    positive: str | None,
) -> Settings:
    """The settings of a call of `learn`, before it trains.

    The network is named by its weights and a hash of its layers and activations; among the
    hyperparameters is what the optimizer has other than by default. Nothing here asks for a
    `get_config`, which custom networks and learners may lack.

    Args:
        model: The learner, compiled.
        tasks: Of the stream.
        data: The stream's name.
        batch_size: As for `learn`, like the others.
        epochs: Passes over each part that is trained at once.
        joint: Likewise.
        evaluate: Likewise.
        class_weight: Likewise, by number.
        validation: Likewise.
        positive: Of the stream.
    """
    method, memory = _method_of(model, joint), model.memory
    scaled: Any = model.optimizer
    optimizer = getattr(scaled, "inner_optimizer", scaled)
    counts = isinstance(model, FeatureLearner)
    chooses = max(epochs) > 1 and (counts or bool(model.memories()))
    sizes = {task.num_train for task in tasks}
    rate = float(keras.ops.convert_to_numpy(optimizer.learning_rate))
    names = [row.name for row in method.hyperparameters] if method else []
    options, replays = config_of(model.options), isinstance(model, ReplayLearner)
    names = [*names, *_OF_EVERY_LEARNER]
    numbers = {name: options.get(name, getattr(model, name, None)) for name in names}
    numbers |= {
        "optimizer": type(optimizer).__name__,
        **_unusual(optimizer),
        **_excluded(model),
    }
    if aligned := model.option(AlignHead):
        unusual = aligned.alignment.unusual()
        numbers |= {f"alignment_{k}": "none" if v is None else v for k, v in unusual.items()}
    numbers |= {f"class_weight_{label}": factor for label, factor in class_weight.items()}
    if scaled is not optimizer:
        numbers |= {f"scaled_{name}": value for name, value in _unusual(scaled).items()}
    numbers |= {"validation": validation}
    if not model.example_loss.is_default:
        numbers["loss"] = _loss(model.example_loss.settings)
    if len(set(epochs)) > 1:
        text = "_".join(map(str, epochs))
        numbers["epochs_of_tasks"] = text if len(text) <= _MOST_NAMED else _digest(text)
    return Settings(
        method=method.name if method else "",
        dataset=plain_name(data),
        head="single" if model.heads is None else "multi",
        num_tasks=len(tasks),
        tuning_tasks=0,
        tasks=None,
        max_tasks=len(tasks),
        examples_per_task=sizes.pop() if len(sizes) == 1 else None,
        batch_size=batch_size,
        epochs=epochs[0],
        network=_network(model.network),
        hidden=None,
        conv_init=None,
        mask=None if model.heads is None else model.heads.mask,
        memory=method.memory if method else None,
        memory_slots=None,
        memory_capacity=None if memory is None else memory.capacity,
        memory_batch_size=getattr(model, "memory_batch_size", None),
        reservoir=getattr(memory, "rule", None),
        learning_rate=rate,
        first_task_learning_rate=rate,
        schedule=_schedule(optimizer),
        hyperparameters={name: value for name, value in numbers.items() if _is_plain(value)},
        precision=_precision(model.network.dtype_policy.name),
        deterministic=False,
        dark=options.get("dark", DARK.default),
        replay_labels=options.get("replay_labels", REPLAY_LABELS.default if replays else None),
        stream_mask=options.get("stream_mask", STREAM_MASK.default),
        average_weights=options.get("average_weights"),
        alignment=options.get("alignment"),
        rates=_rates(model.option(Rates)),
        evaluate=None if evaluate == ALL else evaluate,
        positive=None if positive is None else plain_name(positive),
        stores=model.stores if chooses and model.stores != STORES[1] else None,
    )


def _rates(option: Rates | None) -> tuple[str, ...] | None:
    """Factors on the update of layers as `rates_of_layers` reads them; None for none."""
    if option is None:
        return None
    named = {"/".join(map(plain_name, k.split("/"))): float(v) for k, v in option.rates.items()}
    return as_texts(dict(sorted(named.items())))


def learned_before(model: Learner) -> dict[str, int]:
    """The steps and ended tasks of a learner so far, those above 0.

    `remember` ends tasks without a step.
    """
    counts = {
        EARLIER_STEPS: model.optimizer.iterations,
        EARLIER_TASKS: model.progress.tasks_ended,
    }
    return {name: int(count.numpy()) for name, count in counts.items() if int(count.numpy())}


def learned_run(
    model: Learner,
    settings: Settings,
    earlier: Mapping[str, int],
    seed: int,
    source: Mapping[str, Any],
    steps: Sequence[int],
    examples: Sequence[int],
    train_seconds: float,
    eval_seconds: float,
    kept: int,
) -> LearnedRun:
    """The run that a call of `learn` was, when the learner is trained.

    Args:
        model: The learner.
        settings: As `describe_call` gave them.
        earlier: As `learned_before` gave it.
        seed: Of the call.
        source: As `package_source` gave it.
        steps: Of each part that is trained at once, in whole passes.
        examples: For training, of each part.
        train_seconds: Of training and compiling.
        eval_seconds: Of evaluation.
        kept: Bytes of examples that the call kept beside the learner.
    """
    memory = "" if model.memory is None else f" with {type(model.memory).__name__}"
    numbers = {**settings.hyperparameters, **earlier}
    settings = dataclasses.replace(settings, hyperparameters=numbers)
    measured = measured_entries(
        model, settings, source=source, rates=[settings.learning_rate] * len(steps),
        steps=steps, examples=examples, train_seconds=train_seconds, compile_seconds=0.0,
        eval_seconds=eval_seconds, kept=kept, is_own_process=False,
    )  # fmt: skip
    return LearnedRun(settings, seed, type(model).__name__ + memory, measured)


def _method_of(model: Learner, joint: bool) -> Any:
    """The first row of the registry with this learner and memory; None where there is none."""
    memory = model.memory
    for row in METHODS.values():
        if row.joint == joint and row.is_of(type(model)):
            if row.memory is None and memory is None:
                return row
            if row.memory and _is_class(get_memory(row.memory).memory, type(memory)):
                return row
    return None


def _excluded(model: Learner) -> dict[str, Any]:
    """The places of weights that are excluded from weight decay, where some are, as a hash."""
    places = VariableFlags(model).places(model.optimizer)[EXCLUDED]
    return {f"optimizer_{EXCLUDED}": _digest(json.dumps(places))} if places else {}


def _is_class(reference: str | type, cls: type) -> bool:
    return reference in (cls, f"{cls.__module__}:{cls.__qualname__}")


def _network(network: keras.Model) -> str:
    layers = [
        [
            type(layer).__name__,
            getattr(getattr(layer, "activation", None), "__name__", ""),
            [list(variable.shape) for variable in layer.variables],
        ]
        for layer in network.layers
    ]
    return f"{network.count_params()}_weights_{_digest(json.dumps(layers))}"


def _precision(policy: str) -> str:
    return TENSORFLOAT32 if policy == "float32" and computes_in_tensorfloat32() else policy


def _unusual(optimizer: Any) -> dict[str, Any]:
    """Arguments of an optimizer that are not its class's defaults, except the rate."""
    usual = {
        name: parameter.default
        for name, parameter in inspect.signature(type(optimizer)).parameters.items()
    }
    return {
        f"optimizer_{name}": value
        for name, value in optimizer.get_config().items()
        if name not in ("name", "learning_rate") and value != usual.get(name)
    }


def _loss(settings: Mapping[str, Any]) -> str:
    """The class of a loss, and a hash of what it is set to."""
    text = json.dumps(settings, default=str, sort_keys=True)
    return f"{plain_name(settings['class'])}_{_digest(_ADDRESS.sub('', text))}"


def _schedule(optimizer: Any) -> str:
    rate = optimizer.get_config().get("learning_rate")
    if not isinstance(rate, dict):
        return "constant"
    numbers = json.dumps(rate, default=str, sort_keys=True)
    return f"{plain_name(rate['class_name'])}_{_digest(numbers)}"


def _is_plain(value: Any) -> bool:
    """Whether a record can hold a value: a finite number, a truth value or a name."""
    if isinstance(value, str):
        return bool(value) and value == plain_name(value)
    return isinstance(value, (bool, int, float)) and bool(np.isfinite(value))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:8]
