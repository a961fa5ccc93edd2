"""Loading a stream by name, or from a user's arrays."""

import numbers
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from nccl_tf.arguments.choices import ANGLES, HEADS, STREAM_KINDS, TASKS
from nccl_tf.errors import UserError, checked_at_least, checked_name
from nccl_tf.streams.arrays import (
    ExampleSet,
    PixelScaling,
    as_dates,
    dtype_name,
    each_input,
    pixel_range,
    pixel_scaling,
    set_from_arrays,
)
from nccl_tf.streams.catalog import SCHEMES, StreamRow, get_dataset, scheme_of, short_name
from nccl_tf.streams.domains import domain_count, domain_tasks, in_windows
from nccl_tf.streams.permuted import permuted_tasks
from nccl_tf.streams.plan import StreamPlan, plan_stream
from nccl_tf.streams.rotated import rotated_tasks
from nccl_tf.streams.seeding import CLASS_ORDER, HELD_OUT_IMAGES, OWN_TEST, generator
from nccl_tf.streams.sources.examples import load_examples
from nccl_tf.streams.sources.named import Description, ReadArguments, describe, read_named
from nccl_tf.streams.split import check_classes, check_complete, named_classes, split_tasks
from nccl_tf.streams.stream import Stream
from nccl_tf.streams.text import is_text, text_stream
from nccl_tf.streams.validation import TEST_SHARE, every_fifth, held_out, last_held_out

KINDS = {
    "permuted": permuted_tasks,
    "split": split_tasks,
    "rotated": rotated_tasks,
    "domain": domain_tasks,
}
"""How examples are cut into tasks, by the kind of the stream."""


