"""The result of a stream: accuracy matrix, metrics, a table and a plot."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import nccl_tf.metrics as metrics
from nccl_tf.errors import UserError
from nccl_tf.records.spread import spread
from nccl_tf.regular_files import read_regular

if TYPE_CHECKING:
    from nccl_tf.session.confusions import Confusions
    from nccl_tf.session.run import LearnedRun


@dataclass(frozen=True, eq=False)
class LearnResult:
    """The result of `nccl_tf.learn`.

    Where another metric than accuracy was asked for, every number is in its unit, and forgetting
    and the transfers know whether more or less of it is better: forgetting above 0 is always a
    loss, a transfer above 0 always a gain.

    Args:
        matrix: float [tasks, tasks], nan where not evaluated: row i after task i, column j on the
            test examples of task j. The next task of each row is evaluated too.
        initial: float [tasks], before any training, nan where not evaluated.
        metric: Name of what the matrix holds.
        higher_is_better: Whether more of it is better.
        title: Of the model and the stream.
        averaged: The same with the averaged weights, for a model that has `average_weights`.
        run: What was run, for `save`; None for a result that `learn` did not make.
        confusions: What classes are taken for; None where the matrix holds another metric.
    """

    matrix: np.ndarray
    initial: np.ndarray
    metric: str = "accuracy"
    higher_is_better: bool = True
    title: str = ""
    averaged: "LearnResult | None" = None
    run: "LearnedRun | None" = field(default=None, repr=False)
    confusions: "Confusions | None" = field(default=None, repr=False)

    @property
    def average_accuracy(self) -> float:
        """Mean of the last row: the metric over all tasks at the end of the stream."""
        return metrics.average_accuracy(self.matrix)

    @property
    def learning_accuracy(self) -> float:
        """Mean of the diagonal: the metric on each task right after training on it."""
        return metrics.learning_accuracy(self.matrix)

    @property
    def forgetting(self) -> float:
        """Mean loss on each task since its best row; nan for a single task."""
        return metrics.forgetting(self._gains(self.matrix))

    @property
    def backward_transfer(self) -> float:
        """Mean gain that later tasks bring to earlier ones; nan for a single task."""
        return metrics.backward_transfer(self._gains(self.matrix))

    @property
    def forward_transfer(self) -> float:
        """Mean gain that earlier tasks bring to a task before it is trained; nan for one task."""
        return metrics.forward_transfer(self._gains(self.matrix), self._gains(self.initial))

    @property
    def bytes_stored(self) -> int | None:
        """Bytes that the method keeps beside its network and the optimizer's: memory, copies of
        weights, importances, averages, statistics. None for averaged weights, whose result of the
        plain ones has it, and for a result that `learn` did not make."""
        return None if self.run is None else self.run.measured["bytes_stored"]

    @property
    def examples_passed(self) -> int | None:
        """Rows that passed forward through the network while it learned: of the stream, of the
        memory and what the method passes again. None where that depends on the data, of a model
        that had learned before and keeps a memory, and as for `bytes_stored`."""
        return None if self.run is None else self.run.measured["examples_passed"]

    def confusion(self, task: int = -1) -> np.ndarray:
        """int [classes, classes]: test examples by right class (row) and predicted class, after a
        task.

        Of the tasks so far, as far as they were evaluated. Classes are those of
        `confusions.classes`, in the order in which they came; an example that is taken for none of
        them, or has NaN, is left out.

        Args:
            task: The number of the task trained last, from 0; the last one by default.

        Raises:
            UserError: The result holds another metric than accuracy, or nothing was measured then.

        Example:

        ```python
        stream = nccl_tf.load_stream("split_digits", head="single", max_tasks=2)
        network = nccl_tf.networks.mlp(
            stream.example_shape, stream.num_classes, pixels=stream.pixels
        )
        model = nccl_tf.create("er_reservoir", network, stream, memory=100)
        model.compile(keras.optimizers.SGD(0.1))
        result = nccl_tf.learn(model, stream, verbose=0)
        print(result.confusion(), result.old_accuracy, result.new_accuracy)
        result.plot_confusion().figure.savefig("confusion.png")
        ```
        """
        return self._known_confusions().of(task)

    @property
    def class_accuracy(self) -> np.ndarray:
        """float [tasks, classes]: the share of each class that is right after each task.

        Classes are in the order of `confusions.classes`; nan for those still to come.
        """
        return self._known_confusions().class_accuracy()

    @property
    def old_accuracy(self) -> np.ndarray:
        """float [tasks]: after each task, over the classes that came before it; nan for the
        first."""
        return self._known_confusions().accuracy_of(new=False)

    @property
    def new_accuracy(self) -> np.ndarray:
        """float [tasks]: after each task, over the classes that came with it; nan if none did."""
        return self._known_confusions().accuracy_of(new=True)

    def old_and_new(self) -> list[dict[str, float | int]]:
        """The effect of each task on the classes before it, a dictionary each.

        Returns:
            "task" (from 0); "before", the accuracy over all classes of earlier tasks when the task
            began; and those when it had ended: "old" over the same classes, "new" over those that
            came with it, "all" over both; nan where there are none.

        Raises:
            UserError: The result holds another metric than accuracy.

        Example:

        ```python
        stream = nccl_tf.load_stream("split_digits", head="single", max_tasks=2)
        network = nccl_tf.networks.mlp(
            stream.example_shape, stream.num_classes, pixels=stream.pixels
        )
        model = nccl_tf.create("er_reservoir", network, stream, memory=100)
        model.compile(keras.optimizers.SGD(0.1))
        print(nccl_tf.learn(model, stream, verbose=0).old_and_new()[-1])
        ```
        """
        confusions = self._known_confusions()
        all_ = confusions.accuracy_of()
        columns = {
            "before": np.concatenate([[np.nan], all_[:-1]]),
            "old": self.old_accuracy, "new": self.new_accuracy, "all": all_,
        }  # fmt: skip
        return [
            {"task": task, **{name: float(values[task]) for name, values in columns.items()}}
            for task in range(confusions.tasks)
        ]

    def plot_confusion(self, task: int = -1, axes: Any = None) -> Any:
        """Draw `confusion(task)`, each row as shares of its class.

        Args:
            task: As for `confusion`.
            axes: Of matplotlib; None makes a figure.

        Returns:
            The axes.
        """
        from nccl_tf.reports.figures.style import new_figure, style
        from nccl_tf.session.confusions import draw_confusion

        known = self._known_confusions()
        counts, totals, names = known.of(task), known.totals(task), known.names()
        with style():
            if axes is None:
                side = max(4.2, 1.6 + 0.3 * min(len(names), 40))
                axes = new_figure((side + 0.8, side)).subplots()
            draw_confusion(axes, counts, totals, names, self.title)
        return axes

    def _known_confusions(self) -> "Confusions":
        if self.confusions is None or not self.confusions.classes:
            raise UserError(
                f"received a result in {self.metric}, which knows no classes: expected one of "
                "nccl_tf.learn without metric, on a stream of classes"
            )
        return self.confusions

    def rows(self) -> list[dict[str, float | int]]:
        """The evaluations, a dictionary each, in the order in which they were made.

        Returns:
            "tasks_trained" (0 before any training), "task" (from 0) and the metric by its name.
        """
        values = np.vstack([self.initial, self.matrix])
        return [
            {"tasks_trained": int(i), "task": int(j), self.metric: float(values[i, j])}
            for i, j in zip(*np.nonzero(np.isfinite(values)), strict=True)
        ]

    def to_pandas(self) -> Any:
        """The evaluations as a `pandas.DataFrame`, a row each; the columns are those of `rows`.

        Raises:
            UserError: pandas is not installed.
        """
        try:
            import pandas
        except ImportError as error:
            raise UserError(
                "to_pandas() needs pandas, which is not installed: pip install pandas, or take "
                "result.rows()"
            ) from error
        return pandas.DataFrame(self.rows(), columns=["tasks_trained", "task", self.metric])

    def save(self, folder: str | os.PathLike) -> Path:
        """Write the result as the record of a run, which `tables` and `report` read and show.

        It has a folder of its own below `folder`, as a run of the command: so results of many
        calls go below one folder, and seeds of the same settings make one row. A model that had
        learned before the call is another setting, in a row of its own that says "continued".

        Args:
            folder: The --output_dir of the commands that read it; made where it is missing.

        Returns:
            The path of the record, `folder/DATASET-HEAD/METHOD/HASH/seedK/result.json`.

        Raises:
            UserError: The result is not that of `learn`, holds another metric than accuracy, or
                is of a model that `METHODS` has no row for; another record is there already,
                or the folder cannot be written.

        Example:

        ```python
        stream = nccl_tf.load_stream("split_digits", max_tasks=2)
        network = nccl_tf.networks.mlp(
            stream.example_shape, stream.num_classes, pixels=stream.pixels
        )
        model = nccl_tf.Finetune(network, heads=stream.heads)
        model.compile(keras.optimizers.SGD(0.1))
        nccl_tf.learn(model, stream).save("runs")  # then: nccl-tf report --output_dir=runs
        ```
        """
        # Imported late: a result needs no file, and most are never written.
        from nccl_tf.records.files import (
            check_no_links,
            one_at_a_time,
            remove_left_over,
            write_file,
        )
        from nccl_tf.records.new_record import make_record
        from nccl_tf.records.options import RunOptions
        from nccl_tf.records.record import FILE_NAME, record_bytes
        from nccl_tf.records.settings import run_folder

        if self.run is None:
            raise UserError(
                "received a result without its run: expected the result of nccl_tf.learn; of "
                "averaged weights save the result that holds them"
            )
        if self.metric != "accuracy":
            raise UserError(
                f"received a result in {self.metric}: records hold accuracies; call learn without "
                "metric, or keep result.rows()"
            )
        if not self.run.settings.method:
            raise UserError(
                f"received the result of {self.run.learner}, which is not a registered method: "
                "register it with nccl_tf.register_method before learn; the commands take it with "
                "--plugin"
            )
        averaged = None if self.averaged is None else self.averaged.matrix
        record = make_record(
            self.run.settings, RunOptions(), self.run.seed, matrix=self.matrix,
            initial=self.initial, measured=self.run.measured, averaged=averaged,
        )  # fmt: skip
        content = record_bytes(record)
        place = run_folder(self.run.settings, str(Path(folder).expanduser()), self.run.seed)
        path, advice = place / FILE_NAME, "choose another folder"
        check_no_links(place, Path(folder).expanduser(), "folder")
        with one_at_a_time(place, advice):
            remove_left_over(place)
            if not os.path.exists(path):
                write_file(path, content, advice)
            elif not _holds(path, content):
                raise UserError(
                    f"{path} holds another result of these settings and of seed {self.run.seed}: "
                    "remove it, choose another folder, or give each result a seed of its own, "
                    f"learn(model, stream, seed={self.run.seed + 1}), by which results are told "
                    "apart, not by the seeds of the stream, the network or create"
                )
        return path

    def plot(self, axes: Any = None) -> Any:
        """Draw the matrix, and the value of each task over time.

        Args:
            axes: Two matplotlib axes; None makes a figure of two.

        Returns:
            The two axes; `axes[0].figure.savefig("result.png")` writes them.

        Raises:
            UserError: `axes` are not two.
        """
        from nccl_tf.reports.figures.style import style
        from nccl_tf.reports.figures.task_axes import draw_matrix, draw_over_time, quantity_of

        with style():
            if axes is None:
                from matplotlib import pyplot

                side = max(4.2, 1.6 + 0.4 * len(self.matrix))
                size = (side + 8.0, side)
                axes = pyplot.subplots(1, 2, figsize=size, layout="constrained")[1]
            axes = np.ravel(axes)
            if len(axes) != 2:
                raise UserError(
                    f"received {len(axes)} axes: expected two, for the matrix and the curves, such "
                    "as those of pyplot.subplots(1, 2)"
                )
            what = quantity_of(self.metric, self.higher_is_better)
            draw_matrix(axes[0], self.matrix, self.title, what)
            draw_over_time(axes[1], self.matrix, self.title, what)
        return axes

    def __str__(self) -> str:
        names = ("average_accuracy", "forgetting", "learning_accuracy", "backward_transfer")
        numbers = ", ".join(f"{n.replace('_', ' ')} {getattr(self, n):.3f}" for n in names)
        if self.metric != "accuracy":
            numbers = numbers.replace("accuracy", self.metric)
        averaged = "" if self.averaged is None else f"\n{self.averaged}"
        return f"{self.title}: {numbers}{averaged}"

    __repr__ = __str__  # of a notebook's cell too; the matrix is an attribute

    def _gains(self, values: np.ndarray) -> np.ndarray:
        """Values where larger is better."""
        return values if self.higher_is_better else -values


def plot_results(results: Mapping[str, LearnResult | Sequence[LearnResult]]) -> Any:
    """Draw several results side by side: the mean over the tasks so far, and each task at the end.

    Args:
        results: Results of `learn` by the names that the legend shows, all in the same metric. A
            list of results, such as of several seeds, is drawn as their mean with a band, and bars,
            of one population standard deviation. Bars begin at 0, but for values that lie so close
            that they would look alike.

    Returns:
        A figure of matplotlib with two axes; `figure.savefig("results.png")` writes it.

    Raises:
        UserError: There are none, one is no result, or they hold different metrics; or those of a
            list are of different numbers of tasks.

    Example:

    ```python
    stream = nccl_tf.load_stream("split_digits", head="single", max_tasks=3)
    results = {}
    for name, memory in (("ER", nccl_tf.ReservoirMemory(100)), ("fine-tuning", None)):
        network = nccl_tf.networks.mlp(
            stream.example_shape, stream.num_classes, pixels=stream.pixels
        )
        model = nccl_tf.ExperienceReplay(network, memory) if memory else nccl_tf.Finetune(network)
        model.compile(keras.optimizers.SGD(0.1))
        results[name] = nccl_tf.learn(model, stream, verbose=0)
    nccl_tf.plot_results(results).savefig("results.png")
    ```
    """
    from nccl_tf.reports.figures.style import new_figure, numbered_style, style
    from nccl_tf.reports.figures.task_axes import quantity_of, set_task_ticks

    if not isinstance(results, Mapping) or not results:
        raise UserError(
            f"received {type(results).__name__} {results!r:.60}: expected a dictionary of results "
            'by name, such as {"NCCL": nccl_tf.learn(model, stream)}'
        )
    runs = {name: _runs_of(name, given) for name, given in results.items()}
    units = {
        result.metric: result.higher_is_better for members in runs.values() for result in members
    }
    if len(units) > 1:
        raise UserError(
            f"received results in {', '.join(sorted(units))}: expected one metric; draw those of "
            "each by themselves"
        )
    quantity = quantity_of(*next(iter(units.items())))
    count = max(len(members[0].matrix) for members in runs.values())
    with style():
        figure = new_figure((10.0, 4.0))
        over_time, at_end = figure.subplots(1, 2)
        width, ends = 0.8 / len(runs), []
        for place, (name, members) in enumerate(runs.items()):
            look = numbered_style(place)
            values = np.stack([quantity.drawn(result.matrix) for result in members])
            after = np.arange(1, values.shape[1] + 1)
            so_far = np.stack([values[:, i - 1, :i].mean(1) for i in after], 1)
            known = np.isfinite(so_far).all(0)  # Of joint training the last one alone.
            (mean, std, _), end = spread(so_far[:, known]), spread(values[:, -1])
            over_time.plot(after[known], mean, label=name, markersize=4, **look)
            ends += [end.mean - end.std, end.mean + end.std]
            bars = at_end.bar(
                after + (place + 0.5) * width - 0.4, end.mean, width,
                color=look["color"], label=name,
            )  # fmt: skip
            if len(members) > 1:
                over_time.fill_between(
                    after[known], mean - std, mean + std, color=look["color"], alpha=0.15, lw=0
                )
                middles = [bar.get_x() + bar.get_width() / 2 for bar in bars]
                at_end.errorbar(
                    middles, end.mean, end.std, fmt="none", ecolor="0.35", elinewidth=0.8,
                )  # fmt: skip
        over_time.set(xlabel="tasks trained", ylabel=quantity.label, title="Mean over tasks so far")
        at_end.set(xlabel="task", ylabel=quantity.label, title="At the end of the stream")
        if (bottom := _bottom_of_bars(np.concatenate(ends))) > 0:
            at_end.set_ylim(bottom=bottom)
        for axes in (over_time, at_end):
            set_task_ticks(axes.xaxis, count, first=1)
            axes.grid(axis="y", color="0.9")
            axes.set_axisbelow(True)
        figure.legend(
            *over_time.get_legend_handles_labels(), loc="outside lower center", frameon=False,
            ncols=min(len(results), 4),
        )  # fmt: skip
    return figure


def _holds(path: Path, content: bytes) -> bool:
    """Whether a file has this content; what is no regular file has none."""
    try:
        return read_regular(path, len(content)) == content
    except OSError:
        return False


def _bottom_of_bars(values: np.ndarray) -> float:
    """Where bars begin: at 0, unless their ends then differ by less than a tenth of their height.

    Args:
        values: The ends of bars, with those of their deviations.
    """
    values = values[np.isfinite(values)]
    if not len(values):
        return 0.0
    low, high = values.min(), values.max()
    if low <= 0 or high - low > 0.1 * high:
        return 0.0
    return max(0.0, float(low - max(high - low, 0.01 * high)))


def _runs_of(name: str, given: Any) -> list[LearnResult]:
    """The results of a name, one or several.

    Raises:
        UserError: One is no result, there are none, or they are of different numbers of tasks.
    """
    members = [given] if isinstance(given, LearnResult) else given
    if not isinstance(members, Sequence) or not members:
        members = [given]
    for result in members:
        if not isinstance(result, LearnResult):
            raise UserError(
                f"received a {type(result).__name__} for {name!r}: expected a result of "
                "nccl_tf.learn, or a list of them"
            )
    lengths = sorted({len(result.matrix) for result in members})
    if len(lengths) > 1:
        raise UserError(
            f"received results of {' and '.join(map(str, lengths))} tasks for {name!r}: expected "
            "one number; give each a name"
        )
    return list(members)
