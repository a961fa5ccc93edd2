"""Streams of domains, rotated and blurry streams, and numbers to predict."""

import numpy as np
import pytest
import scipy.ndimage

from nccl_tf.errors import UserError
from nccl_tf.experiment.config.resolve import resolve
from nccl_tf.streams import load_stream, stream_from_arrays
from nccl_tf.streams.arrays import Examples
from nccl_tf.streams.domains import number_domains, periods
from nccl_tf.streams.rotated import rotate, task_angle


def table(count, seed):
    random = np.random.default_rng(seed)
    inputs = random.normal(size=(count, 3))
    return inputs, inputs.sum(axis=1)


DAYS = np.datetime64("2026-01-01") + np.arange(30)
CALENDAR = ["2025-12-28", "2025-12-29", "2026-01-04", "2026-01-05", "2026-02-01", "2026-04-01"]


def test_each_named_domain_is_a_task():
    train, test = table(30, 0), table(12, 1)
    sites = np.array(["b", "a", "c"] * 10), np.array(["a", "b", "c"] * 4)
    stream = stream_from_arrays(train, test, domains=sites)
    assert (len(stream), stream.num_classes, stream[0].classes) == (3, 1, ())
    np.testing.assert_array_equal(stream[0].train.inputs, train[0][1::3].astype(np.float32))
    np.testing.assert_array_equal(stream[1].test.labels, test[1][1::3].astype(np.float32))
    _, targets, _ = next(stream[2].train_batches(batch_size=5).as_numpy_iterator())
    assert targets.dtype == np.float32 and set(targets) <= set(train[1][2::3].astype(np.float32))


def test_a_column_is_cut_into_ranges_of_equal_counts():
    train, test = table(40, 0), table(60, 1)
    stream = stream_from_arrays(train, test, domains=1, num_tasks=5, tuning_tasks=1)
    assert [task.num_train for task in stream] == [8] * 4
    highest = [task.train.inputs[:, 1].max() for task in (*stream.tuning, *stream)]
    assert highest == sorted(highest)
    for task, below in zip(stream, highest, strict=False):
        assert task.test.inputs[:, 1].min() > below


def frame(dates):
    pandas = pytest.importorskip("pandas")
    return pandas.DataFrame({"date": dates, "age": np.arange(30)})


@pytest.mark.parametrize("form", ["array", "series", "zone", "objects", "column", "key"])
def test_dates_make_windows_whose_last_examples_are_held_out(form):
    order = np.random.default_rng(0).permutation(30)
    days, ages, targets = DAYS[order], np.arange(30)[order], np.arange(30)[order] % 2
    inputs = ages[:, None]
    if form == "array":
        domains = days
    elif form == "objects":
        domains = days.astype("M8[us]").astype(object)
    elif form == "key":
        inputs, domains = {"date": days, "age": ages}, "date"
    else:
        table = frame(days).assign(age=ages)
        domains = "date" if form == "column" else table.date
        if form == "zone":
            domains = domains.dt.tz_localize("Europe/Berlin")
        inputs = table if form == "column" else inputs
    stream = stream_from_arrays((inputs, targets), test_fraction=0.2, domains=domains, num_tasks=3)
    assert stream.example_shape == ({"age": ()} if form == "key" else (1,))
    for number, task in enumerate(stream):
        train, test = (
            np.ravel(part.inputs["age"] if form == "key" else part.inputs).astype(int).tolist()
            for part in (task.train, task.test)
        )
        assert sorted(train) == list(range(10 * number, 10 * number + 8))
        assert sorted(test) == [10 * number + 8, 10 * number + 9]


def test_dates_of_training_and_test_share_their_windows():
    train, test = table(30, 0), table(12, 1)
    stream = stream_from_arrays(train, test, domains=(DAYS, DAYS[::2][:12]), num_tasks=3)
    assert [len(task.test.labels) for task in stream] == [5, 5, 2]
    months = stream_from_arrays(
        train, test, domains=(DAYS.astype("M8[M]"), DAYS[:12].astype("M8[M]"))
    )
    assert (len(months), months[0].num_train) == (1, 30)
    with pytest.raises(UserError, match="dates of both"):
        stream_from_arrays(train, test, domains=(DAYS, np.arange(12)), num_tasks=3)


