"""Every setting that determines a run's results, resolved to its value, and their hash."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from nccl_tf.methods.registry import get_method


@dataclass(frozen=True)
class Settings:
    """What determines the results of a run, the seed apart.

    None stands where a setting does not exist for the method, network or head.

    Args:
        method: Name in the registry.
        dataset: Name of the stream.
        head: "single" or "multi".
        num_tasks: Tasks in all, with the held-out ones.
        tuning_tasks: Tasks held out for tuning.
        tasks: "tuning" for a run on what is held out for tuning; None for the evaluated tasks.
        max_tasks: Tasks that are trained, the first ones.
        examples_per_task: Training examples of a task; None for all.
        batch_size: Examples from the stream in a step.
        epochs: Passes over a task.
        network: "mlp", "resnet18_reduced" or "resnet18".
        hidden: Widths of the hidden layers of the mlp.
        conv_init: "reference" or "he".
        mask: "own" or "union"; multi-head only.
        memory: "ring", "reservoir" or None.
        memory_slots: Slots of each class of each task (ring).
        memory_capacity: Examples the memory holds in all.
        memory_batch_size: Examples drawn from memory in a step.
        reservoir: "exact" or "off_by_one".
        learning_rate: alpha, step size.
        first_task_learning_rate: alpha in the first task, step size.
        schedule: "constant" or "inverse_sqrt".
        hyperparameters: The method's own numbers by name.
        precision: "float32", "mixed_bfloat16" or "mixed_float16".
        jit_compile: Whether XLA compiles gradients and update.
        deterministic: Whether only deterministic operations are used.
        distribute: "mirrored" over the devices of one machine or "multi_worker"; None for neither.
    """

    method: str
    dataset: str
    head: str
    num_tasks: int
    tuning_tasks: int
    tasks: str | None
    max_tasks: int
    examples_per_task: int | None
    batch_size: int
    epochs: int
    network: str
    hidden: tuple[int, ...] | None
    conv_init: str | None
    mask: str | None
    memory: str | None
    memory_slots: int | None
    memory_capacity: int | None
    memory_batch_size: int | None
    reservoir: str | None
    learning_rate: float
    first_task_learning_rate: float
    schedule: str
    hyperparameters: Mapping[str, Any]
    precision: str
    jit_compile: bool
    deterministic: bool
    distribute: str | None = None

    @property
    def evaluated_tasks(self) -> int:
        """Tasks that are not held out, whether or not `max_tasks` stops before the last."""
        return self.num_tasks - self.tuning_tasks

    def as_json(self) -> dict[str, Any]:
        """The settings as JSON values."""
        return json.loads(json.dumps(asdict(self)))

    def digest(self) -> str:
        """SHA-256 of the canonical JSON, 64 hexadecimal digits."""
        return settings_digest(self.as_json())


def flattened(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings as JSON values, with the hyper-parameters beside the others."""
    rest = {name: value for name, value in settings.items() if name != "hyperparameters"}
    return rest | settings["hyperparameters"]


def settings_digest(settings: Mapping[str, Any]) -> str:
    """SHA-256, in hexadecimal, of settings as JSON values with sorted keys.

    Settings that do not exist for the method, and hyperparameters at their default, are left out:
    a setting or hyperparameter that is added later does not rename the runs made before.
    """
    kept = {name: value for name, value in settings.items() if value is not None}
    defaults = {row.name: row.default for row in get_method(settings["method"]).hyperparameters}
    kept["hyperparameters"] = {
        name: value
        for name, value in settings["hyperparameters"].items()
        if name not in defaults or value != defaults[name]
    }
    text = json.dumps(kept, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
