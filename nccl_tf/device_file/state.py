"""The state of a device, back in Keras."""

from pathlib import Path

import numpy as np

from nccl_tf.device_file.export import check_exports, layout_of
from nccl_tf.device_file.program import Program
from nccl_tf.errors import UserError
from nccl_tf.learner.learner import Learner
from nccl_tf.memories.memory import counts_of
from nccl_tf.regular_files import read_regular


def load_device_state(learner: Learner, path: str | Path, *, weights_only: bool = False) -> None:
    """Give a learner the state that a device has saved, from which it goes on as the device would.

    Args:
        learner: The learner as it was exported, from `nccl_tf.load_model` too: of the same class,
            with the same optimizer, network, frozen weights and memory.
        path: A file with the bytes of the signature `save`.
        weights_only: Whether to take the network's weights alone, and leave memory, counters and
            optimizer as they are.

    Raises:
        UserError: The file cannot be read, is no state, of another version or another model, was
            changed since, or holds a weight, or a number of the optimizer, that is not finite, or
            a count below 0; the learner is then as it was. Or the learner cannot be exported.

    Example:

    ```python
    stream = nccl_tf.load_stream("split_digits", head="single", max_tasks=2)
    network = nccl_tf.networks.mlp(stream.example_shape, stream.num_classes, pixels=stream.pixels)
    learner = nccl_tf.Finetune(network)
    learner.compile(keras.optimizers.SGD(0.1))
    nccl_tf.export_learner(learner, "learner.tflite", check_steps=0)

    from ai_edge_litert.interpreter import Interpreter

    device = Interpreter("learner.tflite")
    images, labels = stream[0].train
    train, save = map(device.get_signature_runner, ("train", "save"))
    ones = np.ones(10, np.float32)
    train(x=np.float32(images[:10]), y=np.int32(labels[:10]), weights=ones)
    save()["state"].tofile("device.state")
    nccl_tf.load_device_state(learner, "device.state")
    ```
    """
    check_exports(learner)
    program = Program(learner, batch_size=2, predict_batch_size=1)
    layout = layout_of(program)
    try:
        # One byte more tells a longer file.
        content = read_regular(path, 2 * layout.size)
    except OSError as error:
        raise UserError(
            f"cannot read the state {path} ({error.strerror}): expected the bytes that a device's "
            "signature `save` has returned"
        ) from error
    arrays = layout.unpack(content, str(path))
    values = list(zip(layout.variables, arrays, strict=True))
    if weights_only:
        trained = set(map(id, program.trained))
        values = [(variable, value) for variable, value in values if id(variable) in trained]
    optimizers = learner.optimizer.variables
    moved = {id(variable) for variable in (*program.trained, *optimizers)}
    stored = [variable for memory in learner.memories() for variable in counts_of(memory)]
    task = learner.progress.task
    counters = {id(variable) for variable in (*learner.progress.variables, *optimizers, *stored)}
    for variable, value in values:
        is_count = id(variable) in counters and value.ndim == 0 and value.dtype.kind == "i"
        lowest = -1 if variable is task else 0  # no task yet
        if is_count and value < lowest:
            raise UserError(
                f"received {path}, a state whose {variable.path} is {value}, expected a count of "
                f"{lowest} or more: take one that was saved before"
            )
        if id(variable) in moved and not np.isfinite(value).all():
            raise UserError(
                f"received {path}, a state whose {variable.path} is infinite or NaN: take one that "
                "was saved before"
            )
    for variable, value in values:
        variable.assign(value)
