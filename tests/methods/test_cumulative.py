"""Training on all examples so far: which they are, from which weights, and what it costs."""

import keras
import numpy as np
import pytest

import nccl_tf
from nccl_tf.errors import UserError
from nccl_tf.methods.registry import METHODS
from nccl_tf.streams.seeding import JOINT_ORDER, generator
from tests.experiment.run.test_resume import run
from tests.session.test_learn import tiny_stream
from tests.tiny import tiny_network

RATE, BATCH = 0.2, 4


def linear() -> keras.Model:
    """Four logits of 16 pixels, from weights of zero."""
    layers = [keras.layers.Flatten(), keras.layers.Rescaling(1 / 255)]
    head = keras.layers.Dense(4, kernel_initializer="zeros")
    return keras.Sequential([keras.Input((4, 4, 1), dtype="uint8"), *layers, head])


def learner(**arguments):
    made = nccl_tf.Cumulative(linear(), **arguments)
    made.compile(keras.optimizers.SGD(RATE))
    return made


def by_hand(stream, parts, passes=1):
    """Kernel and bias after steps on the unions of the first tasks, as many as each part says."""
    kernel, bias = np.zeros((16, 4)), np.zeros(4)
    for count in parts:
        tasks = stream.tasks[:count]
        x = np.concatenate([task.train.inputs for task in tasks]).reshape(-1, 16) / 255
        y = np.concatenate([task.train.labels for task in tasks])
        for number in range(passes):
            order = generator(0, JOINT_ORDER, number).permutation(len(y))
            for rows in np.split(order, range(BATCH, len(y), BATCH)):
                scores = np.exp(x[rows] @ kernel + bias)
                errors = scores / scores.sum(1, keepdims=True) - np.eye(4)[y[rows]]
                kernel -= RATE * x[rows].T @ errors / len(rows)
                bias -= RATE * errors.mean(0)
    return kernel, bias


@pytest.mark.parametrize(("restart", "parts"), [(False, [1, 2]), (True, [2])])
def test_each_task_trains_on_the_union_of_those_so_far(restart, parts):
    """From the weights before, or from the first ones: then only the last training is left."""
    stream, model = tiny_stream(), learner(restart=restart)
    result = nccl_tf.learn(model, stream, batch_size=BATCH, epochs=2, verbose=0)
    for mine, expected in zip(model.network.get_weights(), by_hand(stream, parts, 2), strict=True):
        np.testing.assert_allclose(mine, expected, atol=1e-5)
    assert np.isfinite(np.tril(result.matrix)).all() and result.forgetting < 0.2


@pytest.mark.eager
def test_it_counts_all_examples_and_all_passes():
    stream, model = tiny_stream(), learner()
    result = nccl_tf.learn(model, stream, batch_size=11, epochs=3, verbose=0)
    assert result.examples_passed == 3 * (22 + 44)
    assert result.bytes_stored == 44 * (16 + 4 + 4)


@pytest.mark.eager
def test_with_a_restart_it_stores_the_first_weights_too():
    stream, model = tiny_stream(), learner(restart=True)
    result = nccl_tf.learn(model, stream, batch_size=11, verbose=0)
    assert result.bytes_stored == 44 * (16 + 4 + 4) + 4 * (16 * 4 + 4)