@pytest.mark.parametrize(
    ("by", "firsts"),
    [
        (
            "day",
            ["2025-12-28", "2025-12-29", "2026-01-04", "2026-01-05", "2026-02-01", "2026-04-01"],
        ),
        ("week", ["2025-12-22", "2025-12-29", "2026-01-05", "2026-01-26", "2026-03-30"]),
        ("month", ["2025-12-01", "2026-01-01", "2026-02-01", "2026-04-01"]),
        ("quarter", ["2025-10-01", "2026-01-01", "2026-04-01"]),
        ("year", ["2025-01-01", "2026-01-01"]),
    ],
)
def test_periods_of_the_calendar(by, firsts):
    """2025-12-28 is a Sunday; years before 1970 have weeks and quarters as well."""
    dates = np.array(CALENDAR, "datetime64[us]") + np.timedelta64(23, "h")
    assert np.unique(periods(dates, by)).astype(str).tolist() == firsts
    old = np.array(["1969-12-31"], "datetime64[us]")
    expected = {"week": "1969-12-29", "quarter": "1969-10-01", "year": "1969-01-01"}
    assert str(periods(old, by)[0]) == expected.get(by, {"day": "1969-12-31"}.get(by, "1969-12-01"))


def test_the_end_of_each_month_is_held_out(tmp_path):
    """28, 31 and 30 days, in an order of their own; the last fifth of each, rounded up."""
    days = np.arange("2026-02-01", "2026-05-01", dtype="datetime64[D]")
    order = np.random.default_rng(0).permutation(len(days))
    inputs, targets = np.arange(len(days))[order], (np.arange(len(days)) % 2)[order]
    arrays = stream_from_arrays(
        (inputs[:, None], targets), test_fraction=0.2, domains=days[order], by="month"
    )
    rows = [f"{day},{x},{y}" for day, x, y in zip(days[order], inputs, targets, strict=True)]
    (tmp_path / "days.csv").write_text("\n".join(["date,x,label", *rows]))
    table = load_stream(f"csv:{tmp_path}/days.csv", domain="date", by="month")
    for stream in (arrays, table):
        first = 0
        assert len(stream) == 3
        for task, count, held in zip(stream, (28, 31, 30), (6, 7, 6), strict=True):
            found = [np.sort(part.inputs.ravel()).astype(int) for part in (task.train, task.test)]
            expected = np.split(first + np.arange(count), [count - held])
            for part, right in zip(found, expected, strict=True):
                np.testing.assert_array_equal(part, right)
            first += count
    # Fewer tasks are ranges of whole months.
    half = stream_from_arrays(
        (inputs[:, None], targets), test_fraction=0.2, domains=days[order], by="month", num_tasks=2
    )
    assert [task.num_train + len(task.test.labels) for task in half] == [28, 61]


def test_a_task_for_each_of_many_dates_is_told_of(caplog, tmp_path):
    days, x = np.datetime64("2026-01-01") + np.repeat(np.arange(40), 2), np.arange(80.0)[:, None]
    y = np.arange(80) % 2

    def said(**arguments):
        caplog.clear()
        stream_from_arrays((x, y), test_fraction=0.5, **arguments)
        return [record.message for record in caplog.records if "is a task" in record.message]

    assert "40 different dates" in said(domains=days)[0]
    assert "40 different numbers" in said(domains=np.repeat(np.arange(40), 2))[0]
    for quiet in ({"by": "month"}, {"num_tasks": 40}):
        assert not said(domains=days, **quiet)
    assert not said(domains=np.repeat(np.arange(40), 2).astype(str))
    rows = [
        f"{day},{number},{label}" for day, number, label in zip(days, range(80), y, strict=True)
    ]
    (tmp_path / "days.csv").write_text("\n".join(["date,x,label", *rows]))
    given = {"dataset": f"csv:{tmp_path}/days.csv", "domain": "date", "method": "finetune"}
    caplog.clear()
    assert (resolve(given).num_tasks, resolve(given).by) == (40, None)
    assert len([record for record in caplog.records if "is a task" in record.message]) == 1
    settings = resolve({**given, "by": "month"})
    assert (settings.num_tasks, settings.by) == (2, "month")


