"""A learner written as one LiteRT file, and checked against Keras's own steps."""

import logging
import re
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

import nccl_tf
from nccl_tf.device_file import walker
from nccl_tf.device_file.agreement import checked_difference
from nccl_tf.device_file.flat_file import FlatFile
from nccl_tf.device_file.layout import FORMAT, Layout
from nccl_tf.device_file.program import Program
from nccl_tf.device_file.runtime import schema
from nccl_tf.device_file.unsupported import UnsupportedError
from nccl_tf.errors import UserError, checked_at_least, one_line
from nccl_tf.keras_private import layers_of
from nccl_tf.learner.devices import OneDevice
from nccl_tf.learner.learner import Learner
from nccl_tf.regular_files import read_regular
from nccl_tf.whole_files import replaced

LOGGER = logging.getLogger("nccl_tf")
LARGE_MEMORY = 2**20
"""Bytes of examples from which on writes into a memory are slow: each copies all of them."""
MOST_BYTES = 2**31


@dataclass(frozen=True)
class DeviceFile:
    """A learner in a LiteRT file.

    Attributes:
        path: The file.
        bytes: Its size.
        operations: How often each operation of LiteRT occurs in it.
        difference: The largest that the check found in floats, over their largest value where that
            is above 1; None of a file that was read, or not checked.
        layout: What the file says of itself: format and version of the library, fingerprint, names
            of classes, range and form of inputs, the names of what a step returns, and name, dtype,
            shape and offset of each variable in the bytes of `save` and in those of `weights`.
    """

    path: Path
    bytes: int
    operations: Mapping[str, int]
    layout: Mapping[str, Any]
    difference: float | None = None

    @classmethod
    def read(cls, path: str | Path) -> "DeviceFile":
        """A file, by what it says of itself.

        Raises:
            UserError: It cannot be read, was not written by `export_learner`, or is of another
                version of the format.
        """
        try:
            content = read_regular(path, MOST_BYTES)
        except OSError as error:
            raise UserError(
                f"cannot read the device file {path} ({error.strerror}): expected one that "
                "nccl_tf.export_learner has written"
            ) from error
        try:
            file = FlatFile(content)
            layout = file.metadata()
            version = layout["format"]
        except Exception as error:  # A broken file can raise any.
            raise UserError(
                f"received {path}, which is no file of nccl_tf.export_learner: export the learner "
                "again"
            ) from error
        if version != FORMAT:
            raise UserError(
                f"received {path}, a device file of format {version!r}, expected {FORMAT}: export "
                "the learner again, or take the nccl_tf that has written it"
            )
        return cls(Path(path), len(content), dict(file.operations), layout)


