"""The tables of the finished runs."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from nccl_tf.reports.table import markdown_table
from studies.passes.plan import (
    DATA,
    PLAN,
    SYSTEMS,
    Cell,
    Job,
    Row,
    at_the_end,
    cells,
    chosen,
    jobs,
    rate_of,
)

Results = Mapping[str, Row]
_CHECKS = "../studies/passes/README.md#the-advice-on-other-data"
AT_THE_END = "*"
"""Beside a value whose rate is the lowest or highest that was tried: better ones may lie beyond."""


def runs_of(cell: Cell, results: Results) -> list[Row]:
    """The finished runs of a cell, a seed each."""
    return [run for run in tried(cell, results) if "value" in run]


def tried(cell: Cell, results: Results) -> list[Row]:
    """The runs of a cell, a seed each, those that could not be learned with at any rate too."""
    if chosen(cell, results) is None:
        return []
    rates = {seed: rate_of(cell, seed, results) for seed in PLAN["seeds"]}
    names = [Job(cell, "evaluated", seed, rate).name for seed, rate in rates.items()]
    return [results[name] for name in names if name in results]


def all_tables(results: Results) -> str:
    """A table of each data set: all cells with all their numbers."""
    made = []
    for name, data in DATA.items():
        lines = [_line(cell, results) for cell in sorted_cells(name, results)]
        if lines:
            names = (
                "system", "passes", "memory %", "rate", "seeds", _unit(name), "just learned",
                "forgetting", "examples passed", "kept, MB",
            )  # fmt: skip
            made.append(f"### {data['title']}\n\n{markdown_table(names, lines, names[1:])}")
    return "\n".join(made) or "There are no results yet: `--run_missing` makes them.\n"


def sorted_cells(data: str, results: Results) -> list[Cell]:
    """The cells of a data set with runs, by passes and memory, the best first."""
    found = [cell for cell in cells() if cell.data == data and runs_of(cell, results)]
    sign = 1 if DATA[data].get("regression") else -1

    def order(cell: Cell) -> tuple[int, float, float]:
        return cell.passes, cell.share or 0.0, sign * _mean(cell, results)

    return sorted(found, key=order)


def choice_table(results: Results) -> str:
    """What a user chooses by: the value of each system on each data set, over passes and memory."""
    made = []
    for name, data in DATA.items():
        columns = [] if data.get("check") else _columns(name, results)
        if not columns:
            continue
        lines = []
        for system in SYSTEMS.values():
            row = [_cell_of(system, name, passes, share) for passes, share in columns]
            shown = [_value(cell, results) for cell in row]
            if any(text != "-" for text in shown):
                lines.append([system["title"], *shown])
        names = ["system", *(_title(passes, share) for passes, share in columns)]
        made.append(
            f"**{data['title']}** ({_unit(name)})\n\n{markdown_table(names, lines, names[1:])}"
        )
    return "\n".join(made) or "There are no results yet.\n"


def decision_table(results: Results) -> str:
    """What to take in each case of the plan, by its rule, beside retraining on everything, and
    below it what each line was measured on."""
    lines = {
        case["title"]: line
        for case in PLAN["decision"]["cases"]
        if (line := _decision(case, results))
    }
    names = (
        "you have", "retrain?", "else take", "value", "next", "fine-tune", "retrain on all so far",
        "examples passed, of retraining",
    )  # fmt: skip
    if not lines:
        return "No case has all of its runs yet.\n"
    cases = [case for case in PLAN["decision"]["cases"] if case["title"] in lines]
    measured = "".join(f"1. {_measured_on(case, results)}\n" for case in cases)
    table = markdown_table(names, list(lines.values()), names[3:])
    return f"{table}\nThese lines, from the first to the last, were measured on\n\n{measured}"


def _measured_on(case: Row, results: Results) -> str:
    passes, seeds = case["passes"], len(seeds_of(case, results))
    data = ", ".join(map(_short, data_of(case)))
    return f"{data}; {passes} pass{'es' * (passes > 1)}, {seeds} seed{'s' * (seeds > 1)}"


class Reached(NamedTuple):
    """What a system reached in a case, over its data sets.

    Attributes:
        system: Its name in the plan.
        value: The mean, in points or hundredths of an error, the more the better or the less.
        passed: Examples passed; infinity where that is not known.
    """

    system: str
    value: float
    passed: float


def data_of(case: Row) -> list[str]:
    """The data sets of a case, with those that joined it once its advice was followed on them."""
    return [*case["data"], *case.get("joined", [])]


def allowed(case: Row) -> dict[str, list[Cell]]:
    """The cells of each system that a case allows on all of its data sets, a data set each."""
    found = {}
    for system in SYSTEMS.values():
        of_data = [
            [_cell_of(system, name, case["passes"], share) for share in {case.get("share"), None}]
            for name in data_of(case)
        ]
        here = [cell for each in of_data for cell in each if cell is not None]
        if len(here) == len(data_of(case)):
            found[system["name"]] = here
    return found


def seeds_of(case: Row, results: Results) -> list[int]:
    """The seeds that all systems of a case have been tried with, on all of its data sets."""
    seeds = [
        {run["seed"] for run in tried(cell, results)}
        for of_data in allowed(case).values()
        for cell in of_data
    ]
    return sorted(set.intersection(*seeds))


def reached(case: Row, results: Results) -> list[Reached]:
    """The systems that a case allows, the best first, by the seeds that all of them have.

    Those that could not be learned with on one of its data sets are left out.
    """
    found, seeds = [], seeds_of(case, results)
    for system, of_data in allowed(case).items():
        runs = [[run for run in runs_of(cell, results) if run["seed"] in seeds] for cell in of_data]
        if all(runs):
            value = 100 * float(np.mean([np.mean([run["value"] for run in each]) for each in runs]))
            like = SYSTEMS[system].get("passes_as", system)
            costs = [runs_of(cell._replace(system=like), results) for cell in of_data]
            passed = [run["examples_passed"] or np.inf for each in costs for run in each]
            found.append(Reached(system, value, float(np.mean(passed))))
    sign = 1 if DATA[case["data"][0]].get("regression") else -1
    return sorted(found, key=lambda one: sign * one.value)


def best(case: Row, results: Results) -> Reached | None:
    """What a case takes, by the plan's rule; None before every system that it allows has run."""
    rule = PLAN["decision"]
    able = [one for one in reached(case, results) if one.system not in rule["bounds"]]
    if not able:
        return None
    tied = [one for one in able if abs(one.value - able[0].value) <= rule["tie"]]
    return min(tied, key=lambda one: one.passed)


