"""A saved learner of any kind can be loaded where only `nccl_tf` was imported."""

import io
import json
import os
import pathlib
import pickle
import resource
import struct
import subprocess
import sys
import zipfile
import zlib

import h5py
import keras
import numpy as np
import pytest

import nccl_tf
from nccl_tf.errors import UserError
from nccl_tf.saving import load_model
from tests.tiny import IMAGE_SHAPE, tiny_network

CODE = """
import sys
import nccl_tf.saving
nccl_tf.saving.register_classes()
print(*(name for name in sys.modules if name.startswith("nccl_tf")))
"""


@pytest.mark.processes
def test_every_module_with_a_class_that_is_saved_is_imported():
    root = pathlib.Path(nccl_tf.__file__).parent
    saved = {
        ".".join(["nccl_tf", *path.relative_to(root).with_suffix("").parts])
        for path in root.rglob("*.py")
        # A learner of check_memory is saved and loaded while it runs, and never kept.
        if path.parent.name != "conformance"
        and "@keras.saving.register_keras_serializable" in path.read_text()
    }
    printed = subprocess.run(
        [sys.executable, "-c", CODE], check=True, capture_output=True, text=True
    ).stdout
    assert len(saved) > 25
    assert saved <= set(printed.split())


def test_a_learner_is_saved_before_compile_as_well(tmp_path):
    nccl_tf.Finetune(tiny_network()).save(tmp_path / "learner.keras")
    assert not load_model(tmp_path / "learner.keras").compiled


def test_a_file_with_code_in_it_is_refused(tmp_path):
    layers = [keras.Input((2,)), keras.layers.Lambda(lambda x: 2 * x)]
    keras.Sequential(layers).save(tmp_path / "model.keras")
    with pytest.raises(UserError, match="code execution"):
        load_model(tmp_path / "model.keras")


@pytest.mark.processes
@pytest.mark.parametrize(
    "imports",
    [
        "import keras\nimport nccl_tf",
        "import nccl_tf\nimport keras",
        "import nccl_tf\nnccl_tf.UserError, nccl_tf.NCCL\nimport keras",
    ],
)
def test_keras_loads_a_learner_once_a_name_was_used(imports, learner_file):
    """In a process of its own, which has imported nothing else."""
    code = f"{imports}\nprint(type(keras.models.load_model({str(learner_file)!r})).__name__)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.split()[-1:] == ["DERpp"], done.stderr


@pytest.mark.processes
def test_a_pickled_learner_is_loaded_where_nothing_was_imported(tmp_path):
    """As joblib, spawned processes and Ray have it: the same predictions, the same memory."""
    images = np.random.default_rng(0).integers(0, 256, (16, *IMAGE_SHAPE), np.uint8)
    learner = nccl_tf.DERpp(tiny_network(), nccl_tf.ReservoirMemory(8))
    learner.compile(keras.optimizers.SGD(0.1))
    learner.fit(images, np.arange(16) % 2, verbose=0)
    (tmp_path / "learner.pickle").write_bytes(pickle.dumps(learner))
    np.save(tmp_path / "images.npy", images)
    code = (
        "import pickle; learner = pickle.load(open('learner.pickle', 'rb'))\n"
        "import numpy as np; images = np.load('images.npy')\n"
        "np.savez('found.npz', of=learner.predict(images, verbose=0), "
        "kept=learner.memory.read(8)[0])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": str(pathlib.Path(nccl_tf.__file__).parents[1])},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = np.load(tmp_path / "found.npz")
    np.testing.assert_array_equal(found["of"], learner.predict(images, verbose=0))
    np.testing.assert_array_equal(found["kept"], learner.memory.read(8)[0])


@pytest.fixture(scope="module")
def learner_file(tmp_path_factory):
    learner = nccl_tf.DERpp(tiny_network(), nccl_tf.ReservoirMemory(8))
    learner.compile("sgd")
    path = tmp_path_factory.mktemp("saved") / "learner.keras"
    learner.save(path)
    return path


