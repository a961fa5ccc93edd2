"""DER and DER++ where there is a target at each place: logits of places are kept and compared."""

import keras
import numpy as np
import pytest

import nccl_tf
from nccl_tf.errors import UserError

RNG = np.random.default_rng(0)
PLACES, WIDTH, CLASSES, COUNT, RATE = 4, 3, 2, 6, 0.1
X, NEXT = RNG.normal(size=(2, COUNT, PLACES, WIDTH)).astype("float32")
LABELS = RNG.integers(0, CLASSES, (COUNT, PLACES))
LABELS[1, 2:] = -1  # places that do not count
LABELS[:, 0] = 1
COUNTS = (LABELS >= 0).astype("float32")
W = RNG.normal(size=(WIDTH, CLASSES)).astype("float32")


def network(places=PLACES):
    dense = keras.layers.Dense(CLASSES, use_bias=False)
    made = keras.Sequential([keras.Input((places, WIDTH)), dense])
    made.set_weights([W])
    return made


def compiled(learner, ignore_class=-1):
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True, ignore_class=ignore_class)
    learner.compile(keras.optimizers.SGD(RATE), loss, run_eagerly=True)
    return learner


def memory(**arguments):
    return nccl_tf.ReservoirMemory(COUNT, **arguments)


def over_examples(at_places):
    """The mean over examples of the mean over the places of each that count."""
    shares = COUNTS / COUNTS.sum(-1, keepdims=True) / COUNT
    return at_places * shares[..., None]


def cross_entropy_gradient(x, w):
    logits = x @ w
    softmax = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    return np.einsum("npi,npj->ij", x, over_examples(softmax - np.eye(CLASSES)[LABELS]))


def distance_gradient(x, w, stored):
    return np.einsum("npi,npj->ij", x, over_examples(2 / CLASSES * (x @ w - stored)))


MADE = {
    "derpp": (
        lambda memory, places: nccl_tf.DERpp(
            network(places), memory, der_alpha=0.7, der_beta=0.4, memory_batch_size=COUNT
        ),
        0.4,
    ),
    "der": (
        lambda memory, places: nccl_tf.DER(
            network(places), memory, dark=0.7, memory_batch_size=COUNT
        ),
        0.0,
    ),
}


@pytest.mark.parametrize("places", [PLACES, None])
@pytest.mark.parametrize("name", MADE)
def test_a_step_is_that_of_a_hand_calculation(name, places, tmp_path):
    make, of_labels = MADE[name]
    learner = compiled(make(memory(), places))
    learner.fit(X, LABELS, batch_size=COUNT, shuffle=False, verbose=0)
    first = W - RATE * cross_entropy_gradient(X, W)
    np.testing.assert_allclose(learner.network.get_weights()[0], first, atol=1e-6)
    stored = learner.memory.read_all()
    np.testing.assert_allclose(stored.extras["logits"], stored.inputs @ W, atol=1e-6)

    learner.save(tmp_path / "model.keras")
    for one in (learner, nccl_tf.load_model(tmp_path / "model.keras")):
        one.run_eagerly = True
        one.fit(NEXT, LABELS, batch_size=COUNT, shuffle=False, verbose=0)
        gradient = cross_entropy_gradient(NEXT, first)
        gradient += 0.7 * distance_gradient(X, first, X @ W)
        gradient += of_labels * cross_entropy_gradient(X, first)
        weights = one.network.get_weights()[0]
        np.testing.assert_allclose(weights, first - RATE * gradient, atol=1e-6)


def test_a_memory_that_is_built_with_shapes_has_the_column_of_places():
    shapes = {"example_shape": (PLACES, WIDTH), "example_dtype": "float32"}
    extras = {"logits": ((PLACES, CLASSES), "float32")}
    nccl_tf.DERpp(network(), memory(**shapes, extras=extras))
    with pytest.raises(UserError, match="the column 'logits'"):
        nccl_tf.DERpp(network(), memory(**shapes, extras={"logits": ((CLASSES,), "float32")}))


@pytest.mark.parametrize("places", [PLACES, None])
def test_a_head_at_each_place_grows(places):
    learner = compiled(MADE["derpp"][0](memory(), places))
    learner.fit(X, LABELS, batch_size=COUNT, verbose=0)
    before = learner.memory.read_all()
    learner.add_classes(1)
    after = learner.memory.read_all()
    np.testing.assert_array_equal(after.labels, before.labels)
    np.testing.assert_array_equal(after.extras["logits"][..., :CLASSES], before.extras["logits"])
    learner.fit(NEXT, np.full_like(LABELS, CLASSES), batch_size=COUNT, verbose=0)
    assert int(learner.progress.skipped.numpy()) == 0


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: nccl_tf.ERACE(network(), memory()), 'with a target at each place.*mask="all"'),
        (lambda: nccl_tf.LwF(network()), "with a target at each place"),
        (
            lambda: nccl_tf.Finetune(network(), heads=[[0], [1]]),
            "with a target at each place with heads",
        ),
        (
            lambda: nccl_tf.ExperienceReplay(network(), nccl_tf.RingMemory(2, [[0], [1]])),
            "with a target at each place.*ReservoirMemory",
        ),
    ],
)
def test_what_needs_one_class_for_an_example_says_so(make, said):
    with pytest.raises(UserError, match=said):
        compiled(make(), ignore_class=None)


def test_label_smoothing_is_named_where_it_is_the_reason():
    learner = nccl_tf.ERACE(keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)]), memory())
    loss = keras.losses.CategoricalCrossentropy(from_logits=True, label_smoothing=0.1)
    with pytest.raises(UserError, match="leave label_smoothing out"):
        learner.compile("sgd", loss)
