"""Update a trained model: a classifier that is in use learns new classes and keeps the old ones.

A plain Keras model, trained on the digits 0 to 6 and saved, ends in softmax as such models do. It
is loaded, given three classes more, and learns the digits 7 to 9 in one call of `fit`: by
fine-tuning, and with ten old images of each class replayed. What comes out is a plain Keras model
again, to be served.

    python examples/update_a_trained_model.py
"""

import pathlib
import tempfile

import keras
import numpy as np
from sklearn.datasets import load_digits

import nccl_tf

OLD, NEW = range(7), range(7, 10)
KEPT = 10
"""Old images of each class that are still at hand."""


def data():
    """Training and test images [n, 64] in [0, 1] with their labels."""
    images, labels = load_digits(return_X_y=True)
    images = (images / 16).astype("float32")
    return (images[:1400], labels[:1400]), (images[1400:], labels[1400:])


def of(examples, classes):
    """The examples of some classes."""
    images, labels = examples
    rows = np.isin(labels, classes)
    return images[rows], labels[rows]


def train_and_save(train, path):
    """The model that is in use: plain Keras, without this package."""
    keras.utils.set_random_seed(0)
    hidden = keras.layers.Dense(64, "relu")
    layers = [keras.Input((64,)), hidden, keras.layers.Dense(len(OLD), "softmax")]
    model = keras.Sequential(layers)
    model.compile("adam", "sparse_categorical_crossentropy")
    model.fit(*of(train, OLD), epochs=30, verbose=0)
    model.save(path)


def update(path, train, learner_of):
    """The model of a file, which has learned the new classes."""
    network = keras.models.load_model(path)
    learner = learner_of(network)
    learner.compile(keras.optimizers.Adam(0.001), "sparse_categorical_crossentropy")
    learner.add_classes(len(NEW))
    if learner.memory is not None:
        for label in OLD:
            images, labels = of(train, [label])
            learner.remember(images[:KEPT], labels[:KEPT])
    learner.fit(*of(train, NEW), task_id=1, epochs=5, batch_size=10, verbose=0)
    return learner


def main():
    """Print the accuracy on old and on new classes before and after the update."""
    train, test = data()
    learners = {
        "fine-tuning": lambda network: nccl_tf.Finetune(network, known_classes=OLD),
        "replay": lambda network: nccl_tf.ExperienceReplay(
            network, nccl_tf.RingMemory(KEPT, [list(OLD)]), known_classes=OLD
        ),
    }
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "in_use.keras"
        train_and_save(train, path)
        for name, learner_of in learners.items():
            before = nccl_tf.Finetune(keras.models.load_model(path))
            before.compile("sgd", "sparse_categorical_crossentropy")
            known = before.accuracy(*of(test, OLD))
            learner = update(path, train, learner_of)
            old, new = (learner.accuracy(*of(test, part)) for part in (OLD, NEW))
            print(f"{name}: old classes {known:.1%} before, {old:.1%} after; new ones {new:.1%}")
        served = pathlib.Path(folder) / "updated.keras"
        learner.serving_model().save(served)
        images, labels = test
        found = keras.models.load_model(served).predict(images, verbose=0).argmax(axis=1)
        print(f"served again: {np.mean(found == labels):.1%} of all digits")


if __name__ == "__main__":
    main()