def test_what_is_no_keras_file_is_refused(tmp_path):
    """A legacy .h5 file can hold code in spite of Keras's safe mode."""
    layers = [keras.Input((2,)), keras.layers.Dense(1)]
    keras.Sequential(layers).save(tmp_path / "model.h5")
    (tmp_path / "saved_model.pb").write_bytes(b"\x08\x01")
    for name in ("model.h5", "saved_model.pb"):
        with pytest.raises(UserError, match=r"is no \.keras file"):
            load_model(tmp_path / name)
    for path in (tmp_path, tmp_path / "none.keras"):
        with pytest.raises(UserError, match="cannot read the model"):
            load_model(path)


def repacked(source, path, name, change, compression=zipfile.ZIP_DEFLATED):
    """A copy of a file with one part changed."""
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(path, "w", compression) as new:
        for part in old.namelist():
            content = old.read(part)
            new.writestr(part, change(content) if part == name else content)
    return path


def with_a_large_data_set(content):
    file = io.BytesIO(content)
    with h5py.File(file, "r+") as weights:
        weights.create_dataset("bomb", (30_000, 30_000), "i4", chunks=(3000, 3000))
    return file.getvalue()


def with_many_layers(content):
    """A configuration that takes minutes to build, of layers without weights among others."""
    config = json.loads(content)
    layers = config["config"]["network"]["config"]["layers"]
    for kind, options in (("Dense", {"units": 4}), ("ReLU", {})):
        layers += [
            {"module": "keras.layers", "class_name": kind, "config": options} for _ in range(5_000)
        ]
    return json.dumps(config).encode()


def with_many_thresholds(content):
    config = json.loads(content)
    metric = keras.saving.serialize_keras_object(keras.metrics.AUC())
    metric["config"]["num_thresholds"] = 10**9
    config["compile_config"]["metrics"] = [metric]
    return json.dumps(config).encode()


def of_config(change):
    """A change of the configuration in a file."""

    def changed(content):
        config = json.loads(content)
        change(config["config"])
        return json.dumps(config).encode()

    return changed


def with_a_call(kind, arguments, **options):
    """A configuration with one more layer in the network, called on these arguments."""

    def change(config):
        config["network"]["config"]["layers"].append(
            {
                "module": "keras.layers",
                "class_name": kind,
                "name": "bomb",
                "config": {"name": "bomb", **options},
                "registered_name": None,
                "inbound_nodes": arguments,
            }
        )

    return of_config(change)


CONSTANT = {"class_name": "__tensor__", "config": {"value": [[[1.0]]], "dtype": "float32"}}
HIDDEN = {
    "class_name": "__slice__",
    "config": {"start": {"class_name": "__keras_tensor__"}, "stop": None, "step": None},
}
CALLS = {
    "constant": with_a_call("ZeroPadding1D", [{"args": [CONSTANT]}], padding=10**8),
    "keyword": with_a_call("ZeroPadding1D", [{"kwargs": {"inputs": CONSTANT}}], padding=10**8),
    "number": with_a_call("CategoryEncoding", [{"args": [[1]], "kwargs": {}}], num_tokens=10**8),
    "tensor in a slice": with_a_call(
        "ZeroPadding1D", [{"args": [CONSTANT, HIDDEN], "kwargs": {}}], padding=10**8
    ),
    "nothing": with_a_call("ZeroPadding1D", [[]], padding=10**8),
}


def with_an_array_of(dtype):
    array = {"class_name": "__numpy__", "config": {"value": ["a"] * 30, "dtype": dtype}}
    return with_a_call("Rescaling", [], scale=array)


def with_stft(identifier):
    return with_a_call("Conv1D", [], filters=1, kernel_size=10**8, kernel_initializer=identifier)


