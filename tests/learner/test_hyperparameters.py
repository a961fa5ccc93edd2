"""Numbers that a class declares as rows: arguments, checked attributes, and flags of a plugin."""

import inspect
from types import SimpleNamespace

import keras
import numpy as np
import pytest

import nccl_tf
from nccl_tf.arguments.hyperparameters import rows_of
from nccl_tf.errors import UserError
from nccl_tf.methods.registry import METHODS
from nccl_tf.methods.rows import gem
from tests.tiny import tiny_network

MARGIN = nccl_tf.Hyperparameter("margin", "float", 0.5, ge=0.0, help="how far classes are apart")
ROUNDS = nccl_tf.Hyperparameter("rounds", "int", None, ge=1, help="how often")
RULE = nccl_tf.Hyperparameter("rule", "choice", "near", choices=("near", "far"), help="which")


@keras.saving.register_keras_serializable(package="tests")
class Declared(nccl_tf.ExperienceReplay):
    """A method without a constructor."""

    hyperparameters = (MARGIN, ROUNDS, RULE)


class Named(nccl_tf.ExperienceReplay):
    """A method whose constructor names its number."""

    hyperparameters = (MARGIN,)

    def __init__(self, network, memory, *, margin=0.25, **kwargs):
        super().__init__(network, memory, **kwargs)
        self.margin = margin


def made(cls, **numbers):
    return cls(tiny_network(), nccl_tf.ReservoirMemory(8), **numbers)


def test_a_row_is_an_argument_of_a_class_without_a_constructor():
    parameters = inspect.signature(Declared).parameters
    shown = [str(parameters[name]) for name in ("margin", "rounds", "rule")]
    assert shown == ["margin: float = 0.5", "rounds: int | None = None", "rule: str = 'near'"]
    assert "    margin: how far classes are apart.\n" in inspect.getdoc(Declared)
    learner = made(Declared)
    assert (learner.margin, learner.rounds, learner.rule) == (0.5, None, "near")
    learner = made(Declared, margin=2, rounds=np.int64(3), rule="far", er_weighting="sum_of_means")
    assert (learner.margin, learner.rounds, learner.rule) == (2.0, 3, "far")
    assert type(learner.margin) is float and type(learner.rounds) is int
    again = Declared.from_config(learner.get_config())
    assert (again.margin, again.rounds, again.rule) == (2.0, 3, "far")
    assert again.er_weighting == "sum_of_means"


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("margin", -1.0, "--margin=-1.0 is out of range: expected a finite number of at least 0"),
        ("margin", float("nan"), "--margin=nan is out of range"),
        ("rounds", 0, "--rounds=0 is out of range: expected an integer of at least 1"),
        ("rounds", 2.5, "--rounds=2.5 is out of range: expected an integer of at least 1"),
        ("rule", "fra", "unknown --rule 'fra': did you mean 'far'"),
    ],
)
def test_a_value_that_is_none_of_the_row_s_is_refused(name, value, said):
    with pytest.raises(UserError, match=said):
        made(Declared, **{name: value})
    with pytest.raises(UserError, match=said):
        setattr(made(Declared), name, value)


def test_a_constructor_that_names_the_argument_sets_the_attribute():
    assert made(Named).margin == 0.25 and type(made(Named, margin=1).margin) is float
    assert inspect.signature(Named).parameters["margin"].default == 0.25
    with pytest.raises(UserError, match="--margin=-1 is out of range"):
        made(Named, margin=-1)


def test_a_number_that_a_constructor_forgets_is_not_the_row_s_default():
    class Forgets(Named):
        def __init__(self, network, memory, *, rounds=None, **kwargs):
            super().__init__(network, memory, **kwargs)

        hyperparameters = (ROUNDS,)

    learner = made(Forgets, rounds=4)
    assert learner.margin == 0.25 and not hasattr(learner, "rounds")


def test_of_rows_of_one_name_the_nearest_counts():
    class Below(Declared):
        hyperparameters = (nccl_tf.Hyperparameter("margin", "float", 0.1, lt=1.0, help="less"),)

    assert list(rows_of(Below)) == ["margin", "rounds", "rule", "er_weighting", "batch_norm"]
    assert made(Below, rounds=2).margin == 0.1 and made(Below, margin=-1.0).margin == -1.0
    with pytest.raises(UserError, match=r"--margin=1\.0 is out"):
        made(Below, margin=1.0)
    assert rows_of(nccl_tf.GEM)["batch_norm"] is gem.NUMBERS[-1]


