"""What of its settings a row has beside its method's name."""

import pytest

from nccl_tf.methods.registry import METHODS
from nccl_tf.reports.labels import changed, changes
from tests.experiment import sample


@pytest.mark.parametrize("dataset", ["permuted_digits", "split_mnist", "split_cifar100"])
def test_the_defaults_of_every_method_need_no_word(dataset):
    head = {} if dataset == "permuted_digits" else {"head": "multi"}
    for name, method in METHODS.items():
        kind = "permuted" if dataset == "permuted_digits" else "split"
        if not method.unsupported_reason(kind, head.get("head", "single")):
            assert not changed(sample.record(method=name, dataset=dataset, **head)), name


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"dark": 1.0, "stream_mask": "seen"}, {"dark": 1.0, "stream_mask": "seen"}),
        ({"average_weights": 0.9}, {"average_weights": 0.9}),
        ({"memory_batch_size": 20}, {"memory_batch_size": 20}),
        ({"hidden": [8]}, {"hidden": [8]}),
        ({"optimizer": "adam"}, {"optimizer": "adam"}),
        ({"schedule": "cosine"}, {"schedule": "cosine"}),
        ({"first_task_learning_rate": 0.5}, {"first_task_learning_rate": 0.5}),
        ({"reservoir": "off_by_one"}, {"reservoir": "off_by_one"}),
        ({"evaluate": "new"}, {"evaluate": "new"}),
        ({"epochs": 2, "stores": "every_epoch"}, {"stores": "every_epoch"}),
        ({"batch_norm": "separate"}, {"batch_norm": "separate"}),
        # They stand in other cells, or in the title of the table.
        ({"epochs": 2, "batch_size": 5, "learning_rate": 0.03, "memory": 20}, {}),
    ],
    ids=str,
)
def test_what_differs_is_named(given, expected):
    assert changed(sample.record(method="er_reservoir", **given)) == expected


def test_rows_that_read_alike_are_told_apart_by_what_differs_between_them():
    made = [sample.record(method="er_ring", dark=1.0) for _ in range(2)]
    made[1] = sample.changed(
        made[1], settings={**made[1].settings_json, "content": "abc"}, settings_hash="f" * 64
    )
    assert changes([[one] for one in made]) == ["dark 1.0", "dark 1.0, content abc"]


def test_a_method_that_nobody_knows_shows_its_options_alone():
    made = sample.record(method="er_ring", dark=1.0)
    other = sample.changed(made, method="none", settings={**made.settings_json, "method": "none"})
    assert changed(other) == {"dark": 1.0}
