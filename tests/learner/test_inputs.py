"""Inputs of any shape and dtype, one or several: learned, replayed, evaluated, saved and loaded."""

import keras
import numpy as np
import pandas as pd
import pytest
import tensorflow as tf

import nccl_tf
from nccl_tf.errors import UserError

WORDS, LENGTH, COUNT = 40, 6, 160
RNG = np.random.default_rng(0)
LABELS = RNG.integers(0, 2, COUNT)
# Each class has words of its own, the even or the odd ones.
TOKENS = 2 * RNG.integers(0, WORDS // 2, (COUNT, LENGTH)) + LABELS[:, None]
TEXTS = np.array([" ".join(f"w{token}" for token in row) for row in TOKENS])
FLOATS = RNG.normal(size=(COUNT, 3)) + LABELS[:, None]


def text_network(dtype="float32") -> keras.Model:
    table = keras.initializers.RandomUniform(seed=1)
    layers = [
        keras.Input((LENGTH,), dtype="int32"),
        keras.layers.Embedding(WORDS, 4, embeddings_initializer=table, dtype=dtype),
        keras.layers.GlobalAveragePooling1D(dtype=dtype),
        keras.layers.Dense(
            2, kernel_initializer=keras.initializers.GlorotUniform(seed=2), dtype=dtype
        ),
    ]
    return keras.Sequential(layers)


def build(cls, network, memory=None, optimizer=None, **arguments):
    compiled = {
        k: arguments.pop(k) for k in ("jit_compile", "loss", "run_eagerly") if k in arguments
    }
    if not compiled.get("jit_compile"):
        compiled.setdefault("run_eagerly", True)  # few steps, for which a graph takes long
    memory = nccl_tf.ReservoirMemory(20) if memory is None else memory
    learner = cls(network, memory, **arguments)
    learner.compile(optimizer or keras.optimizers.SGD(0.5), metrics=["accuracy"], **compiled)
    return learner


def test_tokens_with_a_ring_and_heads():
    learner = build(nccl_tf.AGEM, text_network(), nccl_tf.RingMemory(2), heads=[[0], [1]])
    for task in range(2):
        rows = task == LABELS
        learner.fit(TOKENS[rows], LABELS[rows], verbose=0)
    assert int(learner.memory.readable_count()) == 4
    assert set(learner.memory.labels.numpy()[:4]) == {0, 1}


@pytest.mark.nightly
def test_tokens_under_xla():
    learners = [
        build(nccl_tf.ExperienceReplay, text_network(), jit_compile=xla) for xla in (False, True)
    ]
    for learner in learners:
        learner.fit(TOKENS[:48], LABELS[:48], shuffle=False, verbose=0)
    plain, xla = (learner.network.get_weights()[0] for learner in learners)
    np.testing.assert_allclose(xla, plain, rtol=1e-4, atol=1e-6)


def rows_of(x, rows):
    return tf.nest.map_structure(lambda column: tf.constant(column[rows]), x)


def string_network(outputs=2) -> keras.Model:
    vectorize = keras.layers.TextVectorization(WORDS + 2, output_sequence_length=LENGTH)
    vectorize.adapt(TEXTS)
    inputs = keras.Input((), dtype="string")
    x = keras.layers.Embedding(WORDS + 2, 4)(vectorize(inputs))
    x = keras.layers.GlobalAveragePooling1D()(x)
    return keras.Model(inputs, keras.layers.Dense(outputs)(x))


def test_strings_go_into_the_network_and_into_the_memory():
    learner = build(nccl_tf.NCCL, string_network())
    losses = learner.fit(tf.constant(TEXTS), LABELS, epochs=2, verbose=0).history["loss"]
    assert losses[-1] < losses[0]
    assert set(learner.memory.inputs.numpy()[:20]) <= {text.encode() for text in TEXTS}


def test_texts_of_a_task_are_predicted():
    network = string_network()
    inputs = {"texts": keras.Input((), dtype="string"), "floats": keras.Input((3,))}
    joined = keras.layers.Concatenate()([network(inputs["texts"]), inputs["floats"]])
    network = keras.Model(inputs, keras.layers.Dense(2)(joined))
    x = {"texts": TEXTS, "floats": FLOATS}
    stream = nccl_tf.stream_from_arrays((x, LABELS), (x, LABELS), num_tasks=2)
    learner = nccl_tf.Finetune(network)
    learner.compile("sgd")
    predicted = learner.predict(stream[0], verbose=0)
    expected = learner.predict(rows_of(x, stream[0].classes[0] == LABELS), verbose=0)
    np.testing.assert_array_equal(predicted, expected)


def dense_network(**arguments) -> keras.Model:
    return keras.Sequential([keras.Input((3,), **arguments), keras.layers.Dense(2)])


def test_another_dtype_than_the_memory_s_is_named():
    learner = build(nccl_tf.NCCL, dense_network(), nccl_tf.ReservoirMemory(20, (3,)))
    with pytest.raises(nccl_tf.UserError, match='build the memory with example_dtype="float32"'):
        learner.fit(FLOATS, LABELS, verbose=0)


def two_inputs(as_dict: bool) -> keras.Model:
    floats, tokens = keras.Input((3,), name="floats"), keras.Input((LENGTH,), name="tokens")
    embedded = keras.layers.Flatten()(keras.layers.Embedding(WORDS, 2)(tokens))
    outputs = keras.layers.Dense(2)(keras.layers.Concatenate()([floats, embedded]))
    inputs = {"floats": floats, "tokens": tokens} if as_dict else [floats, tokens]
    return keras.Model(inputs, outputs)


def test_several_inputs_by_name(tmp_path):
    x, labels = {"floats": FLOATS[:48], "tokens": TOKENS[:48]}, LABELS[:48]
    learner = build(nccl_tf.ExperienceReplay, two_inputs(True), optimizer="sgd")
    learner.fit(x, labels, verbose=0)
    _, accuracy = learner.evaluate(x, labels, verbose=0)
    assert learner.accuracy(x, labels, 0) == pytest.approx(accuracy)
    learner.save(tmp_path / "learner.keras")
    loaded = nccl_tf.load_model(tmp_path / "learner.keras")
    assert loaded.memory.example_shape == {"floats": (3,), "tokens": (LENGTH,)}
    for each in (learner, loaded):
        each.fit(x, labels, shuffle=False, verbose=0)
    for left, right in zip(learner.get_weights(), loaded.get_weights(), strict=True):
        np.testing.assert_array_equal(left, right)


def test_several_inputs_in_order():
    learner = build(nccl_tf.NCCL, two_inputs(False), optimizer="sgd")
    learner.fit([FLOATS[:64], TOKENS[:64]], LABELS[:64], verbose=0)
    floats, tokens = learner.memory.read(4).inputs
    assert {tuple(row) for row in tokens.numpy()} <= {tuple(row) for row in TOKENS}
    assert floats.dtype == tf.float32


def test_a_task_beside_other_names_is_refused():
    learner = build(nccl_tf.ExperienceReplay, two_inputs(True))
    with pytest.raises(ValueError, match="received inputs named"):
        learner.fit({"floats": FLOATS, "task": LABELS}, LABELS, verbose=0)


def test_sequences_of_other_lengths_are_refused():
    sequences = tf.data.Dataset.from_generator(
        lambda: ((TOKENS[i, : 3 + i // 2], LABELS[i]) for i in range(6)),
        output_signature=(tf.TensorSpec((None,), tf.int64), tf.TensorSpec((), tf.int64)),
    )
    network = keras.Sequential([keras.Input((None,)), *text_network().layers])
    memory = nccl_tf.ReservoirMemory(9, (LENGTH,), example_dtype="int64")
    learner = build(nccl_tf.ExperienceReplay, network, memory, run_eagerly=False)
    with pytest.raises(UserError, match="one length"):
        learner.fit(sequences.padded_batch(2), verbose=0)
    assert not learner.memory.labels.numpy().any()
    # The network of before takes them padded.
    padded = sequences.padded_batch(2, padded_shapes=((LENGTH,), ()))
    learner.fit(padded, verbose=0)
    assert int(learner.memory.readable_count()) == 6


def test_strings_under_xla_are_refused():
    vectorize = keras.layers.TextVectorization(WORDS, output_sequence_length=LENGTH)
    vectorize.adapt(TEXTS[:9])
    network = keras.Sequential([keras.Input((), dtype="string"), vectorize, *text_network().layers])
    with pytest.raises(UserError, match=r"jit_compile=True for a network whose input .* strings"):
        build(nccl_tf.NCCL, network, jit_compile=True)


def test_icarl_herds_several_inputs():
    # Their names have another order than the network's inputs.
    network, x = two_inputs(True), {"tokens": TOKENS, "floats": FLOATS}
    learner = build(nccl_tf.ICaRL, network, nccl_tf.ExemplarMemory(6), optimizer="sgd")
    for task in range(2):
        learner.fit(rows_of(x, task == LABELS), LABELS[task == LABELS], verbose=0)
    contents = learner.memory.contents()
    assert {label: task for label, (_, task) in contents.items()} == {0: 0, 1: 1}
    for label, (exemplars, _) in contents.items():
        given = tf.nest.flatten(rows_of(x, label == LABELS))
        for kept, column in zip(tf.nest.flatten(exemplars), given, strict=True):
            own = column.numpy().astype(kept.dtype)
            assert len(kept) == 3 and set(map(str, kept)) <= set(map(str, own))
    assert learner.evaluate(rows_of(x, slice(None)), LABELS, verbose=0)[1] > 0.6


def test_a_ring_of_strings_grows():
    memory = nccl_tf.RingMemory(2, [[0, 1]])
    learner = build(nccl_tf.ExperienceReplay, string_network(), memory)
    learner.fit(tf.constant(TEXTS), LABELS, verbose=0)
    stored = memory.inputs.numpy()[:4].tolist()
    learner.add_classes(1)
    assert memory.inputs.numpy().tolist() == [*stored, b"", b"", b""]
    learner.fit(tf.constant(TEXTS[:8]), np.full(8, 2), verbose=0)
    assert memory.inputs.numpy()[:4].tolist() == stored
    assert set(memory.inputs.numpy()[4:6]) <= {text.encode() for text in TEXTS[:8]}


def test_labels_and_tables_of_pandas_may_have_its_own_dtypes():
    dtype = "Int64"
    random = np.random.default_rng(0)
    table = pd.DataFrame(random.integers(0, 9, (20, 4)), columns=list("abcd"))
    labels = pd.Series(np.arange(20) % 2)
    kept = []
    for own in (True, False):
        network = keras.Sequential(
            [keras.Input((4,)), keras.layers.Dense(2, kernel_initializer="ones")]
        )
        learner = nccl_tf.ExperienceReplay(network, nccl_tf.ReservoirMemory(8))
        learner.compile(keras.optimizers.SGD(0.01), metrics=["accuracy"], run_eagerly=True)
        x, y = (table.astype(dtype), labels.astype(dtype)) if own else (table, labels)
        learner.fit(x, y, shuffle=False, verbose=0)
        kept.append([*learner.evaluate(x, y, verbose=0), learner.accuracy(x, y)])
    assert kept[0] == kept[1]


@pytest.mark.parametrize("dtype", ["float64", "Float64"])
def test_weights_may_be_a_column_of_a_frame(dtype):
    """In each verb they are as the array of their values."""
    x, y = np.random.default_rng(0).normal(size=(24, 5)).astype(np.float32), np.arange(24) % 3
    weights = np.linspace(0.5, 2, 24)
    column = pd.Series(weights, index=np.arange(24)[::-1]).astype(dtype)
    found = []
    for given in (weights, column):
        keras.utils.set_random_seed(2)
        model = nccl_tf.Finetune(keras.Sequential([keras.Input((5,)), keras.layers.Dense(3)]))
        model.compile(keras.optimizers.SGD(0.3), run_eagerly=True)
        frame = pd.DataFrame(x).convert_dtypes() if given is column else x
        history = model.fit(
            x, y, sample_weight=given, batch_size=8, shuffle=False, verbose=0, end_task=False,
            validation_data=(frame, y, given),
        ).history  # fmt: skip
        logs = [
            model.train_on_batch(x, y, sample_weight=given),
            model.evaluate(frame, y, sample_weight=given, verbose=0),
            model.test_on_batch(frame, y, sample_weight=given),
        ]
        found.append([history["loss"], history["val_loss"], *map(np.mean, logs)])
    assert np.ravel(found[0][:2]).tolist() == np.ravel(found[1][:2]).tolist()
    assert found[0][2:] == found[1][2:]


def in_batches(x):
    return tf.data.Dataset.from_tensor_slices((x, np.arange(4) % 2)).batch(2)


RAGGED = {
    "ragged": lambda: tf.ragged.constant([[1.0], [1.0, 2.0], [3.0, 4.0], [5.0]]),
    "sparse": lambda: tf.sparse.from_dense(np.eye(4, dtype=np.float32)),
}


@pytest.mark.parametrize("kind", RAGGED)
@pytest.mark.parametrize("name", ["finetune", "er_reservoir"])
def test_rows_of_several_lengths_are_to_be_padded(name, kind):
    inputs = RAGGED[kind]()
    network = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
    memory = nccl_tf.ReservoirMemory(8)
    model = (
        nccl_tf.Finetune(network)
        if name == "finetune"
        else nccl_tf.ExperienceReplay(network, memory)
    )
    model.compile(keras.optimizers.SGD(0.1))
    batches = in_batches(inputs)
    calls = [
        lambda: model.fit(inputs, np.arange(4) % 2, verbose=0),
        lambda: model.fit(batches, verbose=0),
        lambda: model.fit(((x, y) for x, y in batches), verbose=0),
        lambda: model.evaluate(batches, verbose=0),
        lambda: model.predict(inputs, verbose=0),
    ]
    for call in calls:
        with pytest.raises(UserError, match=f"received {kind} inputs"):
            call()


def test_data_sets_that_give_one_number_to_two_classes_are_refused():
    def data(names):
        made = in_batches(np.ones((4, 3), np.float32))
        made.class_names = names
        return made

    model = nccl_tf.Finetune(keras.Sequential([keras.Input((3,)), keras.layers.Dense(3)]))
    model.compile(keras.optimizers.SGD(0.1), run_eagerly=True)
    model.fit(data(["ant", "bee"]), verbose=0)
    model.fit(data(["ant", "bee", "cat"]), validation_data=data(["ant"]), verbose=0)
    for call in (
        model.fit,
        model.evaluate,
        lambda x, **_: model.fit(in_batches(np.ones((4, 3))), validation_data=x),
    ):
        with pytest.raises(UserError, match="class 2 is 'dog', and that of earlier data is 'cat'"):
            call(data(["ant", "bee", "dog"]), verbose=0)
