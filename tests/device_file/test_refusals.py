"""What no file can have is refused by its name, and nothing is written."""

import importlib
from types import MappingProxyType

import keras
import numpy as np
import pytest

import nccl_tf
from nccl_tf.device_file import walker
from nccl_tf.errors import UserError
from tests.device_file.learners import SHAPE, compiled, er, examples, network


def refused(tmp_path, learner, said, **arguments):
    with pytest.raises(UserError, match=said):
        nccl_tf.export_learner(learner, tmp_path / "no.tflite", **arguments)
    assert not list(tmp_path.iterdir())


def finetune(*layers, shape=SHAPE, dtype="float32", **arguments):
    model = keras.Sequential([keras.Input(shape, dtype=dtype), *layers, keras.layers.Dense(6)])
    return compiled(nccl_tf.Finetune(model, **arguments))


def test_arguments_of_no_meaning(tmp_path):
    learner = compiled(nccl_tf.Finetune(network()))
    refused(tmp_path, learner, "batch_size=0", batch_size=0)
    refused(tmp_path, learner, "predict_batch_size=2.5", predict_batch_size=2.5)
    refused(tmp_path, learner, "check_steps=-1", check_steps=-1)
    with pytest.raises(UserError, match="no folder"):
        nccl_tf.export_learner(learner, tmp_path / "missing" / "a.tflite")


def test_what_is_no_learner_that_could_learn(tmp_path):
    refused(tmp_path, network(), "expected a learner")
    refused(tmp_path, nccl_tf.Finetune(network()), "not compiled")
    waits = compiled(nccl_tf.ExperienceReplay(network(), nccl_tf.ReservoirMemory(20)))
    refused(tmp_path, waits, "example_shape")


def test_a_class_that_says_why_it_has_no_file(tmp_path):
    class Alone(nccl_tf.Finetune):
        cannot = MappingProxyType({"export_learner": "asks a server at every step"})

    refused(tmp_path, compiled(Alone(network())), "asks a server")


def test_a_hook_that_is_no_graph_code(tmp_path):
    class Counts(nccl_tf.Finetune):
        def on_task_end(self, task_id):
            self.ended = int(self.progress.task.numpy())

    refused(tmp_path, compiled(Counts(network())), "on_task_end is no graph code")


@pytest.mark.parametrize("dtype", ["float64", "mixed_float16", "mixed_bfloat16"])
def test_numbers_that_litert_does_not_learn_with(dtype, tmp_path):
    layer = keras.layers.Dense(4, dtype=dtype, name="precise")
    learner = finetune(keras.layers.Flatten(), layer)
    refused(tmp_path, learner, "'precise' computes in float64" if dtype == "float64" else dtype[6:])


def test_a_base_quantized_to_int8(tmp_path):
    base = keras.Sequential([keras.Input((5,)), keras.layers.Dense(8, "relu", name="small")])
    base.quantize("int8")
    base.trainable = False
    learner = compiled(nccl_tf.Finetune(keras.Sequential([base, keras.layers.Dense(6)])))
    refused(tmp_path, learner, "'small' computes in int8")


def test_inputs_without_a_fixed_form(tmp_path):
    pooled = finetune(keras.layers.GlobalAveragePooling2D(), shape=(None, None, 1))
    refused(tmp_path, pooled, "unknown side")
    vocabulary = keras.layers.TextVectorization(output_sequence_length=4, vocabulary=["a", "b"])
    embedding = keras.layers.Embedding(5, 4)
    layers = (vocabulary, embedding, keras.layers.Flatten())
    text = finetune(*layers, shape=(1,), dtype="string")
    refused(tmp_path, text, "text")


def test_a_weight_of_classes_belongs_to_its_fit(tmp_path):
    learner = er()
    images, labels = examples(0, 20)
    learner.fit(images, labels, class_weight={0: 2.0}, verbose=0, end_task=False)
    refused(tmp_path, learner, "class_weight")


def test_the_averaged_weights_are_not_those_that_learn(tmp_path):
    learner = er(average_weights=0.9)
    learner.fit(*examples(0, 20), verbose=0)
    with learner.use_weights("averaged"):
        refused(tmp_path, learner, "averaged")


@pytest.mark.parametrize("given", [(1, 1), (2, 1), "ab", 3, (1, 2, 3)])
def test_a_range_of_inputs_is_two_numbers(given):
    from nccl_tf.device_file.export import _checked_range

    with pytest.raises(UserError, match="input_range"):
        _checked_range(er(), given)


def test_without_the_extra_its_command_is_named(tmp_path, monkeypatch):
    find = importlib.import_module

    def without(name, *rest):
        if name.startswith("ai_edge_litert"):
            raise ImportError(name)
        return find(name, *rest)

    monkeypatch.setattr(importlib, "import_module", without)
    learner = compiled(nccl_tf.Finetune(network()))
    with pytest.raises(UserError, match=r'pip install "nccl_tf\[device\]"'):
        nccl_tf.export_learner(learner, tmp_path / "a.tflite")


@pytest.mark.seconds(30)  # a conversion
def test_an_operation_is_named_with_its_layer(tmp_path):
    layer = keras.layers.Lambda(lambda x: keras.ops.erfinv(x / 2), name="wide")
    refused(tmp_path, finetune(layer, keras.layers.Flatten()), "'wide'.*Erfinv")


@pytest.mark.nightly
@pytest.mark.seconds(60)  # a conversion
def test_a_branch_that_litert_runs_wrong(tmp_path, monkeypatch):
    monkeypatch.setattr(walker, "_packed", list)  # as TensorFlow has it, with pairs
    monkeypatch.setattr(walker, "_unpacked", lambda packed, forms: list(packed))
    refused(tmp_path, er(), "returns one tensor twice")


def test_a_large_memory_is_told_of(caplog):
    from nccl_tf.device_file.export import _warn_of_size

    _warn_of_size(er())
    assert not caplog.messages
    large = nccl_tf.ReservoirMemory(20_000, SHAPE)
    _warn_of_size(compiled(nccl_tf.ExperienceReplay(network(), large)))
    assert "MB" in caplog.text


def test_a_state_that_cannot_be_read(tmp_path):
    learner = compiled(nccl_tf.Finetune(network()))
    with pytest.raises(UserError, match="cannot read the state"):
        nccl_tf.load_device_state(learner, tmp_path)
    np.zeros(10, np.uint8).tofile(tmp_path / "zeros")
    with pytest.raises(UserError, match="no state of a device"):
        nccl_tf.load_device_state(learner, tmp_path / "zeros")
    np.zeros(10**6, np.uint8).tofile(tmp_path / "large")
    with pytest.raises(UserError, match="cannot read the state"):
        nccl_tf.load_device_state(learner, tmp_path / "large")


def test_an_option_that_works_in_python_is_named(tmp_path):
    class Notes(nccl_tf.Option):
        def on_task_end(self, task_id):
            self.ended = int(task_id)

        def get_config(self):
            return {"notes": 3}

    learner = er()
    learner.add_option(Notes())
    refused(tmp_path, learner, "with notes, which works in Python")


def test_an_option_that_passes_a_task_once_more_is_named(tmp_path):
    learner = finetune(keras.layers.Flatten(), keras.layers.Dense(8, "relu"), alignment="shared")
    refused(tmp_path, learner, "with alignment, which passes a task's examples once more")
