"""Numbers that the papers of later methods publish, and the flags that run them here.

`published_rivals.csv` holds what could be read of them, each number with its source, its place and
its protocol. A cell is made of those whose protocol the library can run: method, data and metric
are here, and the rate is known.
"""

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from nccl_tf.commands.paper.published import Published, csv_rows
from nccl_tf.methods.registry import METHODS

CONTENTS = {
    "DER": "rotated MNIST of the DER paper (Buzzega et al., NeurIPS 2020)",
    "ER-ACE": "online split CIFAR-100 of the ER-ACE paper (Caccia et al., ICLR 2022)",
}
"""What each table shows."""

_SOURCES = {"Buzzega": "DER", "Caccia": "ER-ACE"}
_RUNS = 10  # of each number, in both papers

# The DER paper: domain-incremental, all 60,000 images in one pass; "any" angle in the half turn.
_DER: dict[str, Any] = {
    "num_tasks": 20, "tuning_tasks": 0, "examples_per_task": 60_000, "hidden": (100, 100),
    "batch_size": 128, "angles": "any",
}  # fmt: skip
# The rates and weights of its authors' code, utils/best_args.py, by data set, slots and method.
_DER_CHOSEN: dict[tuple[str, int, str], dict[str, Any]] = {
    ("rotated_mnist", 0, "online_ewc"): {"learning_rate": 0.1, "ewc_lambda": 0.7},
    ("rotated_mnist", 0, "si"): {"learning_rate": 0.1, "si_c": 1.0, "si_xi": 1.0},
    ("rotated_mnist", 200, "er_reservoir"): {"learning_rate": 0.2},
    ("rotated_mnist", 200, "agem"): {"learning_rate": 0.1},
    ("rotated_mnist", 200, "gem"): {"learning_rate": 0.01, "gem_margin": 0.5},
    ("rotated_mnist", 200, "der"): {"learning_rate": 0.2, "dark": 1.0},
    ("rotated_mnist", 200, "derpp"): {"learning_rate": 0.1, "der_alpha": 1.0, "der_beta": 0.5},
    ("rotated_mnist", 500, "er_reservoir"): {"learning_rate": 0.2},
    ("rotated_mnist", 500, "agem"): {"learning_rate": 0.3},
    ("rotated_mnist", 500, "gem"): {"learning_rate": 0.01, "gem_margin": 0.5},
    ("rotated_mnist", 500, "der"): {"learning_rate": 0.2, "dark": 0.5},
    ("rotated_mnist", 500, "derpp"): {"learning_rate": 0.2, "der_alpha": 0.5, "der_beta": 1.0},
}
_REPRINTED = "second hand: read in a later paper's reprint of the DER paper's table"
_RING = {
    200: "; its memory has ten random examples of a task, ours one of each class",
    500: "; its memory has 25 random examples of a task, ours two of each class, 400 in all",
}

# The ER-ACE paper: one pass, separate losses on stream and memory, no augmentation here.
_ACE: dict[str, Any] = {"num_tasks": 20, "tuning_tasks": 0, "learning_rate": 0.1}
# The best means of its authors' own sweep without augmentation, or with it where there is no other:
# github.com/pclucas14/AML, sweeps/hp_result_final.csv, CIFAR-100 and 100 examples a class.
_ACE_CHOSEN: dict[str, dict[str, Any]] = {
    "er_reservoir": {"er_weighting": "sum_of_means"},
    "er_ace": {},
    "mir": {},
    "derpp": {"learning_rate": 0.01, "der_alpha": 0.25, "der_beta": 1.0},
}
_COSINE = "another protocol: its network ends in a cosine layer"
_ACE_DOUBTS = {
    "derpp": f"{_COSINE}, and it learns augmented images, which ours does not",
    "mir": (
        f"{_COSINE}; its number is the better one of with and without augmentation, which ours has "
        "none of; and it replays no example of the task that it learns"
    ),
}
_BETTER = (
    f"{_COSINE}, and its number is the better one of with and without augmentation, which ours has "
    "none of"
)


@dataclass(frozen=True)
class Rival(Published):
    """A number of a later paper, over ten runs."""

    chosen: Mapping[str, Any] = field(default_factory=dict, hash=False)
    """Flag values by name, beside method, data set, head and memory."""

    @property
    def seeds(self) -> int:
        return _RUNS

    def flags(self) -> dict[str, Any]:
        flags: dict[str, Any] = {"method": self.method, "dataset": self.dataset, "head": self.head}
        memory = {"memory": self.memory_size} if METHODS[self.method].memory else {}
        return flags | memory | dict(self.chosen)


@functools.cache
def rivals() -> tuple[Rival, ...]:
    """The numbers that the library can run, in the order of the file."""
    rows = (_rival(row) for row in csv_rows("published_rivals.csv"))
    return tuple(row for row in rows if row is not None)


def _rival(row: Mapping[str, str]) -> Rival | None:
    table = _SOURCES.get(row["source"].split()[0])
    dataset, slots, method = row["dataset"], int(row["memory_size"]), row["method"]
    chosen: dict[str, Any] | None = None
    if row["metric"] == "accuracy" and table == "DER":
        chosen = _DER_CHOSEN.get((dataset, slots, method))
    if row["metric"] == "accuracy" and table == "ER-ACE" and dataset == "split_cifar100":
        chosen = _ACE_CHOSEN.get(method)
    if table is None or chosen is None:
        return None
    std = float(row["std"])
    if table == "DER":
        chosen = _DER | chosen
        if METHODS[method].memory and method != "gem":
            chosen["memory_batch_size"] = 128
        doubt = _REPRINTED + (_RING[slots] if method in ("agem", "gem") else "")
    else:
        chosen, doubt = _ACE | chosen, _ACE_DOUBTS.get(method, _BETTER)
        std = round(std * (_RUNS - 1) ** 0.5, 2)  # a standard error is printed
    return Rival(
        table=table, dataset=dataset, memory_size=slots or None, memory_is_total=True,
        method=method, beta_max=None, variant=False, metric=row["metric"], mean=float(row["mean"]),
        std=std, head=row["head"], network="mlp" if table == "DER" else "resnet18_reduced",
        hidden=chosen.get("hidden"), num_tasks=chosen["num_tasks"],
        examples_per_task=chosen.get("examples_per_task"), doubt=doubt, chosen=chosen,
    )  # fmt: skip
