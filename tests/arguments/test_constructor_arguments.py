"""Arguments are captured as they were given, and come back from a file as they were."""

import json

import keras
import numpy as np
import pytest

from nccl_tf.arguments.constructor_arguments import ConstructorArguments, restored
from nccl_tf.arguments.constructors import refuse_unknown, show_arguments
from nccl_tf.errors import UserError


class Root:
    """The root of a chain, as `Learner` and `Memory` are."""

    def __new__(cls, *args, **kwargs):
        made = super().__new__(cls)
        made.captured = ConstructorArguments(cls, args, kwargs)
        return made

    def __init__(self, network, memory=None, *, seed=0, rule="exact", **unknown):
        refuse_unknown(type(self), unknown)
        self.network, self.memory, self.seed, self.rule = network, memory, seed, rule

    def __init_subclass__(cls):
        show_arguments(cls, Root)


show_arguments(Root, Root)


def again(made):
    """The object from a file."""
    return restored(type(made), json.loads(json.dumps(made.captured.config())))


class Own(Root):
    def __init__(self, rate, /, *args, own=None, **kwargs):
        self.rate, self.popped = rate, kwargs.pop("popped", None)
        self.own = own
        if isinstance(own, list):
            own.append("constructor")
        super().__init__(*args, **kwargs)


def test_positions_names_and_what_is_taken_out_of_kwargs():
    made = again(Own(0.5, "net", "ring", seed=3, popped=(1, 2)))
    assert (made.rate, made.network, made.memory, made.seed) == (0.5, "net", "ring", 3)
    assert made.popped == (1, 2) and made.own is None


def test_a_list_is_as_it_was_given_whatever_is_done_to_it():
    own = ["given"]
    made = Own(0.5, "net", own=own)
    own.append("caller")
    assert made.captured.config()["own"] == ["given"]
    assert again(made).own == ["given", "constructor"]


@pytest.mark.parametrize(
    "value",
    [
        (1, (2, "a")), {3: (1.5, None), "b": [True]}, {"class_name": "x", "config": {}}, {2, 1},
        frozenset({"a"}), b"bytes", [float("inf")], "Own", {"parts": [1]}, range(3), 2**70,
    ],
    ids=str,
)  # fmt: skip
def test_values_come_back_as_they_were(value):
    made = again(Own(0.5, "net", own=value)).own
    value = [*value] if isinstance(value, range) else value
    assert made[: len(value)] == value if isinstance(value, list) else made == value
    assert type(made) is type(value)


def test_arrays_layers_and_functions_come_back():
    array, layer = np.eye(2, dtype=np.float32), keras.layers.Dense(3)
    own = {"array": array, "scalar": np.float64(0.1), "layer": layer, "by": keras.activations.relu}
    made = again(Own(0.5, "net", own=own)).own
    array[:] = 7
    assert made["array"].dtype == np.float32 and made["array"].tolist() == [[1, 0], [0, 1]]
    assert made["scalar"] == 0.1 and made["layer"].units == 3
    assert made["by"] is keras.activations.relu


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (lambda: None, "a lambda"), (iter([1]), "list_iterator"), (object(), "a object"),
        (keras.optimizers.SGD, "argument 'own' is a"), ([{"a": object()}], "argument 'own'"),
    ],
)  # fmt: skip
def test_what_a_file_cannot_hold_is_named(value, said):
    with pytest.raises(UserError, match=said):
        Own(0.5, "net", own=value).captured.config()


def test_a_class_may_set_an_argument_of_its_base():
    class Fixed(Root):
        def __init__(self, network, *, width=3, seed=0, **kwargs):
            super().__init__(network, rule="off_by_one", seed=seed + 1, **kwargs)
            self.width = width

    made = again(Fixed("net", width=4, seed=5))
    assert (made.rule, made.width, made.seed) == ("off_by_one", 4, 6)


def test_what_has_changed_is_followed_where_the_class_was_given_it():
    made = Own(0.5, "net", seed=[1, 2])
    made.captured.follow({"seed": (1, 2)}, {"seed": [3], "nobody": 1})
    assert again(made).seed == [3] and "nobody" not in made.captured.config()
    assert not made.captured.replace({"seed": 8}, {"seed": 9}) and again(made).seed == [3]
    made.captured.follow({"nobody": None}, {"nobody": 1})
    with pytest.raises(UserError, match="its nobody does not say what it has become"):
        made.captured.config()


def test_arguments_without_names_are_refused_in_a_file():
    class Many(Root):
        def __init__(self, network, *rates):
            super().__init__(network)

    with pytest.raises(UserError, match="arguments have no names"):
        Many("net", 1, 2, 3).captured.config()