BOMBS = {
    **{name: ("config.json", change, "on numbers alone") for name, change in CALLS.items()},
    "stft": ("config.json", with_stft("stft"), "the initializer STFT"),
    "stft object": ("config.json", with_stft({"class_name": "STFT"}), "the initializer STFT"),
    "long texts": ("config.json", with_an_array_of("S1000000000"), "an array of 'S1000000000'"),
    "long fields": ("config.json", with_an_array_of("(9999,9999)f8"), "an array of"),
    "thresholds": ("config.json", with_many_thresholds, "asks for a metric of 1,000,000,000"),
    "layers": ("config.json", with_many_layers, r"names 10,\d+ layers"),
    "zeros": ("config.json", lambda content: content + b" " * 2**27, "unpacks to"),
    "data set": ("model.weights.h5", with_a_large_data_set, "unpacks to"),
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_small_file_that_stands_for_much_is_refused_before_keras_opens_it(
    name, learner_file, tmp_path, monkeypatch
):
    part, change, said = BOMBS[name]
    path = repacked(learner_file, tmp_path / "bomb.keras", part, change)
    assert path.stat().st_size < 1_000_000
    monkeypatch.setattr(keras.models, "load_model", lambda *_, **__: pytest.fail("opened"))
    with pytest.raises(UserError, match=said):
        load_model(path)


def test_weights_in_an_npz_file_are_not_read(learner_file, tmp_path, monkeypatch):
    """Its arrays may be a thousand times as large, and packed once more in the .keras file."""
    path, weights = tmp_path / "bomb.keras", io.BytesIO()
    np.savez_compressed(weights, __root__=np.zeros(2**24, np.float32))
    with zipfile.ZipFile(learner_file) as old, zipfile.ZipFile(path, "w", 8) as new:
        new.writestr("config.json", old.read("config.json"))
        new.writestr("metadata.json", old.read("metadata.json"))
        new.writestr("model.weights.npz", weights.getvalue())
    monkeypatch.setattr(keras.models, "load_model", lambda *_, **__: pytest.fail("opened"))
    with pytest.raises(UserError, match=r"has no model\.weights\.h5"):
        load_model(path)


def test_a_file_of_very_many_parts_is_refused(learner_file, tmp_path):
    path = repacked(learner_file, tmp_path / "parts.keras", None, None)
    with zipfile.ZipFile(path, "a") as file:
        for number in range(3_000):
            file.writestr(f"assets/{number}", b"")
    with pytest.raises(UserError, match=r"has 3,00\d parts"):
        load_model(path)


@pytest.mark.parametrize("packing", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_file_packed_otherwise_is_refused(packing, learner_file, tmp_path):
    path = repacked(learner_file, tmp_path / "packed.keras", None, None, packing)
    with pytest.raises(UserError, match="packed neither"):
        load_model(path)


def test_a_part_that_claims_fewer_bytes_than_it_has_is_not_unpacked(learner_file, tmp_path):
    """Its checksum may be that of the bytes that it claims."""
    path = repacked(
        learner_file, tmp_path / "x.keras", "config.json", lambda content: content + b" " * 2**27
    )
    with zipfile.ZipFile(learner_file) as file:
        content = file.read("config.json")
    for true, said in (
        (len(content) + 2**27, len(content)),
        (zlib.crc32(content + b" " * 2**27), zlib.crc32(content)),
    ):
        path.write_bytes(
            path.read_bytes().replace(struct.pack("<I", true), struct.pack("<I", said))
        )
    with zipfile.ZipFile(path) as file:
        assert file.getinfo("config.json").file_size == len(content)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(UserError, match=r"config\.json"):
        load_model(path)
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024 < 50e6


def widen(config):
    layers = config["network"]["config"]["layers"]
    next(layer for layer in layers if layer["class_name"] == "Dense")["config"]["units"] = (
        30_000_000
    )


def with_many_classes(config):
    memory = nccl_tf.RingMemory(2, [[0]])
    config["memory"] = keras.saving.serialize_keras_object(memory)
    config["memory"]["config"]["task_classes"] = [[0, 10**9]]


@pytest.mark.parametrize(
    ("change", "said"),
    [(widen, "asks for more than 67,"), (with_many_classes, "the class 1,000,000,000")],
)
def test_a_configuration_that_asks_for_far_more_than_the_weights_is_not_built(
    change, said, learner_file, tmp_path
):
    path = repacked(learner_file, tmp_path / "x.keras", "config.json", of_config(change))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(UserError, match=said):
        load_model(path)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown * 1024 < 300e6


def test_a_given_mean_is_not_spread_over_a_shape_far_larger_than_the_weights(tmp_path):
    """By RepeatVector, whose output has any size, and no weights."""
    layers = keras.layers
    network = keras.Sequential([
        keras.Input((6,)), layers.RepeatVector(10), layers.Normalization(1, mean=0.5, variance=2.0),
        layers.GlobalAveragePooling1D(), layers.Dense(3),
    ])  # fmt: skip
    learner, rows = nccl_tf.Finetune(network), np.eye(2, 6, dtype=np.float32)
    learner.save(tmp_path / "learner.keras")
    again = load_model(tmp_path / "learner.keras")
    np.testing.assert_array_equal(again(rows), learner(rows))

    def repeat(content):
        content = content.replace(b'"n": 10', b'"n": 100000000')
        return content.replace(b"[null, 10, 6]", b"[null, 100000000, 6]")

    path = repacked(tmp_path / "learner.keras", tmp_path / "bomb.keras", "config.json", repeat)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(UserError, match="asks for more than 67,"):
        load_model(path)
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024 < 300e6
    load_model(tmp_path / "learner.keras")


def test_a_network_that_computes_with_constants_is_loaded(tmp_path):
    """Keras keeps them as arguments beside a tensor of the network."""
    inputs = keras.Input((6,))
    hidden = keras.ops.concatenate([inputs, keras.ops.multiply(inputs, np.arange(6.0))])
    network = keras.Model(inputs, keras.layers.Dense(3)(hidden + 1))
    learner = nccl_tf.Finetune(network)
    learner.save(tmp_path / "learner.keras")
    rows = np.random.default_rng(0).normal(size=(4, 6)).astype("float32")
    again = load_model(tmp_path / "learner.keras")
    np.testing.assert_array_equal(again(rows), learner(rows))


def with_deep_groups(content):
    """Groups in one another, which HDF5 takes minutes to go through."""
    file = io.BytesIO(content)
    with h5py.File(file, "r+") as weights:
        group = weights
        for _ in range(2_000):
            group = group.create_group("g")
    return file.getvalue()


def with_values_of_any_length(content):
    """Each of which a file may let be the same one, a thousand times."""
    file = io.BytesIO(content)
    with h5py.File(file, "r+") as weights:
        weights.create_dataset("bomb", (4,), h5py.vlen_dtype("u1"))
    return file.getvalue()


def with_a_list_as_attribute(content):
    file = io.BytesIO(content)
    with h5py.File(file, "r+") as weights:
        weights.create_group("bomb").attrs["dtype"] = ["bfloat16"] * 3
    return file.getvalue()


BROKEN = {
    "values of any length": ("model.weights.h5", with_values_of_any_length),
    "attribute": ("model.weights.h5", with_a_list_as_attribute),
    "deep groups": ("model.weights.h5", with_deep_groups),
    "config": ("config.json", lambda content: content[:-5]),
    "nested": ("config.json", lambda content: b"[" * 100_000),
    "class": ("config.json", lambda content: content.replace(b"DERpp", b"X" * 90_000)),
    "number": ("config.json", lambda content: content.replace(b'"units": 8', b'"units": "8"')),
    "weights": ("model.weights.h5", lambda content: content[: len(content) // 2]),
    "no weights": ("model.weights.h5", lambda content: b""),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_file_is_refused_in_a_short_sentence(name, learner_file, tmp_path):
    path = repacked(learner_file, tmp_path / "broken.keras", *BROKEN[name])
    with pytest.raises(UserError) as refused:
        load_model(path)
    assert str(path) in str(refused.value) and len(str(refused.value)) < 500 + len(str(path))


def test_a_packed_file_is_loaded(learner_file, tmp_path):
    path = repacked(learner_file, tmp_path / "packed.keras", None, None)
    assert load_model(path).memory.capacity == 8


@pytest.mark.processes
def test_a_run_imports_its_own_method_alone():
    """Those of all methods, which a saved learner may name, take a tenth of a second."""
    code = "import nccl_tf.cli, sys, nccl_tf.experiment.run.seed, nccl_tf.methods.nccl"
    printed = subprocess.run(
        [sys.executable, "-c", f"{code}; print(*sys.modules)"],
        check=True, capture_output=True, text=True,
    ).stdout.split()  # fmt: skip
    of_methods = {name for name in printed if name.startswith("nccl_tf.methods.")}
    assert {name for name in of_methods if not name.startswith("nccl_tf.methods.rows")} == {
        "nccl_tf.methods.create", "nccl_tf.methods.registry", "nccl_tf.methods.row",
        "nccl_tf.methods.er", "nccl_tf.methods.nccl",
    }  # fmt: skip
