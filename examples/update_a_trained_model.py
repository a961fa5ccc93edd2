"""Update a trained model: a classifier that is in use learns new classes and keeps the old ones.

python examples/update_a_trained_model.py
"""

import keras
import numpy as np
from sklearn.datasets import load_digits

import nccl_tf

SEEDS = range(3)
images, labels = load_digits(return_X_y=True)
images = (images / 16).astype("float32")
(train_x, test_x), (train_y, test_y) = np.split(images, [1400]), np.split(labels, [1400])


def in_use(classes, x, y):
    """A model in use: plain Keras, with batch normalisation, and a softmax at its end."""
    layers = [keras.layers.Dense(64), keras.layers.BatchNormalization(), keras.layers.ReLU()]
    head = keras.layers.Dense(len(classes), "softmax")
    model = keras.Sequential([keras.Input((64,)), *layers, head])
    model.compile("adam", "sparse_categorical_crossentropy")
    rows = np.isin(y, classes)
    model.fit(x[rows], y[rows], epochs=30, verbose=0)
    return model


def updated(model, method, known, new, x, y, kept=0, frozen=True, **arguments):
    """The model as a learner that was trained on new classes; `kept` examples of an old one."""
    network = nccl_tf.networks.logits_of(model)  # a copy without the softmax
    for layer in network.layers:
        if isinstance(layer, keras.layers.BatchNormalization):
            layer.trainable = not frozen  # keeps its statistics, of the old images
    memory = [nccl_tf.RingMemory(kept, task_classes=[known])] if kept else []
    learner = method(network, *memory, known_classes=known, **arguments)
    learner.compile("adam")
    learner.add_classes(len(new))
    if kept:
        old = np.concatenate([np.flatnonzero(y == digit)[:kept] for digit in known])
        learner.remember(x[old], y[old])
    rows = np.isin(y, [*known, *new] if method is nccl_tf.Cumulative else new)
    learner.fit(x[rows], y[rows], epochs=5, batch_size=10, verbose=0)
    return learner


def shares(model, known, x, y):
    """How many images of old, new and all classes are right."""
    right = model.predict(x, verbose=0).argmax(axis=1) == y
    old = np.isin(y, known)
    return [right[part].mean() for part in (old, ~old, slice(None))]


# The mask of LwF is chosen on digits that the model in use knows: 0 to 4 old, 5 and 6 new.
masks, fifth = {}, np.arange(len(train_y)) % 5 == 0
there = train_y < 7
for mask in ("all", "present"):
    keras.utils.set_random_seed(0)
    part = train_x[there & ~fifth], train_y[there & ~fifth]
    learner = updated(
        in_use(range(5), *part), nccl_tf.LwF, range(5), [5, 6], *part, stream_mask=mask
    )
    masks[mask] = shares(learner, range(5), train_x[there & fifth], train_y[there & fifth])[2]
best = max(masks, key=masks.get)

found = {}
for seed in SEEDS:
    keras.utils.set_random_seed(seed)
    model = in_use(range(7), train_x, train_y)
    found.setdefault("before", []).append(shares(model, range(7), test_x, test_y))
    for name, method, arguments in (
        ("new images alone: finetune", nccl_tf.Finetune, {}),
        (f"new images alone: LwF, {best}", nccl_tf.LwF, {"stream_mask": best}),
        ("70 old images: ER", nccl_tf.ExperienceReplay, {"kept": 10}),
        ("196 old images: ER", nccl_tf.ExperienceReplay, {"kept": 28}),
        ("the same, trained statistics", nccl_tf.ExperienceReplay, {"kept": 28, "frozen": False}),
        ("196 old images: DER++", nccl_tf.DERpp, {"kept": 28}),
        ("910 old images: ER", nccl_tf.ExperienceReplay, {"kept": 130}),
        ("all images: retrained", nccl_tf.Cumulative, {"joined": True}),
    ):
        learner = updated(model, method, range(7), [7, 8, 9], train_x, train_y, **arguments)
        found.setdefault(name, []).append(shares(learner, range(7), test_x, test_y))
    served = keras.Sequential([learner.serving_model(), keras.layers.Softmax()])
    found.setdefault("the same, as plain Keras", []).append(
        shares(served, range(7), test_x, test_y)
    )

print(f"{'right of the test images':31}", *(f"{part:>12}" for part in ("old", "new", "all")))
for name, rows in found.items():
    cells = zip(np.mean(rows, axis=0), np.std(rows, axis=0), strict=True)
    print(f"{name:31}", *(f"{mean:7.1%} ± {spread:.0%}".rjust(12) for mean, spread in cells))
