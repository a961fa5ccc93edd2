"""The flags of the command, declared once: parser and help are both made of these rows.

Every default is None, so that a value given by hand can be told from one that is not; what None
stands for is resolved in `settings` and `options`, and said in the help. Imports nothing heavy.
"""

from collections import Counter
from dataclasses import dataclass
from typing import Any

from nccl_tf.hyperparameters import Hyperparameter
from nccl_tf.methods.registry import METHODS
from nccl_tf.streams.catalog import DATASETS


@dataclass(frozen=True)
class FlagRow:
    """One flag.

    Args:
        name: Name without the dashes.
        kind: "text", "int", "float", "bool", "ints" (whole numbers, separated by commas) or "sweep"
            (the name of another flag and values for it; may be given several times).
        topic: Heading in the help.
        meaning: What it sets, one sentence.
        default: What holds when it is not given, in words.
        symbol: Symbol in the paper, or "".
        unit: Unit in words, or "" where there is none.
    """

    name: str
    kind: str
    topic: str
    meaning: str
    default: str
    symbol: str = ""
    unit: str = ""


def _listing(values: dict[str, Any]) -> str:
    """The commonest value, then the others with the names they hold for."""
    common = Counter(values.values()).most_common(1)[0][0]
    others: dict[Any, list[str]] = {}
    for name, value in values.items():
        if value != common:
            others.setdefault(value, []).append(name)
    parts = [f"{value} for {', '.join(names)}" for value, names in others.items()]
    return str(common) + (f" ({'; '.join(parts)})" if parts else "")


def _by_dataset(column: str) -> str:
    values = {name: getattr(row, column) for name, row in DATASETS.items()}
    return _listing({name: "all" if value is None else value for name, value in values.items()})


def _learning_rates() -> str:
    families = (("MNIST and digits", "mnist"), ("CIFAR", "cifar"), ("ImageNet", "mini_imagenet"))
    return "; ".join(
        f"{title}: {_listing({m.name: getattr(m.learning_rates, key) for m in METHODS.values()})}"
        for title, key in families
    )


def methods_with(hyperparameter: str) -> dict[str, Hyperparameter]:
    """The methods that have a hyperparameter of that name, each with its own row of it."""
    return {
        method.name: row
        for method in METHODS.values()
        for row in method.hyperparameters
        if row.name == hyperparameter
    }


def hyperparameter_names() -> tuple[str, ...]:
    """Names of all methods' hyperparameters, each once, in the registry's order."""
    rows = (row for method in METHODS.values() for row in method.hyperparameters)
    return tuple(dict.fromkeys(row.name for row in rows))


def _hyperparameter_rows() -> tuple[FlagRow, ...]:
    result = []
    for name in hyperparameter_names():
        rows = methods_with(name)
        row = next(iter(rows.values()))
        default = _listing({m: r.describe_default() for m, r in rows.items()})
        kind = "text" if row.kind == "choice" else row.kind
        meaning = f"{row.help}; {row.describe_range()}; of {', '.join(rows)}"
        result.append(FlagRow(name, kind, "Methods", meaning, default, row.symbol, row.unit))
    return tuple(result)


_RUN, _STREAM, _NETWORK = "What runs", "Stream of tasks", "Network"
_MEMORY, _RATE, _SPEED, _OUTPUT = "Replay memory", "Learning rate", "Execution", "Input and output"

