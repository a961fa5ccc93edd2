"""What a plan makes of a system in a setting: flags, grid, seeds, and what tuning chose."""

import pytest

from nccl_tf.errors import UserError
from nccl_tf.experiment.config.resolve import resolve
from nccl_tf.experiment.study.plan_file import read_plan
from tests.experiment.study import plans


@pytest.fixture
def cells(tmp_path):
    return plans.cells(tmp_path)


def test_a_run_has_the_flags_of_plan_setting_system_and_point(cells):
    settings = resolve(cells["digits", "nccl"].flag_values({"learning_rate": 0.1}))
    assert (settings.dataset, settings.max_tasks, settings.memory_capacity) == (
        "permuted_digits", 3, 100,
    )  # fmt: skip
    assert (settings.method, settings.learning_rate) == ("nccl_reservoir", 0.1)
    assert settings.average_weights == 0.9


def test_an_option_that_a_method_refuses_is_left_out(cells):
    assert cells["digits", "mc_sgd"].flag_values()["average_weights"] is None


def test_trials_have_the_tuning_flags_and_the_grid(cells):
    values = cells["digits", "nccl"].trial_flags()
    assert values["max_tasks"] == 2
    assert {sweep.name: sweep.values for sweep in values["sweep"]} == {
        "learning_rate": (0.1, 1.0),
        "delta": (0.001, 0.1),
    }


def test_a_setting_may_have_a_grid_and_seeds_of_its_own(cells):
    assert cells["digits", "mc_sgd"].grid == {"learning_rate": (0.1,)}
    assert cells["heads", "mc_sgd"].grid == {"learning_rate": (0.05, 0.1)}
    assert [cells[name, "mc_sgd"].seeds for name in ("digits", "heads")] == [(0,), (0, 1)]
    tuning = [cells[name, "mc_sgd"].tuning_seeds for name in ("digits", "heads")]
    assert tuning == [(100,), (101, 102)]


def test_what_does_not_run_says_why(cells):
    assert cells["digits", "er_ace"].refusal() == "no class is new"
    assert "a head is the mask" in cells["heads", "er_ace"].refusal()
    assert cells["digits", "nccl"].refusal() == ""


def test_names_narrow_the_cells(tmp_path):
    plan = read_plan(plans.write_plan(tmp_path))
    assert len(plan.cells()) == 6
    (cell,) = plan.cells(["heads"], ["nccl"])
    assert (cell.setting.name, cell.system.name) == ("heads", "nccl")
    with pytest.raises(UserError, match="--system=er is not in the plan: expected one of nccl, "):
        plan.cells(None, ["er"])


def test_what_tuning_chose_is_read_back(cells):
    cell = cells["digits", "nccl"]
    assert cell.chosen() is None
    plans.choose(cell, learning_rate=0.1, delta=0.001)
    values, settings = cell.chosen()
    assert settings == resolve(cell.flag_values({"learning_rate": 0.1}))
    assert values["delta"] == 0.001


def test_numbers_as_text_are_read_back_too(tmp_path):
    texts = ("learning_rate = [0.1, 1.0]", 'learning_rate = ["0.10", "1"]')
    cell = plans.cells(tmp_path, texts)["digits", "nccl"]
    plans.choose(cell, learning_rate=0.1, delta=0.001)
    assert cell.chosen()[1].learning_rate == 0.1


def test_a_rate_that_lowers_the_smoothness_is_of_the_grid(cells):
    cell = cells["digits", "nccl"]
    plans.choose(cell, learning_rate=1.0, delta=0.001, smoothness=0.9)
    assert cell.chosen()[1].hyperparameters["smoothness"] == 0.9


@pytest.mark.parametrize("point", [{"learning_rate": 0.2}, {"learning_rate": 0.1, "batch_size": 5}])
def test_a_flag_file_of_another_plan_is_refused(cells, point):
    plans.choose(cells["digits", "nccl"], delta=0.1, **point)
    with pytest.raises(UserError, match="is not what the plan can have chosen"):
        cells["digits", "nccl"].chosen()
