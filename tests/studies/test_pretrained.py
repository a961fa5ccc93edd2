"""The study of pretrained networks: tiny runs, what tuning chooses, who makes what, the tables."""

import itertools
import json

import keras
import numpy as np
import pytest

import nccl_tf
from docs.make.generated_files import read_text
from nccl_tf.methods.registry import METHODS
from studies.pretrained import blocks, page, runs
from studies.pretrained.runs import Cell, Results, Wanted

SYSTEMS = {system["name"]: system for system in runs.PLAN["systems"]}
LABELS = np.arange(80, dtype=np.int32) % 4
PARTS = dict.fromkeys(("train", "test"), (np.eye(4, dtype=np.float16)[LABELS] + 0.1, LABELS))
SEED = runs.PLAN["tuning_seed"]
FIGURES = {
    "forgetting": 0.1, "seconds": 3, "bytes_stored": 2e6, "examples_passed": 4000,
    "devices": "2 CPU cores",
}  # fmt: skip


def cell(name, network="dinov2", passes=1):
    return Cell(passes, network, SYSTEMS[name])


def results(tmp_path, *rows):
    """Results of keys with accuracies."""
    path = tmp_path / "results.jsonl"
    lines = [json.dumps({**key, **FIGURES, "accuracy": accuracy}) for key, accuracy in rows]
    path.write_text("".join(f"{line}\n" for line in lines))
    return Results([path])


@pytest.mark.parametrize("name", ["ncm", "alignment", "alignment_long", "joint"])
def test_a_run_has_its_figures_and_its_key(name):
    numbers = {"learning_rate": 1.0} if name != "ncm" else {"ncm_distance": "cosine"}
    key = cell(name, passes=2).key(0, numbers)
    row = runs.run(SYSTEMS[name], PARTS, {"tasks": 2}, key)
    assert {name: row[name] for name in key} == key
    assert row["accuracy"] == 1.0 and set(row) == {*key, *runs.FIGURES, "devices"}
    assert (row["forgetting"] is None) == (name == "joint")


def test_a_rate_that_diverges_counts_as_tried(tmp_path):
    derpp = cell("derpp")
    keys = [derpp.key(SEED, {"learning_rate": rate}) for rate in runs.PLAN["first_rates"]]
    parts = dict.fromkeys(("train", "test"), (1e3 * PARTS["train"][0], LABELS))
    row = runs.run(
        SYSTEMS["derpp"], parts, {"tasks": 2}, {**keys[2], "numbers": {"learning_rate": 1e6}}
    )
    assert row["accuracy"] is None and set(row) == {*keys[2], *runs.FIGURES, "devices"}
    found = results(tmp_path, (keys[0], 0.2), (keys[1], 0.3), (keys[2], None))
    assert runs.chosen(found, derpp) == {"learning_rate": 0.01}


def test_the_most_accurate_point_is_chosen_once_all_are_tried(tmp_path):
    ncm = cell("ncm")
    tried = [
        (ncm.key(SEED, {"ncm_distance": "euclidean"}), 0.3),
        (ncm.key(SEED, {"ncm_distance": "cosine"}), 0.4),
    ]
    assert runs.chosen(results(tmp_path, tried[0]), ncm) is None
    found = results(tmp_path, *tried)
    assert runs.chosen(found, ncm) == {"ncm_distance": "cosine"}
    assert runs.chosen(found, cell("ncm", "efficientnet")) is None


def test_rates_go_on_where_the_best_is_at_an_end(tmp_path):
    mask = cell("mask_of_task")

    def tried(**accuracies):
        rates = {float(name.replace("_", ".")): value for name, value in accuracies.items()}
        rows = [(mask.key(SEED, {"learning_rate": r}), v) for r, v in rates.items()]
        found = results(tmp_path, *rows)
        points = [point["learning_rate"] for point in runs.points(found, mask)]
        return points, runs.chosen(found, mask)

    first = {"0_003": 0.1, "0_01": 0.2, "0_03": 0.3}
    assert tried() == ([0.003, 0.01, 0.03], None)
    assert tried(**first) == ([0.003, 0.01, 0.03, 0.1], None)
    assert tried(**first, **{"0_1": 0.2}) == ([0.003, 0.01, 0.03, 0.1], {"learning_rate": 0.03})
    low = {"0_003": 0.3, "0_01": 0.2, "0_03": 0.1, "0_001": 0.4, "0_0003": 0.5}
    assert tried(**low) == ([0.0003, 0.001, 0.003, 0.01, 0.03], {"learning_rate": 0.0003})


