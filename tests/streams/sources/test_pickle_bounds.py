"""Small pickles that stand for much are refused before it is built, in a short sentence."""

import codecs
import pickle
import signal
import sys
import time
import tracemalloc
from pickletools import genops

import numpy as np
import pytest
from mini_files import caches, image, write_pickle

from nccl_tf.errors import UserError
from nccl_tf.streams.sources.mini_imagenet import restricted_pickle
from nccl_tf.streams.sources.mini_imagenet.layouts import CACHE_NAMES, read_source
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


def without_end(array: bytes) -> bytes:
    """A pickle of an array whose 2^62 items have no bytes each."""
    return (
        array + b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(I0\ntS'b'\ntR(I1\n"
        b"(L4611686018427387904L\ntcnumpy\ndtype\n(S'S0'\nI0\nI1\ntR(I3\nS'|'\nNNNI0\nI1\nI0\nt"
        b"bI00\nS''\ntb"
    )


def one_hash(count=20_000):
    """Complex numbers of which all have the hash 0."""
    return np.array([complex(-float(sys.hash_info.imag * k), k) for k in range(1, count + 1)])


# A function and its argument by reference, again and again: five bytes for each copy.
COPIED_TEXT = (
    b"\x80\x04c_codecs\nencode\n\x94X" + (10**6).to_bytes(4, "little") + b"x" * 10**6
    + b"\x94\x8c\x06latin1\x86\x94](" + b"h\x00h\x02R" * 2000 + b"e."
)  # fmt: skip
COPIED_SET = (
    b"\x80\x04cbuiltins\nset\n\x94](" + b"K\x01" * 50_000 + b"e\x85\x94]("
    + b"h\x00h\x01R" * 2000 + b"e."
)  # fmt: skip
PROGRAMS = {
    "dtype": pickle.dumps(Call(np.dtype, nested_lists()), 2),
    "codec": pickle.dumps(Call(codecs.encode, "x", nested_lists()), 2),
    "set of an array without end": b"cbuiltins\nset\n" + without_end(b"") + b"\x85R.",
    "shape without end": b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n"
    + without_end(b"") + b"S'b'\ntR.",
    "dictionary": b"ccollections\nOrderedDict\n" + without_end(b"") + b"\x85R.",
    "references of one hash": b"".join(
        b"K\x01p%d\n0" % (k * sys.hash_info.modulus) for k in range(1, 30_000)
    ) + b"N.",
    "copies of a text": COPIED_TEXT,
    "copies of a set": COPIED_SET,
}  # fmt: skip


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_small_programs_that_stand_for_much(tmp_path, program):
    path = tmp_path / "x.pkl"
    path.write_bytes(program)
    with pytest.raises(UserError, match="pickle") as caught:
        load_pickle(path)
    assert len(str(caught.value)) < 500


def test_bytes_that_the_file_does_not_have_take_no_memory(tmp_path):
    size = 2**26
    program = b"\x80\x05" + pickle.BYTEARRAY8 + size.to_bytes(8, "little") + b"pe."
    (tmp_path / "x.pkl").write_bytes(program)
    tracemalloc.start()
    with pytest.raises(UserError, match="pickle"):
        load_pickle(tmp_path / "x.pkl")
    assert tracemalloc.get_traced_memory()[1] < size / 4
    tracemalloc.stop()
    (tmp_path / "x.pkl").write_bytes(pickle.dumps(bytearray(b"whole"), 5))
    assert load_pickle(tmp_path / "x.pkl") == b"whole"


def test_keys_of_one_hash(tmp_path):
    numbers = pickle.dumps(one_hash(), 2)
    assert {hash(number) for number in one_hash(100).tolist()} == {0}
    for program in (
        b"cbuiltins\nset\n" + numbers[2:-1] + b"\x85R.",
        pickle.dumps(set(one_hash(3000).astype(np.complex64)), 2),
        pickle.dumps(set(np.arange(3, dtype=np.longdouble)), 2),
    ):
        (tmp_path / "x.pkl").write_bytes(program)
        with pytest.raises(UserError, match=r"a key that is no name or integer|which is broken"):
            load_pickle(tmp_path / "x.pkl")


def test_more_values_than_a_data_set_has(tmp_path, monkeypatch):
    content = pickle.dumps(list(range(300)), 2)
    (tmp_path / "x.pkl").write_bytes(content)
    monkeypatch.setattr(restricted_pickle._Counted, "left", sum(1 for _ in genops(content)))
    assert load_pickle(tmp_path / "x.pkl") == list(range(300))
    monkeypatch.setattr(restricted_pickle._Counted, "left", 300)
    with pytest.raises(UserError, match="more values than a data set has"):
        load_pickle(tmp_path / "x.pkl")


def test_as_many_values_as_a_data_set_has():
    labels = [np.int64(number) for number in range(2000)]
    steps = max(sum(1 for _ in genops(pickle.dumps(labels, protocol))) for protocol in (0, 2, 5))
    assert 30 * steps < restricted_pickle._MAX_STEPS


@pytest.mark.parametrize(
    "long", ["n" * 10_000_000, b"n" * 10_000_000, 10**5000], ids=["text", "bytes", "number"]
)
def test_one_long_label_beside_short_ones(tmp_path, long):
    """An array of names has the room of the longest for each."""
    images = np.zeros((500, 84, 84, 3), np.uint8)
    write_pickle(tmp_path / "x.pkl", {"images": images, "labels": [long, *["a"] * 499]})
    with pytest.raises(UserError, match="not a list") as caught:
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
