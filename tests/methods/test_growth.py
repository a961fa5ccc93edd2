"""A head that grows, what grows with it, and what is refused."""

import keras
import numpy as np
import pytest

import nccl_tf
from tests.methods.learners import assert_same_values, build, values
from tests.tiny import IMAGE_SHAPE, tiny_batches, tiny_network


def batches(task: int, count: int = 10):
    """Two classes a task, as many tasks as there are."""
    random = np.random.default_rng(task)
    labels = random.choice([2 * task, 2 * task + 1], count).astype(np.int32)
    images = random.integers(0, 60, (count, *IMAGE_SHAPE), dtype=np.uint8)
    images.reshape(count, -1)[np.arange(count), labels] = 255
    return images, labels


MEMORIES = {
    "ring": lambda: nccl_tf.RingMemory(3, [[0, 1]], IMAGE_SHAPE),
    "reservoir": lambda: nccl_tf.ReservoirMemory(40, IMAGE_SHAPE),
}
UNDER_XLA = pytest.param("ring", True, marks=pytest.mark.nightly)


@pytest.mark.parametrize(
    ("memory", "jit_compile"),
    [("ring", False), pytest.param("reservoir", False, marks=pytest.mark.nightly), UNDER_XLA],
)
def test_a_head_of_two_grows_to_four(memory, jit_compile, tmp_path):
    """With Adam, and saved and loaded."""
    network = tiny_network(num_classes=2)
    learner = nccl_tf.ExperienceReplay(network, MEMORIES[memory]())
    optimizer = keras.optimizers.Adam(0.02)
    learner.compile(optimizer, metrics=["accuracy"], jit_compile=jit_compile)
    learner.fit(*batches(0, 300), batch_size=5, verbose=0)
    assert learner.execution.traces == 1 and learner.accuracy(*batches(0), 0) > 0.9
    stored, mean = learner.memory.labels.numpy()[:6].copy(), learner.metrics[0].result()
    learner.add_classes(2)
    assert learner.progress.seen_classes.numpy().tolist() == [True, True, False, False]
    assert learner.accuracy(*batches(0), 0) > 0.9 and learner.metrics[0].result() == mean
    np.testing.assert_array_equal(learner.memory.labels.numpy()[:6], stored)
    kernel = network.layers[-1].kernel
    assert kernel.shape == (8, 4) and (kernel.numpy()[:, -2:] != 0).all()
    slots = [v.numpy() for v in optimizer.variables if v.shape == kernel.shape]
    assert len(slots) == 2 and all((slot[:, -2:] == 0).all() for slot in slots)
    assert all((slot[:, :-2] != 0).any() for slot in slots)
    learner.fit(*batches(1, 300), batch_size=5, verbose=0)
    assert learner.execution.traces == 2 and learner.accuracy(*batches(1), 1) > 0.9
    assert sorted(set(learner.memory.labels.numpy()[:-1])) == [0, 1, 2, 3]
    learner.save(tmp_path / "learner.keras")
    loaded = nccl_tf.load_model(tmp_path / "learner.keras")
    assert_same_values(values(loaded), values(learner))
    assert_same_values(*([v.numpy() for v in m.optimizer.variables] for m in (loaded, learner)))


def test_heads_keep_their_mask():
    learner = nccl_tf.Finetune(tiny_network(2), heads=[[0, 1]], mask="union")
    learner.add_classes(2)
    assert learner.heads.mask == "union" and learner.heads.classes == ((0, 1), (2, 3))


def test_der_keeps_the_logits_of_what_it_stored():
    learner = build("derpp")
    column = learner.memory.columns["logits"]
    column.assign(np.ones(column.shape))
    learner.add_classes(2)
    logits = learner.memory.columns["logits"].numpy()
    assert logits.shape[1] == 6 and (logits[:, :4] == 1).all() and (logits[:, 4:] == 0).all()


