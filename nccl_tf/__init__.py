"""Continual learning for Keras 3 on TensorFlow 2, built around NCCL (Han et al., UAI 2023).

The public names, those of methods by their rows, are imported when first used, so that `import
nccl_tf`, and with it the command's help, does not wait for TensorFlow.
"""

import importlib.abc
import importlib.machinery
import importlib.util
import sys
import types
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from nccl_tf.methods import registry as _registry

_HOMES = {
    "Alignment": "nccl_tf.learner.options.alignment",
    "BalancedMemory": "nccl_tf.memories.balanced",
    "Batch": "nccl_tf.batch",
    "DeviceFile": "nccl_tf.device_file.export",
    "EditedReservoirMemory": "nccl_tf.memories.edited_reservoir",
    "ExemplarMemory": "nccl_tf.memories.exemplars",
    "Hyperparameter": "nccl_tf.arguments.hyperparameters",
    "JointTask": "nccl_tf.streams.task",
    "LearnResult": "nccl_tf.session.result",
    "Learner": "nccl_tf.learner.learner",
    "LearningFailedError": "nccl_tf.errors",
    "LearningRates": "nccl_tf.methods.row",
    "METHODS": "nccl_tf.methods.registry",
    "Memory": "nccl_tf.memories.memory",
    "MemoryKind": "nccl_tf.memories.kinds",
    "Method": "nccl_tf.methods.row",
    "MixedMemory": "nccl_tf.memories.mixed",
    "Option": "nccl_tf.learner.options.option",
    "Perplexity": "nccl_tf.learner.perplexity",
    "TwoGradientLearner": "nccl_tf.learner.two_gradients",
    "ReplayLearner": "nccl_tf.learner.replay",
    "ReservoirMemory": "nccl_tf.memories.reservoir",
    "RingMemory": "nccl_tf.memories.ring",
    "ScoredMemory": "nccl_tf.memories.scored",
    "ShortTermMemory": "nccl_tf.memories.short_term",
    "Step": "nccl_tf.learner.step",
    "Stream": "nccl_tf.streams.stream",
    "StreamRow": "nccl_tf.streams.catalog",
    "Task": "nccl_tf.streams.task",
    "TaskSchedule": "nccl_tf.learner.task_schedule",
    "Unsupported": "nccl_tf.methods.row",
    "UserError": "nccl_tf.errors",
    "check_learner": "nccl_tf.conformance.learners",
    "check_memory": "nccl_tf.conformance.memories",
    "conv_experts": "nccl_tf.methods.cn_dpm.networks",
    "create": "nccl_tf.methods.create",
    "cut": "nccl_tf.networks.cut",
    "export_learner": "nccl_tf.device_file.export",
    "get_method": "nccl_tf.methods.registry",
    "learn": "nccl_tf.session.learn",
    "load_device_state": "nccl_tf.device_file.state",
    "load_model": "nccl_tf.saving",
    "load_stream": "nccl_tf.streams.load",
    "mlp_experts": "nccl_tf.methods.cn_dpm.networks",
    "plot_results": "nccl_tf.session.result",
    "read_results": "nccl_tf.reports.run_table",
    "register_memory": "nccl_tf.memories.kinds",
    "register_method": "nccl_tf.methods.registry",
    "register_stream": "nccl_tf.streams.catalog",
    "stream_from_arrays": "nccl_tf.streams.load",
    "stream_from_datasets": "nccl_tf.streams.datasets",
    "use_compile_cache": "nccl_tf.records.compile_cache",
    "weighted_mean": "nccl_tf.learner.losses",
}
_HOMES |= {
    name: home
    for row in _registry.METHODS.values()
    for home, _, name in [str(row.learner).partition(":")]
}
_MODULES = ("callbacks", "gradients", "metrics", "networks", "step_sizes", "streams", "theory")

