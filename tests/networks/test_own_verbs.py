"""Models whose class trains or predicts in its own way: a learner calls the network alone."""

import keras
import numpy as np
import pytest

import nccl_tf
from nccl_tf.errors import UserError
from nccl_tf.networks.inspection import as_network

IMAGES = np.random.default_rng(0).integers(0, 256, (6, 5)).astype("float32")


def halved(x):
    return x / 2


class Predicts(keras.Model):
    def predict(self, x, **kwargs):
        return super().predict(halved(x), **kwargs)


class Fits(keras.Sequential):
    def fit(self, x, *args, **kwargs):
        return super().fit(halved(x), *args, **kwargs)


class Steps(keras.Model):
    """As a class is written that is called with data."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.dense = keras.layers.Dense(3)

    def call(self, x):
        return self.dense(x)

    def predict_step(self, data):
        return super().predict_step(halved(data))


class Task(Predicts):
    """As a task of KerasHub."""

    def __init__(self, preprocessor, **kwargs):
        super().__init__(**kwargs)
        self.preprocessor = preprocessor


class Trains(keras.Model):
    def train_step(self, data):
        return super().train_step(data)


def functional(cls, *args):
    inputs = keras.Input((5,), name="x")
    return cls(*args, inputs={"x": inputs}, outputs=keras.layers.Dense(3)(inputs))


def sequential(cls):
    return cls([keras.Input((5,)), keras.layers.Dense(3)])


def called(cls):
    model = cls()
    model(IMAGES)
    return model


PREPARING = {
    "functional": (lambda: functional(Predicts), "predict"),
    "sequential": (lambda: sequential(Fits), "fit"),
    "subclassed": (lambda: called(Steps), "predict_step"),
    "task": (lambda: functional(Task, halved), "predict"),
}


@pytest.mark.parametrize("name", PREPARING)
def test_the_remedy_in_the_message_gives_the_network_inside(name):
    make, own = PREPARING[name]
    model = make()
    with pytest.raises(UserError, match=f"class {type(model).__name__}, which has {own} of") as e:
        nccl_tf.Finetune(model)
    assert ("model.preprocessor to the data" in str(e.value)) is (name == "task")
    code = str(e.value).split("network inside, ")[1].split(", and apply")[0]
    *first, last = code.split("; ")
    names = {"keras": keras, "model": model, "shape": (5,)}
    exec("\n".join(first), names)
    learner = nccl_tf.Finetune(eval(last, names))
    learner.compile("sgd", run_eagerly=True)
    right = keras.Model.predict(model, halved(IMAGES), verbose=0)
    if name == "subclassed":
        right = model(halved(IMAGES)).numpy()
    np.testing.assert_array_equal(learner.predict(halved(IMAGES), verbose=0), right)


def test_create_refuses_it_too():
    examples = IMAGES, np.arange(6) % 3
    stream = nccl_tf.stream_from_arrays(examples, examples, num_tasks=1)
    with pytest.raises(UserError, match="network inside"):
        nccl_tf.create("finetune", functional(Predicts), stream)


class Calls(keras.Model):
    def call(self, x):
        return keras.ops.mean(x) + x


@pytest.mark.parametrize(
    "make",
    [
        lambda: functional(Task, None),
        lambda: called(Calls),
        lambda: sequential(keras.Sequential),
        lambda: functional(keras.Model),
        lambda: keras.applications.MobileNet(
            weights=None, input_shape=(32, 32, 3), classes=3, alpha=0.25
        ),
        lambda: keras.Sequential([keras.Input((5,)), functional(Predicts)]),
    ],
    ids=["task of none", "call", "sequential", "functional", "application", "within"],
)
def test_other_models_are_taken(make, caplog):
    as_network(make())
    assert not caplog.records


def test_training_of_its_own_is_told_of_and_not_refused(caplog):
    nccl_tf.Finetune(functional(Trains))
    assert [record.getMessage()[:52] for record in caplog.records] == [
        "the network's class Trains has train_step of its own"
    ]


def test_a_learner_is_no_network():
    inner = nccl_tf.Finetune(sequential(keras.Sequential))
    with pytest.raises(UserError, match="take its network"):
        nccl_tf.Finetune(inner)
    nccl_tf.Finetune(inner.network)
