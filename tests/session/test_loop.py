"""How the steps of a stream are to run is chosen once, for all of them."""

from types import SimpleNamespace

import pytest

from nccl_tf.session.loop import Session


class Chosen(Exception):
    pass


def chooses(*given):
    raise Chosen(*given)


def test_the_choice_of_xla_is_made_for_all_parts_and_epochs_before_anything_else():
    parts = [SimpleNamespace(steps=lambda batch_size, n=n: n // batch_size) for n in (40, 65)]
    model, callbacks = SimpleNamespace(execution=SimpleNamespace(choose=chooses)), [object()]
    session = Session(model, parts, None, batch_size=5, epochs=3, seed=0, callbacks=callbacks)
    for choose, resumed in ((session.run, None), (lambda: session.choose_execution(7), 7)):
        with pytest.raises(Chosen) as choice:
            choose()
        assert choice.value.args == (8, 3 * (8 + 13), callbacks, resumed)
