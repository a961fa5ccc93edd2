"""The paper's 337 published numbers, and for each cell the flags that run it.

`published.csv` holds them as printed, with a column `doubt`: a cell that is copied from another
table, contradicted by the paper itself, from another protocol or undefined says so, and why.
`tf1_reference.csv` holds what the TF1 code base that the paper follows gives on real MNIST.
"""

import csv
import functools
from dataclasses import dataclass
from importlib import resources

from nccl_tf.experiment.config.resolve import resolve
from nccl_tf.methods.registry import METHODS
from nccl_tf.methods.row import Method
from nccl_tf.records.settings import Settings

DATASETS = {
    "Permuted-MNIST": "permuted_mnist", "Split-MNIST": "split_mnist",
    "Split-CIFAR10": "split_cifar10", "Split-CIFAR100": "split_cifar100",
    "Split-MiniImagenet": "split_mini_imagenet",
}  # fmt: skip
"""Our name of each data set, by the paper's."""

_NETWORKS = {
    "FC-[256,256]": ("mlp", (256, 256)), "FC-[400,400]": ("mlp", (400, 400)),
    "ResNet-18 n_f=20": ("resnet18_reduced", None), "ResNet-18 n_f=64": ("resnet18", None),
}  # fmt: skip
# Table 12 prints CN-DPM's names for two systems.
_OTHER_NAMES = {"GSS": "gss_greedy", "Reservoir Sampling": "er_reservoir"}
# Tables of the protocol of Jin et al. (2021, GMED): all 20 tasks of 100 classes are evaluated, and
# their baselines with a memory have one rate, and the mean over the stream plus that over memory.
_GMED_TABLES, _GMED_RATE = ("T2", "T13"), 0.03
# The rows of table 3 that tables 8 and 9 print as NCCL + Ring with memory 1.
_BETA_MAX = {("T8", "1", "nccl_ring"): 0.5, ("T9", "1", "nccl_ring"): 0.2}


@dataclass(frozen=True)
class Published:
    """One published number.

    Args:
        table: "T1" to "T13".
        dataset: Name of the stream.
        memory_size: Examples per class and task, or in all; None where the table has none.
        memory_is_total: Whether `memory_size` counts all examples.
        method: Name in the registry.
        beta_max: beta_max, step size, where the cell was run with one.
        variant: Whether the table has several rows of the method, which differ in `beta_max`.
        metric: "accuracy" (percent), "forgetting" (fraction) or "train_time_s" (seconds).
        mean: Over the published runs.
        std: Of these; None where none is printed.
        head: "single" or "multi".
        network: Name of the network that the table is of.
        hidden: Widths of its hidden layers, if it is an mlp.
        num_tasks: Tasks in all.
        examples_per_task: None where every example is used.
        doubt: Why the number is no target; "" where it is one.
    """

    table: str
    dataset: str
    memory_size: int | None
    memory_is_total: bool
    method: str
    beta_max: float | None
    variant: bool
    metric: str
    mean: float
    std: float | None
    head: str
    network: str
    hidden: tuple[int, ...] | None
    num_tasks: int
    examples_per_task: int | None
    doubt: str

    @property
    def label(self) -> str:
        """The method, with beta_max where the table has rows that differ in it alone."""
        return f"{self.method}(beta_max={self.beta_max:g})" if self.variant else self.method

    @property
    def title(self) -> str:
        """The method's name in tables."""
        title = METHODS[self.method].title
        return f"{title} (beta_max {self.beta_max:g})" if self.variant else title

    @property
    def is_of_another_protocol(self) -> bool:
        """Whether the number is that of other settings than its table names."""
        return self.doubt.startswith("another protocol")

    @property
    def seeds(self) -> int:
        """Runs that the number is a mean of."""
        return 5

    @property
    def column(self) -> tuple[str, int | None, str]:
        """(dataset, memory size, metric): cells that a table compares methods by."""
        return (self.dataset, self.memory_size, self.metric)

    def flags(self) -> dict[str, object]:
        """Flag values by name that run the cell; a flag that the method refuses is left out."""
        method = METHODS[self.method]
        flags: dict[str, object] = {
            "method": self.method, "dataset": self.dataset, "head": self.head,
            "num_tasks": self.num_tasks,
        }  # fmt: skip
        if self.examples_per_task is not None:
            flags["examples_per_task"] = self.examples_per_task
        if self.network in method.networks:
            flags["network"] = self.network
            if self.hidden is not None:
                flags["hidden"] = self.hidden
        if self.memory_size is not None and self._has_memory(method):
            kind = "memory" if self.memory_is_total else "memory_per_class"
            flags[kind] = self.memory_size
        if self.beta_max is not None:
            flags["beta_max"] = self.beta_max
        if self.table in _GMED_TABLES:
            flags |= self._gmed_flags(method)
        return flags

    def settings(self) -> Settings:
        """Settings that the cell's flags resolve to."""
        return _settings(tuple(self.flags().items()))

    def flag_file(self) -> str:
        """Path below `flags` of the file of the cell's table and setting."""
        memory = "" if self.memory_size is None else f"_m{self.memory_size}"
        return f"{self.table}/{self.dataset}{memory}.flags"

    def _gmed_flags(self, method: Method) -> dict[str, object]:
        flags: dict[str, object] = {"tuning_tasks": 0}
        # NCCL is no baseline of that protocol, and has the rate that the paper gives it.
        if method.memory is not None and not method.alpha_l_below_one:
            flags["learning_rate"] = _GMED_RATE
        if any(row.name == "er_weighting" for row in method.hyperparameters):
            flags["er_weighting"] = "sum_of_means"
        return flags

    def _has_memory(self, method: Method) -> bool:
        without = self.method == "orthog_subspace" and self.dataset == "permuted_mnist"
        return method.memory is not None and not without