def test_one_seed_of_every_row_comes_before_the_others(tmp_path):
    asked = {"network": "dinov2", "passes": 1}
    ranpac = cell("ranpac")  # Whose grid is one point.

    def named(found):
        wanted = runs.missing(found, asked)
        return [(each.cell.system["name"], each.key["seed"]) for each in wanted]

    left = named(Results([]))
    assert left.count(("ranpac", 0)) == 1 and left.index(("ranpac", 0)) < left.index(("ranpac", 1))
    assert left[:3] == [("slda", SEED)] * 3 and ("slda", 0) not in left
    found = results(tmp_path, (ranpac.key(0, {"projected_features": 2000}), 0.5))
    assert ("ranpac", 0) not in named(found)


def test_processes_share_the_runs_and_a_failure_stops_none(tmp_path):
    ncm = cell("ncm")
    keys = [ncm.key(seed, {"ncm_distance": "cosine"}) for seed in range(4)]
    made, path, claims = [], tmp_path / "new.jsonl", tmp_path / "claims"

    def wanted(found):
        return [Wanted(ncm, key, "evaluated") for key in keys if found.found(key) is None]

    def make(each):
        key = each.key
        made.append(key["seed"])
        if key["seed"] == 1:
            raise nccl_tf.UserError("received seed 1")
        if key["seed"] == 0:
            # Another process has this one, and takes the third meanwhile.
            with runs.claimed(claims, key) as again, runs.claimed(claims, keys[2]) as third:
                assert not again and third
                with path.open("a") as file:
                    file.write(json.dumps({**keys[2], "accuracy": 0.7}) + "\n")
        return {**key, "accuracy": 0.5}

    assert runs.make_missing(wanted, make, [path, tmp_path / "none.jsonl"], claims) == 1
    assert made == [0, 1, 3]
    assert [json.loads(line)["seed"] for line in path.read_text().splitlines()] == [2, 0, 3]


def test_the_tables(tmp_path):
    ncm, block = cell("ncm"), next(each for each in blocks.cells() if "lora" in each.system)
    best = {"ncm_distance": "cosine"}
    found = results(
        tmp_path,
        (ncm.key(SEED, {"ncm_distance": "euclidean"}), 0.3),
        (ncm.key(SEED, best), 0.4),
        (ncm.key(0, best), 0.4),
        (ncm.key(1, best), 0.6),
        (block.key(0, block.system["options"]), 0.25),
    )
    shown = page.tables(found)
    expected = "| NCM | ncm_distance cosine | 2 | 50.0 ± 10.0 | 0.100 ± 0.000 | 3 | 2.00 | 4,000 |"
    assert expected in shown and "DINOv2-small, 1 pass" in shown
    assert "| InfLoRA | epsilon 0.95 | 1 | 25.0 | 0.100 | 3 | 2.00 | 4,000 |" in shown
    assert "no results yet" in page.tables(Results([]))
    page.draw(found, tmp_path, "picture")
    assert (tmp_path / "picture.png").stat().st_size > 1000


def test_every_number_of_the_pages_is_that_of_the_records():
    found = Results([runs.RESULTS])
    for path, name, made in page.PARTS:
        text = read_text(path).split(f"<!-- {name}:begin -->\n")[1]
        assert text.split(f"<!-- {name}:end -->")[0] == made(found), name


def test_what_is_left_is_what_the_plan_has_and_the_results_lack(tmp_path):
    ncm, best = cell("ncm"), {"ncm_distance": "cosine"}
    tuned = [(ncm.key(SEED, {"ncm_distance": "euclidean"}), 0.3), (ncm.key(SEED, best), 0.4)]
    texts = [
        page.left(results(tmp_path, *tuned, *((ncm.key(seed, best), 0.4) for seed in range(seeds))))
        for seeds in (0, 2, 3)
    ]
    of_dinov2 = [text.partition("DINOv2-small, 1 pass: ")[2].partition(".\n")[0] for text in texts]
    names = [of_network.split("; ") for of_network in of_dinov2]
    assert "NCM" in names[0] and "NCM (2 of 3 seeds)" in names[1]
    assert len(names[1]) == len(names[0]) == len(names[2]) + 1
    assert "InfLoRA" in texts[2]
    every = results(tmp_path, *((key, 0.4) for key in all_keys()))
    assert page.left(every) == "Every run of the plan is made.\n"


