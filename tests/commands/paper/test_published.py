"""The published numbers, and the flagfiles that run their cells."""

import csv
import functools
from pathlib import Path

import pytest

import nccl_tf
from docs.make.flag_files import flag_files, own_flags, shared_flags
from nccl_tf.commands._command_line import (
    parse,
)
from nccl_tf.commands.paper.published import (
    published,
    tables,
    tf1_reference,
)
from nccl_tf.commands.paper.rivals import rivals
from nccl_tf.experiment.config.resolve import leave_out, resolve
from nccl_tf.methods.registry import METHODS
from nccl_tf.records.options import as_arguments
from nccl_tf.streams.catalog import DATASETS

ROOT = Path(__file__).parents[3]
PUBLISHED = Path(nccl_tf.__file__).parent / "commands" / "paper" / "published.csv"
ROWS = list(csv.DictReader(PUBLISHED.open()))
FILES = sorted(p for top in ("T*", "DER", "ER-ACE") for p in ROOT.glob(f"flags/{top}/**/*.flags"))
PAIRS = list(zip(published(), ROWS, strict=True))


def parsed(words):
    """The flag values of a command line, as the command takes them."""
    parsed = parse(["run.py", *words])
    return leave_out(parsed.values, parsed.in_files)


def test_every_number_is_there_once():
    assert len(ROWS) == 337
    assert tables() == tuple(f"T{k}" for k in range(1, 14))
    keys = [(c.table, *c.column, c.label) for c in published()]
    assert len(set(keys)) == len(keys)


@pytest.mark.nightly
def test_the_flagfile_of_each_cell_is_as_written():
    held = {str(path.relative_to(ROOT / "flags")): path.read_text() for path in FILES}
    assert held == flag_files(), "run python -m docs.make.flag_files"


def test_a_flagfile_of_some_methods_parses_and_agrees_with_its_row():
    _parse_and_agree(list({row["method"]: (cell, row) for cell, row in PAIRS}.values())[::4])


@pytest.mark.nightly
@pytest.mark.parametrize("table", tables())
def test_flagfiles_parse_and_agree_with_their_rows(table):
    _parse_and_agree(pair for pair in PAIRS if pair[1]["table_id"] == table)


@functools.cache
def _shared(path):
    return shared_flags([cell for cell in (*published(), *rivals()) if cell.flag_file() == path])


def _arguments(cell):
    """The words of the command line that run a cell by its file."""
    own = own_flags(cell, _shared(cell.flag_file()))
    return [f"--flagfile=flags/{cell.flag_file()}", *as_arguments({"method": cell.method, **own})]


def _parse_and_agree(pairs):
    for cell, row in pairs:
        given = parsed(_arguments(cell))
        assert given["method"] in METHODS and given["dataset"] in DATASETS
        settings = resolve(given)
        assert settings == cell.settings()
        _agrees(settings, row)


def _agrees(settings, row):
    assert settings.dataset == {
        "Permuted-MNIST": "permuted_mnist", "Split-MNIST": "split_mnist",
        "Split-CIFAR10": "split_cifar10", "Split-CIFAR100": "split_cifar100",
        "Split-MiniImagenet": "split_mini_imagenet",
    }[row["dataset"]]  # fmt: skip
    assert settings.head == row["head"]
    assert settings.num_tasks == int(row["n_tasks"])
    if row["examples_per_task"] and row["dataset"] != "Split-MNIST":
        assert settings.examples_per_task == int(row["examples_per_task"])
    architecture = {
        "mlp": f"FC-{list(settings.hidden or ())}".replace(" ", ""),
        "resnet18_reduced": "ResNet-18 n_f=20",
        "resnet18": "ResNet-18 n_f=64",
    }
    if settings.method != "cn_dpm":  # It has networks of its own.
        assert architecture[settings.network] == row["architecture"]
    if settings.memory is not None and row["memory_size"]:
        classes = DATASETS[settings.dataset].num_classes
        if row["dataset"].startswith("Split"):
            classes //= settings.num_tasks
        cells = classes * (settings.num_tasks - settings.tuning_tasks)
        size = int(row["memory_size"])
        if "total" not in row["setting"]:
            assert settings.memory_capacity == size * cells
        elif settings.memory == "ring":
            assert settings.memory_capacity == size // cells * cells
        else:
            assert settings.memory_capacity == size
    beta_max = settings.hyperparameters.get("beta_max")
    if "beta_max" in row["method"]:
        assert f"NCCL+Ring(beta_max={beta_max:g})" == row["method"]
    elif (row["table_id"], row["memory_size"], row["method"]) == ("T8", "1", "NCCL+Ring"):
        assert beta_max == 0.5
    elif (row["table_id"], row["memory_size"], row["method"]) == ("T9", "1", "NCCL+Ring"):
        assert beta_max == 0.2
    else:
        assert beta_max is None


def test_a_method_without_memory_has_one_run_for_all_sizes():
    runs = {c.settings().digest() for c in published() if (c.table, c.method) == ("T5", "ewc")}
    assert len(runs) == 1


def test_the_runs_of_the_tf1_code_base_are_of_cells():
    methods = {c.method for c in published() if (c.table, c.memory_size) == ("T9", 5)}
    assert {run.method for run in tf1_reference()} <= methods