def load_stream(
    name: str,
    *,
    head: str | None = None,
    seed: int = 0,
    num_tasks: int | None = None,
    tuning_tasks: int | None = None,
    tasks: str = "evaluated",
    max_tasks: int | None = None,
    examples_per_task: int | None = None,
    angles: str | None = None,
    kind: str | None = None,
    image_size: int | None = None,
    label: str | None = None,
    domain: str | None = None,
    by: str | None = None,
    positive: str | None = None,
    data_dir: str | os.PathLike | None = None,
    manual_dir: str | os.PathLike | None = None,
    length: int | None = None,
    tokenizer: Any = None,
) -> Stream:
    """Load a stream of the catalog, or cut any data set by name into one.

    Arguments that are None take the catalog's value. Of a data set by name all examples are read
    into memory, and `num_tasks` is needed, but for domains; images of TFDS are kept decoded for
    the next process.

    Args:
        name: "permuted_mnist", "split_mnist", "rotated_mnist", "fashion_mnist", "split_cifar10",
            "split_cifar100", "split_mini_imagenet", "permuted_digits", "split_digits", "reuters"
            (text), "breast_cancer", "diabetes" (tables; the second one has numbers to predict) or
            one that was registered; or a data set by name:
            "tfds:NAME", any of TFDS with one class label and one image or text;
            "folder:PATH", images in train/CLASS/ and test/CLASS/ (or val/, as tiny-ImageNet too
            has it), or in CLASS/ alone;
            "list:PATH", a file with lines "path label", paths from its folder on, or a folder with
            train.txt and test.txt;
            "csv:PATH", a CSV file with a header, or a folder with train.csv and test.csv. Where
            there are no test examples every fifth one of each class is held out, in each domain
            where there are domains; of domains that are dates the last fifth of each task.
            "text:FOLDER", a corpus a task: the text files below FOLDER/CORPUS, in the order of
            their paths, cut into rows of tokens, of which the last fifth is held out. Inputs are
            {"token_ids", "padding_mask"}, int32 [n, length], as KerasHub's models take them, and
            targets the token that follows at each place.
        head: "single" or "multi".
        seed: Seed of class order, permutations and subsets; >= 0.
        num_tasks: Number of tasks, including tuning tasks.
        tuning_tasks: Number of these tasks that are held out for tuning.
        tasks: "evaluated", or "tuning" for a stream to choose hyperparameters on: the tuning tasks
            or, for a stream without tuning tasks, the evaluated tasks with a fixed tenth of the
            training images of each class in place of the test images, which are then not used.
        max_tasks: Keep only the first tasks; the split into tasks stays the same.
        examples_per_task: Training examples of a task.
        angles: Of a rotated stream: "ordered" (the default; each task's in its own part of the half
            turn) or "any" (each anywhere in it).
        kind: Of a data set by name, how it is cut: "split" (the default), "permuted", "rotated" or
            "domain" (the default with a `domain`).
        image_size: Of a data set by name, the side that images are resized to, in pixels; None for
            the size that all of them have.
        label: Of a CSV file, the column of the labels; by default "label".
        domain: Of a CSV file, the column of the domains: names, numbers or dates as of ISO 8601.
        by: Of domains that are dates, as for `stream_from_arrays`.
        positive: Of a data set by name with two classes, as for `stream_from_arrays`.
        data_dir: TFDS's data folder; digits and tables need none, and reuters.npz lies where Keras
            has its data sets, below the folder that KERAS_HOME names.
        manual_dir: Folder with the files of mini-ImageNet; other streams need none.
        length: Of text, tokens in a row; None for 128.
        tokenizer: Of text, a KerasHub tokenizer, or another function from a text to integers with
            `vocabulary_size()`; None for the bytes of the files, 256 tokens.

    Raises:
        UserError: Unknown name, inconsistent settings, or missing or broken data.

    Example:

    ```python
    stream = nccl_tf.load_stream("split_digits", head="multi", seed=0)
    for task in stream:
        batches = task.train_batches(batch_size=10, seed=0)
        images, labels = task.test
    ```
    """
    checked_name("tasks", tasks, TASKS)
    if is_text(name):
        _refuse_beside_text(
            name, head=head, num_tasks=num_tasks, tuning_tasks=tuning_tasks, angles=angles,
            kind=kind, image_size=image_size, label=label, domain=domain, by=by, positive=positive,
            tasks=None if tasks == TASKS[0] else tasks,
        )  # fmt: skip
        return text_stream(name, length, tokenizer, max_tasks, examples_per_task)
    if length is not None or tokenizer is not None:
        raise UserError(f"received length or tokenizer for {name}, which is no text: leave it out")
    named = None
    if scheme_of(name) is None:
        _refuse_of_named(
            name, kind=kind, image_size=image_size, label=label, domain=domain, by=by,
            positive=positive,
        )  # fmt: skip
        row = get_dataset(name)
    else:
        generator(seed, CLASS_ORDER)
        reading = ReadArguments(image_size, label or "label", domain, positive, by)
        named = read_named(name, reading, data_dir)
        row = named_row(name, describe(named, by, num_tasks is None), kind, num_tasks)
    plan = plan_stream(row, head, num_tasks, tuning_tasks, max_tasks, examples_per_task, angles)
    generator(seed, CLASS_ORDER)  # Refuses a bad seed before minutes go into reading data.
    if row.make is not None:
        stream = row.make(plan=plan, seed=seed, data_dir=data_dir, manual_dir=manual_dir)
        return _tasks_to_run(_checked(stream, row, plan, tasks), tasks, max_tasks)
    data = load_examples(row.source, data_dir, manual_dir) if named is None else named
    if data.has_classes and data.num_outputs > row.num_classes:
        raise UserError(
            f"the images of {name} have {data.num_outputs} classes: expected {row.num_classes}; "
            f"give the data set it is named after"
        )
    if row.kind == "domain":
        data = in_windows(data, plan.num_tasks, by)
    if not len(data.test.labels):
        data = _rescaled(_hold_out(data, 1 / TEST_SHARE, every_fifth))
    if tasks == "tuning" and not plan.tuning_tasks:
        data = hold_out_examples(data)
    stream = cut(data, row, plan, seed)
    if plan.angles != ANGLES[0]:
        stream = replace(stream, made=f"angles {plan.angles}")
    return _tasks_to_run(stream, tasks, max_tasks)


def named_row(name: str, found: Description, kind: str | None, num_tasks: int | None) -> StreamRow:
    """The row of a data set by name, as the catalog would have it.

    Args:
        name: Such as "folder:/data/pets".
        found: What it holds.
        kind: How it is cut into tasks; None for domains where there are some, else by class.
        num_tasks: Tasks; None for one a domain.

    Raises:
        UserError: The kind is unknown or has no meaning for the data, or the number of tasks is
            missing.
    """
    kind = checked_name("kind", kind or ("domain" if found.domains else "split"), STREAM_KINDS)
    if kind == "domain" and not found.domains:
        raise UserError(
            f'{name} has no domains for kind="domain": name their column of a CSV file with '
            "domain= (--domain), or take another kind"
        )
    if num_tasks is None and kind != "domain":
        raise UserError(
            f"received no num_tasks for {name}, cut by kind={kind!r}: expected the number of "
            f"tasks, num_tasks=5 or --num_tasks=5; it has {found.num_classes} classes"
        )
    return StreamRow(
        name=short_name(name),
        kind=kind,
        num_tasks=num_tasks or found.domains,
        num_classes=found.num_classes,
        family="cifar" if found.is_colour else "other",
        heads=HEADS if kind == "split" else ("single",),
        has_classes=found.has_classes,
    )