def test_a_ring_that_lists_the_classes_already_stays_as_it_is():
    memory = nccl_tf.RingMemory(3, [[0, 1], [2, 3]], IMAGE_SHAPE)
    learner = nccl_tf.ExperienceReplay(tiny_network(num_classes=2), memory)
    learner.add_classes(2)
    assert [list(classes) for classes in memory.task_classes] == [[0, 1], [2, 3]]
    assert memory.capacity == 12
    learner.add_classes(1)
    assert [list(classes) for classes in memory.task_classes] == [[0, 1], [2, 3], [4]]
    assert memory.capacity == 15


def test_what_cannot_grow_is_refused():
    inputs = keras.Input(IMAGE_SHAPE)
    network = keras.Model(inputs, keras.layers.GlobalAveragePooling2D()(inputs))
    with pytest.raises(nccl_tf.UserError, match="ends in GlobalAveragePooling2D"):
        nccl_tf.Finetune(network).add_classes(1)
    for count in (0, 1.5, "1"):
        with pytest.raises(nccl_tf.UserError, match=f"received {count!r} classes"):
            nccl_tf.Finetune(tiny_network()).add_classes(count)


def test_known_classes_are_predicted_from_the_start():
    network = tiny_network()
    plain = nccl_tf.Finetune(network)
    plain.compile(keras.optimizers.SGD(0.25))
    plain.fit(tiny_batches(0, 200), verbose=0)
    learner = nccl_tf.Finetune(network, known_classes=[0, 1])
    learner.compile(keras.optimizers.SGD(1e-4))
    learner.fit(tiny_batches(1), verbose=0)
    (inputs, labels, _), *_ = tiny_batches(0, 60, 60)
    assert learner.accuracy(inputs["inputs"], labels, 0) > 0.9
    again = type(learner).from_config(learner.get_config())
    assert again.get_config()["known_classes"] == [0, 1]


def test_known_classes_that_mean_nothing_are_refused():
    with pytest.raises(nccl_tf.UserError, match="received 4 among known_classes"):
        nccl_tf.Finetune(tiny_network(), known_classes=[4])
    for classes in ([0.5], "01", 1):
        with pytest.raises(nccl_tf.UserError, match="received known_classes="):
            nccl_tf.Finetune(tiny_network(), known_classes=classes)
    with pytest.raises(nccl_tf.UserError, match="and heads"):
        nccl_tf.Finetune(tiny_network(), known_classes=[0], heads=[[0, 1]])
    for name in ("fecam", "icarl", "ncm", "ranpac", "slda", "supsup"):
        with pytest.raises(nccl_tf.UserError, match="leave known_classes out"):
            build(name, known_classes=[0])


