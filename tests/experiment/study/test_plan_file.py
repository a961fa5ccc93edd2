"""Plans that are refused, each in a sentence that says what was expected."""

import pytest

from nccl_tf.errors import UserError
from nccl_tf.experiment.study.plan_file import read_plan
from tests.experiment.study import plans

MOST = "most_trials = 4\n"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("most_trials = 4", "", "the plan lacks most_trials: expected a table of title"),
        ("most_trials = 4", "most_trials = 3", "nccl in digits: its grid has 4 points: expected 1"),
        ("learning_rate = [0.1, 1.0]", 'learning_rate = ["0.1,1.0,2"]', "its grid has 6 points"),
        ("most_trials = 4", "most_trials = true", "most_trials = True: expected a whole number"),
        ("most_trials = 4", "trials = 4", "the plan has 'trials'"),
        ("most_trials = 4", "most_trials = ", "cannot read --plan="),
        (
            "most_trials = 4",
            'most_trials = 4\ncompared_with = ["er"]',
            "names er: expected a system",
        ),
        (
            "most_trials = 4",
            'most_trials = 4\ncompared_with = "nccl"',
            "a list of names of systems",
        ),
        (
            "most_trials = 4",
            'most_trials = 4\nwinner = "er"',
            "the plan's winner names er: expected a system",
        ),
        ('title = "Merged"', "title = 3", "title = 3: expected text"),
        ('"mc_sgd" }', '"mcsgd" }', "did you mean 'mc_sgd'"),
        ('name = "heads"', 'name = "../heads"', "expected small letters, digits and _"),
        ('name = "heads"', 'name = "digits"', "expected tables .* of different names"),
        ("seeds = [0, 1]", "seeds = [0, 0]", "different whole numbers of at least 0"),
        ("seeds = [0, 1]", "seeds = 0", "different whole numbers of at least 0"),
        ("{ digits = [0] }", "{ letters = [0] }", "names letters: expected a setting, digits"),
        ("{ heads = [1", "{ letters = [1", "names letters: expected a setting, digits"),
        ("mnist = { learning_rate = [0.1] }, ", "", "mc_sgd has no grid for digits"),
        ("learning_rate = [0.1]", "learning_rate = [-1.0]", "--learning_rate=-1"),
        ("learning_rate = [0.1]", "learning_rate = 0.1", "expected a table of grids"),
        ("max_tasks = 2", "max_tasks = 99", "nccl in digits: --max_tasks=99"),
        ("max_tasks = 2", 'plugin = "x.py"', "expected a table of flags that set what is run"),
        ("max_tasks = 2", 'flagfile = "x"', "expected a table of flags that set what is run"),
        ("max_tasks = 2", 'dataset = "digits"', "nccl in digits: "),
    ],
)
def test_a_bad_plan_is_refused_in_a_sentence(tmp_path, old, new, message):
    path = plans.write_plan(tmp_path, (old, new))
    with pytest.raises(UserError, match=message) as error:
        read_plan(path)
    assert "\n" not in str(error.value)


def test_a_file_that_is_missing_or_no_text_is_refused(tmp_path):
    (tmp_path / "plan.toml").write_bytes(b"\xff\xfe")
    for name in ("plan.toml", "nothing.toml"):
        with pytest.raises(UserError, match="name a TOML file"):
            read_plan(tmp_path / name)
