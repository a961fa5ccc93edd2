"""Signatures composed over a chain of constructors."""

import inspect

import pytest

from nccl_tf.arguments.constructors import refuse_unknown, show_arguments
from nccl_tf.errors import UserError


class Root:
    """The root.

    Args:
        network: The network.
        seed: A number
            of two lines.
    """

    def __init__(self, network, *, seed=0, name=None, **unknown):
        refuse_unknown(type(self), unknown)
        self.seed, self.name = seed, name

    def __init_subclass__(cls):
        show_arguments(cls, Root)


class Base(Root):
    """The base.

    Args:
        network: Its network.
        rate: The rate.
        **kwargs: As for `Root`.

    Raises:
        UserError: One.
    """

    def __init__(self, network, memory, rule="exact", *, rate=0.5, **kwargs):
        super().__init__(network, **kwargs)


class OtherDefault(Base):
    def __init__(self, network, *, rate=0.25, number, **kwargs):
        super().__init__(network, None, rate=rate, **kwargs)


class Forwarding(Base):
    def __init__(self, *args, dark=1.0, **kwargs):
        super().__init__(*args, **kwargs)


class Mixin:
    def __init__(self, *args, extra=1, **kwargs):
        super().__init__(*args, **kwargs)


class Mixed(Mixin, Base):
    """Both."""


class OptionalFirst(Root):
    def __init__(self, dark=1.0, *args, **kwargs):
        super().__init__(*args, **kwargs)


class Closed(Base):
    def __init__(self, network):
        super().__init__(network, None)


@pytest.mark.parametrize(
    ("cls", "signature"),
    [
        (Base, "(network, memory, rule='exact', *, rate=0.5, seed=0, name=None)"),
        (OtherDefault, "(network, *, rate=0.25, number, rule='exact', seed=0, name=None)"),
        (Forwarding, "(network, memory, rule='exact', *, dark=1.0, rate=0.5, seed=0, name=None)"),
        (Mixed, "(network, memory, rule='exact', *, extra=1, rate=0.5, seed=0, name=None)"),
        (OptionalFirst, "(dark=1.0, *, network, seed=0, name=None)"),
        (Closed, "(network)"),
    ],
)
def test_the_signature_of_a_chain(cls, signature):
    assert str(inspect.signature(cls)) == signature


def test_inherited_arguments_are_documented_where_they_stand():
    assert inspect.getdoc(Base) == (
        "The base.\n\nArgs:\n    network: Its network.\n    rate: The rate.\n"
        "    **kwargs: As for `Root`.\n    seed: A number\n        of two lines.\n\n"
        "Raises:\n    UserError: One."
    )
    assert inspect.getdoc(Mixed) == (
        "Both.\n\nArgs:\n    network: Its network.\n    rate: The rate.\n    seed: A number\n"
        "        of two lines."
    )
    assert Closed.__doc__ is None


def test_what_nobody_takes_is_refused():
    with pytest.raises(UserError, match="argument of Mixed 'sed': did you mean 'seed'") as error:
        Mixed(None, None, sed=1)
    assert str(error.value).endswith("network, memory, rule, extra, rate, seed, name")


def test_what_a_class_takes_and_hands_on_is_refused():
    class HandsOn(Base):
        def __init__(self, network, *, dark=1.0, **kwargs):
            super().__init__(network, None, dark=dark, **kwargs)

    with pytest.raises(UserError, match="argument of HandsOn 'dark'"):
        HandsOn(None)
