"""Rates of layers at the command."""

import pytest

from nccl_tf.arguments.layer_rates import rates_of_layers
from nccl_tf.arguments.optimizers import as_texts
from nccl_tf.errors import UserError


def test_texts_are_read_sorted_and_written_again():
    found = rates_of_layers(("stem/gamma:1", "a:b:1e-2", "logits:.5", "body:0"))
    assert found == {"a:b": 0.01, "body": 0.0, "logits": 0.5, "stem/gamma": 1.0}
    assert list(found) == sorted(found) and rates_of_layers(as_texts(found)) == found


@pytest.mark.parametrize(
    "texts",
    [("body",), ("body:",), (":0.1",), ("body:slow",), ("body:-1",), ("body:nan",), ("body:inf",)],
)
def test_a_text_of_another_form_is_refused(texts):
    with pytest.raises(UserError, match="finite factor from 0"):
        rates_of_layers(texts)


def test_a_name_comes_once():
    with pytest.raises(UserError, match="twice"):
        rates_of_layers(("body:0.1", "body:0.2"))
