"""Pickles of arrays are read; anything else is refused and never run."""

import codecs
import collections
import io
import os
import pickle
import struct

import numpy as np
import pytest

from nccl_tf.errors import UserError
from nccl_tf.streams.restricted_pickle import load_pickle

ARRAYS = {
    "uint8": np.arange(24, dtype=np.uint8).reshape(2, 3, 4),
    "fortran": np.asfortranarray(np.arange(6, dtype=np.float32).reshape(2, 3)),
    "big-endian": np.arange(5, dtype=">i4"),
    "scalar shape": np.array(3.5),
    "empty": np.zeros((0, 3), np.int64),
    "text": np.array(["n01", "n0234"]),
    "bytes": np.array([b"a", b"bcd"]),
    "objects": np.array([1, "two", [3]], dtype=object),
    "strided": np.arange(20)[::3],
}


def write(path, content, protocol=4):
    path.write_bytes(content if isinstance(content, bytes) else pickle.dumps(content, protocol))
    return path


class Reduce:
    """Pickles as a call of `function`."""

    def __init__(self, function, *arguments):
        self.call = (function, arguments)

    def __reduce__(self):
        return self.call


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_arrays_and_containers_come_back(tmp_path, protocol):
    content = {
        "arrays": ARRAYS,
        "class_dict": collections.OrderedDict(n01=[0, 1], n02=[2]),
        "plain": [1, 2.5, None, True, "text", b"bytes", (1, 2), {3}, {"k": [()]}],
        "scalar": np.int64(7),
        "float": np.float32(0.5),
    }
    loaded = load_pickle(write(tmp_path / "x.pkl", content, protocol))
    for name, array in ARRAYS.items():
        read = loaded["arrays"][name]
        # NumPy itself makes the byte order native while reading older protocols.
        assert read.dtype.newbyteorder("=") == array.dtype.newbyteorder("=")
        assert read.shape == array.shape
        assert read.tolist() == array.tolist()
    assert loaded["class_dict"] == content["class_dict"]
    assert loaded["plain"] == content["plain"]
    assert loaded["scalar"] == 7
    assert loaded["float"] == 0.5


def test_old_module_names_and_python_2_strings(tmp_path):
    array = np.arange(250, 256, dtype=np.uint8)
    python2 = (
        b"(dS'image_data'\ncnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(I0\ntS'b'\ntR"
        b"(I1\n(I6\ntcnumpy\ndtype\n(S'u1'\nI0\nI1\ntR(I3\nS'|'\nNNNI-1\nI-1\nI0\ntbI00\n"
        b"S'\\xfa\\xfb\\xfc\\xfd\\xfe\\xff'\ntbs."
    )
    assert load_pickle(write(tmp_path / "x.pkl", python2))["image_data"].tolist() == array.tolist()


def test_calls_are_refused_and_not_made(tmp_path):
    target = tmp_path / "made"
    made = [
        Reduce(os.system, f"touch {target}"),
        Reduce(eval, f"open({str(target)!r}, 'w')"),
        Reduce(exec, f"open({str(target)!r}, 'w')"),
        Reduce(open, str(target), "w"),
        Reduce(getattr, "text", "join"),
        Reduce(__import__, "os"),
        Reduce(np.load, str(target)),
        Reduce(np.fromfile, str(target)),
        Reduce(codecs.decode, b"x", "hex"),
        Reduce(codecs.encode, "x", "rot13"),
        Reduce(bytearray, 10),
        Reduce(bytes, 10),
        Reduce(np.ndarray, (10**9,)),
        Reduce(io.BytesIO, b"x"),
        np.random.default_rng(0),
        np.ma.masked_array([1, 2]),
        np.zeros(2, [("a", "i4"), ("b", "O")]),
        Reduce,
    ]
    for number, hostile in enumerate(made):
        wrapped = {"images": np.array([hostile, 1], dtype=object), "labels": [({"k": hostile},)]}
        for content in (hostile, wrapped):
            for protocol in (0, 2, 4, 5):
                path = write(tmp_path / f"{number}.pkl", content, protocol)
                with pytest.raises(UserError, match="pickle"):
                    load_pickle(path)
    assert not target.exists()


