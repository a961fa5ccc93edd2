"""Adapters (LoRA): learned, saved beside their base, and sent alone."""

import copy
import io
import zipfile

import keras
import numpy as np
import pytest

import nccl_tf
from tests.learner.hub import gpt2

TOKENS, PLACES, CLASSES = 7, 5, 4
X = np.random.default_rng(0).integers(0, TOKENS, (24, PLACES)).astype("int32")
Y = X.sum(1) % CLASSES


def network(rank=2, seed=1, head=False):
    """Adapters in each kind of layer that can have some, one of them within another model."""
    keras.utils.set_random_seed(seed)
    einsum = keras.layers.EinsumDense("abc,cd->abd", (PLACES, 6), bias_axes="d")
    table, dense = keras.layers.Embedding(TOKENS, 3), keras.layers.Dense(8, "relu")
    last = keras.layers.Dense(CLASSES)
    inner = keras.Sequential([keras.Input((PLACES * 6,)), dense])
    made = keras.Sequential([
        keras.Input((PLACES,), dtype="int32"), table, einsum, keras.layers.Flatten(), inner, last
    ])  # fmt: skip
    for layer in (table, einsum, dense, *([last] if head else [])):
        layer.enable_lora(rank, lora_alpha=3)
    return made


def learner(kind=nccl_tf.Finetune, net=None, **arguments):
    made = kind(net or network(), **arguments)
    made.compile(keras.optimizers.Adam(0.05))
    return made


def adapters_of(made):
    return [v for v in made.network.weights if "lora" in v.name]


def bases_of(made):
    names = ("kernel", "embeddings")
    layers = [x for x in made.network._flatten_layers() if getattr(x, "lora_enabled", False)]
    return [v for layer in layers for v in layer.weights if v.name in names]


def values(variables):
    return [v.numpy() for v in variables]


def assert_same(one, other):
    assert len(one) == len(other) > 0
    for left, right in zip(one, other, strict=True):
        np.testing.assert_array_equal(left, right)


def state(made):
    return values(made.state_variables.values())


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(nccl_tf.EWC, id="ewc"),
        pytest.param(
            lambda net, **kwargs: nccl_tf.ExperienceReplay(
                net, nccl_tf.ReservoirMemory(8), **kwargs
            ),
            id="er",
            marks=pytest.mark.eager,
        ),
    ],
)
@pytest.mark.seconds(16)  # two learners trace their steps, and one of them anew from its file
def test_a_learner_with_adapters_is_loaded_and_goes_on_to_the_bit(kind, tmp_path):
    made = learner(kind, average_weights=0.9)
    base = values(bases_of(made))
    made.fit(X, Y, batch_size=8, shuffle=False, verbose=0)
    assert all((v != 0).any() for v in values(adapters_of(made)))
    assert_same(values(bases_of(made)), base)
    made.save(tmp_path / "learner.keras")
    made.save_weights(tmp_path / "learner.weights.h5")
    loaded = [nccl_tf.load_model(tmp_path / "learner.keras"), copy.deepcopy(made)]
    for each in loaded:
        assert_same(state(each), state(made))
        assert_same(values(bases_of(each)), base)
    before = state(made)
    for each in (made, *loaded):
        each.fit(X, (Y + 1) % CLASSES, batch_size=8, shuffle=False, verbose=0)
    for each in loaded:
        assert_same(state(each), state(made))
    made.load_weights(tmp_path / "learner.weights.h5")
    assert_same(state(made), before)


def test_optimizer_and_importances_have_what_is_trained_alone():
    made = learner(nccl_tf.EWC)
    trained = made.trainable_variables
    assert not set(map(id, trained)) & set(map(id, bases_of(made)))
    assert set(map(id, adapters_of(made))) <= set(map(id, trained))
    shapes = [tuple(v.shape) for v in trained]
    assert [tuple(v.shape) for v in made.importances] == shapes
    slots = [tuple(v.shape) for v in made.optimizer.variables[2:]]
    assert sorted(slots) == sorted(2 * shapes)


@pytest.mark.eager
def test_a_network_with_adapters_in_its_body_grows_and_is_loaded(tmp_path):
    made = learner(nccl_tf.EWC)
    made.fit(X, Y, batch_size=8, shuffle=False, verbose=0)
    adapters = values(adapters_of(made))
    made.add_classes(2)
    assert_same(values(adapters_of(made)), adapters)
    assert made.importances[-1].shape == (CLASSES + 2,)
    made.save(tmp_path / "learner.keras")
    loaded = nccl_tf.load_model(tmp_path / "learner.keras")
    for each in (made, loaded):
        each.fit(X, Y + 2, batch_size=8, shuffle=False, verbose=0)
    assert_same(state(made), state(loaded))


def test_a_head_with_adapters_does_not_grow():
    made = learner(net=network(head=True))
    weights = made.get_weights()
    with pytest.raises(nccl_tf.UserError, match="LoRA"):
        made.add_classes(1)
    assert made.num_classes == CLASSES and len(made.get_weights()) == len(weights)


