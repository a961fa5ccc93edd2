"""Streams from arrays that a user brings."""

import time

import numpy as np
import pandas
import pytest

from nccl_tf.errors import UserError
from nccl_tf.streams import JointTask, stream_from_arrays, stream_from_datasets
from nccl_tf.streams.arrays import Examples


def arrays(count=40, classes=4, side=5, seed=0):
    random = np.random.default_rng(seed)
    images = random.integers(0, 256, (count, side, side, 3), dtype=np.uint8)
    return images, np.arange(count) % classes


def test_every_class_is_in_one_task_with_its_own_images():
    train, test = arrays(), arrays(8, seed=1)
    stream = stream_from_arrays(train, test, num_tasks=2, head="multi", seed=3)
    assert sorted(c for task in stream for c in task.classes) == [0, 1, 2, 3]
    assert stream.heads == stream.task_classes and stream.example_shape == (5, 5, 3)
    for task in stream:
        images, labels = task.train
        assert set(labels) == set(task.classes)
        np.testing.assert_array_equal(images, train[0][np.isin(train[1], task.classes)])


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda images, labels: (images, labels[:-1]), "a label for each example"),
        (lambda images, labels: (images[:0], labels[:0]), "no examples"),
        (lambda images, labels: (images, labels - 1), "an integer from 0 up"),
        (lambda images, labels: (images, labels + 2**31), "up for each example; renumber"),
        (lambda images, labels: (images, labels.astype(str)), "name the classes in all parts"),
        (lambda images, labels: (images, np.where(labels, "a", None)), "examples with missing"),
        (lambda images, labels: (images, np.where(labels, 1.0, np.nan)), "10 targets .* NaN"),
        (lambda images, labels: (images, np.ma.masked_equal(labels, 3)), "labels with 10 masked"),
        (lambda images, labels: (np.ma.masked_equal(images, 3), labels), "inputs with .* masked"),
        (lambda images, labels: (images.astype(object), labels), "expected an array of numbers or"),
        (
            lambda images, labels: (images, labels * 10**7),
            "labels up to 30,000,000 for 48 examples",
        ),
        (lambda images, labels: (images[:, :4], labels), "of one shape and dtype"),
        (lambda images, labels: (images / 255, labels), "of one shape and dtype"),
        (lambda images, labels: (images[labels > 0], labels[labels > 0]), "class 0 has no"),
        (lambda images, labels: (np.array([b"\xe9"] * 40), labels), r"no UTF-8.*decode\(\"latin-1"),
    ],
)
def test_other_arrays_are_refused(change, said):
    with pytest.raises(UserError, match=said):
        stream_from_arrays(change(*arrays()), arrays(8, seed=1), num_tasks=2)


@pytest.mark.parametrize("value", [np.nan, np.inf, -1e300])
def test_inputs_that_are_not_finite_are_named(value):
    """-1e300 is none of float32, which inputs become."""
    table, labels = np.ones((40, 3)), np.arange(40) % 4
    table[7, 1] = table[9, 1] = value
    said = r"training inputs with NaN or infinity in the columns 1, in 2 of 40 .* number 7 from 0"
    with pytest.raises(UserError, match=said):
        stream_from_arrays((table, labels), (np.ones((40, 3)), labels), num_tasks=2)
    with pytest.raises(UserError, match="test inputs with NaN or infinity of 'size' in the col"):
        stream_from_arrays(
            ({"size": np.ones((40, 3))}, labels), ({"size": table}, labels), num_tasks=2
        )


def test_columns_of_frames_are_named():
    pandas = pytest.importorskip("pandas")
    labels = np.arange(40) % 4
    frame = pandas.DataFrame({"amount": np.ones(40), "age": np.ones(40, int)})
    frame.loc[3, "amount"] = np.nan
    with pytest.raises(UserError, match="in the columns amount, in 1 of 40"):
        stream_from_arrays((frame, labels), test_fraction=0.2, num_tasks=2)
    frame["site"] = "north"
    with pytest.raises(UserError, match=r"the column 'site' of dtype (str|object)"):
        stream_from_arrays((frame, labels), test_fraction=0.2, num_tasks=2)


