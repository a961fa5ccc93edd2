"""A finished run on the terminal: matrix, accuracy and forgetting in 80 columns."""

from collections.abc import Sequence

from nccl_tf.records.record import Record
from nccl_tf.reports.table import mean_std

WIDTH = 80
_LABEL = "after"


def task_counts(record: Record) -> str:
    """Both counts of tasks in words, for a record or settings with these names."""
    kept = record.num_tasks - record.tuning_tasks
    text = (
        f"{record.num_tasks} tasks: {record.tuning_tasks} held out for tuning, "
        f"{kept} for evaluation"
    )
    done, tuning = record.evaluated_tasks, record.settings.tasks == "tuning"
    if tuning and record.tuning_tasks:
        text, kept = f"{text}; run on those for tuning", record.tuning_tasks
    elif tuning:
        text += "; run on a tenth of the training images in place of the test images"
    return text if done == kept else f"{text}, the first {done} of them run"


def matrix_table(matrix: Sequence[Sequence[float | None]]) -> str:
    """The accuracy matrix in whole percent, lower triangle, in blocks of at most 80 columns.

    Rows without any accuracy are left out.

    Args:
        matrix: [tasks, tasks], fractions; row i after training task i, counted from 1 in print.
    """
    count = len(matrix)
    cells = [
        ["" if j > i or a is None else f"{100 * a:.0f}" for j, a in enumerate(row)]
        for i, row in enumerate(matrix)
    ]
    heads = [str(j + 1) for j in range(count)]
    widths = [1 + max(len(heads[j]), *(len(row[j]) for row in cells)) for j in range(count)]
    blocks: list[list[int]] = [[]]
    used = len(_LABEL)
    for j, width in enumerate(widths):
        if used + width > WIDTH:
            blocks.append([])
            used = len(_LABEL)
        blocks[-1].append(j)
        used += width
    lines = ["Accuracy in percent on each task (across) after training each task (down):"]
    for block in blocks:
        lines.append(_LABEL + "".join(heads[j].rjust(widths[j]) for j in block))
        for i in (i for i in range(block[0], count) if any(cells[i])):
            row = "".join(cells[i][j].rjust(widths[j]) for j in block)
            lines.append(f"{heads[i]:>{len(_LABEL)}}{row}".rstrip())
    return "\n".join(lines)


def run_summary(record: Record) -> str:
    """One seed: counts of tasks, the matrix and the numbers made of it."""
    rows = [
        ("average accuracy", _number(record, "average_accuracy", 100, "{:.1f} %")),
        ("forgetting", _number(record, "forgetting")),
        ("learning accuracy", _number(record, "learning_accuracy", 100, "{:.1f} %")),
        ("backward transfer", _number(record, "backward_transfer")),
        ("forward transfer", _number(record, "forward_transfer")),
        ("training", f"{record.train_seconds:.1f} s, {record.steps} steps"),
        ("compiling", f"{record.compile_seconds:.1f} s"),
        ("evaluation", f"{record.eval_seconds:.1f} s"),
    ]
    if record.averaged_average_accuracy is not None:
        forgetting = record.averaged_forgetting
        rows[2:2] = [
            ("  averaged weights", f"{100 * record.averaged_average_accuracy:.1f} %"),
            ("  their forgetting", "undefined" if forgetting is None else f"{forgetting:.3f}"),
        ]
    title = f"{record.method} on {record.dataset} ({record.head}-head)"
    return "\n".join(
        [
            f"{title}, seed {record.seed}",
            task_counts(record),
            matrix_table(record.accuracy_matrix),
            *(f"{name:<18} {value}" for name, value in rows),
        ]
    )


def seeds_summary(records: Sequence[Record]) -> str:
    """Several seeds of the same settings: mean ± population std of accuracy and forgetting."""
    first = records[0]
    seeds = ",".join(str(record.seed) for record in records)
    lines = [
        f"{first.method} on {first.dataset} ({first.head}-head), {len(records)} seeds "
        f"({seeds}), mean ± std",
        task_counts(first),
        f"{'average accuracy':<18} {mean_std(records, 'average_accuracy', 100, 1)} %",
        f"{'forgetting':<18} {mean_std(records, 'forgetting', 1, 3)}",
    ]
    if first.averaged_accuracy_matrix is not None:
        lines += [
            f"{'averaged weights':<18} {mean_std(records, 'averaged_average_accuracy', 100, 1)} %",
            f"{'their forgetting':<18} {mean_std(records, 'averaged_forgetting', 1, 3)}",
        ]
    return "\n".join(lines)


def _number(record: Record, name: str, scale: float = 1, form: str = "{:.3f}") -> str:
    if getattr(record, name) is None:
        return f"undefined: {record.undefined[name]}"
    return form.format(scale * getattr(record, name))