def test_periods_of_what_has_none_are_refused():
    x, y = np.zeros((8, 1)), np.arange(8) % 2
    for arguments, said in (
        ({"domains": np.arange(8) // 4, "by": "month"}, "no dates"),
        ({"domains": DAYS[:8], "by": "moon"}, "moon"),
        ({"num_tasks": 2, "by": "month"}, "without domains"),
    ):
        with pytest.raises(UserError, match=said):
            stream_from_arrays((x, y), test_fraction=0.5, **arguments)
    with pytest.raises(UserError, match="no data set by name"):
        load_stream("split_digits", by="month")


def test_a_share_is_held_out_of_each_class_in_each_domain():
    sites = np.repeat(["big", "small", "mixed"], [40, 4, 2])
    labels = np.array([*([0] * 30 + [1] * 10), 0, 0, 1, 1, 0, 1])
    inputs = np.arange(46.0)[:, None]
    stream = stream_from_arrays((inputs, labels), test_fraction=0.2, domains=sites)
    counts = [np.bincount(task.test.labels, minlength=2).tolist() for task in stream]
    assert (counts[0], counts[2]) == ([6, 2], [1, 1]) and sum(counts[1]) == 1
    assert [task.num_train for task in stream] == [32, 1, 2]
    numbers = np.arange(46)  # in windows of equally many
    stream = stream_from_arrays((inputs, labels), test_fraction=0.1, domains=numbers, num_tasks=4)
    assert [len(task.test.labels) for task in stream] == [2, 2, 2, 2]


def test_a_domain_for_each_example_holds_nothing_out():
    with pytest.raises(UserError, match="a domain with two at least"):
        stream_from_arrays(table(30, 0), test_fraction=0.2, domains=np.arange(30))
    with pytest.raises(UserError, match="num_tasks=12"):
        stream_from_arrays(table(30, 0), test_fraction=0.2, domains=DAYS)


@pytest.mark.parametrize(
    ("train", "test", "num_tasks", "said"),
    [
        (["a", "b"], ["a", "z"], 2, "domain 'z' in the test"),
        (["a", "b", "c"], ["a"], 2, "num_tasks=2 does not fit the 3 different"),
        ([0, 1], [0], 3, "num_tasks=3 does not fit the 2 different"),
    ],
)
def test_domains_that_do_not_fit_are_refused(train, test, num_tasks, said):
    with pytest.raises(UserError, match=said):
        number_domains(np.array(train), np.array(test), num_tasks)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"domains": 7, "num_tasks": 2}, "received domains=7"),
        ({"domains": ([0] * 3, [0] * 3)}, "for 30 examples"),
        ({"domains": (np.array(["a", np.nan] * 15, object), ["a"] * 12)}, 'such as "unknown"'),
        ({"domains": (["a"] * 30, ["a", None] * 6)}, 'such as "unknown"'),
        ({"domains": ([0.5, np.nan] * 15, [0.5] * 12)}, "15 domains that are NaN"),
        ({"domains": ([0] * 30, np.array([0.5, np.nan] * 6, object))}, "6 domains that are NaN"),
        ({"domains": 0, "kind": "split"}, 'expected kind="domain"'),
        ({"kind": "domain", "num_tasks": 2}, "received no domains"),
        ({"kind": "permuted"}, "received no num_tasks"),
        ({"kind": "rotated", "num_tasks": 2}, "no images"),
        ({"domains": ([0, 1] * 15, [0] * 12)}, "domain 1 has 15 training and 0 test"),
        ({"domains": (["a", "b"] * 15, ["a"] * 12)}, "domain 'b' has 15 training and 0 test"),
        ({"domains": (DAYS, np.array([None] * 12, "M8[s]"))}, "12 domains that are NaN"),
        ({"domains": 0, "num_tasks": 2, "head": "multi"}, "every task of a domain stream"),
    ],
)
def test_settings_that_do_not_fit_are_refused(settings, said):
    with pytest.raises(UserError, match=said):
        stream_from_arrays(table(30, 0), table(12, 1), **settings)


