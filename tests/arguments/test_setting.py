"""Settings that a dataclass declares."""

from dataclasses import dataclass, fields
from typing import Annotated

import pytest

from nccl_tf.arguments.parameters import declared_settings, setting
from nccl_tf.errors import UserError
from nccl_tf.experiment.config.resolve import resolve
from nccl_tf.records.options import RUN_OPTIONS, RunOptions, resolve_options
from nccl_tf.records.settings import SETTINGS, Settings


@dataclass
class Declared:
    count: Annotated[int | None, setting(topic="t", ge=1, help="a count")]
    widths: Annotated[tuple[int, ...] | None, setting(topic="t", default=(2, 3), help="widths")]
    plain: str
    rate: Annotated[float, setting(topic="t", gt=0.0, help="a rate")] = 0.5
    mode: Annotated[str | None, setting(topic="t", choices=("a", "b"), help="a mode")] = None
    on: Annotated[bool, setting(topic="t", help="whether")] = False


ROWS = declared_settings(Declared)


def test_name_kind_and_default_come_from_the_field():
    assert {name: (row.name, row.kind, row.default) for name, row in ROWS.items()} == {
        "count": ("count", "int", None),
        "widths": ("widths", "ints", (2, 3)),
        "rate": ("rate", "float", 0.5),
        "mode": ("mode", "choice", None),
        "on": ("on", "bool", False),
    }
    assert [row.describe_default() for row in ROWS.values()] == ["off", "2,3", "0.5", "off", "off"]


def test_a_value_is_the_flag_or_a_default_and_is_checked():
    assert ROWS["rate"].value({"rate": 2.0}) == 2.0
    assert ROWS["rate"].value({"rate": None}) == ROWS["rate"].value({}) == 0.5
    assert ROWS["count"].value({}, 7) == 7
    with pytest.raises(UserError, match="--count=0 is out of range: expected an integer of at lea"):
        ROWS["count"].value({"count": 0})
    with pytest.raises(UserError, match="--mode"):
        ROWS["mode"].value({"mode": "c"})


def test_options_are_flags_and_settings_are_flags_or_derived():
    assert set(RUN_OPTIONS) == {field.name for field in fields(RunOptions)} - {"source"}
    derived = {
        "memory", "memory_slots", "memory_capacity", "hyperparameters", "content", "keras",
    }  # fmt: skip
    assert set(SETTINGS) == {field.name for field in fields(Settings)} - derived


NUMBERS = [row for row in {**SETTINGS, **RUN_OPTIONS}.values() if row.kind in ("int", "float")]


def test_a_number_below_its_range_is_refused_with_its_flag():
    for row in NUMBERS:
        low = row.gt if row.ge is None else row.ge - 1
        with pytest.raises(UserError, match=f"--{row.name}={low}"):
            (resolve if row.name in SETTINGS else resolve_options)({row.name: low})