def export_learner(
    learner: Learner,
    path: str | Path,
    *,
    batch_size: int = 10,
    predict_batch_size: int = 1,
    input_range: tuple[float, float] | None = None,
    check_steps: int = 5,
) -> DeviceFile:
    """Write a learner as one LiteRT file that trains, remembers, predicts, saves and restores.

    The file holds network, optimizer, memory, counters and seeds, and its steps are those of the
    learner. It needs LiteRT alone, with operations that are built in. Its signatures:

    * `train`: x [batch_size, ...] in the dtype of the memory's inputs, or of the network's where
      there is no memory, y [batch_size], int32 for classes, and weights float32 [batch_size], 0 for
      padding, to the loss and the logs of this step, float32, and `learned` int32, 0 where the step
      was skipped. It begins a task where none is open;
    * `infer`: x [predict_batch_size, ...], and with heads `task` int32 [predict_batch_size], to
      logits [predict_batch_size, classes] as those of `predict` and `label` int32; under a loss
      without classes to `outputs`;
    * `begin_task`, to the number of the task, and `end_task`, to how many have ended;
    * `save`, to the state, uint8 [n], and `restore`, of such a state, to `ok` int32, which is 0
      where it is of another model or was changed, and then changes nothing;
    * `weights`, to the network's weights, float32 [w], and `set_weights`, to `ok`, which is 0 where
      one is not finite: what devices may average, with no example in it.

    Before anything is written the file takes `check_steps` steps in LiteRT's interpreter, each from
    the state of Keras's step: weights have to agree to 1e-5 and integers exactly. The learner is
    left as it was.

    Args:
        learner: A compiled learner whose memory is allocated: named an `example_shape`, or fitted.
        path: The file; one that is there is replaced.
        batch_size: Examples in a step.
        predict_batch_size: Examples in a prediction.
        input_range: The least and the largest value of inputs, for the program around the file;
            None for those of the memory's examples, or of the dtype.
        check_steps: Steps of the check; 0 for none.

    Returns:
        What was written.

    Raises:
        UserError: The class says why it is not exported, an operation of the step, of a layer or of
            a task's hook has no counterpart in LiteRT, something of the learner has none, the file
            does not learn what Keras learns, the file cannot be written, or `ai-edge-litert` is not
            installed.

    Example:

    ```python
    stream = nccl_tf.load_stream("split_digits", head="single", max_tasks=2)
    network = nccl_tf.networks.mlp(stream.example_shape, stream.num_classes, pixels=stream.pixels)
    memory = nccl_tf.ReservoirMemory(50, stream.example_shape)
    learner = nccl_tf.ExperienceReplay(network, memory, stream_mask="seen")
    learner.compile(keras.optimizers.SGD(0.1))
    learner.fit(stream[0], verbose=0)
    file = nccl_tf.export_learner(learner, "learner.tflite")
    print(file.bytes, file.layout["fingerprint"])
    ```
    """
    batch_size = checked_at_least("batch_size", batch_size, 1)
    predict_batch_size = checked_at_least("predict_batch_size", predict_batch_size, 1)
    check_steps = checked_at_least("check_steps", check_steps, 0)
    schema()  # Without the extra nothing is begun.
    check_exports(learner)
    path = Path(path)
    if not path.parent.is_dir():
        raise UserError(f"cannot write {path}: there is no folder {path.parent}; make it first")
    _warn_of_size(learner)
    program = Program(learner, batch_size, predict_batch_size)
    layout = layout_of(program)
    content, file = _converted(program, layout)
    described = _described(program, layout, _checked_range(learner, input_range))
    content = file.with_metadata(described)
    difference = checked_difference(program, layout, content, check_steps) if check_steps else None
    try:
        with replaced(path) as temporary:
            temporary.write_bytes(content)
    except OSError as error:
        raise UserError(
            f"cannot write {path} ({error.strerror}): name another place, or free space"
        ) from error
    return DeviceFile(path, len(content), dict(file.operations), described, difference)


def check_exports(learner: Any) -> None:
    """Check what can be told of a learner before it is traced.

    Raises:
        UserError: It is none, is not compiled or not allocated, or has what no file can have.
    """
    if not isinstance(learner, Learner):
        raise UserError(
            f"received a {type(learner).__name__} to export, expected a learner: of a plain Keras "
            'model take model.export(path, format="litert"), which predicts alone'
        )
    name = type(learner).__name__
    if reason := learner.why_not("export_learner"):
        raise UserError(
            f"received a {name} to export, which {reason}: take ExperienceReplay, DERpp or NCCL"
        )
    if not learner.compiled:
        raise UserError(f"received a {name} to export that is not compiled: call compile first")
    for option in learner.options:
        option.check("exported")
        if option.task_pass:
            names = " and ".join(option.get_config()) or type(option).__name__
            raise UserError(
                f"received a {name} to export with {names}, which passes a task's examples once "
                f"more, and a device keeps none of them: leave {names} out"
            )
    if type(learner.devices) is not OneDevice or tf.distribute.has_strategy():
        raise UserError(
            f"received a {name} of a tf.distribute strategy to export: build it outside of one, "
            "and load its weights"
        )
    if any(not memory.is_allocated for memory in learner.memories()):
        raise UserError(
            f"received a {name} to export whose memory was built without shapes and has seen no "
            "fit: fit it first, or name example_shape"
        )
    for layer in layers_of(learner.network, include_self=True):
        if layer.compute_dtype not in (None, "float32") or layer.quantization_mode is not None:
            how = layer.quantization_mode or layer.compute_dtype
            raise UserError(
                f"received a {name} to export whose layer {layer.name!r} computes in {how}, in "
                "which LiteRT takes no step: build the network in float32"
            )
    weights, classes = learner.class_weighing, tf.range(max(learner.num_classes, 2))
    if weights.are_set and not np.all(weights.of(classes).numpy() == 1):
        raise UserError(
            f"received a {name} to export within a task of class_weight, which belongs to its "
            "fit: call end_task() first, and weigh examples on the device by weights"
        )


