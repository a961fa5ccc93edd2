"""Streams whose tasks are data sets of a user."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from nccl_tf.errors import UserError
from nccl_tf.streams import stream_from_datasets


def arrays(classes, count=7):
    labels = np.resize(classes, count)
    return np.ones((count, 4, 4, 1), np.uint8) * labels[:, None, None, None].astype(
        np.uint8
    ), labels


class Batches(keras.utils.PyDataset):
    def __len__(self):
        return 3

    def __getitem__(self, number):
        images, labels = arrays([2, 3])
        return images[3 * number : 3 * number + 3], labels[3 * number : 3 * number + 3, None]


def as_tf(data, batch=3):
    return tf.data.Dataset.from_tensor_slices(data).batch(batch)


def test_each_pair_is_a_task():
    first = arrays([0, 1])
    stream = stream_from_datasets(
        [(as_tf(first), first), (Batches(), as_tf(arrays([2, 3], 4)))], head="multi"
    )
    assert stream.heads == ((0, 1), (2, 3)) and stream.num_classes == 4
    assert (stream.example_shape, stream.example_dtype) == ((4, 4, 1), "uint8")
    assert [task.num_train for task in stream] == [7, 7]
    np.testing.assert_array_equal(stream[0].train.inputs, first[0])
    np.testing.assert_array_equal(stream[1].train.labels, arrays([2, 3])[1])
    np.testing.assert_array_equal(stream[1].test.labels, [2, 3, 2, 3])
    assert stream[1].test is stream[1].test
    batches = stream[1].train_batches(batch_size=2).as_numpy_iterator()
    numbers = [x["inputs"].max() for x, _, _ in batches]
    assert set(numbers) <= {2, 3} and len(numbers) == 4


def test_data_that_are_shuffled_at_each_reading_are_refused():
    data = tf.data.Dataset.from_tensor_slices(arrays(np.arange(20), 20))
    anew = data.shuffle(20, seed=1).batch(5)
    stream = stream_from_datasets([(anew, anew)] * 2)
    np.testing.assert_array_equal(stream[0].test.labels, stream[0].test.labels)
    said = r"order, from the training data of task 1 .* same order .* make it with shuffle=False"
    with pytest.raises(UserError, match=said):
        _ = stream[1].train
    with pytest.raises(UserError, match="from the training data of task 0"):
        stream.blurred(0.1)
    once = data.shuffle(20, seed=1, reshuffle_each_iteration=False).batch(5)
    stream = stream_from_datasets([(once, once)] * 2)
    np.testing.assert_array_equal(stream[0].train.labels, stream[1].train.labels)
    assert sum(task.num_train for task in stream.blurred(0.1)) == 40


def test_text_and_numbers_to_predict():
    data = as_tf(({"text": ["a b", "c"], "age": [0.5, 1.5]}, [0.25, 0.75]), 1)
    stream = stream_from_datasets([(data, data)])
    assert stream[0].train.inputs["text"].tolist() == ["a b", "c"]
    assert stream[0].train.labels.tolist() == [0.25, 0.75]
    assert (stream.num_classes, stream[0].classes) == (1, ())


@pytest.mark.parametrize(
    ("pairs", "said"),
    [
        ([], "expected a list of the training"),
        ([as_tf(arrays([0]))], "no pair"),
        ([("data", arrays([0]))], "received a str as the data of a task"),
        ([(as_tf(arrays([0])).unbatch(), arrays([0]))], r"dataset\.batch\(32\)"),
        ([(as_tf(arrays([0])).take(0), arrays([0]))], "an empty data set"),
        ([(arrays([0]), arrays([0])), ((np.ones((2, 3)), [0, 1]),) * 2], "task 1 has examples"),
        ([(as_tf((*arrays([0]), np.ones(7))), arrays([0]))], "weights are not kept"),
    ],
)
def test_what_is_no_data_of_a_task_is_refused(pairs, said):
    with pytest.raises(UserError, match=said):
        stream_from_datasets(pairs)


def test_a_number_of_classes_that_is_too_small_is_refused():
    with pytest.raises(UserError, match="num_classes=3 and labels up to 3"):
        stream_from_datasets([(arrays([3]), arrays([3]))], num_classes=3)
    assert stream_from_datasets([(arrays([3]), arrays([3]))], num_classes=9).num_classes == 9