def _decision(case: Row, results: Results) -> tuple[str, ...] | None:
    taken, every = best(case, results), reached(case, results)
    if taken is None:
        return None
    by_name = {one.system: one for one in every}
    rule, all_so_far = PLAN["decision"], by_name.get("cumulative")
    sign = -1 if DATA[case["data"][0]].get("regression") else 1
    others = [one for one in every if one.system not in (*rule["bounds"], taken.system)]
    gain = 0.0 if all_so_far is None else sign * (all_so_far.value - taken.value)
    system = SYSTEMS[taken.system]
    chosen_options = {**system.get("options", {})}
    chosen_options.pop("memory_batch_size", None)  # As large as the batch, of all systems.
    made_of = [system["method"], *(f"{name}={value}" for name, value in chosen_options.items())]
    made_of += ["BalancedMemory"] * system.get("balanced", False)
    name = f"{system['title']} ({', '.join(f'`{each}`' for each in made_of)})"
    if taken.system == "finetune":
        name += f": none is better by more than {rule['tie']:g}"
    share = "-"
    if all_so_far is not None and np.isfinite(taken.passed):
        share = f"{taken.passed / all_so_far.passed:.1f}"
    return (
        case["title"],
        f"yes, {gain:+.1f}" if gain > rule["retrain"] else f"no, {gain:+.1f}",
        name,
        f"{taken.value:.1f}",
        f"{SYSTEMS[others[0].system]['title']} {others[0].value:.1f}" if others else "-",
        f"{by_name['finetune'].value:.1f}" if "finetune" in by_name else "-",
        "-" if all_so_far is None else f"{all_so_far.value:.1f}",
        share,
    )


def _short(data: str) -> str:
    """The title of a data set up to its first comma or bracket."""
    return DATA[data]["title"].split(",")[0].split(" (")[0]


class Checked(NamedTuple):
    """What advice was worth on data that had no part in it.

    Attributes:
        check: Its entry in the plan.
        advised: What the system that was advised reached.
        best: What the best one reached of those that do not train on everything.
        finetune: What fine-tuning reached, which needs no advice.
        gain: By how much retraining on all so far is better than what was advised, in points.
        by_late_rule: Whether what was advised failed at its tuned rate, and was made again with a
            lower one by a rule that came after that.
    """

    check: Row
    advised: Reached
    best: Reached
    finetune: Reached
    gain: float
    by_late_rule: bool

    @property
    def miss(self) -> float:
        """By how much the advice missed the best, in points or hundredths of an error."""
        return abs(self.best.value - self.advised.value)

    @property
    def holds(self) -> bool:
        """Whether that is little."""
        return self.miss <= PLAN["decision"]["close"]

    @property
    def is_easy(self) -> bool:
        """Whether fine-tuning misses the best by as little."""
        return abs(self.best.value - self.finetune.value) <= PLAN["decision"]["close"]

    @property
    def retraining_wins(self) -> bool:
        """Whether it does, by the rule of the decision."""
        return self.gain > PLAN["decision"]["retrain"]

    @property
    def right(self) -> bool:
        """Whether the page was right about it."""
        return self.retraining_wins == self.check["retrain"]


