"""Small pickles that stand for much are refused before it is built, in a short sentence."""

import codecs
import pickle
import signal
import time

import numpy as np
import pytest
from mini_files import caches, image, write_pickle

from nccl_tf.errors import UserError
from nccl_tf.streams.sources.mini_imagenet.load import CACHE_NAMES, read_source
from nccl_tf.streams.sources.mini_imagenet.restricted_pickle import load_pickle


class Call:
    """Pickles as a call of `function`."""

    def __init__(self, function, *arguments):
        self.call = (function, arguments)

    def __reduce__(self):
        return self.call


@pytest.fixture(autouse=True)
def in_a_moment():
    """Fails a test that runs on, rather than waiting for it."""

    def give_up(*_):
        raise KeyboardInterrupt("it took more than 10 seconds")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(10)
    start = time.process_time()
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)
    assert time.process_time() - start < 5


def nested_lists(depth=40):
    """2 to the power of `depth` numbers, in some hundred bytes."""
    value = [1, 2]
    for _ in range(depth):
        value = [value, value]
    return value


PROGRAMS = {
    "dtype": pickle.dumps(Call(np.dtype, nested_lists()), 2),
    "codec": pickle.dumps(Call(codecs.encode, "x", nested_lists()), 2),
}


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_small_programs_that_stand_for_much(tmp_path, program):
    path = tmp_path / "x.pkl"
    path.write_bytes(program)
    with pytest.raises(UserError, match="pickle") as caught:
        load_pickle(path)
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize(
    "long", ["n" * 10_000_000, b"n" * 10_000_000, 10**5000], ids=["text", "bytes", "number"]
)
def test_one_long_label_beside_short_ones(tmp_path, long):
    """As an array of names, each would have the room of the longest."""
    images = np.zeros((500, 84, 84, 3), np.uint8)
    write_pickle(tmp_path / "x.pkl", {"images": images, "labels": [long, *["a"] * 499]})
    with pytest.raises(UserError, match=r"no row of integers or names|has 1 images") as caught:
        read_source(tmp_path)
    assert len(str(caught.value)) < 500


def test_indices_that_many_classes_share(tmp_path):
    """A list by reference costs a few bytes: 20,000 classes of 20,000 images each."""
    rows = [0] * 20_000
    caches(tmp_path)
    content = {
        "image_data": np.stack([image(1)] * 2),
        "class_dict": {str(number): rows for number in range(20_000)},
    }
    write_pickle(tmp_path / CACHE_NAMES[0], content)
    with pytest.raises(UserError, match="more indices than there are images, 2"):
        read_source(tmp_path)