def test_what_keras_compiled_for_the_network_grows_too(caplog):
    x = np.random.default_rng(0).normal(size=(12, 6)).astype("float32")
    network = keras.Sequential([keras.Input((6,)), keras.layers.Dense(3)])
    network.compile(loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    network.predict(x, verbose=0), network.evaluate(x, np.arange(12) % 3, verbose=0)
    model = nccl_tf.Finetune(network, known_classes=[0, 1, 2])
    model.compile(keras.optimizers.SGD(0.1))
    model.add_classes(1)
    assert not any("another model" in said for said in caplog.messages)
    model.fit(x, np.full(12, 3), verbose=0)
    for grown in {network, model.network}:
        outputs = np.asarray(grown(x))
        np.testing.assert_allclose(grown.predict(x, verbose=0), outputs, rtol=1e-5)
    wrong = np.log(np.exp(outputs).sum(axis=1)) - outputs[:, 3]
    found = network.evaluate(x, np.full(12, 3), verbose=0)
    np.testing.assert_allclose(found, wrong.mean(), rtol=1e-5)


@pytest.mark.parametrize("shares_tensors", [False, True])
def test_a_model_around_a_network_that_grows_is_told_of(shares_tensors, caplog):
    network = keras.Sequential([keras.Input((6,)), keras.layers.Dense(3)])
    if shares_tensors:
        keras.Model(network.inputs, keras.layers.Softmax()(network.outputs[0]))
    else:
        keras.Sequential([keras.Input((6,)), network, keras.layers.Softmax()])
    model = nccl_tf.Finetune(network)
    model.compile(keras.optimizers.SGD(0.1))
    model.add_classes(1)
    (said,) = caplog.messages
    assert "another model" in said


@keras.saving.register_keras_serializable("tests")
class OwnNetwork(keras.Model):
    """Two layers of as many outputs, that no graph shows."""

    def __init__(self, classes: int = 3, **kwargs):
        super().__init__(**kwargs)
        self.hidden = keras.layers.Dense(classes, "relu", name="first")
        self.logits = keras.layers.Dense(classes, name="last")

    def call(self, inputs):
        return self.logits(self.hidden(inputs))


def nested(end):
    """A backbone and a head that are models of their own, and more layers behind."""
    backbone = keras.Sequential([keras.Input((6,)), keras.layers.Dense(5, "relu")])
    inputs = keras.Input((5,))
    head = keras.Model(inputs, keras.layers.Dense(3, end)(keras.layers.Dense(3)(inputs)))
    layers = [keras.layers.Activation("linear", dtype="float32"), keras.layers.Rescaling(0.5)]
    return keras.Sequential([keras.Input((6,)), backbone, keras.Sequential([head]), *layers])


def own_network():
    network = OwnNetwork()
    network(np.zeros((1, 6), np.float32))
    return network


FOUND = {"nested": (lambda: nested(None), None), "own": (own_network, "last")}


@pytest.mark.eager
@pytest.mark.parametrize("name", FOUND)
def test_the_dense_layer_that_makes_the_logits_is_found_where_it_is(name):
    build_network, head = FOUND[name]
    network = build_network()
    x = np.random.default_rng(0).normal(size=(12, 6)).astype("float32")
    model = nccl_tf.ExperienceReplay(network, nccl_tf.ReservoirMemory(20), head=head)
    model.compile(keras.optimizers.SGD(0.1, momentum=0.9))
    model.fit(x, np.arange(12) % 3, verbose=0)
    before = np.asarray(network(x))
    model.add_classes(2)
    assert model.network.output_shape == (None, 5)
    np.testing.assert_allclose(np.asarray(network(x))[:, :3], before, rtol=1e-6)
    model.fit(x, np.arange(12) % 2 + 3, verbose=0)
    assert model.predict(x, verbose=0).shape == (12, 5)
    again = type(model).from_config(model.get_config())
    assert again.get_config()["head"] == head and again.network.output_shape == (
        None,
        5 if head is None else 3,
    )


def test_a_network_that_ends_in_probabilities_grows():
    network = nested(None)
    network.add(keras.layers.Softmax())
    learner = nccl_tf.Finetune(network)
    learner.compile("sgd", "sparse_categorical_crossentropy")
    learner.add_classes(1)
    x = np.zeros((2, 6), np.float32)
    assert learner.network.output_shape == (None, 4)
    np.testing.assert_allclose(np.asarray(network(x)).sum(axis=1), 1, rtol=1e-6)


def test_a_head_that_is_not_known_is_asked_for():
    with pytest.raises(nccl_tf.UserError, match="name it by head=, one of 'first', 'last'"):
        nccl_tf.Finetune(own_network()).add_classes(1)
    with pytest.raises(nccl_tf.UserError, match="received head='nobody'"):
        nccl_tf.Finetune(tiny_network(), head="nobody")
    with pytest.raises(nccl_tf.UserError, match="call it once"):
        nccl_tf.Finetune(OwnNetwork())


def test_a_head_that_the_outputs_do_not_come_from_stays_as_it_is():
    network = own_network()
    learner = nccl_tf.Finetune(network, head="first")
    learner.compile(keras.optimizers.SGD(0.1))
    with pytest.raises(nccl_tf.UserError, match="do not grow with it"):
        learner.add_classes(1)
    learner.fit(np.zeros((4, 6)), np.arange(4) % 3, verbose=0)
    assert network.hidden.kernel.shape == (6, 3) and learner.network.output_shape == (None, 3)


def test_a_file_of_a_network_that_would_not_have_grown_is_refused(tmp_path):
    learner = nccl_tf.Finetune(own_network(), head="last")
    learner.save(tmp_path / "before.keras")
    learner.add_classes(1)
    with pytest.raises(nccl_tf.UserError, match="its get_config"):
        learner.save(tmp_path / "after.keras")
