"""One call of `fit`: its data, its epochs, and what it looks at."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from nccl_tf import NCCL, ExperienceReplay, Finetune, RingMemory, Task
from nccl_tf.errors import LearningFailedError, UserError
from nccl_tf.learner.data import FitData
from nccl_tf.learner.execution import Execution
from nccl_tf.learner.fit import CHECK_EVERY, Fit, listed, progress_bar
from nccl_tf.records.checkpoints import variables_to_arrays
from nccl_tf.streams.arrays import Examples
from tests.learner.test_execution import Frequent
from tests.learner.test_progress import progress
from tests.tiny import IMAGE_SHAPE, TASK_CLASSES, renewed, tiny_batches, tiny_network


def test_fit_takes_no_step_more_than_it_was_told():
    steps_per_epoch = 51
    learner = Finetune(tiny_network())
    learner.compile(keras.optimizers.SGD(0.1))
    learner.fit(tiny_batches(0).repeat(), steps_per_epoch=steps_per_epoch, verbose=0)
    assert int(learner.optimizer.iterations) == steps_per_epoch


class Calls(keras.callbacks.Callback):
    """The numbers that batch callbacks see."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def on_train_batch_begin(self, batch, logs=None):
        self.seen.append((batch,))

    def on_train_batch_end(self, batch, logs=None):
        self.seen[-1] += (batch, logs["loss"])


def test_a_batch_callback_gets_the_means_so_far():
    losses = {}
    for steps in (1, 5):
        learner, calls = Finetune(tiny_network()), Calls()
        learner.compile(keras.optimizers.SGD(0.1), steps_per_execution=steps)
        learner.fit(tiny_batches(0, count=50), callbacks=[calls], verbose=0)
        assert [call[:2] for call in calls.seen] == [
            (first, first + steps - 1) for first in range(0, 10, steps)
        ]
        losses[steps] = [float(call[2]) for call in calls.seen]
    assert losses[5] == losses[1][4::5]


def test_a_checkpoint_is_saved_after_every_so_many_batches(tmp_path):
    """Over the ends of epochs, which hold 16."""
    learner = Finetune(tiny_network())
    learner.compile(keras.optimizers.SGD(0.1))
    saved = keras.callbacks.ModelCheckpoint(
        tmp_path / "{epoch}-{batch}.weights.h5", save_freq=6, save_weights_only=True
    )
    learner.fit(tiny_batches(0, count=80), epochs=2, callbacks=[saved], verbose=0)
    found = sorted(path.name.split(".")[0] for path in tmp_path.iterdir())
    at = [(1, 6), (1, 12), (2, 2), (2, 8), (2, 14)]
    assert found == sorted(f"{epoch}-{batch}" for epoch, batch in at)


def a_task() -> Task:
    """27 examples."""
    random = np.random.default_rng(0)
    images = random.integers(0, 256, (27, *IMAGE_SHAPE), dtype=np.uint8)
    examples = Examples(images, random.choice(TASK_CLASSES[0], 27).astype(np.int32))
    return Task(0, TASK_CLASSES[0], 27, lambda: examples, lambda: examples)


ARRAYS = a_task().train.inputs, a_task().train.labels
WEIGHTS = np.linspace(0.25, 2.0, 27).astype(np.float32)
DATA = {
    "two epochs": (lambda: {"x": a_task().train_batches(4, seed=1)}, {"epochs": 2}),
    "ragged": (lambda: {"x": tf.data.Dataset.from_tensor_slices(ARRAYS).batch(4)}, {}),
    "arrays": (lambda: {"x": ARRAYS[0], "y": ARRAYS[1]}, {"batch_size": 4}),
    "sample_weight": (
        lambda: {"x": ARRAYS[0], "y": ARRAYS[1], "sample_weight": WEIGHTS}, {"batch_size": 4},
    ),
    "class_weight": (
        lambda: {"x": a_task().train_batches(4, seed=1)}, {"class_weight": {0: 0.5, 1: 3.0}},
    ),
    "steps_per_epoch": (
        lambda: {"x": a_task().train_batches(4, seed=1).repeat()},
        {"steps_per_epoch": 6, "epochs": 2},
    ),
}  # fmt: skip


