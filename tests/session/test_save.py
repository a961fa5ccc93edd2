"""Results of `learn` as records: written, read by the commands, and never written over."""

import dataclasses
import os

import keras
import numpy as np
import pytest

import nccl_tf
from nccl_tf.errors import UserError
from nccl_tf.records.provenance import package_source, variables_that_decide_bits
from nccl_tf.records.record import read_record
from nccl_tf.reports.records import Records


@pytest.fixture(scope="module")
def stream():
    rng = np.random.default_rng(0)
    labels = np.arange(40) % 4
    inputs = (rng.normal(size=(40, 6)) + labels[:, None]).astype("float32")
    data = inputs, labels
    return nccl_tf.stream_from_arrays(data, data, num_tasks=2, kind="split", name="my data")


def learned(stream, make=nccl_tf.Finetune, optimizer=None, **given):
    network = keras.Sequential([keras.Input((6,)), keras.layers.Dense(4)])
    keras.utils.set_random_seed(given.get("seed", 0))
    model = make(network)
    model.compile(optimizer or keras.optimizers.SGD(0.1), run_eagerly=True)
    return nccl_tf.learn(model, stream, verbose=0, **given)


@pytest.fixture(scope="module")
def result(stream):
    """Of a call with all as it is by default; a test saves it in a folder of its own."""
    return learned(stream)


def er(network):
    return nccl_tf.ExperienceReplay(network, nccl_tf.ReservoirMemory(20), average_weights=0.9)


def test_another_loss_is_another_setting(stream):
    def settings(loss):
        network = keras.Sequential([keras.Input((6,)), keras.layers.Dense(4)])
        model = nccl_tf.Finetune(network)
        model.compile(keras.optimizers.SGD(0.1), loss, run_eagerly=True)
        return nccl_tf.learn(model, stream, verbose=0).run.settings

    def entropy(**given):
        return keras.losses.SparseCategoricalCrossentropy(from_logits=True, **given)

    default, other = settings(None), settings(entropy(ignore_class=3))
    assert settings(entropy(name="mine")) == default
    assert other.digest() != default.digest()
    assert settings(entropy(ignore_class=3, name="mine")) == other


def test_a_record_has_the_numbers_of_the_result_and_what_was_run(stream, tmp_path):
    adam = keras.optimizers.Adam(0.01, beta_1=0.8)
    result = learned(stream, er, adam, batch_size=5, epochs=2, seed=3, evaluate="new")
    path = result.save(tmp_path / "runs")
    assert path.name == "result.json" and path.parent.name == "seed3"
    record = read_record(path)
    assert record.method == "er_reservoir" and record.dataset == "my_data"
    assert record.average_accuracy == result.average_accuracy
    assert record.averaged_average_accuracy == result.averaged.average_accuracy
    assert record.settings.memory_capacity == 20 and record.settings.batch_size == 5
    assert record.settings.evaluate == "new" and record.steps == 2 * 2 * 4
    # 20 slots and a spare row of 6 float32, label and task; two counters; an average of the weights
    # and its steps
    # All batches of the stream, and a batch of the memory of the size by default after the first.
    assert record.examples_passed == result.examples_passed == 16 * 5 + 15 * 10
    assert record.bytes_stored == result.bytes_stored == 21 * (24 + 16) + 16 + 4 * (7 * 4) + 8
    assert package_source().items() <= record.as_json().items()
    assert (record.tensorfloat32, record.settings.precision) == (False, "float32")
    assert (record.xla, record.steps_per_program) == (False, None)
    assert record.environment == variables_that_decide_bits()
    assert record.settings.stores == "first_epoch"
    numbers = record.settings.hyperparameters
    assert (numbers["optimizer"], numbers["optimizer_beta_1"]) == ("Adam", 0.8)


def test_seeds_share_their_settings_and_other_calls_do_not(stream, result, tmp_path):
    excludes = keras.optimizers.SGD(0.2)
    excludes.exclude_from_weight_decay(var_names=["bias"])
    optimizers = [{"optimizer": each} for each in (keras.optimizers.SGD(0.2), excludes)]
    result.save(tmp_path)
    for given in ({"seed": 1}, {"epochs": 2}, *optimizers):
        learned(stream, **given).save(tmp_path)
    found = Records.below(tmp_path)
    records, broken = found.records, found.broken
    hashes = [record.settings_hash for record in records]
    assert not broken and len(records) == 5 and len(set(hashes)) == 4


