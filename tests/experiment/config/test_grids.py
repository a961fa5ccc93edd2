"""The published grids: each flag file names settings that its method has, in range."""

from pathlib import Path

import pytest

from nccl_tf.commands._command_line import (
    parse_flag_words,
)
from nccl_tf.errors import UserError
from nccl_tf.experiment.config.resolve import resolve
from nccl_tf.methods.registry import METHODS

FOLDER = Path(__file__).parents[3] / "flags" / "grids"
FILES = sorted(FOLDER.glob("*.flags"))


def parsed(*argv):
    return parse_flag_words(list(argv))


def test_every_grid_is_of_a_method():
    assert len(FILES) > 30 and {path.stem for path in FILES} <= METHODS.keys()


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
@pytest.mark.parametrize(
    "dataset", ["split_mnist", pytest.param("split_cifar100", marks=pytest.mark.nightly)]
)
def test_a_grid_is_of_its_method_and_every_value_in_range(path, dataset):
    given = parsed(f"--flagfile={path}")
    assert given["method"] == path.stem
    sweeps = given.pop("sweep")
    assert len({sweep.name for sweep in sweeps}) == len(sweeps) > 0
    given["dataset"] = dataset
    for sweep in sweeps:
        assert len(set(sweep.values)) == len(sweep.values) > 0
        for value in sweep.values:
            tried = {**given, sweep.name: value}
            if sweep.name == "learning_rate" and METHODS[path.stem].alpha_l_below_one:
                tried["smoothness"] = min(1.0, 0.9 / value)
            settings = resolve(tried)
            settings = {**settings.as_json(), **settings.hyperparameters}
            assert settings[sweep.name] == value


@pytest.mark.parametrize(
    "text",
    ["learning_rate", "rate:1", "learning_rate:a", "hidden:5,5"],
)
def test_what_is_no_sweep(text):
    with pytest.raises(UserError, match="one value and values for it"):
        parsed(f"--sweep={text}")