def test_the_serving_model_has_the_averaged_adapters():
    made = learner(average_weights=0.5)
    made.fit(X, Y, batch_size=8, epochs=2, verbose=0)
    served = made.serving_model().predict(X, verbose=0)
    np.testing.assert_allclose(served, made.predict(X, verbose=0), atol=1e-5)
    with made.use_weights("plain"):
        assert np.abs(served - made.predict(X, verbose=0)).max() > 1e-3


@pytest.mark.parametrize("averages", [None, 0.5])
def test_adapters_are_sent_alone(averages, tmp_path, caplog):
    made = learner(average_weights=averages)
    made.fit(X, Y, batch_size=8, epochs=2, verbose=0)
    made.save_adapters(tmp_path / "adapters.npz")
    received = learner(average_weights=averages)
    assert (received.predict(X, verbose=0) != made.predict(X, verbose=0)).any()
    received.load_adapters(tmp_path / "adapters.npz")
    np.testing.assert_array_equal(received.predict(X, verbose=0), made.predict(X, verbose=0))
    assert "load the same base" not in caplog.text
    received.fit(X, Y, batch_size=8, shuffle=False, verbose=0)
    learner(net=network(seed=2)).load_adapters(tmp_path / "adapters.npz")
    assert "load the same base" in caplog.text


@pytest.mark.eager
def test_adapters_that_keras_has_merged_are_told_of_once(tmp_path, caplog):
    """Both matrices of a network that was saved alone are zero, and so are both gradients."""
    made = learner()
    made.fit(X, Y, verbose=0)
    assert not caplog.text.count("adapters")
    made.network.save(tmp_path / "alone.keras")
    alone = learner(net=keras.models.load_model(tmp_path / "alone.keras"))
    for _ in range(2):
        alone.fit(X, Y, verbose=0)
    assert not any(np.any(v.numpy()) for v in adapters_of(alone))
    assert caplog.text.count("adapters of the layer 'embedding") == 1


def test_draws_of_dropout_are_no_part_of_the_base(tmp_path, caplog):
    def made():
        inner = network()
        inputs = keras.Input((PLACES,), dtype="int32")
        return learner(net=keras.Model(inputs, keras.layers.Dropout(0.5)(inner(inputs))))

    sender = made()
    sender.fit(X, Y, batch_size=8, verbose=0)
    sender.save_adapters(tmp_path / "adapters.npz")
    made().load_adapters(tmp_path / "adapters.npz")
    assert "load the same base" not in caplog.text


def test_adapters_that_do_not_fit_are_refused(tmp_path):
    path = tmp_path / "adapters.npz"
    made = learner()
    with pytest.raises(nccl_tf.UserError, match=r"ends in \.npz"):
        made.save_adapters(tmp_path / "adapters.h5")
    made.save_adapters(path)
    with pytest.raises(nccl_tf.UserError, match="another rank"):
        learner(net=network(rank=3)).load_adapters(path)
    with pytest.raises(nccl_tf.UserError, match="without adapters"):
        learner(net=nccl_tf.networks.mlp((4, 4, 1), 2)).load_adapters(path)
    path.write_bytes(path.read_bytes()[:99])
    for broken in (path, tmp_path / "missing.npz"):
        with pytest.raises(nccl_tf.UserError, match="cannot read the adapters"):
            made.load_adapters(broken)


