"""The pages of the methods: complete, and in step with what the command refuses."""

import functools
import itertools
import re

from docs.make import methods as method_docs
from nccl_tf.errors import UserError
from nccl_tf.experiment.config.resolve import resolve
from nccl_tf.methods.registry import METHODS
from nccl_tf.streams.catalog import DATASETS
from tests.experiment import sample


@functools.cache
def refused():
    """(method, data set, head) of every case that the page names."""
    page = method_docs.methods_overview(method_docs.source_file)
    table = page.split("## Where a method does not run")[1]
    cases = set()
    for line in table.splitlines():
        if line.startswith("| ") and not line.startswith(("| ---", "| method")):
            methods, streams, heads, reason = (c.strip() for c in line.strip("|").split("|"))
            assert reason
            names = METHODS if methods == "every one" else re.findall(r"`(\w+)`", methods)
            streams = re.findall(r"`(\w+)`", streams)
            cases.update(itertools.product(names, streams, heads.split(" and ")))
    return cases


def test_the_overview_of_the_repository_is_up_to_date():
    """`python -m docs.make.methods` writes it."""
    text = method_docs.methods_overview(method_docs.source_file)
    assert method_docs.OVERVIEW.read_text() == text
    assert all(f"| [`{name}`](../nccl_tf/methods/" in text for name in METHODS)


def test_the_page_names_what_the_command_refuses():
    for method, dataset in itertools.product(METHODS, DATASETS):
        for head in ("single", "multi"):
            try:
                resolve({"method": method, "dataset": dataset, "head": head})
            except UserError:
                assert (method, dataset, head) in refused()
            else:
                assert (method, dataset, head) not in refused()


def test_every_method_has_its_source_and_hyperparameters():
    for name, row in METHODS.items():
        page = method_docs.method_page(name, [], picture=False)
        assert len(row.source) > 20 and page.startswith(f"# {row.title}\n\n`{name}`: {row.source}")
        assert all(f"| `{number.name}` |" in page for number in row.hyperparameters)


def test_the_picture_has_the_best_settings_of_each_method(monkeypatch):
    drawn = []
    monkeypatch.setattr(method_docs, "accuracy_over_tasks", lambda lines: drawn.extend(lines))
    monkeypatch.setattr(method_docs, "as_svg", lambda figure: "<svg>")
    runs = [
        sample.record([[0.9, 0.1], [last, last]], method=method, learning_rate=rate)
        for method, rate, last in (
            ("er_ring", 0.1, 0.5), ("er_ring", 0.2, 0.7), ("er_ring", 0.3, 0.6),
            ("finetune", 0.1, 0.3), ("agem", 0.1, 0.4),
        )
    ]  # fmt: skip
    # Of another stream, which has fewer runs and is easier.
    runs.append(sample.record([[1, 0.1], [1, 1]], method="nccl_ring", examples_per_task=20))
    runs.append(sample.record([[1, 0.1], [1, 1]], method="er_ring", examples_per_task=20))
    method_docs.method_picture("er_ring", runs)
    assert len({line.look["color"] for line in drawn}) == len(drawn)
    assert {line.title: list(line.records) for line in drawn} == {
        "ER-Ring": [runs[1]], "Fine-tune": [runs[3]],
    }  # fmt: skip
