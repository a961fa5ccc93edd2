"""A small plan on the digits, and records of its runs that nobody trained."""

from nccl_tf.experiment.config.flags import as_arguments
from nccl_tf.experiment.study.plan_file import read_plan
from tests.experiment import sample

TEXT = """
title = "Two methods"
text = "What is compared."
most_trials = 4

[flags]
average_weights = 0.9

[[settings]]
name = "digits"
title = "Digits, 100 slots"
flags = { dataset = "permuted_digits", memory_per_class = 1, max_tasks = 3 }
tuning_flags = { max_tasks = 2 }
seeds = [0, 1]
tuning_seeds = [100]

[[settings]]
name = "heads"
title = "Digits with heads"
flags = { dataset = "split_digits", memory_per_class = 1 }
seeds = [0, 1]
tuning_seeds = [100]

[[systems]]
name = "nccl"
flags = { method = "nccl_reservoir" }
grids = { mnist = { learning_rate = [0.1, 1.0], delta = [0.001, 0.1] } }

[[systems]]
name = "mc_sgd"
title = "Merged"
flags = { method = "mc_sgd" }
grids = { mnist = { learning_rate = [0.1] }, heads = { learning_rate = [0.05, 0.1] } }
seeds = { digits = [0] }
tuning_seeds = { heads = [101, 102] }

[[systems]]
name = "er_ace"
flags = { method = "er_ace" }
grids = { mnist = { learning_rate = [0.1] } }
left_out = { digits = "no class is new" }
"""


def write_plan(folder, *changes):
    """The path of the plan, with some of its text replaced."""
    text = TEXT
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    (folder / "study").mkdir(exist_ok=True)
    path = folder / "study" / "plan.toml"
    path.write_text(text)
    return path


def cells(folder, *changes):
    """The cells of the plan by the names of setting and system."""
    plan = read_plan(write_plan(folder, *changes))
    return {(cell.setting.name, cell.system.name): cell for cell in plan.cells()}


def choose(cell, **point):
    """Write the flag file of a point as tuning does."""
    cell.flag_file.parent.mkdir(exist_ok=True)
    cell.flag_file.write_text("\n".join(as_arguments(cell.flag_values(point))))


def record(cell, seed, accuracy):
    """A record of a cell's run: every task at this accuracy, half of it for averaged weights."""
    values, settings = cell.chosen()
    given = {name: value for name, value in values.items() if value is not None}
    rows = [[accuracy] * settings.max_tasks for _ in range(settings.max_tasks)]
    return sample.record(rows, seed, **{"num_tasks": settings.num_tasks, **given})