def checked(results: Results) -> list[Checked]:
    """The checks of which all systems have been tried."""
    found, before_rule = [], PLAN["decision"]["before_lower_rates"]
    for check in PLAN["checks"]:
        asked = {"data": [check["data"]], "passes": check["passes"], "share": check["share"]}
        every = reached(asked, results)
        if not every:
            continue
        by_name = {one.system: one for one in every}
        sign = -1 if DATA[check["data"]].get("regression") else 1
        advised, all_so_far = by_name[check["advice"]], by_name["cumulative"]
        first = next(one for one in every if one.system not in PLAN["decision"]["bounds"])
        gain = sign * (all_so_far.value - advised.value)
        late = check["data"] in before_rule and _at_lower_rates(
            allowed(asked)[check["advice"]], results
        )
        found.append(Checked(check, advised, first, by_name["finetune"], gain, late))
    return found


def _at_lower_rates(of_data: Sequence[Cell], results: Results) -> bool:
    """Whether a run of these cells took a lower rate than the tuned one."""
    return any(
        run["rate"] != chosen(cell, results) for cell in of_data for run in runs_of(cell, results)
    )


def _not_learned(results: Results) -> str:
    """Runs that were not learned to their end with the tuned rate, or with none."""
    lower, never = [], []
    for cell in cells():
        runs, rate = tried(cell, results), chosen(cell, results)
        title = f"{SYSTEMS[cell.system]['title']} on {cell.data}"
        failed = [run for run in runs if "value" not in run]
        again = [run for run in runs if "value" in run and run["rate"] != rate]
        for found, few in ((lower, again), (never, failed)):
            if few:
                found.append(f"{title} ({len(few)} of {len(runs)} runs)")
    told = "\nThe loss was not finite at the tuned rate, and a lower one was taken: "
    text = f"{told}{', '.join(lower)}.\n" if lower else ""
    if never:
        text += f"\nIt was finite at none that was tried, and no mean has it: {', '.join(never)}.\n"
    return text


def missing_table(results: Results) -> str:
    """Runs that the plan asks for and nobody has made, those of tuning aside."""
    asked: dict[tuple[str, str, str], dict[int, list[bool]]] = {}
    for job in jobs(results):
        if job.part == "evaluated":
            seeds = asked.setdefault((job.cell.data, *_passes_and_memory(job.cell)), {})
            seeds.setdefault(job.seed, []).append(job.name in results)
    lines = []
    for names, seeds in asked.items():
        if not all(made for every in seeds.values() for made in every):
            counts = [seeds.get(seed, []) for seed in PLAN["seeds"]]
            lines.append((*names, *(f"{sum(each)} of {len(each)}" for each in counts)))
    if not lines:
        return "Nothing: each run that the plan asks for has been made.\n"
    names = ("data", "passes", "memory %", *(f"seed {seed}" for seed in PLAN["seeds"]))
    return markdown_table(names, lines, names[1:])


def _passes_and_memory(cell: Cell) -> tuple[str, str]:
    """Both as the tables show them, a dash where there is nothing to say."""
    once = SYSTEMS[cell.system].get("once")
    share = "-" if cell.share is None else f"{100 * cell.share:g}"
    return "-" if once else str(cell.passes), share


def check_table(results: Results) -> str:
    """What the advice was worth where it was followed."""
    lines = [
        (
            DATA[one.check["data"]]["title"],
            one.check["case"],
            SYSTEMS[one.advised.system]["title"],
            f"{one.advised.value:.1f}",
            f"{SYSTEMS[one.best.system]['title']} {one.best.value:.1f}",
            f"{one.miss:.1f}",
            f"{one.finetune.value:.1f}",
            f"{'yes' if one.check['retrain'] else 'no'}; {one.gain:+.1f}",
            one.check["chosen_by"],
        )
        for one in checked(results)
    ]
    if not lines:
        return "No check has all of its runs yet.\n"
    names = (
        "data", "row of the page", "advised", "value", "best", "missed by",
        "fine-tune", "retrain? advised; gain", "chosen by",
    )  # fmt: skip
    return markdown_table(names, lines, names[3:7]) + _not_learned(results)


