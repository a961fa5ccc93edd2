"""Functions of TensorFlow as they run in LiteRT, emitted anew."""

import tensorflow as tf

from nccl_tf.device_file import walker
from nccl_tf.device_file.flat_file import FlatFile
from nccl_tf.device_file.runtime import interpreter


class Lite:
    """A function in LiteRT's interpreter.

    Args:
        function: Of tensors on fixed shapes, to a tensor or several.
        *specs: Those of its arguments.
    """

    def __init__(self, function, *specs):
        traced = tf.function(function, input_signature=specs, autograph=False)
        concrete = traced.get_concrete_function()
        emit = tf.function(
            lambda *args: walker.emitted(concrete, args, {}), input_signature=specs, autograph=False
        )
        converter = tf.lite.TFLiteConverter.from_concrete_functions(
            [emit.get_concrete_function()], emit
        )
        content = converter.convert()
        self.file = FlatFile(content)
        self._interpreter = interpreter(content)
        self._interpreter.allocate_tensors()

    def __call__(self, *args):
        inputs = self._interpreter.get_input_details()
        for place, value in zip(sorted(inputs, key=lambda each: each["name"]), args, strict=True):
            self._interpreter.set_tensor(place["index"], value)
        self._interpreter.invoke()
        outputs = self._interpreter.get_output_details()
        found = [self._interpreter.get_tensor(each["index"]) for each in outputs]
        return found[0] if len(found) == 1 else found
