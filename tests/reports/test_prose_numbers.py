"""Numbers typed into the pages of results are those of records, or of a source that is named."""

import re
from pathlib import Path

import numpy as np
import pytest

from nccl_tf.reports.paper.published import published, tf1_reference
from nccl_tf.reports.records import by_settings, read_records

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs" / "results").glob("*.md"))]
MEAN_STD = re.compile(r"(\d+\.\d+) ± (\d+\.\d+)")
# Accuracy in percent, and forgetting with the three digits that our tables have.
PAIR = re.compile(r"\b(\d\d\.\d)(?: ± \d\.\d)?(?:, | \()(0\.\d{3})\b")
MADE = re.compile(r"<!-- (\w+):begin -->.*?<!-- \1:end -->", re.DOTALL)

# On the page it says of each why there is no record of it here.
WITHOUT_RECORD = {
    "permuted_mnist.md": {
        ("88.1", "0.8"),  # a sweep's trials
        ("42.7", "0.189"),  # the recipe as a loop in PyTorch
        ("76.6", "0.116"), ("82.1", "0.100"), ("88.9", "0.031"), ("80.1", "0.055"),
    },
    "split_cifar100.md": {("42.8", "0.5"), ("48.1", "2.7")},  # sweeps' trials
}  # fmt: skip


@pytest.fixture(scope="module")
def known():
    """Pairs as they are printed: of settings, of single runs, of the paper and of its code."""
    result = set()
    groups = by_settings(read_records(ROOT / "results")[0], tuning=True)
    for group in [*groups, *([record] for one in groups for record in one)]:
        accuracy = 100 * np.array([record["average_accuracy"] for record in group])
        result.add((f"{accuracy.mean():.1f}", f"{accuracy.std():.1f}"))
        if None not in (fall := [record["forgetting"] for record in group]):
            result.add((f"{accuracy.mean():.1f}", f"{np.mean(fall):.3f}"))
            result.add((f"{np.mean(fall):.3f}", f"{np.std(fall):.3f}"))
    cells = {}
    for cell in published():
        row = (cell.table, cell.dataset, cell.memory_size, cell.method, cell.beta_max)
        cells.setdefault(row, {})[cell.metric] = cell
        if cell.metric == "accuracy" and cell.std is not None:
            result.add((f"{cell.mean:.1f}", f"{cell.std:.1f}"))
    for row in cells.values():
        if {"accuracy", "forgetting"} <= set(row):
            result.add((f"{row['accuracy'].mean:.1f}", f"{row['forgetting'].mean:.3f}"))
    runs = tf1_reference()
    result |= {(f"{a.accuracy:.1f}", f"{b.forgetting:.3f}") for a in runs for b in runs
               if (a.method, a.dataset) == (b.method, b.dataset)}  # fmt: skip
    return result


def typed(page):
    text = MADE.sub("", page.read_text())
    return {*MEAN_STD.findall(text), *PAIR.findall(text)}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_typed_numbers_are_those_of_records(page, known):
    assert typed(page) - known - WITHOUT_RECORD.get(page.name, set()) == set()


def test_numbers_are_found_and_exceptions_are_needed(known):
    numbers = {page.name: typed(page) for page in PAGES}
    assert sum(map(len, numbers.values())) > 90
    for name, pairs in WITHOUT_RECORD.items():
        assert pairs <= numbers[name] - known, name