def fitted(method, data, arguments, steps, **more):
    classes = [TASK_CLASSES[0]] * 2  # the same examples in both tasks
    memory = {"memory": RingMemory(3, classes, IMAGE_SHAPE)} if method is not Finetune else {}
    learner = method(tiny_network(), **memory, **more)
    learner.compile(keras.optimizers.SGD(0.1), metrics=["accuracy"], steps_per_execution=steps)
    logs = [
        learner.fit(**data(), **arguments, shuffle=False, verbose=0, task_id=task).history
        for task in (0, 1)
    ]
    return [v.numpy() for v in learner.state_variables.values()], logs


# What only the data's way to the step concerns is shown on the cheapest learner.
BY_FINETUNE = ("arrays", "sample_weight", "class_weight", "steps_per_epoch")


BY_METHOD = dict.fromkeys(BY_FINETUNE, Finetune) | {"two epochs": ExperienceReplay, "ragged": NCCL}


@pytest.mark.usefixtures("optimized_graphs")
@pytest.mark.parametrize(
    ("name", "method"),
    [
        pytest.param(*row, marks=pytest.mark.nightly) if row[0] != "ragged" else row
        for row in BY_METHOD.items()
    ],
)
def test_several_steps_in_a_call_are_single_steps_to_the_bit(name, method):
    """Weights, memory, optimizer, counters, and the logs of every epoch."""
    data, arguments = DATA[name]
    (single, logs), (stacked, others) = (fitted(method, data, arguments, steps) for steps in (1, 3))
    for left, right in zip(single, stacked, strict=True):
        np.testing.assert_array_equal(left, right)
    for left, right in zip(logs, others, strict=True):
        np.testing.assert_equal(left, right)


def test_weights_beside_a_dataset_are_refused_as_in_keras():
    learner = Finetune(tiny_network())
    learner.compile(keras.optimizers.SGD(0.1))
    with pytest.raises(ValueError, match="sample_weight"):
        learner.fit(a_task().train_batches(4), sample_weight=WEIGHTS, verbose=0)


def test_batches_can_begin_later():
    task = a_task()
    whole = [x["inputs"].numpy() for x, _, _ in task.train_batches(4)]
    rest = [x["inputs"].numpy() for x, _, _ in task.train_batches(4, skip=3)]
    np.testing.assert_array_equal(rest, whole[3:])


# ---- without a learner ---------------------------------------------------------------------------

X, Y = np.zeros((10, 3), np.float32), np.arange(10) % 2


@pytest.mark.parametrize(
    ("given", "batches", "first_pass"),
    [
        ({"epochs": 3}, 10, [0]),
        ({"epochs": 3, "initial_epoch": 1}, 10, [1]),
        ({"epochs": 3, "initial_epoch": 1, "resumes": True}, 10, []),
        ({"epochs": 3, "steps_per_epoch": 5}, 5, [0, 1]),
    ],
)
def test_the_epochs_of_a_fit(given, batches, first_pass):
    fit = Fit(FitData(X, Y, batch_size=1), **given)
    assert fit.batches == batches and list(fit.first_pass) == first_pass
    execution = Execution()
    execution.begin(None, 200)
    fit.choose(execution, [fit])
    assert execution.steps == batches


def test_the_rest_of_an_epoch_has_the_calls_of_the_whole():
    execution, rest = Execution(), Frequent(4)
    execution.begin(None, 10)
    rest.whole_epoch = 12
    Fit(FitData(X, Y, batch_size=2)).choose(execution, [rest])
    assert execution.steps == 4


def received(x, y=None, weights=None, **given):
    network = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    defaults = {"batch_size": None, "seed": 0, "epochs": 2, "validation_split": 0.0,
                "steps_per_epoch": None, "validation_data": None}  # fmt: skip
    return Fit.received(x, y, weights, network, **{**defaults, **given})


