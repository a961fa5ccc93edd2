"""Labelled examples, data sets before they are cut into tasks, and pixel scaling."""

import datetime
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from nccl_tf.errors import UserError
from nccl_tf.user_data import as_array, check_counts, check_unmasked

_LOGGER = logging.getLogger("nccl_tf")
_MOST_SHOWN = 4


class Examples(NamedTuple):
    """Labelled examples.

    Args:
        inputs: [n, ...], such as raw pixels uint8 [n, height, width, channels], or a dictionary of
            such arrays by name. Texts are objects, which take as much memory as each is long.
        labels: int32 [n], global class numbers (not numbers within a task), or float32 targets
            [n, ...]. Names of classes, text [n], as they are read, have yet to be `numbered`.
    """

    inputs: Any
    labels: np.ndarray

    def take(self, indices: np.ndarray | slice) -> "Examples":
        """Copy the examples at `indices` (integers [m], a mask, bool [n], or a slice)."""
        return self.map(lambda column: column[indices])

    def map(self, function: Callable[[np.ndarray], np.ndarray]) -> "Examples":
        """Apply `function` to each array of the examples."""
        if isinstance(self.inputs, dict):
            inputs: Any = {name: function(array) for name, array in self.inputs.items()}
        else:
            inputs = function(self.inputs)
        return Examples(inputs, function(self.labels))

    def form(self) -> list[tuple[Any, ...]]:
        """Shape and dtype of an example's columns; text has one dtype, however long it is.

        Inputs with names come first in the order of their names, each after its name.
        """
        form: list[tuple[Any, ...]] = [(c.shape[1:], dtype_name(c)) for c in self.columns()]
        names = _names(self.inputs)
        if names is None:
            return form
        inputs = zip(names, form[:-1], strict=True)
        return [*sorted((name, *what) for name, what in inputs), form[-1]]

    def named_like(self, other: "Examples") -> "Examples":
        """The same examples, with the inputs' names in the order of those of `other`.

        Raises:
            UserError: The names are others.
        """
        names, others = _names(self.inputs), _names(other.inputs)
        if names == others:
            return self
        if names is None or others is None or set(names) != set(others):
            raise UserError(
                f"received inputs named {names} beside inputs named {others}: expected inputs of "
                "the same names in all tasks and batches"
            )
        return Examples({name: self.inputs[name] for name in others}, self.labels)

    def numbered(self, class_names: Sequence[str] | None) -> "Examples":
        """The same examples, with the place of each label in `class_names`, where there are."""
        if class_names is None:
            return self
        present, places = np.unique(self.labels, return_inverse=True)
        numbers_by_name = {name: number for number, name in enumerate(class_names)}
        numbers = [numbers_by_name[name] for name in present.tolist()]
        return Examples(self.inputs, np.array(numbers, np.int32)[places])

    def columns(self) -> list[np.ndarray]:
        """The arrays: of the inputs, by name where they have names, then the labels."""
        inputs = self.inputs if isinstance(self.inputs, dict) else {"": self.inputs}
        return [*inputs.values(), self.labels]


def _names(inputs: Any) -> list[Any] | None:
    return list(inputs) if isinstance(inputs, dict) else None


def name_classes(parts: Sequence[tuple[Sequence[str], Iterable[str]]]) -> tuple[str, ...]:
    """The names of classes in the order of their numbers, over all parts of the data.

    Args:
        parts: Of each part its names in an order of its own, and those that it has examples of.

    Returns:
        The names that have examples: in the order of the parts where it is the same in all, else
        sorted.
    """
    present = {name for _, names in parts for name in names}
    order = list(parts[0][0])
    if any(list(other) != order for other, _ in parts):
        order = sorted(present)
    return tuple(str(name) for name in order if name in present)  # of NumPy too


MISSING = frozenset(("", "?", "na", "n/a", "#n/a", "<na>", "nan", "-nan", "null", "none"))
"""Texts for a missing value, in small letters; a label or a text may be called so."""
BOOLEANS = frozenset(("true", "false"))
"""Texts for a boolean, in small letters, as pandas reads them: True, TRUE and true are one."""


def are_booleans(texts: Iterable[str]) -> bool:
    """Whether all texts that do not stand for a missing value are True or False."""
    found = {text.strip().lower() for text in texts} - MISSING
    return bool(found) and found <= BOOLEANS