def all_keys():
    """Of every run that the plan can ask for, tuned or evaluated."""
    for of in runs.cells():
        grid = of.system["grid"]
        values = [runs.PLAN["rates"] if v == "rates" else v for v in grid.values()]
        for point in itertools.product(*values):
            for seed in (SEED, *runs.PLAN["seeds"]):
                yield of.key(seed, dict(zip(grid, point, strict=True)))
    for of in blocks.cells():
        yield of.key(blocks.PART["seed"], of.system["options"])


def test_a_rate_that_tuning_did_not_choose_is_told_where_all_seeds_have_it(tmp_path):
    mask = cell("mask_of_task")
    tuned = {0.003: 0.1, 0.01: 0.4, 0.03: 0.2}
    rows = [(mask.key(SEED, {"learning_rate": r}), v) for r, v in tuned.items()]
    rows += [(mask.key(s, {"learning_rate": 0.01}), 0.5) for s in range(3)]
    rows += [(mask.key(s, {"learning_rate": 0.03}), 0.6 + 0.1 * s) for s in range(3)]
    text = page.other_rates(results(tmp_path, *rows))
    assert "50.0 % at its tuned rate of 0.01, and 70.0 % at 0.03" in text
    assert page.other_rates(results(tmp_path, *rows[:-1])) == ""


def test_the_sentence_of_networks_needs_all_of_its_rows(tmp_path):
    accuracies = {"alignment": 0.5, "joint": 0.45, "slda": 0.6, "ncm": 0.3, "mask_of_task": 0.2}
    rows = []
    for name, accuracy in accuracies.items():
        of = cell(name)
        points = of.system["grid"].values()
        values = [runs.PLAN["first_rates"] if v == "rates" else v for v in points]
        # The middle one is the best, so that no further rate is tried.
        best = [v[1] for v in values]
        keys = [dict(zip(of.system["grid"], p, strict=True)) for p in itertools.product(*values)]
        rows += [(of.key(SEED, k), float(list(k.values()) == best)) for k in keys]
        rows.append((of.key(0, dict(zip(of.system["grid"], best, strict=True))), accuracy))
    assert page.on_backbones(results(tmp_path, *rows[:-1])) == ""
    text = page.on_backbones(results(tmp_path, *rows))
    assert "from 20.0 to 50.0" in text and "45.0, SLDA 60.0 and nearest means 30.0" in text


def test_the_plan_names_methods_and_numbers_that_there_are():
    for system in (*SYSTEMS.values(), *runs.PLAN["blocks"]["systems"]):
        method = METHODS[system["method"]]
        numbers = {row.name for row in method.hyperparameters} | {"learning_rate"}
        options = {"stream_mask", "alignment"}
        assert set(system.get("grid", {})) <= numbers
        assert set(system.get("options", {})) <= numbers | options
    assert len(list(runs.cells())) == 2 * 9 * 2 + 2 * 5 + 1


def top_of(tokens=3, width=4):
    """Stands for the last blocks: a layer of attention's name on tokens."""
    keras.utils.set_random_seed(0)
    inputs = keras.Input((tokens, width))
    dense = keras.layers.Dense(width, name="value")
    return keras.Model(inputs, keras.layers.LayerNormalization()(dense(inputs)))


@pytest.mark.parametrize("name", ["ncm", "session_ncm", "head", "inflora", "lora_alignment"])
def test_blocks_learn_and_the_given_ones_stay(name, monkeypatch):
    monkeypatch.setitem(blocks.PART["session"], "rank", 2)
    monkeypatch.setitem(blocks.PART["lora"], "rank", 2)
    monkeypatch.setitem(blocks.PART["lora"], "batch_size", 10)
    top = top_of()
    before = top.get_weights()
    tokens = np.repeat(np.eye(4, dtype=np.float16)[LABELS][:, None], 3, axis=1)
    (of,) = (each for each in blocks.cells() if each.system["name"] == name)
    key = of.key(0, of.system["options"])
    made = blocks.Runs(top, dict.fromkeys(("train", "test"), (tokens, LABELS)), 2)
    row = made.run(of.system, key)
    assert set(row) == {*key, *runs.FIGURES, "devices"} and 0 <= row["accuracy"] <= 1
    # Each pass of a session over the first task's 40 examples goes through the head too.
    passes = runs.PLAN["blocks"]["session"]["passes"]
    expected = {"ncm": 80, "session_ncm": 80 + 40 * passes}
    assert row["examples_passed"] == expected.get(name, row["examples_passed"])
    again = made.run(of.system, key)
    assert {**again, "seconds": 0} == {**row, "seconds": 0}
    for value, expected in zip(top.get_weights(), before, strict=True):
        np.testing.assert_array_equal(value, expected)