def _counts(every: Sequence[Checked]) -> str:
    """On how many the advice held and was right about retraining, and strictly."""

    def count(some: Sequence[Checked]) -> str:
        return f"{sum(one.holds for one in some)} and {sum(one.right for one in some)}"

    strictly = count([one for one in every if not one.by_late_rule])
    return count(every) + f" ({strictly} strictly)" * (strictly != count(every))


def check_sentence(results: Results) -> str:
    """How often the advice held, by who chose the data."""
    every = checked(results)
    if not every:
        return "The advice has not been tried on other data yet.\n"
    choosers = dict.fromkeys(one.check["chosen_by"] for one in every)
    parts = []
    for who in choosers:
        some = [one for one in every if one.check["chosen_by"] == who]
        parts.append(f"on {_counts(some)} of {len(some)} that {who} chose")
    easy = [_short(one.check["data"]) for one in every if one.is_easy]
    plain = (
        f" Fine-tuning would have been as near on {len(easy)}: {'; '.join(easy)}." if easy else ""
    )
    late = " and ".join(_short(one.check["data"]) for one in every if one.by_late_rule)
    told = (
        f' "Strictly" leaves out {late}: what was advised could not be learned there with its '
        "tuned rate, and the rule that takes a lower one was added afterwards."
    )
    return (
        f"Followed on {len(every)} data sets that no line had, the advice of the day was within "
        f"{PLAN['decision']['close']:g} points of the best of eight methods, retraining aside, and "
        f"right about retraining, on {_counts(every)}: {', '.join(parts)} "
        f"([all figures]({_CHECKS})).{told * bool(late)}{plain} Each has joined its line since.\n"
    )


def _columns(data: str, results: Results) -> list[tuple[int, float | None]]:
    """Passes and shares of memory of a data set that have runs."""
    every = {
        (cell.passes, cell.share)
        for cell in cells()
        if cell.data == data and not SYSTEMS[cell.system].get("once") and runs_of(cell, results)
    }
    return sorted(every, key=lambda column: (column[0], column[1] or 0.0))


def _title(passes: int, share: float | None) -> str:
    memory = "no memory" if share is None else f"memory {100 * share:g} %"
    return f"measured with {passes} pass{'es' if passes > 1 else ''}, {memory}"


def _cell_of(system: Row, data: str, passes: int, share: float | None) -> Cell | None:
    """The cell of a system in a column; what takes no step on the stream is in all passes."""
    once = system.get("once", False)
    for cell in cells():
        same = cell.data == data and cell.system == system["name"] and cell.share == share
        if same and (once or cell.passes == passes):
            return cell
    return None


def _value(cell: Cell | None, results: Results) -> str:
    runs = [] if cell is None else runs_of(cell, results)
    if cell is None or not runs:
        return "-"
    values = _scale(cell) * np.array([run["value"] for run in runs])
    mark = AT_THE_END if at_the_end(cell, chosen(cell, results)) else ""
    spread = f" ± {values.std():{_digits(cell)}}" if len(values) > 1 else ""
    return f"{values.mean():{_digits(cell)}}{spread}{mark}"


def _mean(cell: Cell, results: Results) -> float:
    return float(np.mean([run["value"] for run in runs_of(cell, results)]))


def _line(cell: Cell, results: Results) -> Sequence[str]:
    runs, scale, digits = runs_of(cell, results), _scale(cell), _digits(cell)
    rate = chosen(cell, results)

    def mean(name: str, factor: float, form: str) -> str:
        known = [run[name] for run in runs if run[name] is not None]
        return f"{factor * np.mean(known):{form}}" if known else "-"

    system = SYSTEMS[cell.system]
    return (
        system["title"],
        *_passes_and_memory(cell),
        "-" if len(cell.rates) == 1 else f"{rate:g}",
        str(len(runs)),
        _value(cell, results),
        mean("learned", scale, digits),
        mean("forgetting", scale, digits),
        mean("examples_passed", 1, ",.0f"),
        mean("bytes_stored", 1e-6, ".2f"),
    )


def _scale(cell: Cell) -> float:
    return 1.0 if cell.regresses else 100.0


def _digits(cell: Cell) -> str:
    return ".3f" if cell.regresses else ".1f"


def _unit(data: str) -> str:
    if DATA[data].get("regression"):
        return "error"
    return "area %" if DATA[data].get("curve") else "accuracy %"
