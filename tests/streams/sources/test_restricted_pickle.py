"""Pickles of arrays are read; anything else is refused and never run."""

import codecs
import collections
import copyreg
import io
import os
import pickle
import struct

import numpy as np
import pytest

from nccl_tf.errors import UserError
from nccl_tf.streams.sources.mini_imagenet.restricted_pickle import load_pickle

ARRAYS = {
    "uint8": np.arange(24, dtype=np.uint8).reshape(2, 3, 4),
    "fortran": np.asfortranarray(np.arange(6, dtype=np.float32).reshape(2, 3)),
    "big-endian": np.arange(5, dtype=">i4"),
    "scalar shape": np.array(3.5),
    "text": np.array(["n01", "n0234"]),
    "bytes": np.array([b"a", b"bcd"]),
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
        "plain": [1, 2.5, None, True, "text", b"bytes", (1, 2), {"k": [()]}],
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
        np.array([1, "two", [3]], dtype=object),
        np.zeros(2, "V8"),
        np.zeros(2, "i1,i1"),
        np.zeros(2, "M8[s]"),
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
        # GLOBAL by the names of Python 2, which the standard unpickler maps to those of Python 3.
        b"c__builtin__\nxrange\n(I3\ntR.",
        b"cnumpy.core.multiarray\nfromfile\n(S'x'\ntR.",
        # STACK_GLOBAL, by names that are none and by names with a way to more.
        b"\x80\x04K\x01K\x02\x93.",
        b"\x80\x04\x8c\x02os\x8c\x06system\x93\x8c\x04true\x85R.",
        # INST and OBJ of what may be named.
        b"(I9\nicollections\nOrderedDict\n.",
        b"(cnumpy\ndtype\nI9\no.",
        # NEWOBJ and NEWOBJ_EX.
        b"\x80\x02cos\nPathLike\n)\x81.",
        b"\x80\x02cnumpy\nndarray\n(I9\nt\x81.",
        b"\x80\x02cnumpy.core.multiarray\n_reconstruct\n)\x81.",
        b"\x80\x04cos\nPathLike\n)}\x92.",
        b"\x80\x04\x8c\x01xK\x01\x85}\x92.",
        # REDUCE of what is no function, and of stand-ins with something else than they expect.
        b"K\x01)R.",
        b"]K\x01\x85R.",
        b"cnumpy.core.numeric\n_frombuffer\n(]cnumpy\ndtype\n(S'u1'\ntRK\x00\x85S'C'\ntR.",
        b"cnumpy.core.multiarray\nscalar\n(cnumpy\ndtype\n(S'U1'\ntRC\x04\xff\xff\xff\xfftR.",
        # BUILD: of a function, its defaults and its globals, of a class, of a plain container.
        b"c_codecs\nencode\n}S'x'\nK\x01sb.",
        b"c_codecs\nencode\nN}S'__defaults__'\nK\x01\x85s\x86b.",
        b"cnumpy\ndtype\nN}S'dtype'\nK\x01s\x86b.",
        b"ccollections\nOrderedDict\n)R}S'items'\nK\x01sb.",
        b"K\x01}b.",
        # EXT1, EXT2 and EXT4.
        b"\x80\x02\x82\x01.",
        b"\x80\x02\x83\x01\x01.",
        b"\x80\x02\x84\x01\x01\x01\x01.",
        # PERSID and BINPERSID.
        b"P1\n.",
        b"K\x01Q.",
        # SETITEM, APPEND and ADDITEMS on something else than their containers.
        b"]K\x00K\x01s.",
        b"}K\x00a.",
        b"\x80\x04}(K\x00\x90.",
        # Buffers from outside of the file.
        b"\x80\x05\x97.",
        b"\x80\x05K\x01\x98.",
    ],
)
def test_opcodes_that_call_are_refused(tmp_path, code):
    with pytest.raises(UserError, match="pickle"):
        load_pickle(write(tmp_path / "x.pkl", code))


def test_cached_extension_codes_are_refused(tmp_path):
    cache = copyreg._extension_cache
    cache[1] = os.system
    try:
        with pytest.raises(UserError, match="extension code 1"):
            load_pickle(write(tmp_path / "x.pkl", b"\x80\x02\x82\x01S'true'\n\x85R."))
    finally:
        del cache[1]


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
        (b"(I1\nt", b"U1", b"(I3\nS'<'\nNNNI-1\nI-1\nI0\nt", b"S'\\xff\\xff\\xff\\xff'\n"),
        (b"(" + 65 * b"I1\n" + b"t", b"u1", b"(I3\nS'|'\nNNNI-1\nI-1\nI0\nt", b"S'a'\n"),
        (b"(F1.0\nt", b"u1", b"(I3\nS'|'\nNNNI-1\nI-1\nI0\nt", b"S'a'\n"),
        (b"(L99999999999999999999L\nt", b"S0", b"(I3\nS'|'\nNNNI0\nI1\nI0\nt", b"S''\n"),
        (b"(I1\nt", b"i1,i1,i1,i1,i1,i1,i1", b"(I3\nS'|'\nNNNI-1\nI-1\nI0\nt", b"S'a'\n"),
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


def test_broken_files_are_told_in_one_sentence(tmp_path):
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
