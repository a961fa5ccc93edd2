"""Streams whose tasks are data sets of a user."""

import pathlib
from typing import ClassVar

import keras
import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from nccl_tf.errors import UserError
from nccl_tf.streams import JointTask, stream_from_arrays, stream_from_datasets


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


def table(classes, names):
    """Two inputs in the order of `names`: the label, and 100 more than the label."""
    labels = np.resize(classes, 8)
    columns = {"height": labels * 1.0, "weight": labels + 100.0}
    return {name: columns[name] for name in names}, labels


def assert_named_right(inputs, labels):
    np.testing.assert_array_equal(inputs["height"], labels)
    np.testing.assert_array_equal(inputs["weight"], labels + 100)


def test_tasks_are_joined_by_the_names_of_their_inputs():
    first, second = table([0, 1], ["height", "weight"]), table([2, 3], ["weight", "height"])
    stream = stream_from_datasets([(first, first), (second, second)])
    joint = JointTask(stream.tasks)
    for batches in (joint.train_batches(4), joint.epochs(4)):
        for features, labels, _ in batches:
            assert_named_right(features["inputs"], labels)
    for task in stream.blurred(0.5):
        assert set(task.classes) == {0, 1, 2, 3}
        assert_named_right(*task.train)


def test_inputs_of_other_names_are_refused():
    first, second = table([0, 1], ["height", "weight"]), table([2, 3], ["weight", "height"])
    second[0]["age"] = second[0].pop("height")
    with pytest.raises(UserError, match=r"of task 1 .*'age'.*'height'"):
        stream_from_datasets([(first, first), (second, second)])
    with pytest.raises(UserError, match="of one shape and dtype"):
        stream_from_arrays(first, (second[0], first[1]), num_tasks=2)
    tasks = [stream_from_datasets([(part, part)])[0] for part in (first, second)]
    with pytest.raises(UserError, match=r"named \['weight', 'age'\] beside .*the same names"):
        JointTask(tasks).train_batches()


def sequences():
    """Batches of two sequences, that are padded within the batch alone."""
    lengths = tf.data.Dataset.range(1, 5)
    return lengths.map(lambda n: (tf.ones(n), n % 2)).padded_batch(2)


def ragged():
    inputs = tf.ragged.constant([[1.0], [1.0, 2.0]])
    return tf.data.Dataset.from_tensor_slices((inputs, [0, 1])).batch(2)


class Endless(Batches):
    @property
    def num_batches(self):
        return None


@pytest.mark.parametrize(
    ("pairs", "said"),
    [
        ([], "expected a list of the training"),
        ([as_tf(arrays([0]))], "no pair"),
        ([("data", arrays([0]))], "received a str as the data of a task"),
        ([(as_tf(arrays([0])).unbatch(), arrays([0]))], "single examples"),
        ([(as_tf(arrays([0])).take(0), arrays([0]))], "no examples"),
        ([(arrays([0]), arrays([0])), ((np.ones((2, 3)), [0, 1]),) * 2], "of task 1"),
        ([(as_tf((*arrays([0]), np.ones(7))), arrays([0]))], "weights are not kept"),
        ([(sequences(), sequences())], r"pad sequences to one length, dataset\.padded_batch"),
        ([((np.ones((2, 3)), [0.5, np.nan]),) * 2], "task 0: received 1 targets"),
        ([((np.ones((2, 3)), [0.5, np.inf]),) * 2], "task 0: received 1 targets"),
        ([((np.ones((2, 3)), [0, 10**9]),) * 2], "labels up to 1,000,000,000 for 4 examples"),
        (
            [(as_tf(arrays([0])).repeat(), arrays([0]))],
            "task 0: received a data set without an end",
        ),
        ([(arrays([0]), Endless())], "task 0: received a data set without an end"),
        ([(ragged(), ragged())], r"task 0: received ragged inputs: .*to_tensor"),
        (
            [(as_tf((np.array([[1.0, 2], [3, np.nan]]), [0, 1]), 1), ([[0.0, 0]], [1]))],
            r"task 0: received inputs with NaN .* columns 1, in 1 of 2 .* number 1 from 0",
        ),
        (
            [(as_tf(arrays([0])), (np.ones((2, 4, 4, 1), np.uint8), ["a", "b"]))],
            "class_names again",
        ),
    ],
)
def test_what_is_no_data_of_a_task_is_refused(pairs, said):
    with pytest.raises(UserError, match=said):
        stream_from_datasets(pairs)


def test_a_head_for_each_task_needs_classes():
    one_hot = arrays([0, 1])[0], np.eye(4)[arrays([0, 1])[1]]
    with pytest.raises(UserError, match=r'and head="multi": .*labels.argmax\(axis=1\)'):
        stream_from_datasets([(one_hot, one_hot)], head="multi")
    assert stream_from_datasets([(one_hot, one_hot)]).heads is None