if TYPE_CHECKING:
    # The same names for type checkers and editors; tests/test_package.py compares the two lists.
    from nccl_tf import callbacks as callbacks
    from nccl_tf import gradients as gradients
    from nccl_tf import metrics as metrics
    from nccl_tf import networks as networks
    from nccl_tf import step_sizes as step_sizes
    from nccl_tf import streams as streams
    from nccl_tf import theory as theory
    from nccl_tf.arguments.hyperparameters import Hyperparameter as Hyperparameter
    from nccl_tf.batch import Batch as Batch
    from nccl_tf.conformance.learners import check_learner as check_learner
    from nccl_tf.conformance.memories import check_memory as check_memory
    from nccl_tf.device_file.export import DeviceFile as DeviceFile
    from nccl_tf.device_file.export import export_learner as export_learner
    from nccl_tf.device_file.state import load_device_state as load_device_state
    from nccl_tf.errors import LearningFailedError as LearningFailedError
    from nccl_tf.errors import UserError as UserError
    from nccl_tf.learner.learner import Learner as Learner
    from nccl_tf.learner.losses import weighted_mean as weighted_mean
    from nccl_tf.learner.options.alignment import Alignment as Alignment
    from nccl_tf.learner.options.option import Option as Option
    from nccl_tf.learner.perplexity import Perplexity as Perplexity
    from nccl_tf.learner.replay import ReplayLearner as ReplayLearner
    from nccl_tf.learner.step import Step as Step
    from nccl_tf.learner.task_schedule import TaskSchedule as TaskSchedule
    from nccl_tf.learner.two_gradients import TwoGradientLearner as TwoGradientLearner
    from nccl_tf.memories.balanced import BalancedMemory as BalancedMemory
    from nccl_tf.memories.edited_reservoir import EditedReservoirMemory as EditedReservoirMemory
    from nccl_tf.memories.exemplars import ExemplarMemory as ExemplarMemory
    from nccl_tf.memories.kinds import MemoryKind as MemoryKind
    from nccl_tf.memories.kinds import register_memory as register_memory
    from nccl_tf.memories.memory import Memory as Memory
    from nccl_tf.memories.mixed import MixedMemory as MixedMemory
    from nccl_tf.memories.reservoir import ReservoirMemory as ReservoirMemory
    from nccl_tf.memories.ring import RingMemory as RingMemory
    from nccl_tf.memories.scored import ScoredMemory as ScoredMemory
    from nccl_tf.memories.short_term import ShortTermMemory as ShortTermMemory
    from nccl_tf.methods.agem import AGEM as AGEM
    from nccl_tf.methods.bgd import BGD as BGD
    from nccl_tf.methods.clser import CLSER as CLSER
    from nccl_tf.methods.cn_dpm.method import CNDPM as CNDPM
    from nccl_tf.methods.cn_dpm.networks import conv_experts as conv_experts
    from nccl_tf.methods.cn_dpm.networks import mlp_experts as mlp_experts
    from nccl_tf.methods.create import create as create
    from nccl_tf.methods.cumulative import Cumulative as Cumulative
    from nccl_tf.methods.der import DER as DER
    from nccl_tf.methods.der import DERpp as DERpp
    from nccl_tf.methods.er import ExperienceReplay as ExperienceReplay
    from nccl_tf.methods.er_ace import ERACE as ERACE
    from nccl_tf.methods.ewc import EWC as EWC
    from nccl_tf.methods.fecam import FeCAM as FeCAM
    from nccl_tf.methods.finetune import Finetune as Finetune
    from nccl_tf.methods.finetune import MultiTask as MultiTask
    from nccl_tf.methods.gdumb import GDumb as GDumb
    from nccl_tf.methods.gec import GEC as GEC
    from nccl_tf.methods.gem import GEM as GEM
    from nccl_tf.methods.gmed import ERGMED as ERGMED
    from nccl_tf.methods.gmed import MIRGMED as MIRGMED
    from nccl_tf.methods.gss import GSSGreedy as GSSGreedy
    from nccl_tf.methods.icarl import ICaRL as ICaRL
    from nccl_tf.methods.inflora import InfLoRA as InfLoRA
    from nccl_tf.methods.lpr.method import LPR as LPR
    from nccl_tf.methods.lwf import LwF as LwF
    from nccl_tf.methods.mas import MAS as MAS
    from nccl_tf.methods.mc_sgd import MCSGD as MCSGD
    from nccl_tf.methods.mega import MEGAI as MEGAI
    from nccl_tf.methods.mega import MEGAII as MEGAII
    from nccl_tf.methods.mer import MER as MER
    from nccl_tf.methods.mir import MIR as MIR
    from nccl_tf.methods.nccl import NCCL as NCCL
    from nccl_tf.methods.ncm import NCM as NCM
    from nccl_tf.methods.online_ewc import OnlineEWC as OnlineEWC
    from nccl_tf.methods.orthog_subspace.method import OrthogSubspace as OrthogSubspace
    from nccl_tf.methods.ranpac import RanPAC as RanPAC
    from nccl_tf.methods.registry import METHODS as METHODS
    from nccl_tf.methods.registry import get_method as get_method
    from nccl_tf.methods.registry import register_method as register_method
    from nccl_tf.methods.row import LearningRates as LearningRates
    from nccl_tf.methods.row import Method as Method
    from nccl_tf.methods.row import Unsupported as Unsupported
    from nccl_tf.methods.si import SI as SI
    from nccl_tf.methods.slda import SLDA as SLDA
    from nccl_tf.methods.supsup.method import SupSup as SupSup
    from nccl_tf.networks.cut import cut as cut
    from nccl_tf.records.compile_cache import use_compile_cache as use_compile_cache
    from nccl_tf.reports.run_table import read_results as read_results
    from nccl_tf.saving import load_model as load_model
    from nccl_tf.session.learn import learn as learn
    from nccl_tf.session.result import LearnResult as LearnResult
    from nccl_tf.session.result import plot_results as plot_results
    from nccl_tf.streams.catalog import StreamRow as StreamRow
    from nccl_tf.streams.catalog import register_stream as register_stream
    from nccl_tf.streams.datasets import stream_from_datasets as stream_from_datasets
    from nccl_tf.streams.load import load_stream as load_stream
    from nccl_tf.streams.load import stream_from_arrays as stream_from_arrays
    from nccl_tf.streams.stream import Stream as Stream
    from nccl_tf.streams.task import JointTask as JointTask
    from nccl_tf.streams.task import Task as Task

