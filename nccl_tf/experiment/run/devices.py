"""The processors that a run uses, and the line that names them."""

import contextlib
import functools
from typing import Any

import tensorflow as tf

from nccl_tf.arguments.choices import AUTO, ON, TENSORFLOAT32
from nccl_tf.errors import UserError
from nccl_tf.learner.devices import check_divides
from nccl_tf.machine import count_cores, threads_of_environment
from nccl_tf.records import compile_cache
from nccl_tf.records.options import RunOptions
from nccl_tf.records.provenance import computes_in_tensorfloat32, describe_devices
from nccl_tf.records.settings import Settings


def use_device(name: str) -> None:
    """Show TensorFlow the chosen processors only, and let it take GPU memory as it needs it.

    Args:
        name: As `RunOptions.device`.

    Raises:
        UserError: There is no such GPU, or TensorFlow runs already with other processors.
    """
    there = tf.config.list_physical_devices("GPU")
    kind, _, number = name.partition(":")
    chosen = [] if kind == "cpu" else there
    if kind == "gpu" and number:
        chosen = there[int(number) : int(number) + 1]
    if kind == "gpu" and not chosen:
        raise UserError(
            f"--device={name}: TensorFlow finds {len(there) or 'no'} GPU"
            f"{'s' if len(there) > 1 else ''} on this machine; take --device=cpu, or install "
            "TensorFlow with GPU support (pip install 'tensorflow[and-cuda]')"
        )
    try:
        tf.config.set_visible_devices(chosen, "GPU")
        for gpu in chosen:
            # By default TensorFlow takes all of a GPU's memory at once.
            tf.config.experimental.set_memory_growth(gpu, True)
        if kind == "cpu" and number:
            parts = [tf.config.LogicalDeviceConfiguration()] * int(number)
            tf.config.set_logical_device_configuration(_cpu(), parts)
    except RuntimeError as error:
        raise UserError(
            f"--device={name}: TensorFlow runs in this process already and cannot change its "
            "processors; choose them before the first operation"
        ) from error


def use_precision(name: str) -> None:
    """Let TensorFlow compute products of float32 as float32, or in TensorFloat-32 if asked for.

    On GPUs that have it, TensorFlow takes TensorFloat-32 by default.

    Args:
        name: As `Settings.precision`. The visible devices are chosen already.

    Raises:
        UserError: TensorFloat-32 is asked for, and no visible device has it.
    """
    tf.config.experimental.enable_tensor_float_32_execution(name == TENSORFLOAT32)
    if name == TENSORFLOAT32 and not computes_in_tensorfloat32():
        raise UserError(
            f"--precision={name}: expected an NVIDIA GPU of compute capability 8.0 or later "
            f"without NVIDIA_TF32_OVERRIDE=0, received {describe_devices()}; take "
            "--precision=float32"
        )


def use_threads(asked: int | None, default: int) -> None:
    """Set TensorFlow's intra-op threads, those among which one operation is divided.

    With one, operations run one after another too: those of a small network's step take less time
    than handing them from thread to thread.

    Args:
        asked: As `RunOptions.threads`; None leaves a TensorFlow that runs already as it is.
        default: What holds without it.

    Raises:
        UserError: TensorFlow runs already with another number than the one that is asked for.
    """
    threads = asked or default
    try:
        tf.config.threading.set_intra_op_parallelism_threads(threads)
    except RuntimeError as error:
        if asked is not None:
            raise UserError(
                f"--threads={asked}: TensorFlow runs in this process already, with "
                f"{count_threads()}; choose them before the first operation"
            ) from error
    if threads == 1:
        with contextlib.suppress(RuntimeError):  # It runs already: slower, to the same bits.
            tf.config.threading.set_inter_op_parallelism_threads(1)


def use_kept_programs(folder: str | None) -> None:
    """Use programs that earlier runs compiled, and keep new ones.

    Args:
        folder: As `RunOptions.compile_cache`; None leaves a TensorFlow that runs already as it is.

    Raises:
        UserError: A folder is given, and TensorFlow runs already without it.
    """
    if folder == compile_cache.OFF:
        return
    try:
        compile_cache.use_compile_cache(folder)
    except UserError:
        if folder is not None:
            raise


def use_xla(settings: Settings, options: RunOptions) -> bool | None:
    """Whether XLA compiles the steps: True, False, or None for the rule of the learner.

    Args:
        settings: What is run.
        options: How. The visible devices are chosen already.

    Raises:
        UserError: XLA is asked for on a GPU, with operations that give the same bits every time.
    """
    if settings.deterministic and tf.config.get_visible_devices("GPU"):
        if options.jit_compile == ON:
            raise UserError(
                f"--jit_compile={ON} with --deterministic on a GPU, where XLA's programs need not "
                "give the same bits every time: leave one of the two out, or take --device=cpu"
            )
        return False
    if options.jit_compile == AUTO:
        # XLA has no operation that moves images.
        return False if settings.augment else None
    return options.jit_compile == ON


def describe_processors(settings: Settings, strategy: Any, is_compiled: bool) -> str:
    """What a run uses, such as "2 CPU cores, 1 thread an operation, float32, XLA off".

    Args:
        settings: What is run.
        strategy: As `make_strategy` returns it.
        is_compiled: Whether XLA compiles the steps.
    """
    threads = count_threads()
    used = f"{describe_devices()}, {threads} thread{'' if threads == 1 else 's'} an operation, "
    used += f"{settings.precision}, XLA {'on' if is_compiled else 'off'}"
    return used if strategy is None else f"{used}, {strategy.num_replicas_in_sync} replicas"


def count_threads() -> int:
    """TensorFlow's intra-op threads in this process."""
    threads = tf.config.threading.get_intra_op_parallelism_threads()
    return threads or threads_of_environment() or count_cores()


def _cpu() -> tf.config.PhysicalDevice:
    return tf.config.list_physical_devices("CPU")[0]


@functools.cache
def make_strategy(name: str | None) -> tf.distribute.Strategy | None:
    """Create a strategy, once per process and before TensorFlow's first operation.

    Args:
        name: "mirrored", over all devices of this machine, or None.
    """
    return None if name is None else tf.distribute.MirroredStrategy()


def check_batches(settings: Settings, strategy: tf.distribute.Strategy | None) -> None:
    """Check that both batches divide evenly between the replicas.

    Raises:
        UserError: A batch size is not a multiple of the number of replicas.
    """
    if strategy is None:
        return
    count = strategy.num_replicas_in_sync
    check_divides("--batch_size", settings.batch_size, count)
    if settings.memory_batch_size is not None:
        check_divides("--memory_batch_size", settings.memory_batch_size, count)
