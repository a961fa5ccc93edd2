"""The functions of the formulas in `docs/numbers.toml`: numbers of records and of papers.

A run is named by how the hash of its settings begins, by a name of the file's `runs`, or by the
published cell that it is of: words that choose one, such as "T9 agem m5", of table, stream, method,
memory and beta_max.
"""

import json
import re

import numpy as np
from scipy.stats import rankdata

from nccl_tf import metrics
from nccl_tf.reports.paper.alternative_forgetting import with_last_task
from nccl_tf.reports.paper.parity import compare
from nccl_tf.reports.paper.published import published, tf1_reference
from nccl_tf.reports.paper.rivals import rivals
from nccl_tf.reports.records import of_settings, read_records
from tests.reports.claims import ROOT, AtMost


class Formulas:
    """The functions over our records.

    Args:
        names: {name of a run: how the hash of its settings begins}.
    """

    def __init__(self, names):
        self._records, _ = read_records(ROOT / "results")
        self._names = names

    def functions(self):
        """{name: function}, all that a formula knows."""
        names = (
            "accuracy", "forgetting", "learned", "last_in", "after", "both", "low", "high", "std",
            "spread", "seeds", "paper", "paper_std", "printed", "gap", "verdicts", "tf1", "variant",
            "pairs", "reached", "gain", "learned_in_study", "measured", "tuned", "tuning_ranks",
            "kept", "in_torch", "tested",
        )  # fmt: skip
        return {
            **{name: getattr(self, name) for name in names},
            "within": lambda values: AtMost(max(map(abs, values))),
            "ends": lambda values: (min(values := list(values)), max(values)),
            "mean": lambda values: float(np.mean(values)), "abs": abs, "max": max, "min": min,
            "all": all, "len": len, "set": set, "sorted": sorted, "round": round,
        }  # fmt: skip

    def accuracy(self, run, seed=None):
        """Mean average accuracy, percent; of one seed if it is named."""
        return float(np.mean(self._values(run, "average_accuracy", 100, seed)))

    def forgetting(self, run, seed=None):
        return float(np.mean(self._values(run, "forgetting", 1, seed)))

    def learned(self, run, seed=None):
        """Mean learning accuracy, percent."""
        return float(np.mean(self._values(run, "learning_accuracy", 100, seed)))

    def last_in(self, run):
        """Mean forgetting with the last task counted in."""
        return float(np.mean([with_last_task(record)["forgetting"] for record in self._runs(run)]))

    def after(self, run, tasks, seed=0):
        """Mean accuracy on the first tasks, percent, when they are all that was learned."""
        (record,) = (record for record in self._runs(run) if record["seed"] == seed)
        return 100 * float(np.mean(record["accuracy_matrix"][tasks - 1][:tasks]))

    def both(self, run, seed=None):
        """(accuracy, forgetting)."""
        return self.accuracy(run, seed), self.forgetting(run, seed)

    def low(self, run):
        return min(self._values(run, "average_accuracy", 100))

    def high(self, run):
        return max(self._values(run, "average_accuracy", 100))

    def std(self, run, metric="accuracy"):
        name, scale = _metric(metric)
        return float(np.std(self._values(run, name, scale)))

    def spread(self, run, metric="accuracy"):
        """(mean, standard deviation)."""
        return getattr(self, metric)(run), self.std(run, metric)

    def seeds(self, run):
        return len(self._runs(run))

    def paper(self, cell, metric="accuracy"):
        """A published mean."""
        return _cell(cell, metric).mean

    def paper_std(self, cell, metric="accuracy"):
        return _cell(cell, metric).std

    def printed(self, cell):
        """(accuracy, forgetting) as published."""
        return self.paper(cell), self.paper(cell, "forgetting")

    def gap(self, cell, metric="accuracy"):
        """Our mean less the published one."""
        name, scale = _metric(metric)
        return float(np.mean(self._values(cell, name, scale))) - self.paper(cell, metric)

    def verdicts(self, words, metric="accuracy", last_task=False):
        """Of all cells that the words fit, in their order; with the last task counted in or not."""
        records = map(with_last_task, self._records) if last_task else self._records
        found = compare(_cells(words, metric), list(records))
        return [comparison.verdict for comparison in found]

    def tf1(self, method, metric="accuracy"):
        """What single runs of the TF1 code base gave."""
        return [getattr(run, metric) for run in tf1_reference() if run.method == method]

    def pairs(self, beside, system, page="step_sizes"):
        """[(verdict, points, forgetting)] of a system of a study, a setting each, as in docs/."""
        line = _line(page, f"### Beside {beside}", system)
        found = re.findall(r"(\w+)\*?: ([-+.\d]+) ± [.\d]+, ([-+.\d]+)", line)
        return [(verdict, float(points), float(lost)) for verdict, points, lost in found]

    def reached(self, setting, system, page="step_sizes"):
        """(averaged accuracy, averaged forgetting) of a system in a setting of a study's page."""
        return tuple(_row(page, setting, system)[2:])

    def gain(self, setting, system, page="step_sizes"):
        """Points that the average of the weights adds to the accuracy, of such a page."""
        plain, _, averaged, _ = _row(page, setting, system)
        return averaged - plain

    def learned_in_study(self, start):
        """Mean learning accuracy, percent, of the study's runs whose settings' hash begins so."""
        # Not `read_records`, which leaves out methods whose plugin is not imported.
        lines = [
            json.loads(line)
            for path in (ROOT / "docs/study/records").glob("*/*.jsonl")
            for line in path.read_text().splitlines()
        ]
        found = [r["learning_accuracy"] for r in lines if r["settings_hash"].startswith(start)]
        return 100 * float(np.mean(found))

    def tuned(self, setting, system):
        """Accuracy on tuning tasks of a system's point in a setting of the study, percent."""
        text = (ROOT / f"flags/study/{setting}/{system}.flags").read_text()
        return float(re.search(r"accuracy ([\d.]+) \+- ", text)[1])

    def tuning_ranks(self, systems, settings):
        """Each system's mean rank among them by that accuracy, in their order; 1 is best."""
        accuracy = np.array(
            [[self.tuned(setting, name) for name in systems] for setting in settings]
        )
        return rankdata(-accuracy, axis=1).mean(axis=0).tolist()

    def measured(self, column):
        """{system: number} of a column of the table in docs/step_measures.md."""
        page = (ROOT / "docs/step_measures.md").read_text().replace("\\|", "")
        table = page.split("### Permuted MNIST, 1,000 slots\n")[1].split("\n#")[0]
        names, _, *rows = ([cell.strip() for cell in line.strip("|").split("|")]
                           for line in table.splitlines() if line.startswith("|"))  # fmt: skip
        return {row[0]: float(row[names.index(column)]) for row in rows}

    def variant(self, method):
        """(mean, standard deviation) of what `benchmarks.released_variants` kept, percent."""
        found = json.loads((ROOT / "benchmarks/released_variants.json").read_text())[method]
        return 100 * float(np.mean(found)), 100 * float(np.std(found))

    def kept(self, name, where, statistics="tests"):
        """A share of what `benchmarks.mer_statistics` kept, percent."""
        found = json.loads((ROOT / "benchmarks/mer_statistics.json").read_text())
        return 100 * found[name][where][statistics]

    def in_torch(self, metric="average_accuracy", order="drawn", seed=None):
        """(mean, standard deviation) of what `benchmarks.torch_stable_sgd` kept, fractions."""
        found = json.loads((ROOT / "benchmarks/torch_stable_sgd.json").read_text())[order]
        values = [
            getattr(metrics, metric)(matrix)
            for number, matrix in found.items()
            if seed in (None, int(number))
        ]
        return float(np.mean(values)), float(np.std(values))

    def tested(self, settings, statistics):
        """(accuracy, percent, forgetting) of what `benchmarks.batch_statistics` kept, seed 0."""
        found = json.loads((ROOT / "benchmarks/batch_statistics.json").read_text())
        matrix = found[settings]["0"][statistics]
        return 100 * metrics.average_accuracy(matrix), metrics.forgetting(matrix)

    def _runs(self, run):
        start = self._names.get(run, run)
        if " " in start:
            start = _cell(run, "accuracy").settings().digest()
        found = of_settings(self._records, [start])
        assert len({record["settings_hash"] for record in found}) == 1, f"several settings: {run}"
        return found

    def _values(self, run, name, scale, seed=None):
        found = [
            scale * record[name] for record in self._runs(run) if seed in (None, record["seed"])
        ]
        assert found, f"no record of seed {seed}: {run}"
        return found


def _metric(metric):
    return {"accuracy": ("average_accuracy", 100), "forgetting": ("forgetting", 1)}[metric]


def _names(cell):
    memory, beta_max = f"m{cell.memory_size}", f"beta_max={cell.beta_max}"
    return {cell.table, cell.dataset, cell.method, memory, beta_max}


def _cells(words, metric):
    return [cell for cell in (*published(), *rivals())
            if cell.metric == metric and set(words.split()) <= _names(cell)]  # fmt: skip


def _cell(words, metric):
    found = _cells(words, metric)
    assert len(found) == 1, f"{len(found)} published cells: {words} {metric}"
    return found[0]


def _row(page, setting, system):
    """Accuracy, forgetting and both of the averaged weights, of a system in a study's page."""
    cells = _line(page, f"## {setting}", system).split("|")[3:7]
    return [float(cell.split("±")[0]) for cell in cells]


def _line(page, heading, system):
    """A system's line of the table below a heading of a study's page."""
    section = (ROOT / f"docs/{page}.md").read_text().split(f"\n{heading}\n")[1].split("\n#")[0]
    (line,) = (row for row in section.splitlines() if row.startswith(f"| {system} |"))
    return line