__all__ = sorted([*_HOMES, *_MODULES])
__version__ = "0.1.0"


_registered = False


def _register_saved_classes() -> None:
    """Let `keras.models.load_model` know every learner, where Keras is imported already."""
    global _registered
    if not _registered and "keras" in sys.modules:
        _registered = True
        importlib.import_module("nccl_tf.saving").register_classes()


class _AfterKeras(importlib.abc.MetaPathFinder):
    """Registers the saved classes when somebody else than the package imports Keras, once.

    Keras looks for the class of a file in its registry of classes alone, which exists once Keras is
    imported, and imports no module of a package that it does not know; to fill the registry here
    would import TensorFlow, which takes seconds. So `import nccl_tf, keras` alone would not do for
    `keras.models.load_model`.

    The package's own modules may be half imported by then, and a run of the command wants the
    module of its method alone.
    """

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name != "keras":
            return None
        sys.meta_path.remove(self)
        frame: types.FrameType | None = sys._getframe()
        while frame is not None:
            if frame.f_globals.get("__name__", "").startswith("nccl_tf."):
                return None
            frame = frame.f_back
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            import_keras = spec.loader.exec_module

            def import_and_register(module: types.ModuleType) -> None:
                import_keras(module)
                _register_saved_classes()

            spec.loader.exec_module = import_and_register  # type: ignore[method-assign]
        return spec


def __getattr__(name: str) -> Any:
    if name in _HOMES or name in _MODULES:
        module = importlib.import_module(_HOMES.get(name, f"nccl_tf.{name}"))
        # Most names have imported Keras by now; the tables have not, and do not wait for it.
        _register_saved_classes()
        return getattr(module, name) if name in _HOMES else module
    near = importlib.import_module("nccl_tf.errors").near_names(name, __all__)
    near += [known for known in __all__ if name.lower() in known.lower() and len(name) > 3]
    near = list(dict.fromkeys(near))
    hint = f"did you mean {' or '.join(near)}? It has" if near else "it has"
    raise AttributeError(f"module 'nccl_tf' has no attribute {name!r}; {hint} {', '.join(__all__)}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]


# The command has not imported Keras, and goes on without waiting for TensorFlow.
if "keras" in sys.modules:
    _register_saved_classes()
else:
    sys.meta_path.insert(0, _AfterKeras())