def test_a_model_that_has_learned_before_has_other_settings(stream, tmp_path, command):
    model = nccl_tf.Finetune(keras.Sequential([keras.Input((6,)), keras.layers.Dense(4)]))
    model.compile(keras.optimizers.SGD(0.1), run_eagerly=True)
    results = [nccl_tf.learn(model, stream, verbose=0) for _ in range(2)]
    first, second = (read_record(result.save(tmp_path)) for result in results)
    assert first.settings_hash != second.settings_hash
    numbers = second.settings.hyperparameters
    assert numbers["earlier_steps"] == first.steps and numbers["earlier_tasks"] == 2
    assert "continued" in str(results[1]) and "continued" not in str(results[0])
    for command_line in (["tables"], ["report", f"--report_dir={tmp_path / 'page'}"]):
        code, out, _ = command(*command_line, f"--output_dir={tmp_path}")
        page = tmp_path / "page" / "report.html"
        assert code == 0 and "continued" in (page.read_text() if page.exists() else out)


def test_a_call_that_resumes_is_no_model_that_has_learned_before(stream, tmp_path):
    given = {"backup_dir": tmp_path / "backup"}
    paths = [learned(stream, **given).save(tmp_path / str(i)) for i in range(2)]
    assert len({read_record(path).settings_hash for path in paths}) == 1


def test_the_commands_read_it(result, tmp_path, command):
    result.save(tmp_path)
    code, out, err = command("tables", f"--output_dir={tmp_path}")
    assert (code, err) == (0, "") and "my_data" in out and "Fine-tune" in out
    folder = tmp_path / "report"
    code, _, err = command("report", f"--output_dir={tmp_path}", f"--report_dir={folder}")
    assert (code, err) == (0, "") and "my_data" in (folder / "report.html").read_text()


def test_what_is_there_is_not_written_over(result, tmp_path):
    path = result.save(tmp_path)
    content = path.read_bytes()
    assert result.save(tmp_path) == path and path.read_bytes() == content
    other = dataclasses.replace(result, matrix=result.matrix / 2)
    with pytest.raises(UserError, match="another result"):
        other.save(tmp_path)
    path.write_text("mine")
    with pytest.raises(UserError, match="another result"):
        result.save(tmp_path)
    assert path.read_text() == "mine"
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(UserError, match="another result"):
        result.save(tmp_path)


def test_nothing_is_saved_through_a_link(result, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "my_data-single").symlink_to(tmp_path / "mine")
    with pytest.raises(UserError, match=r"my_data-single is a link.*another folder"):
        result.save(tmp_path / "runs")
    assert not list((tmp_path / "mine").iterdir())


def test_what_no_record_can_hold_is_refused(stream, result, tmp_path):
    by_hand = nccl_tf.LearnResult(result.matrix, result.initial)
    with pytest.raises(UserError, match="without its run"):
        by_hand.save(tmp_path)
    loss = learned(stream, metric=keras.metrics.SparseCategoricalCrossentropy(from_logits=True))
    with pytest.raises(UserError, match="records hold accuracies"):
        loss.save(tmp_path)

    class Own(nccl_tf.Finetune):
        pass

    with pytest.raises(UserError, match="Own, which is not a registered method"):
        learned(stream, Own).save(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="choose another folder"):
        result.save(tmp_path / "file")
    assert not list(tmp_path.rglob("result.json"))


def test_a_run_in_tensorfloat32_has_other_settings(stream, result, tmp_path, monkeypatch):
    in_float32 = result.save(tmp_path)
    for module in ("session.measurements", "session.run"):
        monkeypatch.setattr(f"nccl_tf.{module}.computes_in_tensorfloat32", lambda: True)
    record = read_record(learned(stream).save(tmp_path))
    assert (record.tensorfloat32, record.settings.precision) == (True, "tensorfloat32")
    assert record.settings_hash != read_record(in_float32).settings_hash


def test_a_loss_scale_hides_no_optimizer(stream):
    sgd, adam = keras.optimizers.SGD, keras.optimizers.Adam
    made = [
        learned(stream, optimizer=keras.optimizers.LossScaleOptimizer(inner)).run.settings
        for inner in (sgd(0.1), sgd(0.1, momentum=0.9), adam(0.1))
    ]
    assert len({one.digest() for one in made}) == 3


def test_examples_that_were_chosen_otherwise_are_another_stream(stream):
    streams = [stream, stream.blurred(0.5), stream.with_validation(0.1)]
    streams.append(nccl_tf.load_stream("split_digits", head="single", tasks="tuning"))
    names = [each.name for each in streams]
    assert names == ["my data"] * 3 + ["split_digits"]
    datasets = [learned(each).run.settings.dataset for each in streams[:3]]
    assert datasets == ["my_data", "blurred_0.5_my_data", "without_0.1_my_data"]
    assert streams[3].made == "tuning"