@pytest.mark.parametrize(
    ("targets", "said"),
    [
        (np.arange(40) % 2 * 1.0, "all whole, 0 to 1, and are taken as numbers to predict"),
        (np.arange(40) % 3 * 1.0, "all whole, 0 to 2, and are taken as numbers to predict"),
        (np.ones((40, 2, 2), int), "(40, 2, 2), and are taken as 4 numbers to predict"),
        (np.arange(80).reshape(40, 2), "(40, 2), and are taken as 2 numbers to predict"),
        (np.arange(40) / 8, ""),
        (np.arange(40) * 1.0, ""),  # each once
        (np.eye(2)[np.arange(40) % 2], ""),  # several labels an example
    ],
)
def test_targets_that_look_like_classes_are_told_once(targets, said, caplog):
    inputs = np.ones((40, 3))
    for pair in (((inputs, targets),) * 2, ((inputs, targets), (inputs[:10], targets[:10]))):
        caplog.clear()
        stream_from_arrays(*pair, kind="permuted", num_tasks=2)
        assert len(caplog.messages) == bool(said) and said in "".join(caplog.messages)
    caplog.clear()
    stream_from_datasets([((inputs, targets),) * 2] * 2)
    assert len(caplog.messages) == bool(said) and said in "".join(caplog.messages)


def test_named_classes_make_tasks_of_any_size_in_their_order():
    train, test = arrays(), arrays(8, seed=1)
    stream = stream_from_arrays(train, test, classes=[[3], [2, 0]], head="multi", seed=5)
    assert stream.task_classes == stream.heads == ((3,), (2, 0))
    assert (stream.num_tasks, stream.num_classes) == (2, 4)
    for task in stream:
        np.testing.assert_array_equal(task.train.inputs, train[0][np.isin(train[1], task.classes)])
        np.testing.assert_array_equal(task.test.labels, test[1][np.isin(test[1], task.classes)])
    whole = stream_from_arrays(train, test, classes=[range(3), range(3, 4)], examples_per_task=4)
    assert [len(task.train.labels) for task in whole] == [4, 4]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"classes": [[0, 1], [1, 2]]}, "with 1 in 2 places"),
        ({"classes": [[0, 4]]}, "with 4, of which there are no training"),
        ({"classes": [[0], []]}, "at least one class in each task"),
        ({"classes": [0, 1]}, "the class numbers of each task"),
        ({"classes": [["a"]]}, "the class numbers of each task"),
        ({"classes": [[0], [1]], "num_tasks": 2}, "leave these out"),
        ({"classes": [[0], [1]], "kind": "permuted"}, "leave these out"),
    ],
)
def test_classes_that_make_no_tasks_are_refused(arguments, said):
    with pytest.raises(UserError, match=said):
        stream_from_arrays(arrays(), arrays(8, seed=1), **arguments)


@pytest.mark.parametrize(
    "inputs", [np.array(["a", "a b"] * 4), np.arange(8.0), np.arange(8.0)[:, None]]
)
def test_one_value_in_an_example_is_not_permuted(inputs):
    data = inputs, np.arange(8) % 2
    with pytest.raises(UserError, match="all tasks would be the same"):
        stream_from_arrays(data, data, num_tasks=2, kind="permuted")


NAMES = ("dog", "ant", "cat", "bee")


def named(names, labels):
    return np.array(names)[labels]