def _refuse_of_named(name: str, **given: Any) -> None:
    for argument, value in given.items():
        if value is not None:
            raise UserError(
                f"received {argument}={value!r} for {name}, which is no data set by name: leave it "
                f"out, or name one, such as {' or '.join(f'{s}:...' for s in SCHEMES)}"
            )


def _refuse_beside_text(name: str, **given: Any) -> None:
    for argument, value in given.items():
        if value is not None:
            raise UserError(
                f"received {argument}={value!r} for {name}, whose tasks are its corpora: leave "
                f"{argument} out; max_tasks takes the first ones"
            )


def _tasks_to_run(stream: Stream, tasks: str, max_tasks: int | None) -> Stream:
    if tasks != "tuning":
        return stream
    if stream.tuning:
        stream = replace(stream, tasks=stream.tuning[:max_tasks], tuning=())
    return replace(stream, made=f"{stream.made} tuning".strip())


def _checked(stream: Stream, row: StreamRow, plan: StreamPlan, tasks: str) -> Stream:
    """A stream that its row made, if it is as planned."""
    made = (len(stream.tasks), len(stream.tuning), stream.num_classes, stream.head)
    planned = (plan.run_tasks, plan.tuning_tasks, row.num_classes, plan.head)
    if made != planned:
        names = "tasks, tuning tasks, classes and head"
        raise UserError(
            f"{row.name} made a stream of {made} {names}: expected {planned}, as its row and the "
            "settings say"
        )
    if tasks == "tuning" and not stream.tuning:
        raise UserError(
            f"{row.name} makes its stream itself and holds no tasks out for tuning: give it "
            "tuning tasks with --tuning_tasks"
        )
    return stream


