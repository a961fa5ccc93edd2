"""The catalog of streams and the checks of their settings."""

import subprocess
import sys

import pytest

from nccl_tf.errors import UserError
from nccl_tf.streams.catalog import DATASETS, get_dataset
from nccl_tf.streams.plan import plan_stream


def test_names_and_counts_are_those_of_the_decisions():
    rows = {
        name: (row.num_tasks, row.tuning_tasks, row.default_head, row.family)
        for name, row in DATASETS.items()
    }
    assert rows == {
        "permuted_mnist": (23, 3, "single", "mnist"),
        "split_mnist": (5, 0, "single", "mnist"),
        "rotated_mnist": (20, 0, "single", "mnist"),
        "fashion_mnist": (5, 0, "single", "mnist"),
        "split_cifar10": (5, 0, "single", "cifar"),
        "split_cifar100": (20, 3, "multi", "cifar"),
        "split_mini_imagenet": (20, 3, "multi", "mini_imagenet"),
        "permuted_digits": (10, 0, "single", "mnist"),
        "split_digits": (5, 0, "multi", "mnist"),
        "reuters": (5, 0, "single", "other"),
        "breast_cancer": (5, 0, "single", "other"),
        "diabetes": (5, 0, "single", "other"),
    }
    assert get_dataset("permuted_mnist").examples_per_task == 10_000


def test_catalog_and_checks_import_nothing_heavy():
    code = (
        "import sys, nccl_tf.streams.catalog, nccl_tf.streams.plan;"
        "print([m for m in ('tensorflow', 'keras', 'sklearn') if m in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.stdout.strip() == "[]", result.stderr


def test_defaults_are_filled_in():
    plan = plan_stream(DATASETS["split_cifar100"])
    assert plan == ("multi", 20, 3, 17, 5, None, "ordered", None)
    plan = plan_stream(DATASETS["permuted_mnist"], num_tasks=7, tuning_tasks=2, max_tasks=4)
    assert plan == ("single", 7, 2, 4, 10, 10_000, "ordered", None)
    assert plan_stream(DATASETS["split_digits"], max_tasks=99).run_tasks == 5
    assert plan_stream(DATASETS["split_digits"], head="single").head == "single"


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("permuted_mnist", {"head": "multi"}, "multi.*permuted_mnist.*single head"),
        ("split_mnist", {"head": "double"}, "unknown head 'double'"),
        ("split_mnist", {"num_tasks": 3}, "num_tasks=3 .*10 classes.*1, 2, 5, 10"),
        ("split_mnist", {"num_tasks": 0}, "num_tasks=0"),
        ("split_mnist", {"tuning_tasks": 5}, "tuning_tasks=5"),
        ("permuted_mnist", {"num_tasks": 3}, "tuning_tasks=3"),
        ("split_mnist", {"tuning_tasks": -1}, "tuning_tasks=-1"),
        ("split_mnist", {"max_tasks": 0}, "max_tasks=0"),
        ("split_mnist", {"examples_per_task": 0}, "examples_per_task=0"),
        ("split_mnist", {"num_tasks": 2.5}, "num_tasks=2.5"),
    ],
)
def test_impossible_settings_are_refused(name, settings, message):
    with pytest.raises(UserError, match=message):
        plan_stream(DATASETS[name], **settings)