def layout_of(program: Program) -> Layout:
    """The layout of a program's state."""
    learner = program.learner
    subject = [type(learner).__name__, type(learner.optimizer).__name__, learner.num_classes]
    subject += [type(memory).__name__ for memory in learner.memories()]
    return Layout(program.state, subject, program.frozen)


def _converted(program: Program, layout: Layout) -> tuple[bytes, FlatFile]:
    """The bytes of a file, and what is in them.

    Raises:
        UserError: LiteRT has no operations for it, or the converter has made a branch that LiteRT
            does not run right.
    """
    module, signatures = _module(program, layout)
    with tempfile.TemporaryDirectory() as folder:
        tf.saved_model.save(module, folder, signatures=signatures)
        names = list(signatures)
        converter = tf.lite.TFLiteConverter.from_saved_model(folder, signature_keys=names)
        converter.experimental_enable_resource_variables = True
        converter.exclude_conversion_metadata = True  # a parse of the file less
        converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS]
        try:
            content = converter.convert()
        except Exception as error:  # ConverterError is a name of a private module.
            # Its text is the whole program, in thousands of lines.
            raise _unsupported(program, str(error)) from None
    file = FlatFile(content)
    if custom := file.custom():
        raise UserError(
            f"received a {type(program.learner).__name__} to export that needs "
            f"{', '.join(custom)}, which is not built into LiteRT: take other layers"
        )
    if branches := file.repeating_branches():
        raise UserError(
            f"received a {type(program.learner).__name__} to export whose conditional "
            f"{branches[0]} returns one tensor twice, which LiteRT runs wrong without a word: "
            "write the branch with a tensor for each result"
        )
    return content, file


def _module(program: Program, layout: Layout) -> tuple[tf.Module, dict[str, Any]]:
    """The variables of a file, and its traced functions by the names of their signatures."""
    module = tf.Module()
    module.variables_of_file = [v for v in program.captured if id(v) not in program.constants]
    module.variables_of_file += [v.value for v in layout.variables]
    trained = program.trained
    sizes = [int(np.prod(v.shape)) for v in trained]

    def save() -> dict[str, tf.Tensor]:
        return {"state": layout.save()}

    def restore(state: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"ok": tf.cast(layout.restore(state), tf.int32)}

    def weights() -> dict[str, tf.Tensor]:
        return {"weights": tf.concat([tf.reshape(v.value, [-1]) for v in trained], 0)}

    def set_weights(weights: tf.Tensor) -> dict[str, tf.Tensor]:
        def take() -> tf.Tensor:
            for variable, part in zip(trained, tf.split(weights, sizes), strict=True):
                variable.value.assign(tf.reshape(part, variable.shape))
            return tf.constant(1)

        is_finite = tf.reduce_all(tf.math.is_finite(weights))
        return {"ok": tf.cond(is_finite, take, lambda: tf.constant(0))}

    made = {name: _emitting(program, name) for name in program.functions}
    made["save"] = tf.function(save, input_signature=[], autograph=False)
    state = tf.TensorSpec([layout.size], tf.uint8, name="state")
    made["restore"] = tf.function(restore, input_signature=[state], autograph=False)
    if trained:
        vector = tf.TensorSpec([sum(sizes)], tf.float32, name="weights")
        made["weights"] = tf.function(weights, input_signature=[], autograph=False)
        made["set_weights"] = tf.function(set_weights, input_signature=[vector], autograph=False)
    try:
        return module, {name: each.get_concrete_function() for name, each in made.items()}
    except UnsupportedError as error:
        raise _refusal(program, error.kind, error.name, error.how) from error