def test_what_a_fit_hands_to_keras():
    fit = received(X, Y, Y + 1.0, batch_size=5, validation_data=(X, Y), validation_batch_size=7)
    found = fit.arguments(alone=False, shuffle=False)
    assert found["y"] is Y and found["epochs"] == 2 and found["initial_epoch"] == 0
    assert found["sample_weight"].tolist() == (Y + 1.0).tolist() and found["batch_size"] == 5
    assert found["validation_data"][0] is X and found["validation_batch_size"] == 7
    found = fit.arguments(alone=True, shuffle=False)
    assert found["x"].num_batches == 2 and found["validation_data"].num_batches == 2
    assert not {"y", "sample_weight"} & set(found)
    found = received(X, Y, validation_split=0.5).arguments(alone=False, shuffle=False)
    assert len(found["x"]) == 5 and len(found["validation_data"][1]) == 5
    with pytest.raises(UserError, match="without an end"):
        received(X, Y, validation_data=tf.data.Dataset.from_tensors((X, Y)).repeat())
    endless = tf.data.Dataset.from_tensors((X, Y)).repeat()
    assert received(X, Y, validation_data=endless, validation_steps=2).validation.x is endless


def test_a_fit_looks_at_its_learner_and_begins_the_orders_of_epochs():
    task, counters, stores, calls = a_task(), progress(), [], []
    fit = received(task, batch_size=3, epochs=3)
    counters.begin_task(0)
    fit.watch(counters, lambda: calls.append(fit.steps_done), stores.append)
    fit.on_train_begin()
    seen = []
    for epoch in range(3):
        fit.on_epoch_begin(epoch)
        seen.append(np.concatenate([labels for _, labels, _ in fit.data.batches()]).tolist())
        fit.on_train_batch_end(CHECK_EVERY - 2)
        fit.on_train_batch_end(CHECK_EVERY)
        fit.on_epoch_end(epoch)
    assert stores == [True, False, False] and fit.steps_done == 3 * (CHECK_EVERY + 1)
    assert calls[:3] == [0, CHECK_EVERY + 1, CHECK_EVERY + 1] and len(calls) == 9
    assert not any(np.array_equal(seen[0], other) for other in seen[1:])
    counters.task.assign(3)
    with pytest.raises(UserError, match="loaded the state of task 3"):
        fit.on_epoch_begin(3)


@pytest.mark.parametrize("skipped", [0, 1, 2])
def test_a_fit_that_learned_nothing_has_failed(skipped):
    counters, fit = progress(), Fit(FitData(X, Y))
    fit.watch(counters, lambda: None, None)
    counters.begin_task(0)
    counters.skipped.assign(5)  # of before
    fit.on_train_begin()
    fit.on_train_batch_end(1)
    counters.skipped.assign(5 + skipped)
    told = fit.skipped_warning(begins_task=False)
    assert (told or "0")[0] == str(skipped)
    if skipped == 2:
        with pytest.raises(LearningFailedError, match="2 of 2"):
            fit.skipped_warning(begins_task=True)
    else:
        assert fit.skipped_warning(begins_task=True) == told


def test_callbacks_come_in_every_form_and_a_bar_where_it_is_asked_for():
    one = keras.callbacks.Callback()
    for given in (one, [one], (one,), keras.callbacks.CallbackList([one])):
        assert listed(given) == [one]
    assert listed(None) == [] and progress_bar(0, "metrics") == [] == progress_bar(1, "all")
    assert len(progress_bar("auto", "metrics")) == 1
    with pytest.raises(UserError, match="logs"):
        progress_bar(0, "some")


# ---- examples in memory --------------------------------------------------------------------------

RANDOM = np.random.default_rng(0)
IMAGES = RANDOM.integers(0, 256, (13, *IMAGE_SHAPE), np.uint8)
LABELS = RANDOM.choice(TASK_CLASSES[0], 13).astype(np.int32)


def tasks_of(*sizes):
    parts = [Examples(IMAGES[:size], LABELS[:size]) for size in sizes]
    return [
        Task(k, TASK_CLASSES[0], len(part.labels), lambda p=part: p, lambda p=part: p)
        for k, part in enumerate(parts)
    ]


def compiled(**arguments):
    learner = Finetune(tiny_network())
    learner.compile(keras.optimizers.SGD(0.1), metrics=["accuracy"], **arguments)
    return learner