@pytest.mark.parametrize("declared", [MARGIN, {"margin": 0.5}, ("margin",)])
def test_what_is_no_row_is_refused(declared):
    with pytest.raises(UserError, match="in the class Mine, expected a tuple"):
        type("Mine", (nccl_tf.Finetune,), {"hyperparameters": declared})


def test_a_number_of_another_part_is_none_of_the_learner():
    dropout = nccl_tf.Hyperparameter("dropout", "float", 0.5, part="network", help="share")
    mine = type("Mine", (nccl_tf.Finetune,), {"hyperparameters": (dropout,)})
    with pytest.raises(UserError, match="unknown argument of Mine 'dropout'"):
        mine(tiny_network(), dropout=0.25)


def test_a_method_has_the_rows_of_its_class():
    def rows_of_method(**more):
        return nccl_tf.Method(name="mine", title="Mine", **more).hyperparameters

    assert rows_of_method(learner=Declared) == (MARGIN, ROUNDS, RULE)
    assert rows_of_method(learner=Declared, hyperparameters=(MARGIN,)) == (MARGIN,)
    assert rows_of_method(learner=type("Mine", (Declared,), {})) == ()
    assert rows_of_method(learner="a.module:Declared") == ()


def test_every_number_of_a_method_is_declared_by_its_class():
    """So that the base checks it; those that make an option are checked by the option."""
    for row in METHODS.values():
        rows = rows_of(row.learner_class())
        for number in row.hyperparameters:
            if number.part == "learner" and number.name not in ("rate_decay", "rate_decay_steps"):
                mine = rows[number.name]
                assert mine.describe_range() == number.describe_range(), (row.name, number.name)
                assert (mine.kind, mine.symbol, mine.unit) == (
                    number.kind, number.symbol, number.unit
                )  # fmt: skip


def test_a_kind_that_no_learner_takes_is_refused():
    with pytest.raises(UserError, match="'number'"):
        nccl_tf.Hyperparameter("margin", "number", 0.5, help="how far classes are apart")


def other(row, value):
    """A value of a row that is not this one."""
    if row.kind == "choice":
        return next(choice for choice in row.choices if choice != value)
    if row.kind == "bool":
        return not value
    for each in (0.5, 0.25, 2.0, 3.0, 0.125):
        number = int(each * 8) if row.kind == "int" else each
        try:
            row.check(number)
        except UserError:
            continue
        if number != value:
            return number
    raise AssertionError(row)


def rows_of_classes():
    """Of every class of the registry, its rows; several methods may share one."""
    kinds = dict.fromkeys(row.learner_class() for row in METHODS.values())
    return [(kind, row) for kind in kinds for row in rows_of(kind).values()]


@pytest.mark.parametrize(
    ("kind", "row"), [pytest.param(k, r, id=f"{k.__name__}-{r.name}") for k, r in rows_of_classes()]
)
def test_a_number_stays_as_the_constructor_left_it(kind, row):
    """A step is traced with it, and a file keeps what the constructor received."""
    learner = kind.__new__(kind)
    vars(learner)["_base"] = SimpleNamespace(is_made=True)
    number = other(row, None)
    vars(learner)[row.name] = row.taken(number)
    setattr(learner, row.name, number)
    with pytest.raises(UserError, match=f"received {row.name} = "):
        setattr(learner, row.name, other(row, row.taken(number)))
    assert getattr(learner, row.name) == number


def test_numbers_of_every_learner_stay_too():
    learner = made(nccl_tf.ExperienceReplay)
    for name, value in (("memory_batch_size", 3), ("num_classes", 7)):
        before = getattr(learner, name)
        setattr(learner, name, before)
        with pytest.raises(UserError, match=f"received {name} = {value}"):
            setattr(learner, name, value)
        assert getattr(learner, name) == before


def test_a_constructor_may_set_what_its_base_has_set():
    @keras.saving.register_keras_serializable(package="tests")
    class Narrow(Named):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, margin=0.75, **kwargs)
            self.margin = 0.125

    class Inherits(Narrow):
        pass

    for kind in (Narrow, Inherits):
        learner = made(kind)
        assert learner.margin == 0.125
        with pytest.raises(UserError, match=r"was made with 0\.125"):
            learner.margin = 0.5