@pytest.mark.parametrize(
    "cut",
    [
        {"num_tasks": 2},
        {"kind": "permuted", "num_tasks": 2},
        {"kind": "rotated", "num_tasks": 2},
        {"domains": (np.arange(40) % 2, np.arange(8) % 2)},
    ],
)
def test_names_of_classes_are_numbered_over_both_parts(cut):
    """Also where a part alone would give them other numbers: no dog is tested."""
    (images, labels), (tests, test_labels) = arrays(), arrays(8, seed=1)
    train, test = named(NAMES, labels), named(NAMES, test_labels)
    if "num_tasks" in cut and "kind" in cut:
        tests, test = tests[test != "dog"], test[test != "dog"]
    stream = stream_from_arrays((images, train), (tests, test[:, None].astype(object)), **cut)
    assert stream.class_names == ("ant", "bee", "cat", "dog") and stream.num_classes == 4
    tasks = stream.tasks[:1] if "kind" in cut else stream.tasks
    for part, given in (("train", train), ("test", test)):
        numbers = np.concatenate([getattr(task, part).labels for task in tasks])
        assert sorted(map(stream.shown, numbers)) == sorted(given)
    if "kind" in cut:
        assert [stream.shown(label) for label in stream[1].test.labels] == test.tolist()


def test_categories_keep_the_order_that_both_parts_share():
    images, labels = arrays()
    values = named(("mid", "low", "high", "low"), labels)
    order = ["low", "mid", "high", "unused"]
    categories = pandas.Series(pandas.Categorical(values, categories=order))
    for test, names in ((categories, ("low", "mid", "high")), (values, ("high", "low", "mid"))):
        stream = stream_from_arrays((images, categories), (images, test), num_tasks=3)
        assert stream.class_names == names
        for task in stream:
            for part in (task.train, task.test):
                rows = np.isin(values, named(names, list(task.classes)))
                np.testing.assert_array_equal(part.inputs, images[rows])


def test_classes_are_asked_for_and_refused_by_their_names():
    (images, labels), (tests, test_labels) = arrays(), arrays(8, seed=1)
    train, test = (images, named(NAMES, labels)), (tests, named(NAMES, test_labels))
    stream = stream_from_arrays(train, test, classes=[["dog", "ant"], ["cat"]])
    assert stream.task_classes == ((3, 0), (2,)) and stream.shown(3) == "dog"
    with pytest.raises(UserError, match="classes with dog in 2"):
        stream_from_arrays(train, test, classes=[["dog", "ant"], ["dog"]])
    with pytest.raises(UserError, match="'cow'"):
        stream_from_arrays(train, test, classes=[["dog", "cow"]])
    no_bee = tests[test[1] != "bee"], test[1][test[1] != "bee"]
    with pytest.raises(UserError, match="class bee has no test"):
        stream_from_arrays(train, no_bee, num_tasks=2)


def test_class_numbers_that_became_floats_are_to_be_integers_again():
    images, labels = arrays()
    for targets in (labels * 1.0, np.where(labels, labels, np.nan)):
        with pytest.raises(UserError, match="astype"):
            stream_from_arrays((images, targets), (images, targets), num_tasks=2)
    with pytest.raises(UserError, match="astype"):
        stream_from_arrays((images, targets), (images, targets), domains=(labels, labels))


@pytest.mark.parametrize("dtype", ["Float64", "int16[pyarrow]"])
def test_frames_of_nullable_and_arrow_dtypes_are_numbers(dtype):
    values, labels = np.arange(80).reshape(40, 2), np.arange(40) % 4
    frame = pandas.DataFrame(values, columns=["a", "b"]).astype({"a": dtype, "b": "Float32"})
    numbers = pandas.Series(labels).astype(dtype if "nt" in dtype else "Int8")
    stream = stream_from_arrays((frame, numbers), (frame, numbers), num_tasks=2)
    assert stream[0].train.inputs.dtype == np.float32
    rows = np.isin(labels, stream[0].classes)
    np.testing.assert_array_equal(stream[0].train.inputs, values[rows])