@pytest.mark.eager
def test_a_restart_is_from_the_weights_that_the_first_task_began_with():
    """Such as were loaded after the learner was built."""
    first, *_ = tasks = tiny_stream().tasks
    loaded = [np.full((16, 4), 0.5, np.float32), np.arange(4, dtype=np.float32)]

    def trained(model, parts):
        model.network.set_weights(loaded)
        for number, part in enumerate(parts):
            model.fit(nccl_tf.JointTask(part, task_id=number), verbose=0)
        return model.network.get_weights()

    expected = trained(learner(), [tasks])
    assert not np.allclose(expected[0], loaded[0])
    for one, other in zip(trained(learner(restart=True), [[first], tasks]), expected, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.eager
def test_a_restart_begins_with_a_new_optimizer():
    """Adam's moments of an earlier training would move the first step of the next one."""

    def trained(parts):
        model = nccl_tf.Cumulative(linear(), restart=True)
        model.compile(keras.optimizers.Adam(0.1))
        for number, tasks in enumerate(parts):
            model.fit(nccl_tf.JointTask(tasks, task_id=number), verbose=0)
        return model.network.get_weights()

    first, *_ = tasks = tiny_stream().tasks
    for one, other in zip(trained([[first], tasks]), trained([tasks]), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.eager
def test_data_of_one_task_are_refused():
    task, model = tiny_stream()[0], learner()
    for data in (task.train, (task,), (task.train_batches(),)):
        with pytest.raises(UserError, match=r"nccl_tf.learn.*JointTask"):
            model.fit(*data, verbose=0)
    with pytest.raises(UserError, match="JointTask"):
        model.train_on_batch(*task.train)
    assert int(model.progress.tasks_ended.numpy()) == 0
    assert model.fit(nccl_tf.JointTask([task]), verbose=0).history["loss"]


def test_a_rate_that_falls_with_steps_and_a_restart_are_refused():
    model = nccl_tf.Cumulative(linear(), restart=True)
    with pytest.raises(UserError, match="schedule"):
        model.compile(keras.optimizers.SGD(keras.optimizers.schedules.CosineDecay(0.1, 10)))


def test_an_average_does_not_follow_a_restart():
    with pytest.raises(UserError, match="average_weights and restart"):
        nccl_tf.Cumulative(linear(), restart=True, average_weights=0.9)
    assert nccl_tf.Cumulative(linear(), average_weights=0.9)


def test_it_does_not_learn_all_tasks_at_once():
    with pytest.raises(UserError, match="leave joint out"):
        nccl_tf.learn(learner(), tiny_stream(), joint=True, verbose=0)


def test_create_makes_it_by_its_name():
    model = nccl_tf.create("cumulative", tiny_network(4), tiny_stream(), restart=True)
    assert type(model) is nccl_tf.Cumulative and model.restart


def test_rows_and_classes_say_the_same():
    for row in METHODS.values():
        assert row.joins == bool(row.learner_class().why_not("tasks_alone")), row.name


@pytest.mark.eager
@pytest.mark.parametrize("restart", [False, True])
def test_it_does_what_every_learner_must(restart):
    """With a restart its first weights are in the file, and grow with the head."""
    items = ["arguments", "config", "file", "skipped_step", "add_classes", "serving_model"]
    arguments = {"joined": True, "restart": restart}
    report = nccl_tf.check_learner(nccl_tf.Cumulative, arguments=arguments, items=items)
    assert [verdict.outcome for verdict in report.verdicts] == ["held"] * len(items)


def test_at_the_command_it_trains_and_goes_on_after_a_stop(tmp_path):
    """With a restart, for which the first weights are kept too."""
    from nccl_tf.experiment.run.signals import Interrupted

    more = {"max_tasks": 2, "examples_per_task": 40, "epochs": 2, "restart": True}
    whole = run(tmp_path / "whole", "cumulative", more=more)
    with pytest.raises(Interrupted):
        run(tmp_path / "stopped", "cumulative", 4, more=more)
    stopped = run(tmp_path / "stopped", "cumulative", more=more)
    assert whole["task_steps"] == [8, 16] and whole["examples_passed"] == 240
    same = ("accuracy_matrix", "state_sha256", "steps", "bytes_stored", "settings_hash")
    assert [whole[name] for name in same] == [stopped[name] for name in same]
    weights = 4 * (64 * 16 + 16 + 16 * 10 + 10)
    assert whole["bytes_stored"] == 80 * (64 + 4 + 4) + weights