def test_examples_in_memory_need_no_graph_of_tf_data(monkeypatch):
    learner, task = compiled(), tasks_of(13)[0]

    def fail(*_, **__):
        pytest.fail("a dataset is built")

    for name in ("range", "from_tensor_slices", "from_tensors"):
        monkeypatch.setattr(tf.data.Dataset, name, fail)
    learner.fit(IMAGES, LABELS, batch_size=4, validation_split=0.3, verbose=0, end_task=False)
    learner.fit(task, validation_data=(IMAGES, LABELS), verbose=0)
    results = learner.evaluate(IMAGES, LABELS, batch_size=4, verbose=0)
    assert results == pytest.approx(learner.evaluate(task, verbose=0), rel=1e-5)
    assert learner.predict(IMAGES, batch_size=4, verbose=0).shape == (13, 4)


def test_tasks_of_all_lengths_have_one_graph():
    learner = compiled()
    for task in tasks_of(3, 13, 7):
        learner.fit(task, batch_size=3, verbose=0)
    assert learner.execution.traces == 1 and int(learner.optimizer.iterations) == 1 + 5 + 3


@pytest.mark.parametrize("eagerly", [False, True])
def test_arrays_give_every_form_of_data_the_same_weights(eagerly):
    """In their order: arrays with a rest, a dataset of the same batches, and tf.Tensors."""
    data = tf.data.Dataset.from_tensor_slices((IMAGES, LABELS)).batch(4)
    learner, learned = compiled(run_eagerly=eagerly), []
    before = variables_to_arrays(learner.state_variables)
    for given in (
        {"x": IMAGES, "y": LABELS, "batch_size": 4, "shuffle": False},
        {"x": data},
        {"x": tf.constant(IMAGES), "y": tf.constant(LABELS), "batch_size": 4, "shuffle": False},
    ):
        renewed(learner, before).fit(**given, epochs=2, verbose=0)
        learned.append([learner.evaluate(IMAGES, LABELS, verbose=0), *learner.get_weights()])
    for other in learned[1:]:
        for one, two in zip(learned[0], other, strict=True):
            np.testing.assert_allclose(two, one, rtol=1e-6, atol=1e-7)


def test_wrong_labels_of_validation_are_told_before_the_first_step():
    learner = compiled()
    with pytest.raises(UserError, match="label"):
        learner.fit(IMAGES, LABELS, validation_data=(IMAGES, LABELS + 90), verbose=0)
    assert int(learner.optimizer.iterations) == 0 and not learner.progress.task_is_open.numpy()


def test_logs_that_a_class_adds_come_from_examples_in_memory():
    class Adding(Finetune):
        def train_step(self, data):
            return {**super().train_step(data), "rows": tf.shape(data[1])[0]}

        def test_step(self, data):
            return {**super().test_step(data), "tested": tf.shape(data[1])[0]}

    learner = Adding(tiny_network())
    learner.compile(keras.optimizers.SGD(0.1))
    history = learner.fit(IMAGES, LABELS, batch_size=4, shuffle=False, verbose=0)
    assert history.history["rows"] == [1]  # of the last batch
    assert learner.evaluate(IMAGES, LABELS, return_dict=True, verbose=0)["tested"] == 13


@pytest.mark.parametrize("steps", [1, 3])
def test_validation_takes_its_number_of_steps(steps):
    """Ten of class 0 come first, and zero logits say class 0."""
    zeros = keras.layers.Dense(2, kernel_initializer="zeros")
    learner = Finetune(keras.Sequential([keras.Input((3,)), zeros]))
    learner.compile(keras.optimizers.SGD(0.0), metrics=["accuracy"])
    x, y = np.ones((40, 3), np.float32), np.arange(40) % 2
    held = np.repeat([0, 1], [10, 30])
    fitted = learner.fit(
        x, y, batch_size=10, epochs=2, validation_data=(x, held), validation_steps=steps, verbose=0
    )
    assert fitted.history["val_accuracy"] == pytest.approx([1 / steps] * 2)


def test_a_split_has_its_own_batch_size():
    fit = received(X, Y, validation_split=0.5, validation_batch_size=2)
    assert fit.arguments(alone=False, shuffle=False)["validation_batch_size"] == 2