def images(count):
    made = np.zeros((count, 8, 8, 1), np.uint8)
    made[:, 1, 2:6] = 200
    return made, np.arange(count) % 2


def test_rotated_tasks_turn_by_their_own_angle():
    stream = stream_from_arrays(images(6), images(4), kind="rotated", num_tasks=3, tuning_tasks=1)
    angles = [task_angle(i, 2, 0, 10, "ordered") for i in range(2)]
    assert 0 <= angles[0] < 90 <= angles[1] < 180
    for task, angle in zip(stream, angles, strict=True):
        np.testing.assert_array_equal(task.train.inputs[0], rotate_one(angle))
        np.testing.assert_array_equal(task.test.inputs[0], rotate_one(angle))
        assert task.classes == (0, 1)


def test_angles_anywhere_in_the_half_turn():
    stream = stream_from_arrays(images(6), images(4), kind="rotated", num_tasks=40, angles="any")
    angles = [task_angle(i, 40, 0, 10, "any") for i in range(40)]
    assert angles != sorted(angles)
    assert min(angles) < 20 and max(angles) > 160
    np.testing.assert_array_equal(stream[3].test.inputs[0], rotate_one(angles[3]))
    with pytest.raises(UserError, match="only the images of a rotated stream are turned"):
        stream_from_arrays(images(6), images(4), num_tasks=2, angles="any")
    with pytest.raises(UserError, match="choose one of ordered, any"):
        stream_from_arrays(images(6), images(4), kind="rotated", num_tasks=2, angles="up")


@pytest.mark.parametrize(
    ("shape", "dtype"), [((28, 28, 1), "uint8"), ((9, 5, 3), "float32"), ((1, 6, 1), "int16")]
)
def test_turned_images_are_those_of_scipy(shape, dtype):
    random = np.random.default_rng(0)
    made = random.integers(0, 256, (20, *shape)).astype(dtype) - np.array(
        0 if dtype == "uint8" else 9, dtype
    )
    for angle in (0.0, 3.7, 90.0, 101.3, 179.9):
        turned = [scipy.ndimage.rotate(one, angle, reshape=False, order=1) for one in made]
        found = rotate(Examples(made, np.zeros(20, np.int32)), angle).inputs
        np.testing.assert_allclose(found, turned, rtol=0, atol=1e-4 if dtype == "float32" else 0)
        assert found.dtype == dtype


def rotate_one(angle):
    return rotate(Examples(*images(1)), angle).inputs[0]


def test_a_blurry_stream_deals_a_share_out():
    train, test = images(40), images(8)
    numbered = (np.arange(40, dtype=np.float32)[:, None], np.arange(40) % 4)
    sharp = stream_from_arrays(numbered, numbered, num_tasks=4)
    stream = sharp.blurred(0.3, seed=2)
    seen = np.concatenate([task.train.inputs[:, 0] for task in stream])
    assert sorted(seen) == list(range(40))
    for task, before in zip(stream, sharp, strict=True):
        own = np.isin(task.train.labels, before.classes)
        assert (own.sum(), (~own).sum()) == (7, 3) and task.num_train == 10
        np.testing.assert_array_equal(task.train.inputs[:, 0] % 4, task.train.labels)
        np.testing.assert_array_equal(task.test.labels, before.test.labels)
        assert task.classes == (0, 1, 2, 3)
    with pytest.raises(UserError, match='take head="single"'):
        stream_from_arrays(train, test, num_tasks=2, head="multi").blurred(0.1)
    with pytest.raises(UserError, match="share=1 is out of range"):
        sharp.blurred(1)