def in_one_form(texts: Iterable[str]) -> dict[str, str]:
    """Of each text its name: of booleans True or False, so that TRUE and true are one class."""
    different = set(texts)
    if not are_booleans(different):
        return {text: text for text in different}
    forms = {text: text.strip().capitalize() for text in different}
    return {text: text if form.lower() in MISSING else form for text, form in forms.items()}


def warn_of_missing(names: Iterable[str]) -> None:
    """Say that classes are called as missing labels often are.

    Args:
        names: Of the classes.
    """
    found = sorted(name for name in names if name.strip().lower() in MISSING)
    if found:
        _LOGGER.warning(
            "%s is the name of a class here, as often of a label that is missing: leave the "
            "examples out that have no label",
            " and ".join(map(repr, found)),
        )


def with_positive(names: Sequence[str] | None, positive: str) -> tuple[str, str]:
    """The names of two classes, that of the positive one last, so that it has the number 1.

    Args:
        names: In the order of their numbers; None where labels are numbers.
        positive: The name of the class that metrics of two classes are to judge.

    Raises:
        UserError: There are other classes than two, or none of that name.
    """
    if names is None:
        raise UserError(
            f"received positive={positive!r} for labels that are no names: metrics of two classes "
            "judge class 1; leave positive out, and give that class the number 1"
        )
    if len(names) != 2 or positive not in names:
        shown = ", ".join(names[:_MOST_SHOWN]) + (", ..." if len(names) > _MOST_SHOWN else "")
        raise UserError(
            f"received positive={positive!r} for the classes {shown}: expected the name of one of "
            "two classes"
        )
    return names[names[0] == positive], positive


def shown_class(class_names: Sequence[str] | None, label: int) -> str:
    """A class as messages and reports show it: by its name where it has one."""
    return str(label) if class_names is None or label >= len(class_names) else class_names[label]


def dtype_name(array: np.ndarray) -> str:
    """The dtype that a memory keeps the rows of an array in: "string" for text of any length."""
    return "string" if array.dtype == object else array.dtype.name


def each_input(inputs: Any, function: Callable[[np.ndarray], Any]) -> Any:
    """Apply a function to the inputs, or to each of them by name."""
    if isinstance(inputs, dict):
        return {name: function(array) for name, array in inputs.items()}
    return function(inputs)


class PixelScaling(NamedTuple):
    """Scaling of raw pixels by a network: (x * scale - mean) / std.

    Args:
        scale: Factor of the raw values, 1/255 or, for the digits, 1/16.
        mean: float32 [height, width, channels] (a mean image) or [channels], in scaled units.
        std: float32 [channels], in scaled units.
    """

    scale: float = 1 / 255
    mean: np.ndarray | None = None
    std: np.ndarray | None = None


LEAST_SHARE = 0.1
"""The share of a network's range that inputs should reach: with less, little is learned."""


def pixel_range(examples: Examples) -> tuple[float, float]:
    """The lowest and the highest value of images; no bounds of other inputs."""
    columns = examples.columns()[:-1]
    is_image = [c.dtype == np.uint8 or (c.ndim > 2 and c.dtype.kind in "iuf") for c in columns]
    if not all(is_image) or not all(c.size for c in columns):
        return -np.inf, np.inf
    return float(np.min([c.min() for c in columns])), float(np.max([c.max() for c in columns]))


def pixel_scaling(ranges: Sequence[tuple[float, float]]) -> PixelScaling:
    """The scaling that brings images into the range from 0 to 1.

    Args:
        ranges: The lowest and the highest value of each part of the training images.

    Returns:
        1/255 where the highest value is at most 255 and not far below, else 1 over it; 1 where
        there are negative values or none above 1, or where these are no images.
    """
    lowest, highest = np.min(ranges), np.max(ranges)
    if not (lowest >= 0 and 1 < highest < np.inf):
        return PixelScaling(1.0)
    return PixelScaling(1 / 255 if 255 * LEAST_SHARE <= highest <= 255 else float(1 / highest))