FLAGS: tuple[FlagRow, ...] = (
    FlagRow("method", "text", _RUN, f"one of {', '.join(METHODS)}", "nccl_ring"),
    FlagRow("dataset", "text", _RUN, f"one of {', '.join(DATASETS)}", "permuted_digits"),
    FlagRow("seeds", "ints", _RUN, "one run each; a seed fixes the stream, the weights and the "
            "draws from memory", "0"),
    FlagRow("sweep", "sweep", _RUN, "values of another flag for the command sweep to try, such as "
            "learning_rate:0.01,0.1; once for each flag; flagfiles of flags/grids hold the "
            "published grids", "none"),
    FlagRow("head", "text", _STREAM, "single (all classes compete) or multi (a task's own classes; "
            "split streams only)", _by_dataset("default_head")),
    FlagRow("num_tasks", "int", _STREAM, "tasks in all, with those held out for tuning",
            _by_dataset("num_tasks"), "", "tasks"),
    FlagRow("tuning_tasks", "int", _STREAM, "tasks of these held out for tuning, which are "
            "trained on with --tasks=tuning alone", _by_dataset("tuning_tasks"), "", "tasks"),
    FlagRow("tasks", "text", _STREAM, "evaluated, or tuning: the tasks held out for tuning or, "
            "where there are none, a fixed tenth of the training images in place of the test "
            "images, as the command sweep has it", "evaluated"),
    FlagRow("max_tasks", "int", _STREAM, "train and evaluate the first N tasks only; the "
            "split into tasks stays", "all", "K", "tasks"),
    FlagRow("examples_per_task", "int", _STREAM, "training examples of each task",
            _by_dataset("examples_per_task"), "", "examples"),
    FlagRow("batch_size", "int", _STREAM, "examples from the stream in a step", "10", "|J_t|",
            "examples"),
    FlagRow("epochs", "int", _STREAM, "passes over each task, or over all tasks at once",
            _listing({name: method.epochs for name, method in METHODS.items()}), "", "passes"),
    FlagRow("network", "text", _NETWORK, "mlp, resnet18_reduced (20 filters) or resnet18 (64); of "
            "cn_dpm mlp_experts or conv_experts",
            "mlp or mlp_experts on MNIST and digits, else resnet18_reduced or conv_experts"),
    FlagRow("hidden", "ints", _NETWORK, "widths of the hidden layers of the mlp", "256,256", "",
            "units"),
    FlagRow("conv_init", "text", _NETWORK, "reference (uniform, as the paper's code base) or he; "
            "first weights of a ResNet", "reference"),
    FlagRow("mask", "text", _NETWORK, "multi-head: own (logits of each example's own task) or "
            "union (of the tasks in the batch)", "own"),
    FlagRow("memory_per_class", "int", _MEMORY, "examples for each class of each task; a reservoir "
            "holds this times all classes of all evaluated tasks", "5", "m", "examples"),
    FlagRow("memory_size", "int", _MEMORY, "size of the whole memory, in place of "
            "--memory_per_class", "m x classes per task x evaluated tasks", "|M|", "examples"),
    FlagRow("memory_batch_size", "int", _MEMORY, "examples drawn from memory in a step", "10",
            "|I_t|", "examples"),
    FlagRow("reservoir", "text", _MEMORY, "exact (each example seen is kept with probability "
            "|M|/n) or off_by_one (as the paper's code base)", "exact"),
    FlagRow("learning_rate", "float", _RATE, "step size of SGD; finite and above 0",
            _learning_rates(), "alpha", "step size"),
    FlagRow("first_task_learning_rate", "float", _RATE, "step size in the first task",
            "--learning_rate", "alpha", "step size"),
    FlagRow("schedule", "text", _RATE, "constant, or inverse_sqrt: alpha x sqrt(1000 / T), T the "
            "number of steps of the task", "constant"),
    *_hyperparameter_rows(),
    FlagRow("precision", "text", _SPEED, "float32, mixed_bfloat16 or mixed_float16 "
            "(emulated and slow on a CPU); weights and the paper's quantities stay float32",
            "float32"),
    FlagRow("jit_compile", "bool", _SPEED, "compile gradients and update with XLA", "off"),
    FlagRow("steps_per_execution", "int", _SPEED, "steps in one call of the graph; changes speed, "
            "not results", "50 with convolutions, else 200", "", "steps"),
    FlagRow("workers", "int", _SPEED, "`sweep` and `parity --run_missing`: runs side by side, each "
            "with an equal share of the cores", "1", "", "processes"),
    FlagRow("ray_address", "text", _SPEED, "`sweep` and `parity --run_missing`: Ray cluster to run "
            "on, such as auto or host:6379 (needs the package ray)", "this machine, without Ray"),
    FlagRow("deterministic", "bool", _SPEED, "only operations that give the same bits every time "
            "(slower on a GPU)", "off"),
    FlagRow("device", "text", _SPEED, "auto (the GPUs, or the CPU where there is none), cpu, gpu, "
            "gpu:N for one of several, or cpu:N for the CPU as N devices to try --distribute on",
            "auto"),
    FlagRow("distribute", "text", _SPEED, "mirrored (over all devices of this machine) or "
            "multi_worker (over machines, as the environment variable TF_CONFIG says); batch sizes "
            "are of all devices together", "one device"),
    FlagRow("output_dir", "text", _OUTPUT, "folder of the runs; where `tables`, `figures`, "
            "`parity` and `report` look", "runs"),
    FlagRow("overwrite", "bool", _OUTPUT, "run again what is finished already", "off"),
    FlagRow("checkpoint_every", "float", _OUTPUT, "time between checkpoints inside a task; one is "
            "written at every task end too", "60", "", "seconds"),
    FlagRow("resume", "text", _OUTPUT, "folder of the one seed to go on with; other settings than "
            "that run's are refused", "the unfinished run of the same settings"),
    FlagRow("record_every", "int", _OUTPUT, "steps in one row of steps.csv", "50", "", "steps"),
    FlagRow("diagnostics", "text", _OUTPUT, "what the record tells of the theory: off, subset "
            "(gradients over 200 examples of each task; Gamma every 10th step where the method "
            "does not measure it) or full (all examples, every step; docs/theory.md has the cost)",
            "off"),
    FlagRow("tensorboard", "bool", _OUTPUT, "write TensorBoard events into the run's folder",
            "off"),
    FlagRow("profile", "bool", _OUTPUT, "trace the run's second call of the graph with "
            "TensorFlow's profiler, into the run's folder; TensorBoard's profile page shows it",
            "off"),
    FlagRow("progress", "text", _OUTPUT, "bar (drawn anew), plain (a line a task), json (an object "
            "a line, for scripts) or none", "bar on a terminal, else plain"),
    FlagRow("data_dir", "text", _OUTPUT, "folder of TensorFlow Datasets",
            "the environment variable TFDS_DATA_DIR, else ~/tensorflow_datasets"),
    FlagRow("manual_dir", "text", _OUTPUT, "folder or file that you bring (mini-ImageNet)",
            "downloads/manual below --data_dir"),
    FlagRow("readme", "text", _OUTPUT, "`tables` and `parity`: put the tables between "
            "`<!-- results:begin -->` (`parity`: `parity:begin`) and the mark that ends in `:end` "
            "of this file", "print it"),
    FlagRow("docs", "text", _OUTPUT, "`methods`: write the page of the methods into this file",
            "print it"),
    FlagRow("figure", "text", _OUTPUT, "`figures`: 2 (the paper's figure 2, at the "
            "runs' L or that of --smoothness), bound (gradient norms "
            "and the theorem's bound) or steps (step sizes of one run over time)", "2"),
    FlagRow("figure_dir", "text", _OUTPUT, "`figures` and `data`: folder of the pictures",
            "figures"),
    FlagRow("check", "bool", _OUTPUT, "`tables --readme`, `parity --readme` and `methods --docs`: "
            "change nothing, exit 1 if the file is not up to date", "off"),
    FlagRow("table", "text", _OUTPUT, "`parity`: table of the paper, T1 to T13; --dataset and "
            "--method choose among its cells", "all"),
    FlagRow("json", "bool", _OUTPUT, "`parity`: print the cells as one JSON object", "off"),
    FlagRow("strict", "bool", _OUTPUT, "`parity`: exit 1 if a cell differs", "off"),
    FlagRow("run_missing", "bool", _OUTPUT, "`parity`: first run what a cell lacks of --seeds "
            "(here 0,1,2,3,4 by default)", "off"),
    FlagRow("format", "text", _OUTPUT, "`report`: html (one page), latex or csv (the tables)",
            "html"),
    FlagRow("report_dir", "text", _OUTPUT, "`report`: folder of its files", "report"),
)  # fmt: skip