def stream_from_arrays(
    train: tuple[Any, Any],
    test: tuple[Any, Any] | None = None,
    *,
    test_fraction: float | None = None,
    num_tasks: int | None = None,
    classes: Sequence[Sequence[int]] | None = None,
    kind: str | None = None,
    domains: tuple[Any, Any] | int | str | None = None,
    by: str | None = None,
    head: str = "single",
    seed: int = 0,
    tuning_tasks: int = 0,
    examples_per_task: int | None = None,
    angles: str | None = None,
    pixels: PixelScaling | None = None,
    positive: str | None = None,
    name: str = "own",
) -> Stream:
    """Make a stream of tasks from a user's arrays, such as those of `keras.datasets`.

    Args:
        train: Training inputs and targets. Inputs are an array [n, ...] of numbers or text, or a
            dictionary of such arrays; grey images uint8 [n, height, width] get a channel, float64
            becomes float32. Targets are class numbers, integers [n] or [n, 1] from 0, or names of
            classes, text [n], which are numbered over training and test together and kept in
            `Stream.class_names`: in the order of the categories where both are of the same pandas
            categories, else sorted; or numbers to predict, floats [n] or [n, outputs].
        test: Test inputs and targets, in the same form; None to hold out a share of `train`.
        test_fraction: Share of the training examples that are held out for the test where there is
            no `test`, in (0, 1): of each class, or of all numbers to predict, rounded up; the seed
            draws them. `domains` are then those of all examples, [n], and the share is of each
            class in each domain; where they are dates, it is the last examples of each task.
        num_tasks: Number of tasks, including tuning tasks; for a split stream, a divisor of the
            number of classes. None for a task a domain, or where `classes` are named.
        classes: The classes of each task of a split stream in order, such as [[0, 1], [5, 2, 3]],
            or by their names: of any number, each in one task at most. None for as many in each
            task, in the order that the seed draws.
        kind: "split" (the tasks have disjoint classes: class-incremental, or with head="multi"
            task-incremental), "permuted" (every task has all classes, with permuted pixels),
            "rotated" (with rotated images) or "domain" (with inputs from another domain); None for
            "domain" where there are `domains`, else "split".
        domains: The domain of each training and of each test example: names, numbers or dates [n],
            such as a column of datetimes; or the column of the inputs that tells it, by its number
            or name, which leaves the inputs of a data frame where it is no number. Where more
            numbers or dates differ than there are tasks, the tasks have ranges of them with equally
            many training examples: dates make windows of a stream that has no boundaries, whose
            accuracies and forgetting `learn` measures.
        by: A period of the calendar, "day", "week", "month", "quarter" or "year": domains that are
            dates make a task of each, in order, or with fewer `num_tasks` ranges of whole
            ones. None for dates as they are.
        head: "single" or "multi" (split streams only).
        seed: Seed of class order, permutations, angles and subsets; >= 0.
        tuning_tasks: Number of these tasks that are held out for tuning.
        examples_per_task: Training examples of a task; None takes all.
        angles: As for `load_stream`.
        pixels: Scaling of inputs by the package's networks; None for images to the range from 0
            to 1: those without negative values, and with a highest value above 1 in training, are
            multiplied by 1/255 where that is at most 255 and not far below, else by 1 over it.
            Images are uint8, or have two axes or more; other inputs are left as they are.
        positive: Of two classes with names, the one that metrics of two classes judge, such as
            "fraud": it gets the number 1. None for the second one of `Stream.class_names`.
        name: Name of the stream.

    Raises:
        UserError: The arrays have other shapes or dtypes, masked values, inputs or targets that are
            NaN or infinite, or the settings are inconsistent.

    Example:

    ```python
    images = np.random.default_rng(0).integers(0, 256, (200, 8, 8), dtype=np.uint8)
    labels = np.arange(200) % 10
    train, test = (images[:150], labels[:150]), (images[150:], labels[150:])
    by_class = nccl_tf.stream_from_arrays(train, test, num_tasks=5)
    half_first = nccl_tf.stream_from_arrays(train, test, classes=[range(5), [5, 6], [7, 8, 9]])
    with_heads = nccl_tf.stream_from_arrays(train, test, num_tasks=5, head="multi")
    blurry = nccl_tf.stream_from_arrays(train, test, num_tasks=5).blurred(0.1)
    cameras = np.arange(150) % 3, np.arange(50) % 3
    by_domain = nccl_tf.stream_from_arrays(train, test, domains=cameras)
    dates = np.datetime64("2026-01-01") + np.arange(150)
    windows = nccl_tf.stream_from_arrays(  # in order, the last fifth of each held out
        train, test_fraction=0.2, domains=dates, num_tasks=5
    )
    months = nccl_tf.stream_from_arrays(train, test_fraction=0.2, domains=dates, by="month")
    ```
    """
    kind = kind or ("split" if domains is None else "domain")
    checked_name("kind", kind, STREAM_KINDS)
    if domains is not None and kind != "domain":
        raise UserError(f'received domains and kind={kind!r}: expected kind="domain", or no kind')
    is_column = isinstance(domains, (int, numbers.Integral, str))
    own: Any = domains
    if (test is None) == (test_fraction is None):
        given = "neither" if test is None else "both"
        raise UserError(
            f"received {given} of test and test_fraction: expected test=(inputs, targets), or "
            "test_fraction=0.2 to hold out a fifth of the training examples"
        )
    if is_column:
        parts = [_cut_column(part, domains) for part in (train, test) if part is not None]
        train, test = parts[0][0], None if test is None else parts[-1][0]
        own = parts[0][1] if test is None else tuple(values for _, values in parts)
    if test is None and own is not None:
        own = own, None
    data = set_from_arrays(train, test, pixels, own).with_positive(positive)
    if by is not None and domains is None:
        raise UserError(f"received by={by!r} without domains: expected domains=dates")
    if kind == "domain":
        if num_tasks is None and data.domains is not None:
            num_tasks = domain_count(data.domains[0], by)
        data = in_windows(data, checked_at_least("num_tasks", num_tasks or 1, 1), by)
    if test_fraction is not None:
        data = hold_out_examples(data, test_fraction, seed, OWN_TEST)
        data = _rescaled(data) if pixels is None else data
    named = None
    if classes is not None:
        if (kind, num_tasks, tuning_tasks) != ("split", None, 0):
            raise UserError(
                f"received classes and kind={kind!r}, num_tasks={num_tasks} or tuning_tasks="
                f"{tuning_tasks}: leave these out; all tasks that classes name are evaluated"
            )
        named = named_classes(classes, data, data.num_outputs)
        num_tasks = len(named)
    elif kind == "split":
        check_classes(data)
        check_complete(data, data.num_outputs)
    if num_tasks is None:
        raise UserError(
            f"received no num_tasks for a {kind} stream: expected the number of tasks, such as "
            "num_tasks=5"
        )
    row = StreamRow(
        name=name,
        kind=kind,
        num_tasks=num_tasks,
        num_classes=data.num_outputs,
        heads=HEADS if kind == "split" else ("single",),
        default_head=head,
    )
    shares = num_tasks if named is None else 1  # named classes need not be shared equally
    plan = plan_stream(row, head, shares, tuning_tasks, None, examples_per_task, angles)
    if named is not None:
        plan = plan._replace(num_tasks=num_tasks, run_tasks=num_tasks, classes=named)
    return cut(data, row, plan, seed)