class ExampleSet(NamedTuple):
    """A data set before it is cut into tasks.

    Args:
        train: Training examples.
        test: Test examples; none where they have yet to be held out.
        pixels: Pixel scaling of the networks.
        domains: For a stream of domains, a value for each training and for each test example.
        class_names: The names of the classes, in the order of their numbers; None where they have
            none.
        windows: For a stream of domains, the number of the domain of each of these.
        positive: The name of class 1, where a user chose which of two classes that is.
    """

    train: Examples
    test: Examples
    pixels: PixelScaling
    domains: tuple[np.ndarray, np.ndarray] | None = None
    class_names: tuple[str, ...] | None = None
    windows: tuple[np.ndarray, np.ndarray] | None = None
    positive: str | None = None

    def with_positive(self, positive: str | None) -> "ExampleSet":
        """The data set whose class of that name is class 1 of two; None for it as it is.

        Raises:
            UserError: As for the function `with_positive`.
        """
        if positive is None:
            return self
        names = with_positive(self.class_names, positive)
        data = self._replace(class_names=names, positive=positive)
        if names == self.class_names:
            return data
        train, test = (
            Examples(part.inputs, (1 - part.labels).astype(np.int32))
            for part in (self.train, self.test)
        )
        return data._replace(train=train, test=test)

    @property
    def has_classes(self) -> bool:
        """Whether the targets are class numbers."""
        return self.train.labels.dtype == np.int32

    @property
    def num_outputs(self) -> int:
        """The number of classes, by the largest class number, or of numbers to predict."""
        if not self.has_classes:
            return int(np.prod(self.train.labels.shape[1:]))
        return int(max(part.labels.max(initial=0) for part in (self.train, self.test))) + 1

    def shown(self, label: int) -> str:
        """A class as messages and reports show it: its name, or its number where it has none."""
        return shown_class(self.class_names, label)


def check_same_columns(pairs: Sequence[Any]) -> None:
    """Check that data frames have the same columns in one order, since a network takes them by it.

    Args:
        pairs: Inputs and targets, of which some may be frames.

    Raises:
        UserError: Two frames of inputs, or of targets, have other columns or another order.
    """
    for place, what in enumerate(("inputs", "targets")):
        frames = (getattr(pair[place], "columns", None) for pair in pairs)
        first, *others = [list(columns) for columns in frames if columns is not None] or [[]]
        for columns in others:
            if columns != first:
                raise UserError(
                    f"received {what} with the columns {_shown(first)} and {_shown(columns)}: "
                    "expected the same in one order, as test[train.columns] has them"
                )


def _shown(columns: Sequence[Any]) -> str:
    shown = ", ".join(map(str, columns[:8]))
    return f"{shown}, ... ({len(columns)})" if len(columns) > 8 else shown


def set_from_arrays(
    train: tuple[Any, Any],
    test: tuple[Any, Any] | None,
    pixels: PixelScaling | None = None,
    domains: tuple[Any, Any] | None = None,
) -> ExampleSet:
    """A data set from arrays.

    Args:
        train: Training inputs and targets, as for `examples_from_arrays`.
        test: Test inputs and targets, of the same form; None for none.
        pixels: How the package's networks scale inputs; None for what `pixel_scaling` makes of the
            training inputs.
        domains: A value for each training and for each test example, or None.

    Raises:
        UserError: The arrays do not fit each other, inputs are NaN or infinite, or a class number
            is far above the number of examples.
    """
    given = {"train": train} if test is None else {"train": train, "test": test}
    for name, pair in given.items():
        if not (isinstance(pair, (tuple, list)) and len(pair) == 2):
            what = f" of {len(pair)}" if isinstance(pair, (tuple, list)) else ""
            raise UserError(
                f"received {name} as {type(pair).__name__}{what}, expected a pair of arrays, "
                "(inputs, targets)"
            )
    check_same_columns(list(given.values()))
    parts = {name: examples_from_arrays(*pair) for name, pair in given.items()}
    for name, examples in parts.items():
        title = {"train": "training inputs", "test": "test inputs"}[name]
        check_finite(examples, title, getattr(given[name][0], "columns", None))
    first = parts["train"]
    second = parts.get("test", first.take(slice(0)))
    check_same_form("training examples", first.form(), "test examples", second.form())
    names = None
    if first.labels.dtype == object:
        parts = _with_names_in_one_form(parts, given)
        first, second = parts["train"], parts.get("test", parts["train"].take(slice(0)))
        names = name_classes(
            [
                (own_order(given[name][1], part.labels), np.unique(part.labels).tolist())
                for name, part in parts.items()
            ]
        )
        warn_of_missing(names)
    if domains is not None:
        values = _domains(domains[0], first)
        domains = values, values[:0] if test is None else _domains(domains[1], second)
        if len({part.dtype.kind == "M" for part in domains}) > 1:
            raise UserError(
                "received dates as the domains of one part and other values as those of the other: "
                "expected dates of both training and test examples"
            )
    pixels = pixels or pixel_scaling([pixel_range(first)])
    images = ExampleSet(first.numbered(names), second.numbered(names), pixels, domains, names)
    warn_of_targets(first.labels)
    if images.has_classes:
        check_largest_class(images.num_outputs - 1, len(first.labels) + len(second.labels))
    return images


