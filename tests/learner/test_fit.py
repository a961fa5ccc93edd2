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
from nccl_tf.streams.arrays import Examples
from tests.learner.test_execution import Frequent
from tests.learner.test_progress import progress
from tests.tiny import IMAGE_SHAPE, TASK_CLASSES, tiny_batches, tiny_network


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
        ({"epochs": 3, "validation_split": 0.5}, 5, [0]),
    ],
)
def test_the_epochs_of_a_fit(given, batches, first_pass):
    fit = Fit(FitData(X, Y, batch_size=1), **given)
    assert fit.batches == batches and list(fit.first_pass) == first_pass
    execution = Execution()
    execution.begin(None, 200)
    assert fit.choose(execution, [fit]) is fit.data.x
    assert execution.steps == batches and execution.columns is None


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
    found = fit.arguments
    assert found["y"] is Y and found["epochs"] == 2 and found["initial_epoch"] == 0
    assert found["sample_weight"].tolist() == (Y + 1.0).tolist() and found["batch_size"] == 5
    assert found["validation_data"][0] is X and found["validation_batch_size"] == 7
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
        seen.append([float(label) for _, label, _ in fit.data.x.unbatch()])
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