def _cut_column(part: tuple[Any, Any], column: Any) -> tuple[tuple[Any, Any], Any]:
    """Examples, and the column of their inputs that tells their domains.

    A column that no network takes leaves the inputs: dates, and text of a data frame.
    """
    inputs, targets = part
    try:
        values = inputs[column] if isinstance(column, str) else np.asarray(inputs)[:, column]
    except (KeyError, IndexError, ValueError) as error:
        raise UserError(
            f"received domains={column!r}: expected the name of a column of the inputs, or the "
            "number of one where they are an array [examples, columns]"
        ) from error
    if not isinstance(column, str):
        return part, values
    if isinstance(inputs, dict):
        if as_dates(np.asarray(values)) is not None:
            inputs = {name: array for name, array in inputs.items() if name != column}
    elif np.asarray(values).dtype.kind not in "biuf":
        inputs = inputs.drop(columns=[column])
    return (inputs, targets), values


def cut(data: ExampleSet, row: StreamRow, plan: StreamPlan, seed: int) -> Stream:
    """Split a data set into the tasks of a plan; the seed draws classes, permutations and subsets.

    Raises:
        UserError: It has too few examples or classes for the plan.
    """
    tasks, tuning = KINDS[row.kind](data, plan, seed)
    return Stream(
        name=row.name,
        family=row.family,
        head=plan.head,
        tasks=tasks,
        tuning=tuning,
        num_tasks=plan.num_tasks,
        num_classes=row.num_classes,
        example_shape=each_input(data.train.inputs, lambda array: array.shape[1:]),
        pixels=data.pixels,
        example_dtype=each_input(data.train.inputs, dtype_name),
        class_names=data.class_names,
        positive=data.positive,
    )


def hold_out_examples(
    data: ExampleSet, share: float = 0.1, seed: int = 0, purpose: int = HELD_OUT_IMAGES
) -> ExampleSet:
    """Replace the test examples by a share of the training examples, which are trained on no more.

    Args:
        data: The data set; its test examples are dropped. Of a stream of domains the share is of
            each, and of dates the last examples.
        share: As for `held_out`, like the others. By default a tenth, the same for every seed.
        seed: Likewise.
        purpose: Likewise.
    """

    def draw(labels: np.ndarray, windows: np.ndarray | None) -> np.ndarray:
        return held_out(labels, share, seed, purpose, windows=windows)

    return _hold_out(data, share, draw)


def _hold_out(
    data: ExampleSet,
    share: float,
    choose: Callable[[np.ndarray, np.ndarray | None], np.ndarray],
) -> ExampleSet:
    """Hold examples out: of domains that are dates the last ones, else what a function chooses.

    Args:
        data: The data set; its test examples are dropped.
        share: Of the last examples.
        choose: (labels [n], domains int [n] or None) -> which are held out, bool [n].
    """
    windows = data.windows and data.windows[0]
    values = data.domains and data.domains[0]
    if windows is not None and values is not None and values.dtype.kind == "M":
        held = last_held_out(values, windows, share)
    else:
        held = choose(data.train.labels, windows)

    def cut(column: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return column[~held], column[held]

    return data._replace(
        train=data.train.take(~held),
        test=data.train.take(held),
        domains=data.domains and cut(data.domains[0]),
        windows=data.windows and cut(data.windows[0]),
    )


def _rescaled(data: ExampleSet) -> ExampleSet:
    """A data set whose scaling is that of its training images, not of what is held out."""
    return data._replace(pixels=pixel_scaling([pixel_range(data.train)]))