@functools.cache
def _settings(flags: tuple[tuple[str, object], ...]) -> Settings:
    return resolve(dict(flags))


@functools.cache
def published() -> tuple[Published, ...]:
    """All published numbers, in the order of the tables."""
    return tuple(_published(row) for row in csv_rows("published.csv"))


def tables() -> tuple[str, ...]:
    """The tables' names in order."""
    return tuple(dict.fromkeys(cell.table for cell in published()))


@dataclass(frozen=True)
class Reference:
    """A run of the TF1 code base.

    Args:
        method: Name in the registry.
        dataset: Name of the stream.
        memory_size: Examples per class and task.
        accuracy: Percent.
        forgetting: Fraction.
    """

    method: str
    dataset: str
    memory_size: int
    accuracy: float
    forgetting: float


@functools.cache
def tf1_reference() -> tuple[Reference, ...]:
    """Runs of the TF1 code base, with 20 evaluated tasks of 10,000 examples, several a method."""
    return tuple(
        Reference(
            row["method"], row["dataset"], int(row["memory_size"]), float(row["accuracy"]),
            float(row["forgetting"]),
        )
        for row in csv_rows("tf1_reference.csv")
    )  # fmt: skip


def csv_rows(name: str) -> list[dict[str, str]]:
    """The rows of a file of numbers beside this module."""
    text = resources.files("nccl_tf.commands.paper").joinpath(name).read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines()))


def _published(row: dict[str, str]) -> Published:
    printed, _, beta_max = row["method"].rstrip(")").partition("(beta_max=")
    method = _OTHER_NAMES.get(printed) or _BY_TITLE[_plain(printed)]
    network, hidden = _NETWORKS[row["architecture"]]
    chosen = _BETA_MAX.get((row["table_id"], row["memory_size"], method))
    return Published(
        table=row["table_id"],
        dataset=DATASETS[row["dataset"]],
        memory_size=int(row["memory_size"]) if row["memory_size"] else None,
        memory_is_total="total examples" in row["setting"],
        method=method,
        beta_max=float(beta_max) if beta_max else chosen,
        variant=bool(beta_max),
        metric=row["metric"],
        mean=float(row["mean"]),
        std=float(row["std"]) if row["std"] else None,
        head=row["head"],
        network=network,
        hidden=hidden,
        num_tasks=int(row["n_tasks"]),
        examples_per_task=_examples(row, method),
        doubt=row["doubt"],
    )


def _examples(row: dict[str, str], method: str) -> int | None:
    """Training examples of a task; None for split MNIST, whose 12,000 are about all."""
    if "0.2 epoch" in row["setting"]:
        # iid-offline is the bound of all examples, which CN-DPM's 0.2 epoch does not cut.
        return None if method == "iid_offline" else 2000
    if row["dataset"] == "Split-MNIST" or not row["examples_per_task"]:
        return None
    return int(row["examples_per_task"])


def _plain(title: str) -> str:
    return title.lower().replace(" ", "")


_BY_TITLE = {_plain(method.title): method.name for method in METHODS.values()}