@pytest.mark.parametrize(
    ("factor", "dtype", "scale"),
    [
        (1, "float32", 1 / 255),
        (257, "uint16", 1 / 65535),
        (16 / 255, "uint8", 1 / 16),
        (1 / 255, "float32", 1.0),
        (-1, "float32", 1.0),
    ],
)
@pytest.mark.parametrize("make", [stream_from_arrays, stream_from_datasets])
def test_images_come_into_range(factor, dtype, scale, make):
    images, labels = arrays()
    images[0, 0, 0] = 255
    data = (images * float(factor)).round(6).astype(dtype), labels
    stream = make(data, data, num_tasks=2) if make is stream_from_arrays else make([(data, data)])
    np.testing.assert_allclose(stream.pixels.scale, scale, rtol=1e-6)
    table = data[0].reshape(40, -1)[:, :7].astype("float32"), labels
    assert stream_from_arrays(table, table, num_tasks=2).pixels.scale == 1.0


def test_labels_from_one_are_to_be_renumbered():
    """Before the number of tasks is held against a number of classes that nobody meant."""
    images, labels = arrays()
    data = images, labels + 1
    with pytest.raises(UserError, match=r"class 0 has no .*renumber .*return_inverse=True"):
        stream_from_arrays(data, data, num_tasks=5)


def test_numbers_to_predict_are_not_split_by_class():
    images, labels = arrays(8)
    for targets in (labels / 2, np.eye(4)[labels]):
        with pytest.raises(UserError, match=r"to split by class.* `domains`"):
            stream_from_arrays((images, targets), (images, targets), num_tasks=2)


def test_what_keras_datasets_return_is_taken():
    images, labels = arrays()
    grey = stream_from_arrays(
        (images[..., 0], labels[:, None]), arrays_of(images[..., 0]), num_tasks=2
    )
    assert grey.example_shape == (5, 5, 1) and grey[0].train.labels.shape == (20,)
    assert grey.pixels.scale == 1 / 255
    floats = stream_from_arrays((images / 255, labels), arrays_of(images / 255), num_tasks=2)
    assert (floats.example_dtype, floats.pixels.scale) == ("float32", 1.0)
    np.testing.assert_array_equal(
        floats[0].train.inputs, (images / 255)[np.isin(labels, floats[0].classes)].astype("float32")
    )


def arrays_of(images):
    return images, np.arange(len(images)) % 4


def test_inputs_with_names_come_in_batches_with_names():
    inputs = {"age": np.arange(40.0), "words": np.array(["a", "bb"] * 20, object)}
    labels = np.arange(40) % 4
    stream = stream_from_arrays((inputs, labels), (inputs, labels), num_tasks=2)
    assert stream.example_shape == {"age": (), "words": ()}
    assert stream.example_dtype == {"age": "float32", "words": "string"}
    (features, label, weight), *_ = stream[1].train_batches(batch_size=4).as_numpy_iterator()
    assert set(label) == set(stream[1].classes) and features["task"].tolist() == [1] * 4
    np.testing.assert_array_equal(features["inputs"]["age"] % 4, label)
    assert features["inputs"]["words"][0] in (b"a", b"bb") and weight.dtype == np.float32
    joint = JointTask(stream.tasks).train_batches(batch_size=40).as_numpy_iterator().next()
    np.testing.assert_array_equal(joint[0]["inputs"]["age"] % 4, joint[1])


@pytest.mark.parametrize(
    ("train", "said"),
    [
        (arrays()[0], "received train as ndarray, expected a pair"),
        (arrays()[:1], "received train as tuple of 1, expected a pair"),
        (((np.ones((4, 2)), np.ones((4, 3))), np.arange(4)), "inputs as a dictionary"),
    ],
)
def test_what_is_no_pair_of_arrays_is_refused(train, said):
    with pytest.raises(UserError, match=said):
        stream_from_arrays(train, arrays(), num_tasks=2)