def of_form(shape, dtype):
    """An array's header without its data."""
    file = io.BytesIO()
    header = {"descr": dtype, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(file, header)
    return file.getvalue()


def as_bytes(array):
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def last_of(change):
    """A change of the last array alone."""
    return lambda parts: {max(n for n in parts if n[0] == "0"): as_bytes(change(_last(parts)))}


def _last(parts):
    name = max(name for name in parts if name[0] == "0")
    return np.lib.format.read_array(io.BytesIO(parts[name]))


FORGED = {
    "no names": lambda parts: {"names.npy": as_bytes(np.array("[]"))},
    "names of a number": lambda parts: {"names.npy": as_bytes(np.array("5"))},
    "names of objects": lambda parts: {"names.npy": as_bytes(np.array("{}"))},
    "deep names": lambda parts: {"names.npy": as_bytes(np.array("[" * 100_000))},
    "numbers for names": lambda parts: {"names.npy": as_bytes(np.zeros(3))},
    "long names": lambda parts: {"names.npy": of_form((), "<U500000000")},
    "adapters of nothing": lambda parts: {"adapters.npy": as_bytes(np.array("null"))},
    "an empty part": lambda parts: {"base.npy": b""},
    "a large array": lambda parts: {"0000.npy": of_form((10**6, 10**6), "<f4")},
    "text": last_of(lambda array: np.full(array.shape, "text")),
    "complex": last_of(lambda array: array + 1j),
    "dates": last_of(lambda array: np.zeros(array.shape, "M8[s]")),
    "records": last_of(lambda array: np.zeros(array.shape, [("a", "f4")])),
    "bool": last_of(lambda array: array > 0),
    "double": last_of(lambda array: np.full(array.shape, 1e300)),
    "NaN": last_of(lambda array: array * np.float32("nan")),
    "infinity": last_of(lambda array: array + np.float32("inf")),
}  # fmt: skip


@pytest.fixture(scope="module")
def sent(tmp_path_factory):
    """The parts of a file of adapters that have learned."""
    path = tmp_path_factory.mktemp("sent") / "adapters.npz"
    made = learner()
    made.fit(X, Y, verbose=0)
    made.save_adapters(path)
    with zipfile.ZipFile(path) as saved:
        return {name: saved.read(name) for name in saved.namelist()}


@pytest.fixture(scope="module")
def received():
    """Refuses every file: it stays as it was made."""
    return learner(net=network(seed=2))


@pytest.mark.parametrize("forged", FORGED)
def test_forged_adapters_are_refused_and_change_no_weight(forged, sent, received, tmp_path):
    with zipfile.ZipFile(tmp_path / "forged.npz", "w") as file:
        for name, content in (sent | FORGED[forged](sent)).items():
            file.writestr(name, content)
    before = state(received)
    with pytest.raises(nccl_tf.UserError, match="adapters"):
        received.load_adapters(tmp_path / "forged.npz")
    assert_same(state(received), before)


@pytest.mark.parametrize("packing", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_adapters_that_unpack_to_far_more_than_the_network_takes_are_not_unpacked(
    packing, tmp_path
):
    """Of these kinds a part is unpacked whole, whatever is asked of it."""
    made = learner()
    made.save_adapters(tmp_path / "adapters.npz")
    with zipfile.ZipFile(tmp_path / "adapters.npz") as saved:
        parts = {name: saved.read(name) for name in saved.namelist()}
    parts["0000.npy"] += bytes(2**20)
    with zipfile.ZipFile(tmp_path / "bomb.npz", "w", packing) as file:
        for name, content in parts.items():
            file.writestr(name, content)
    with pytest.raises(nccl_tf.UserError, match="cannot read the adapters"):
        made.load_adapters(tmp_path / "bomb.npz")


@pytest.mark.parametrize("content", [b"", as_bytes(np.zeros(3))])
def test_what_is_no_file_of_adapters_is_refused(content, tmp_path):
    (tmp_path / "adapters.npz").write_bytes(content)
    with pytest.raises(nccl_tf.UserError, match="cannot read the adapters"):
        learner().load_adapters(tmp_path / "adapters.npz")


def test_adapters_of_a_shorter_float_are_sent(tmp_path):
    """NumPy has no name for its dtype."""

    def made(seed):
        keras.utils.set_random_seed(seed)
        dense = keras.layers.Dense(4, dtype="bfloat16")
        net = keras.Sequential([keras.Input((3,)), dense])
        dense.enable_lora(2)
        dense.lora_kernel_b.assign(keras.random.normal((2, 4), seed=seed))
        return learner(net=net)

    sender, received = made(0), made(1)
    sender.save_adapters(tmp_path / "adapters.npz")
    received.load_adapters(tmp_path / "adapters.npz")
    trained = [made.network.trainable_variables for made in (sender, received)]
    assert_same(*map(values, trained))


@pytest.mark.seconds(16)  # two learners trace their steps, and one of them anew from its file
def test_a_backbone_of_keras_hub_with_adapters_goes_on_to_the_bit(tmp_path):
    net = gpt2()
    net.backbone.enable_lora(2)
    made = nccl_tf.EWC(net)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    made.compile(keras.optimizers.Adam(0.01), loss)
    assert len(made.importances) == len(net.backbone.trainable_variables)
    tokens = np.random.default_rng(0).integers(0, 16, (8, 9)).astype("int32")
    x = {"token_ids": tokens[:, :-1], "padding_mask": np.ones((8, 8), "int32")}
    made.fit(x, tokens[:, 1:], batch_size=4, shuffle=False, verbose=0)
    assert all((v != 0).any() for v in values(adapters_of(made)))
    made.save(tmp_path / "learner.keras")
    loaded = nccl_tf.load_model(tmp_path / "learner.keras")
    assert [v.path for v in loaded.trainable_variables] == [
        v.path for v in made.trainable_variables
    ]
    for each in (made, loaded):
        each.fit(x, tokens[:, :-1], batch_size=4, shuffle=False, verbose=0)
    assert_same(state(made), state(loaded))


def test_adapters_of_rank_0_are_refused():
    """Keras makes them, and divides by their rank in each call."""
    net = network(rank=0)
    with pytest.raises(nccl_tf.UserError, match="adapters of rank 0"):
        nccl_tf.Finetune(net)
