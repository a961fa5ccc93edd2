"""Steps in one call of the graph, and the data of `fit`."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from nccl_tf import NCCL, ExperienceReplay, Finetune, RingMemory, Task
from nccl_tf.learner.execution import DENSE_STEPS, steps_in_a_call
from nccl_tf.streams.arrays import Examples
from tests.tiny import IMAGE_SHAPE, TASK_CLASSES, tiny_batches, tiny_network


class Frequent(keras.callbacks.Callback):
    """One of the library's, by its module, which acts every so many batches."""

    __module__ = "nccl_tf.callbacks"

    def __init__(self, frequency):
        super().__init__()
        self.save_freq = frequency


@given(st.integers(1, DENSE_STEPS), st.integers(1, 10**4), st.integers(1, 99))
def test_calls_end_at_epochs_and_callbacks(most, batches, frequency):
    steps = steps_in_a_call(most, 1, batches, batches, [Frequent(frequency)], False)
    assert 1 <= steps <= most and batches % steps == 0 and frequency % steps == 0
    steps = steps_in_a_call(most, 1, batches, None, [], False)
    divisors = [n for n in range(10, most + 1) if batches % n == 0]
    assert steps == (batches if batches <= most else max(divisors, default=most))


def test_one_step_where_nothing_tells_how_many():
    own = Calls()
    assert steps_in_a_call(200, 1, None, None, [], False) == 1
    assert steps_in_a_call(200, 1, 600, None, [own], False) == 1
    assert steps_in_a_call(8, 1, 600, None, [own], True) == 8


def test_a_huge_number_is_met_at_once():
    """Without a look at every number below it."""
    for most in (10**12, 10**12 + 1):
        assert steps_in_a_call(most, 1, 600, None, [], True) == most
        assert steps_in_a_call(most, 1, None, 10**12, [], True) == 10**12
        assert steps_in_a_call(most, 1, 600, 48, [Frequent(36)], True) == 12


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
    return [v.numpy() for v in learner.storage.variables.values()], logs


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