def test_a_number_of_classes_that_is_too_small_is_refused():
    with pytest.raises(UserError, match="num_classes=3"):
        stream_from_datasets([(arrays([3]), arrays([3]))], num_classes=3)
    assert stream_from_datasets([(arrays([3]), arrays([3]))], num_classes=9).num_classes == 9


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Data sets of folders of grey images, each class of a grey of its own."""
    greys = {"ant": 20, "bee": 60, "cat": 120, "dog": 200}

    def read(names, **arguments):
        folder = tmp_path_factory.mktemp("_".join(names))
        for name in names:
            (folder / name).mkdir()
            for i in range(3):
                image = Image.fromarray(np.full((4, 4), greys[name], np.uint8))
                image.save(folder / name / f"{i}.png")
        return keras.utils.image_dataset_from_directory(
            folder, image_size=(4, 4), shuffle=False, verbose=False, batch_size=2, **arguments
        )

    def shown(stream, examples):
        """The names that examples have by their grey, and by their label."""
        by_grey = {grey: name for name, grey in greys.items()}
        greys_seen = examples.inputs.mean(axis=(1, 2, 3)).round().astype(int).tolist()
        return [by_grey[g] for g in greys_seen], [stream.shown(c) for c in examples.labels]

    return read, shown


def test_a_broken_image_is_named(folders):
    data = folders[0](["bee", "cat"])
    broken = pathlib.Path(data.file_paths[4])
    broken.write_bytes(broken.read_bytes()[:30])
    with pytest.raises(UserError, match=f"in the data of task 0: the image file {broken} is"):
        stream_from_datasets([(data, data)])


def test_a_data_set_that_cannot_be_read_is_refused():
    data = tf.data.Dataset.from_tensors(tf.constant(["no number"]))
    with pytest.raises(UserError, match=r"cannot read: [^{]*StringToNumber[^{]*$"):
        stream_from_datasets([(data.map(tf.strings.to_number),) * 2])


def test_classes_of_folders_go_by_their_names(folders):
    read, shown = folders
    stream = stream_from_datasets(
        [
            (read(["bee", "cat"]), read(["cat", "bee"])),
            (read(["ant", "dog"]), read(["dog"])),
            (read(["cat", "dog"]), read(["bee", "dog"])),
        ],
        head="multi",
    )
    assert stream.class_names == ("ant", "bee", "cat", "dog") and stream.num_classes == 4
    assert stream.heads == ((1, 2), (0, 3), (2, 3)) and stream.pixels.scale == 1 / 255
    for task in stream:
        for examples in (task.train, task.test):
            greys, names = shown(stream, examples)
            assert greys == names
    in_order = read(["ant", "bee"], class_names=["bee", "ant"])
    stream = stream_from_datasets([(in_order, in_order)])
    assert stream.class_names == ("bee", "ant")
    np.testing.assert_array_equal(stream[0].train.labels, [0, 0, 0, 1, 1, 1])


@pytest.mark.parametrize("mode", ["categorical", "binary", "bool"])
def test_names_are_believed_whatever_the_labels_are(folders, mode):
    """Each data set numbers its two classes 0 and 1."""
    read, shown = folders
    tasks = []
    for names in (["bee", "cat"], ["ant", "dog"]):
        data = read(names, label_mode="int" if mode == "bool" else mode)
        if mode == "bool":
            data = data.map(lambda x, y: (x, y == 1))
            data.class_names = np.array(names)
        tasks.append((data, data))
    stream = stream_from_datasets(tasks, head="multi")
    assert stream.class_names == ("ant", "bee", "cat", "dog")
    assert stream.heads == ((1, 2), (0, 3))
    for task in stream:
        greys, names = shown(stream, task.train)
        assert greys == names and task.train.labels.dtype == np.int32


def test_indices_of_classes_are_names_too():
    class Iterator(Batches):
        class_indices: ClassVar = {"d": 3, "c": 2, "b": 1, "a": 0}

    stream = stream_from_datasets([(Iterator(), Iterator())])
    assert stream.class_names == ("c", "d")
    shown = [stream.shown(label) for label in stream[0].train.labels]
    assert shown == ["abcd"[int(image[0, 0, 0])] for image in stream[0].train.inputs]


def test_names_that_are_labels_are_numbered_over_all_tasks():
    def part(names):
        inputs = np.array([[float(ord(name[0]))] for name in names])
        return tf.data.Dataset.from_tensor_slices((inputs, names)).batch(2)

    stream = stream_from_datasets(
        [(part(["dog", "bee", "dog"]), part(["bee"])), (part(["ant"]),) * 2]
    )
    assert stream.class_names == ("ant", "bee", "dog")
    assert stream.task_classes == ((1, 2), (0,)) and stream.num_classes == 3
    for task in stream.blurred(0.4):
        for inputs, labels in (task.train, task.test):
            assert [stream.shown(c)[0] for c in labels] == [chr(int(v)) for v in inputs[:, 0]]


def test_folders_whose_names_cannot_be_joined_are_refused(folders):
    read, _ = folders
    first, second = read(["ant", "bee"]), read(["ant", "cat"])
    with pytest.raises(UserError, match=r"mapped\.class_names"):
        stream_from_datasets([(first.map(lambda x, y: (x / 255, y)), second)])
    several = read(["ant", "bee"], label_mode="categorical")
    others = read(["ant", "cat"], label_mode="categorical")
    names, other_names = several.class_names, others.class_names
    several, others = (part.map(lambda x, y: (x, tf.ones_like(y))) for part in (several, others))
    several.class_names, others.class_names = names, other_names
    with pytest.raises(UserError, match="label_mode"):
        stream_from_datasets([(several, several), (others, others)])
    first.class_names = ["ant"]
    with pytest.raises(UserError, match="1 class_names"):
        stream_from_datasets([(first, first)])
