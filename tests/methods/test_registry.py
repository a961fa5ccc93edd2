"""The methods' table against the classes it names."""

import importlib
import inspect

import pytest

from nccl_tf.arguments.hyperparameters import OPTIONS
from nccl_tf.errors import UserError
from nccl_tf.learner.replay import ReplayLearner
from nccl_tf.methods.registry import METHODS, get_method, rows_in

NUMBERS = [
    (row, number)
    for row in METHODS.values()
    for number in row.hyperparameters
    if number.part == "learner"
]
ROW = """
from nccl_tf.methods.row import Method
ROW = Method(name={!r}, title="", learner="a:B", place={})
"""
REFUSED = {name for row in METHODS.values() for name in row.refuses}


def test_a_file_of_rows_is_found_by_being_there(tmp_path, monkeypatch):
    folder = tmp_path / "some_rows"
    folder.mkdir()
    for name, text in {
        "__init__": "",
        "c": "WORDS = 'shared'",
        "b": ROW.format("late", 9) + "\nfrom some_rows.c import WORDS",
        "a": ROW.format("second", 5),
        "d": ROW.format("first", 5) + "\nfrom some_rows.a import ROW as OF_ANOTHER",
    }.items():
        (folder / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    package = importlib.import_module("some_rows")
    assert list(rows_in(package)) == ["first", "second", "late"]
    (folder / "e.py").write_text(ROW.format("late", 1))
    with pytest.raises(ValueError, match="late"):
        rows_in(package)


def literal_default(cls, argument):
    """The default in the signature of the first class, in order of resolution, that names it."""
    for base in cls.__mro__:
        if "__init__" in vars(base):
            parameters = inspect.signature(base.__init__).parameters
            if argument in parameters:
                return parameters[argument].default
    raise AssertionError(f"no constructor of {cls.__name__} takes {argument}")


def test_the_signature_shows_the_default_of_the_row():
    for row, number in NUMBERS:
        default = literal_default(row.learner_class(), number.name)
        if row.name.startswith("stable_") and number.name.startswith("rate_decay"):
            assert default is None  # an option of every class, which these rows switch on
        else:
            assert (row.name, default) == (row.name, number.default)
            assert type(default) is type(number.default)
        assert number.check(number.default) == number.default


def test_the_class_has_the_options_of_the_row_and_refuses_the_same():
    for row in METHODS.values():
        for option in OPTIONS:
            if not row.option_refusal(option.name):
                default = literal_default(row.learner_class(), option.name)
                assert default == row.options.get(option.name, option.default), row.name
        if row.stores:
            assert literal_default(row.learner_class(), "stores") == row.stores, row.name
        refused = {k: v for k, v in row.refuses.items() if k != "dark" or row.memory_batch}
        replays = issubclass(row.learner_class(), ReplayLearner)
        stated = {name: row.learner_class().why_not(name) for name in REFUSED}
        assert {name: reason for name, reason in stated.items() if reason} == refused, row.name
        assert replays or row.option_refusal("dark"), row.name


def test_the_first_word_of_a_name_leads_to_a_method_that_any_stream_can_have():
    with pytest.raises(UserError) as caught:
        get_method("er")
    assert str(caught.value).split("did you mean ")[1].startswith("'er_reservoir'")