def _with_names_in_one_form(
    parts: Mapping[str, Examples], given: Mapping[str, Any]
) -> dict[str, Examples]:
    """Examples whose booleans as text have one form; categories of pandas stay as they are."""
    if any(hasattr(getattr(pair[1], "dtype", None), "categories") for pair in given.values()):
        return dict(parts)
    forms = in_one_form(name for part in parts.values() for name in set(part.labels.tolist()))
    return {
        title: part._replace(
            labels=np.array([forms[name] for name in part.labels.tolist()], object)
        )
        for title, part in parts.items()
    }


def largest_class(examples: int) -> int:
    """The largest class number that so many examples may have: above it there are but gaps."""
    return max(2**20, examples)


def check_largest_class(largest: int, examples: int) -> None:
    """Check that class numbers are no other numbers, such as those of customers.

    Raises:
        UserError: They have gaps that no network has outputs for.
    """
    if largest > largest_class(examples):
        raise UserError(
            f"received labels up to {largest:,} for {examples:,} examples, and a network has an "
            "output for each class number: renumber the classes of training and test examples "
            "together, np.unique(labels, return_inverse=True)[1], or give names"
        )


def warn_of_targets(targets: np.ndarray) -> None:
    """Say that targets which look like classes are taken as numbers to predict.

    Args:
        targets: Those of training examples, [n, ...].
    """
    if targets.dtype != np.float32 or (targets < 0).any() or (targets % 1).any():
        return
    highest, places = int(targets.max()), targets.shape[1:]
    if targets.ndim == 1:
        present = np.unique(targets)
        if highest >= 1 and len(present) == highest + 1 <= len(targets) / 2:
            _LOGGER.warning(
                "the targets are floats that are all whole, 0 to %d, and are taken as numbers to "
                'predict: where they are classes, give integers, labels.astype("int32")',
                highest,
            )
    elif targets.ndim > 2 or highest > 1:
        _LOGGER.warning(
            "the targets are whole numbers of shape %s, and are taken as %d numbers to predict: "
            "where they are classes at each place, give arrays to fit, because a stream has one "
            "class for each example",
            targets.shape,
            np.prod(places),
        )


def check_finite(examples: Examples, title: str, columns: Any = None) -> None:
    """Check that inputs have no NaN and no infinity: a step with one changes nothing.

    Args:
        examples: The examples, at least one.
        title: What the inputs are, for the message.
        columns: The names of the columns of inputs [n, columns]; None without names.

    Raises:
        UserError: They have.
    """
    inputs = examples.inputs if isinstance(examples.inputs, dict) else {"": examples.inputs}
    for name, array in inputs.items():
        # A sum is NaN or infinite where a value is, and takes no memory.
        if array.dtype.kind != "f" or np.isfinite(array.sum(dtype=np.float64)):
            continue
        wrong = ~np.isfinite(array)
        rows = np.flatnonzero(wrong.reshape(len(array), -1).any(axis=1))
        if not len(rows):
            continue
        where = f" of {name!r}" if name else ""
        if array.ndim == 2:
            names = range(array.shape[1]) if columns is None else list(columns)
            found = [str(names[column]) for column in np.flatnonzero(wrong.any(axis=0))]
            more = ", ..." if len(found) > _MOST_SHOWN else ""
            where += f" in the columns {', '.join(found[:_MOST_SHOWN])}{more}"
        raise UserError(
            f"received {title} with NaN or infinity{where}, in {len(rows):,} of {len(array):,} "
            f"examples, the first of which is number {rows[0]} from 0: fill missing values, "
            "np.nan_to_num(inputs), or leave these examples out"
        )


def own_order(given: Any, labels: np.ndarray) -> list[str]:
    """The names of classes in the order that a part of the data has for them.

    Args:
        given: The labels as they were received: the categories of pandas have an order.
        labels: The same as text; of others the names are sorted.
    """
    categories: Any = getattr(getattr(given, "dtype", None), "categories", None)
    return categories.tolist() if hasattr(categories, "tolist") else np.unique(labels).tolist()


def check_same_form(title: str, form: list[Any], other_title: str, other: list[Any]) -> None:
    """Check that two parts of the data have examples of one form.

    Args:
        title: What the first part is, for the message.
        form: `Examples.form` of it.
        other_title: What the other one is.
        other: Its form.

    Raises:
        UserError: They do not.
    """
    if form == other:
        return
    remedy = ""
    if {form[-1][1], other[-1][1]} == {"string", "int32"}:
        remedy = (
            "; name the classes in all parts, or number them in all; a data set that was mapped "
            "has lost the class_names of its folder, so set mapped.class_names again"
        )
    raise UserError(
        f"received {title} {form} and {other_title} {other}: expected inputs and targets of one "
        f"shape and dtype{remedy}"
    )


