"""One seed of an experiment."""

import json

import numpy as np
import pytest

from nccl_tf.errors import UserError
from nccl_tf.experiment.config.resolve import resolve
from nccl_tf.experiment.run.build import build_learner, build_memory
from nccl_tf.experiment.run.memory_check import PROCESS_BYTES, process_bytes
from nccl_tf.experiment.run.seed import examples_sha256, run_seed
from nccl_tf.experiment.run.signals import InterruptRequest
from nccl_tf.methods.finetune import Finetune
from nccl_tf.methods.registry import METHODS
from nccl_tf.records.options import RunOptions, resolve_options
from nccl_tf.records.provenance import package_source
from nccl_tf.records.record import checked_record
from nccl_tf.records.settings import run_folder
from nccl_tf.streams import load_stream
from nccl_tf.streams.arrays import Examples
from nccl_tf.streams.task import Task

TINY = {
    "dataset": "split_digits", "head": "multi", "max_tasks": 3, "examples_per_task": 40,
    "hidden": (8,),
}  # fmt: skip


def test_each_task_begins_with_its_rate(tmp_path, monkeypatch):
    rates = {"learning_rate": 0.2, "first_task_learning_rate": 0.05}
    rates_seen, expected = [], [0.05, 0.2, 0.2]
    begin_task = Finetune.begin_task

    def spy(self, task_id):
        rates_seen.append(round(float(self.optimizer.learning_rate), 6))
        begin_task(self, task_id)

    monkeypatch.setattr(Finetune, "begin_task", spy)
    settings = resolve({"method": "finetune", **TINY, **rates})
    record = run_seed(settings, RunOptions(), 0, tmp_path, InterruptRequest())
    assert rates_seen == record.learning_rates == expected
    # Few steps, which are to be seen one by one.
    assert record.options["record_every"] == 1
    assert package_source().items() <= record.as_json().items()
    assert len((tmp_path / "steps.csv").read_text().splitlines()) == 1 + record.steps


def test_layers_have_rates_of_their_own_and_a_record_tells_them(tmp_path):
    settings = resolve({"method": "finetune", **TINY, "rates": ("hidden1/bias:1", "hidden1:0")})
    stream = load_stream("split_digits", seed=0)
    learner = build_learner(settings, stream, 0)
    before = [weights.copy() for weights in learner.network.get_weights()]
    learner.fit(stream[0].train_batches(10, seed=0), verbose=0)
    pairs = zip(before, learner.network.get_weights(), strict=True)
    assert [np.array_equal(x, y) for x, y in pairs] == [True, False, False, False]
    record = run_seed(settings, RunOptions(), 0, tmp_path, InterruptRequest())
    told = checked_record(record.as_json(), "here").settings
    assert told.rates == ("hidden1:0.0", "hidden1/bias:1.0")
    with pytest.raises(UserError, match="'stem', which fits no trainable weight"):
        build_learner(resolve({**TINY, "rates": ("stem:0.5",)}), stream, 0)


def test_a_table_by_name_is_learned_by_domains_and_recorded(tmp_path):
    rows = [f"{i % 7},{i % 2},site {i % 3}\n" for i in range(90)]
    (tmp_path / "sick.csv").write_text("dose,is ill,site\n" + "".join(rows))
    flags = {
        "dataset": f"csv:{tmp_path / 'sick.csv'}", "label": "is ill", "domain": "site",
        "method": "er_reservoir", "hidden": (8,),
    }  # fmt: skip
    settings, options = resolve(flags), resolve_options(flags)
    record = run_seed(settings, options, 0, tmp_path, InterruptRequest())
    assert (record.dataset, record.evaluated_tasks) == ("csv:sick.csv", 3)
    assert str(tmp_path) not in json.dumps(record.as_json())
    checked_record(record.as_json(), "here")
    run_folder(settings, str(tmp_path), 0).mkdir(parents=True)


def test_an_argument_that_keras_refuses_is_named(tmp_path):
    settings = resolve({**TINY, "optimizer_arguments": ("clipnorm:1", "clipvalue:1")})
    with pytest.raises(UserError, match="SGD refuses"):
        run_seed(settings, RunOptions(), 0, tmp_path, InterruptRequest())


def test_every_rate_of_a_bounded_method_is_checked():
    bounded = [name for name, row in METHODS.items() if row.alpha_l_below_one]
    assert bounded == ["nccl_ring", "nccl_reservoir"]
    for name in bounded:
        for rate in ("learning_rate", "first_task_learning_rate"):
            with pytest.raises(UserError, match=f"--{rate} 0.5 times --smoothness=2 is 1"):
                resolve({"method": name, "learning_rate": 0.1, "smoothness": 2.0, rate: 0.5})
    resolve({"method": "agem", "learning_rate": 9.0})


def test_a_table_has_a_memory_of_its_dtype_and_an_estimate():
    settings = resolve({"dataset": "breast_cancer"})
    memory = build_memory(settings, load_stream("breast_cancer"), seed=0)
    assert (memory.example_shape, memory.example_dtype) == ((30,), "float32")
    assert process_bytes(settings) > PROCESS_BYTES


def test_tensors_of_a_run_in_tensorfloat32_are_float32():
    settings = resolve({**TINY, "precision": "tensorfloat32"})
    assert settings.digest() != resolve(TINY).digest()
    learner = build_learner(settings, load_stream("split_digits", seed=1), 1)
    assert learner.network.dtype_policy.name == "float32"


def test_one_pixel_tells_the_data_of_two_machines_apart():
    def task(pixel, inputs=lambda pixels: pixels):
        pixels = np.zeros([2, 4], np.uint8)
        pixels[1, 3] = pixel
        examples = Examples(inputs(pixels), np.array([0, 1], np.int32))
        return Task(0, (0, 1), 2, lambda: examples, lambda: examples)

    named = [examples_sha256(task(pixel, lambda x: {"a": x, "b": x})) for pixel in (0, 1)]
    found = [examples_sha256(task(pixel)) for pixel in (0, 1)]
    assert len({*found, *named}) == 4
    assert found[0] == examples_sha256(task(0))