@pytest.mark.parametrize(
    "code",
    [
        b"cos\nsystem\n(S'true'\ntR.",
        b"(S'true'\nios\nsystem\n.",
        b"(cos\nsystem\nS'true'\no.",
        b"c__builtin__\neval\n(S'1'\ntR.",
        b"\x80\x04\x8c\x05numpy\x8c\x0ddtype.__new__\x93.",
        b"cnumpy\nndarray.__subclasses__\n.",
        b"cnumpy\nndarray\n((I9\ntI0\ntR.",
        b"\x80\x02\x82\x01.",  # An extension code.
        b"P1\n.",  # A persistent id.
    ],
)
def test_opcodes_that_call_are_refused(tmp_path, code):
    with pytest.raises(UserError, match="pickle"):
        load_pickle(write(tmp_path / "x.pkl", code))


def array_pickle(shape, kind, dtype_state, data):
    return (
        b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(I0\ntS'b'\ntR(I1\n"
        + shape
        + b"cnumpy\ndtype\n(S'"
        + kind
        + b"'\nI0\nI1\ntR"
        + dtype_state
        + b"bI00\n"
        + data
        + b"tb."
    )


@pytest.mark.parametrize(
    ("shape", "kind", "state", "data"),
    [
        (b"(I9999999999\nt", b"u1", b"(I3\nS'|'\nNNNI-1\nI-1\nI0\nt", b"S'ab'\n"),
        (b"(I-2\nI-1\nt", b"u1", b"(I3\nS'|'\nNNNI-1\nI-1\nI0\nt", b"S'ab'\n"),
        (b"(I2\nt", b"O", b"(I3\nS'|'\nNNNI-1\nI-1\nI63\nt", b"S'abcdefghijklmnop'\n"),
        (b"(I2\nt", b"u1", b"(I3\nS'|'\nNNNI-1\nI-1\nI0\nt", b"(lp0\nI1\naI2\na"),
        (b"(I1\nt", b"V8", b"(I3\nS'|'\nN(S'a'\nt(dI8\nI1\nI0\nt", b"S'abcdefgh'\n"),
        (b"(I2\nt", b"u1", b"(I3\nS'|'\nN(S'a'\nt(dI8\nI1\nI0\nt", b"S'ab'\n"),
        (b"(I2\nt", b"no", b"(I3\nS'|'\nNNNI-1\nI-1\nI0\nt", b"S'ab'\n"),
    ],
)
def test_lies_about_arrays_are_refused(tmp_path, shape, kind, state, data):
    with pytest.raises(UserError, match="pickle"):
        load_pickle(write(tmp_path / "x.pkl", array_pickle(shape, kind, state, data)))


@pytest.mark.parametrize(
    "code",
    [
        b"\x80\x04\x8e" + struct.pack("<Q", 2**40) + b"x.",  # BINBYTES8
        b"\x80\x05\x96" + struct.pack("<Q", 2**62) + b"x.",  # BYTEARRAY8
        b"\x80\x04\x95" + struct.pack("<Q", 2**40) + b"x.",  # FRAME
        b"\x80\x02]r\xff\xff\xff\xff.",  # LONG_BINPUT: legal, and cheap for this unpickler
    ],
)
def test_claims_of_huge_sizes_set_no_memory_aside(tmp_path, code):
    path = write(tmp_path / "x.pkl", code)
    if code.endswith(b"\xff."):
        assert load_pickle(path) == []
    else:
        with pytest.raises(UserError, match="broken"):
            load_pickle(path)


def test_every_truncation_and_many_corruptions_are_told_in_one_sentence(tmp_path):
    whole = pickle.dumps({"images": ARRAYS["uint8"], "labels": [1, 2]}, 2)
    rng = np.random.default_rng(0)
    broken = [whole[:end] for end in range(len(whole))]
    for _ in range(300):
        changed = bytearray(whole)
        changed[rng.integers(len(whole))] = rng.integers(256)
        broken.append(bytes(changed))
    for content in broken:
        try:
            load_pickle(write(tmp_path / "x.pkl", content))
        except UserError as error:
            assert "x.pkl" in str(error)


def test_missing_file(tmp_path):
    with pytest.raises(UserError, match=r"cannot read .*none\.pkl"):
        load_pickle(tmp_path / "none.pkl")
