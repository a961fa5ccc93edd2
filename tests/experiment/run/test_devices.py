"""The choice of processors. TensorFlow's view of a machine with GPUs is made up here."""

import pytest
import tensorflow as tf

from nccl_tf.errors import UserError
from nccl_tf.experiment.config.resolve import resolve
from nccl_tf.experiment.run.devices import use_device, use_precision, use_xla
from nccl_tf.records.options import RunOptions, resolve_options
from nccl_tf.records.provenance import computes_in_tensorfloat32, describe_devices


class Config:
    """A machine with two GPUs, as far as `devices` asks."""

    def __init__(self, monkeypatch, count=2):
        self.there = [
            tf.config.PhysicalDevice(f"/physical_device:GPU:{i}", "GPU") for i in range(count)
        ]
        self.visible, self.growing = list(self.there), []
        cpus = tf.config.list_physical_devices("CPU")
        monkeypatch.setattr(
            tf.config, "list_physical_devices", lambda kind: self.there if kind == "GPU" else cpus
        )
        monkeypatch.setattr(tf.config, "get_visible_devices", lambda kind: self.visible)
        monkeypatch.setattr(tf.config, "set_visible_devices", self._show)
        monkeypatch.setattr(
            tf.config.experimental, "set_memory_growth", lambda gpu, on: self.growing.append(gpu)
        )
        monkeypatch.setattr(tf.config.experimental, "get_device_details", lambda gpu: self.details)
        self.details = {"device_name": "X9", "compute_capability": (8, 0)}

    def _show(self, devices, kind):
        self.visible = devices


@pytest.mark.parametrize(
    ("name", "shown"), [("auto", [0, 1]), ("gpu", [0, 1]), ("gpu:1", [1]), ("cpu", [])]
)
def test_the_chosen_gpus_are_shown_and_grow(monkeypatch, name, shown):
    config = Config(monkeypatch)
    use_device(name)
    assert config.visible == config.growing == [config.there[i] for i in shown]
    words = describe_devices()
    if shown:
        assert words == ", ".join(f"GPU {i} (X9)" for i in shown)
    else:
        assert "CPU core" in words


def test_a_gpu_that_is_not_there_is_told(monkeypatch):
    Config(monkeypatch, count=1)
    with pytest.raises(UserError, match="finds 1 GPU on this machine"):
        use_device("gpu:1")
    Config(monkeypatch, count=0)
    with pytest.raises(UserError, match="finds no GPU"):
        use_device("gpu")


@pytest.fixture
def default_precision():
    """TensorFlow's own before and after the test: TensorFloat-32 where a GPU has it."""
    tf.config.experimental.enable_tensor_float_32_execution(True)
    yield
    tf.config.experimental.enable_tensor_float_32_execution(True)


@pytest.mark.parametrize(
    ("capability", "overridden", "has_it"),
    [((9, 0), None, True), ((8, 0), "1", True), ((7, 5), None, False), ((9, 0), "0", False),
     (None, None, False)],
)  # fmt: skip
def test_float32_is_computed_as_such_unless_tensorfloat32_is_asked_for(
    monkeypatch, default_precision, capability, overridden, has_it
):
    config = Config(monkeypatch, count=1)
    config.details = {"compute_capability": capability} if capability else {}
    if overridden:
        monkeypatch.setenv("NVIDIA_TF32_OVERRIDE", overridden)
    assert computes_in_tensorfloat32() == has_it
    for name in ("mixed_bfloat16", "float32"):
        use_precision(name)
        assert not computes_in_tensorfloat32()
        assert not tf.config.experimental.tensor_float_32_execution_enabled()
    if has_it:
        use_precision("tensorfloat32")
        assert computes_in_tensorfloat32()
        use_device("cpu")
    with pytest.raises(UserError, match="--precision=float32"):
        use_precision("tensorfloat32")


@pytest.mark.parametrize(
    ("given", "on_processor", "on_gpu"),
    [({}, None, None), ({"deterministic": True}, None, False),
     ({"augment": ("flip",), "dataset": "split_digits"}, False, False)],
)  # fmt: skip
def test_xla_is_left_out_where_it_cannot_do_what_is_asked(monkeypatch, given, on_processor, on_gpu):
    settings = resolve(given)
    for count, expected in enumerate((on_processor, on_gpu)):
        Config(monkeypatch, count=count)
        assert use_xla(settings, RunOptions()) is expected
        assert use_xla(settings, RunOptions(jit_compile="false")) is False
        if count and settings.deterministic:
            with pytest.raises(UserError, match="--jit_compile=true with --deterministic on a GPU"):
                use_xla(settings, RunOptions(jit_compile="true"))
        else:
            assert use_xla(settings, RunOptions(jit_compile="true")) is True


def test_a_choice_that_comes_too_late_is_told(monkeypatch):
    Config(monkeypatch)

    def fail(*args):
        raise RuntimeError("Visible devices cannot be modified after being initialized")

    monkeypatch.setattr(tf.config, "set_visible_devices", fail)
    with pytest.raises(UserError, match="before the first operation"):
        use_device("cpu")


@pytest.mark.parametrize("name", ["GPU", "gpu:", "cpu:0", "gpu:-1", "tpu", ""])
def test_other_names_are_refused(name):
    with pytest.raises(UserError, match="expected auto, cpu, cpu:N, gpu or gpu:N"):
        resolve_options({"device": name})