def _emitting(program: Program, name: str) -> Any:
    traced = program.functions[name]
    specs = traced.structured_input_signature[0]

    def emit(*columns: tf.Tensor) -> Any:
        return walker.emitted(traced, columns, program.constants)

    return tf.function(emit, input_signature=specs, autograph=False)


def _unsupported(program: Program, said: str) -> UserError:
    """The error of a converter that has found operations without a counterpart."""
    kinds = list(dict.fromkeys(re.findall(r"\btf\.(\w+)(?=\(|' op| op)", said)))
    for kind in kinds:
        for function in program.functions.values():
            if name := walker.name_of(function.graph, kind):
                return _refusal(program, kind, name, "")
    if kinds:
        return _refusal(program, kinds[0], "", "")
    return UserError(
        f"received a {type(program.learner).__name__} that TensorFlow's converter refuses: "
        f"{one_line(said)[:300]}"
    )


def _refusal(program: Program, kind: str, name: str, how: str) -> UserError:
    learner = program.learner
    # A scope that was entered before has a number at its end.
    parts = re.split(r"[/:]", name)
    parts += [re.sub(r"_\d+$", "", part) for part in parts]
    inside = layers_of(learner.network, include_self=True)
    layers = [layer for layer in inside if layer.name in parts]
    where = f"the layer {layers[-1].name!r}" if layers else f"the step of {type(learner).__name__}"
    what = f"the operation {kind} {how}".strip()
    remedy = "take another layer" if layers else "take another method, option or loss"
    return UserError(
        f"received {where} to export, which needs {what}, and LiteRT has no counterpart of it: "
        f"{remedy}"
    )


def _described(program: Program, layout: Layout, input_range: Any) -> dict[str, Any]:
    learner = program.learner
    names = list(map(str, learner.class_names))
    offset, weights = 0, []
    for variable in program.trained:
        weights.append({"name": variable.path, "shape": list(variable.shape), "offset": offset})
        offset += int(np.prod(variable.shape))
    return {
        "format": FORMAT,
        "library": f"nccl_tf {nccl_tf.__version__}",
        "learner": type(learner).__name__,
        "fingerprint": layout.fingerprint,
        "classes": names or [str(number) for number in range(learner.num_classes)],
        "input_range": input_range,
        "inputs": [_form(spec) for spec in program.inputs],
        "labels": _form(program.labels),
        "logs": sorted(program.train.structured_outputs),
        "state_bytes": layout.size,
        "state": layout.described(),
        "weights": weights,
    }


def _form(spec: tf.TensorSpec) -> dict[str, Any]:
    return {"name": spec.name, "dtype": spec.dtype.name, "shape": spec.shape.as_list()}


def _checked_range(learner: Learner, given: Any) -> list[float] | None:
    """The least and the largest value of inputs.

    Raises:
        UserError: What was given are no two numbers in order.
    """
    if given is not None:
        try:
            low, high = map(float, given)
        except (TypeError, ValueError):
            low, high = 1.0, 0.0
        if not low < high:
            raise UserError(
                f"received input_range={given!r}, expected two numbers, the least first"
            )
        return [low, high]
    if learner.memory is None or not int(learner.memory.readable_count().numpy()):
        return None
    parts = tf.nest.flatten(learner.memory.read_all().inputs)
    if any(part.dtype == np.uint8 for part in parts):
        return [0.0, 255.0]
    return [float(min(map(np.min, parts))), float(max(map(np.max, parts)))]


def _warn_of_size(learner: Learner) -> None:
    for memory in learner.memories():
        size = sum(int(np.prod(v.shape)) * tf.as_dtype(v.dtype).size for v in memory.variables)
        if size > LARGE_MEMORY:
            LOGGER.warning(
                "a memory of %s MB goes to a device, where every step copies all of it: take "
                "fewer slots, or smaller examples",
                f"{size / 2**20:.1f}",
            )
