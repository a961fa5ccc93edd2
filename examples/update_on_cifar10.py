"""Update a trained image classifier: frozen features, new classes, a few old features replayed.

A small convolutional network learns eight classes of CIFAR-10 with plain Keras, and is saved. It
is loaded, its layers below the head are frozen, and each image passes through them once. The head
gets two classes more and learns them in one call of `fit`: by fine-tuning, and with 20 old features
of each class replayed. Frozen layers and new head are one plain Keras model again at the end.

    python examples/update_on_cifar10.py  # TFDS downloads CIFAR-10 once
"""

import pathlib
import tempfile

import keras
import numpy as np

import nccl_tf

OLD, NEW = range(8), range(8, 10)
SEEDS = range(3)
"""Of the model in use and of its update."""
KEPT = 20
"""Old features of each class that are still at hand."""


def data():
    """Training and test images uint8 [n, 32, 32, 3] with their labels."""
    tasks = nccl_tf.load_stream("tfds:cifar10", num_tasks=5, head="single")
    parts = [[task.train for task in tasks], [task.test for task in tasks]]
    return [
        tuple(np.concatenate(part) for part in zip(*examples, strict=True)) for examples in parts
    ]


def of(examples, classes):
    """The examples of some classes."""
    inputs, labels = examples
    rows = np.isin(labels, classes)
    return inputs[rows], labels[rows]


def train_and_save(train, path, seed):
    """The model that is in use: plain Keras, without this package."""
    keras.utils.set_random_seed(seed)
    layers = [keras.Input((32, 32, 3)), keras.layers.Rescaling(1 / 255)]
    for width in (32, 64, 128):
        layers += [
            keras.layers.Conv2D(width, 3, 2, padding="same", use_bias=False),
            keras.layers.BatchNormalization(),
            keras.layers.ReLU(),
        ]
    layers += [keras.layers.GlobalAveragePooling2D(), keras.layers.Dense(len(OLD), "softmax")]
    model = keras.Sequential(layers)
    model.compile("adam", "sparse_categorical_crossentropy")
    model.fit(*of(train, OLD), epochs=4, verbose=0)
    model.save(path)


def main():
    """Print the accuracy on old and on new classes before and after the update."""
    train, test = data()
    learners = {
        "fine-tuning": lambda head: nccl_tf.Finetune(head, known_classes=OLD),
        "replay": lambda head: nccl_tf.ExperienceReplay(
            head, nccl_tf.RingMemory(KEPT, [list(OLD)]), known_classes=OLD
        ),
    }
    found = {name: [] for name in learners}
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "in_use.keras"
        for seed in SEEDS:
            train_and_save(train, path, seed)
            for name, learner_of in learners.items():
                found[name].append(update(path, learner_of, train, test))
    for name, rows in found.items():
        shown = zip(np.mean(rows, axis=0), np.std(rows, axis=0), strict=True)
        known, old, new, served = (f"{mean:.1%} ± {spread:.1%}" for mean, spread in shown)
        print(f"{name}: old classes {known} before, {old} after; new ones {new}")
    print(f"replay, served again: {served} of all images")


def update(path, learner_of, train, test):
    """Accuracy on old classes before an update, on old and new ones after it, and of all served."""
    model = keras.models.load_model(path)
    images, labels = of(test, OLD)
    known = np.mean(model.predict(images, verbose=0).argmax(axis=1) == labels)
    frozen = keras.Model(model.inputs, model.layers[-2].output)
    head = keras.Sequential([keras.Input(frozen.output_shape[1:]), model.layers[-1]])
    features = [(frozen.predict(x, verbose=0), y) for x, y in (train, test)]
    learner = learner_of(head)
    learner.compile(keras.optimizers.SGD(0.01), "sparse_categorical_crossentropy")
    learner.add_classes(len(NEW))
    if learner.memory is not None:
        for label in OLD:
            inputs, labels = of(features[0], [label])
            learner.remember(inputs[:KEPT], labels[:KEPT])
    learner.fit(*of(features[0], NEW), task_id=1, epochs=2, batch_size=10, verbose=0)
    old, new = (learner.accuracy(*of(features[1], part)) for part in (OLD, NEW))
    served = keras.Sequential([frozen, learner.serving_model()])
    right = served.predict(test[0], verbose=0).argmax(axis=1) == test[1]
    return known, old, new, np.mean(right)


if __name__ == "__main__":
    main()