def test_a_fraction_of_each_class_is_held_out_for_the_test():
    images = np.arange(100, dtype=np.uint8).reshape(100, 1, 1, 1)
    labels = np.repeat(np.arange(4), (40, 40, 11, 9))
    stream = stream_from_arrays((images, labels), test_fraction=0.2, num_tasks=2)
    kept, held = (
        np.concatenate([getattr(task, part).inputs.ravel() for task in stream])
        for part in ("train", "test")
    )
    assert sorted([*kept, *held]) == list(range(100))
    assert np.bincount(labels[held]).tolist() == [8, 8, 3, 2]
    again = stream_from_arrays((images, labels), test_fraction=0.2, num_tasks=2)
    np.testing.assert_array_equal(again[0].test.inputs, stream[0].test.inputs)


def test_domains_of_all_examples_are_held_out_with_them():
    table = {"a": np.arange(60.0), "b": np.arange(60.0)}
    domains = np.arange(60) % 3
    stream = stream_from_arrays((table, np.arange(60) // 3 % 2), test_fraction=0.5, domains=domains)
    for number, task in enumerate(stream):
        for part in (task.train, task.test):
            assert len(part.labels) and set(part.inputs["a"].astype(int) % 3) == {number}


def test_pixels_are_scaled_by_what_is_not_held_out():
    images, labels = np.arange(1.0, 41.0, dtype=np.float32).reshape(-1, 1, 1, 1), np.arange(40) % 2
    (task,) = stream_from_arrays((images, labels), test_fraction=0.2, num_tasks=1)
    images[int(task.test.inputs[0, 0, 0, 0]) - 1] = 1000  # of 39 at most, images of bytes
    stream = stream_from_arrays((images, labels), test_fraction=0.2, num_tasks=1)
    assert stream[0].test.inputs.max() == 1000
    assert stream.pixels.scale == pytest.approx(1 / 255)


@pytest.mark.parametrize("arguments", [{}, {"test_fraction": 1.5}, {"test_fraction": 0}])
def test_a_fraction_that_is_none_is_refused(arguments):
    images, labels = np.zeros((20, 1, 1, 1), np.uint8), np.arange(20) % 4
    with pytest.raises(UserError):
        stream_from_arrays((images, labels), num_tasks=2, **arguments)
    with pytest.raises(UserError, match="both"):
        stream_from_arrays((images, labels), (images, labels), test_fraction=0.2)


def test_a_long_stream_is_printed_in_short():
    """One of 168 tasks took 10,000 letters."""
    inputs, domains = np.zeros((336, 2), np.float32), np.arange(336) % 168
    names = np.array([f"class {n % 2}" for n in range(336)])
    stream = stream_from_arrays((inputs, names), domains=domains, test_fraction=0.5)
    text = repr(stream)
    assert len(stream) == 168 and len(text) < 1200
    assert "168" in text and repr(stream[0]) in text and repr(stream[167]) in text
    short = stream_from_arrays(arrays(), arrays(8), num_tasks=2)
    assert all(repr(task) in repr(short) for task in short)


def test_very_many_names_of_classes_are_numbered_in_a_moment():
    """A table of 1 MB has a hundred thousand of them, which took a minute."""
    names = [f"class {i:06d}" for i in range(100_000)]
    examples = Examples(np.zeros((len(names), 1)), np.array(names[::-1], object))
    started = time.process_time()
    numbers = examples.numbered(names).labels
    assert time.process_time() - started < 10
    np.testing.assert_array_equal(numbers, np.arange(len(names))[::-1])


@pytest.mark.parametrize("by_tasks", [False, True])
@pytest.mark.parametrize("place", [0, 1])
def test_frames_with_columns_in_another_order_are_refused(place, by_tasks):
    frame = pandas.DataFrame({"a": np.arange(8.0), "b": 100 + np.arange(8.0)})
    train, test = [frame, frame], [frame, frame]
    test[place] = frame[["b", "a"]]

    def made(test):
        pairs = tuple(train), tuple(test)
        if by_tasks:
            return stream_from_datasets([pairs])
        return stream_from_arrays(*pairs, domains=(np.zeros(8, int),) * 2)

    with pytest.raises(UserError, match="columns a, b and b, a"):
        made(test)
    assert made([each[["a", "b"]] for each in test])[0].num_train == 8
