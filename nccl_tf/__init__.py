"""Continual learning for Keras 3 on TensorFlow 2, built around NCCL (Han et al., UAI 2023).

The public names are listed here by hand and imported when first used, so that `import nccl_tf`, and
with it the command's help, does not wait for TensorFlow.
"""

import importlib
import sys
from typing import Any

_HOMES = {
    "AGEM": "nccl_tf.methods.agem",
    "BGD": "nccl_tf.methods.bgd",
    "BalancedMemory": "nccl_tf.memories.balanced",
    "Batch": "nccl_tf.batch",
    "CNDPM": "nccl_tf.methods.cn_dpm.method",
    "DatasetRow": "nccl_tf.streams.catalog",
    "DERpp": "nccl_tf.methods.derpp",
    "ERGMED": "nccl_tf.methods.gmed",
    "EWC": "nccl_tf.methods.ewc",
    "EditedReservoirMemory": "nccl_tf.memories.edited_reservoir",
    "ExemplarMemory": "nccl_tf.memories.exemplars",
    "ExperienceReplay": "nccl_tf.methods.er",
    "Finetune": "nccl_tf.methods.finetune",
    "GDumb": "nccl_tf.methods.gdumb.method",
    "GEM": "nccl_tf.methods.gem.method",
    "GSSGreedy": "nccl_tf.methods.gss",
    "Hyperparameter": "nccl_tf.hyperparameters",
    "ICaRL": "nccl_tf.methods.icarl.method",
    "JointTask": "nccl_tf.streams.task",
    "LearnResult": "nccl_tf.session.result",
    "Learner": "nccl_tf.learner.learner",
    "LearningFailedError": "nccl_tf.errors",
    "LearningRates": "nccl_tf.methods.registry",
    "MCSGD": "nccl_tf.methods.mc_sgd",
    "MER": "nccl_tf.methods.mer",
    "METHODS": "nccl_tf.methods.registry",
    "MIR": "nccl_tf.methods.mir",
    "MIRGMED": "nccl_tf.methods.gmed",
    "Memory": "nccl_tf.memories.base",
    "MemoryKind": "nccl_tf.memories.kinds",
    "Method": "nccl_tf.methods.registry",
    "MultiTask": "nccl_tf.methods.finetune",
    "NCCL": "nccl_tf.methods.nccl",
    "OrthogSubspace": "nccl_tf.methods.orthog_subspace.method",
    "ReplayGradientLearner": "nccl_tf.learner.two_gradients",
    "ReplayLearner": "nccl_tf.learner.replay",
    "ReservoirMemory": "nccl_tf.memories.reservoir",
    "RingMemory": "nccl_tf.memories.ring",
    "ScoredMemory": "nccl_tf.memories.scored",
    "ShortTermMemory": "nccl_tf.memories.short_term",
    "Step": "nccl_tf.learner.step",
    "Stream": "nccl_tf.streams.stream",
    "SupSup": "nccl_tf.methods.supsup.method",
    "Task": "nccl_tf.streams.task",
    "Unsupported": "nccl_tf.methods.registry",
    "UserError": "nccl_tf.errors",
    "get_method": "nccl_tf.methods.registry",
    "learn": "nccl_tf.session.learn",
    "load_model": "nccl_tf.saving",
    "load_stream": "nccl_tf.streams.load",
    "register_memory": "nccl_tf.memories.kinds",
    "register_method": "nccl_tf.methods.registry",
    "register_stream": "nccl_tf.streams.catalog",
    "stream_from_arrays": "nccl_tf.streams.load",
    "stream_from_datasets": "nccl_tf.streams.datasets",
}
_MODULES = ("callbacks", "gradients", "metrics", "networks", "step_sizes", "streams", "theory")

__all__ = sorted([*_HOMES, *_MODULES])
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    if name in _MODULES:
        return importlib.import_module(f"nccl_tf.{name}")
    raise AttributeError(f"module 'nccl_tf' has no attribute {name!r}; it has {', '.join(__all__)}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]


if "keras" in sys.modules:
    # A program that imported Keras can load saved learners with keras.models.load_model; the
    # command has not, and goes on without waiting for TensorFlow.
    importlib.import_module("nccl_tf.saving").register_classes()