def examples_from_arrays(inputs: Any, targets: Any) -> Examples:
    """Examples in the form of streams, from arrays as Keras's data sets return, or data frames.

    Args:
        inputs: An array [n, ...] or a dictionary of arrays; numbers or text. float64 becomes
            float32, and grey images uint8 [n, height, width] get their channel.
        targets: Class numbers, integers [n] or [n, 1] from 0, or names of classes, text; or numbers
            to predict, floats [n] or [n, outputs], as are several labels an example, [n, labels].

    Raises:
        UserError: The arrays have other dtypes, are empty or of different lengths, or have masked
            values, or targets are missing, NaN or infinite.
    """
    if isinstance(inputs, dict):
        columns: Any = {name: _column(array, name) for name, array in inputs.items()}
    else:
        columns = _column(inputs, "inputs")
    labels = _targets(targets)
    check_counts(columns, labels)
    return Examples(columns, labels)


def _column(values: Any, name: str) -> np.ndarray:
    array = as_array(values, name)
    if array.ndim == 0 or array.dtype.kind not in "biufO":
        raise UserError(
            f"received {name} of dtype {array.dtype.name} and shape {array.shape}: expected an "
            "array of numbers or text, [examples, ...]; give columns of several dtypes as a "
            "dictionary of arrays"
        )
    if array.dtype == np.uint8 and array.ndim == 3:
        return array[..., np.newaxis]
    if array.dtype != np.float64:
        return array
    with np.errstate(over="ignore"):  # to infinity, which `check_finite` refuses
        return array.astype(np.float32)  # as Keras does


def _targets(targets: Any) -> np.ndarray:
    array = as_array(targets, "labels")
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    kind = array.dtype.kind
    if kind == "O" and array.ndim == 1:
        return array
    if not array.ndim or kind not in "biuf":
        raise UserError(
            f"received labels of dtype {array.dtype.name} and shape {array.shape}: expected class "
            "numbers (integers [n] from 0), names of classes (text [n]) or numbers to predict; "
            "leave out the examples whose label is missing"
        )
    if kind == "f" or array.ndim > 1:
        unknown = int(np.sum(~np.isfinite(array)))
        if unknown:
            raise UserError(
                f"received {unknown} targets that are NaN or infinite: leave out the examples that "
                'have none, and make class numbers integers again, labels.astype("int32")'
            )
        return array.astype(np.float32)
    if len(array) and not 0 <= int(array.min()) <= int(array.max()) < 2**31:
        raise UserError(
            f"received labels from {array.min()} to {array.max()}: expected an integer from 0 up "
            "for each example; renumber the classes from 0"
        )
    return array.astype(np.int32)


def _domains(values: Any, examples: Examples) -> np.ndarray:
    check_unmasked(values, "domains")
    values = np.asarray(values)
    dates = as_dates(values)
    values = values if dates is None else dates
    if values.shape != (len(examples.labels),):
        raise UserError(
            f"received domains of shape {values.shape} for {len(examples.labels)} examples: "
            "expected a value for each training and for each test example"
        )
    try:
        np.unique(values)
    except TypeError as error:  # None or NaN among names.
        raise UserError(
            f"received domains that have no order ({error}): expected names alone or numbers "
            'alone; give examples without a domain one of their own, such as "unknown", or leave '
            "them out"
        ) from error
    unknown = int(np.sum(values != values))  # NaN and NaT, in an array of objects too
    if unknown:
        raise UserError(
            f"received {unknown} domains that are NaN: expected a number or a date for each "
            "example; give those without a domain one of their own, or leave them out"
        )
    return values


def as_dates(values: np.ndarray) -> np.ndarray | None:
    """Dates as datetime64[us], those with a time zone in UTC; None where the values are others."""
    if values.dtype.kind == "M":
        return values.astype("datetime64[us]")
    if (
        not values.size
        or values.dtype != object
        or not all(isinstance(v, datetime.date) for v in values.flat)
    ):
        return None
    plain = [
        v.astimezone(datetime.UTC).replace(tzinfo=None) if getattr(v, "tzinfo", None) else v
        for v in values.flat
    ]
    return np.array(plain, "datetime64[us]").reshape(values.shape)
