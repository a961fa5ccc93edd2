"""Update a trained model: a classifier that is in use learns new classes and keeps the old ones.

python examples/update_a_trained_model.py
"""

import keras
import numpy as np
from sklearn.datasets import load_digits

import nccl_tf

images, labels = load_digits(return_X_y=True)
images = (images / 16).astype("float32")
(train_x, test_x), (train_y, test_y) = np.split(images, [1400]), np.split(labels, [1400])
old, test_old = train_y < 7, test_y < 7

# The model in use: plain Keras, trained on the digits 0 to 6, with a softmax at its end.
keras.utils.set_random_seed(0)
hidden = keras.layers.Dense(64, "relu")
in_use = keras.Sequential([keras.Input((64,)), hidden, keras.layers.Dense(7, "softmax")])
in_use.compile("adam", "sparse_categorical_crossentropy")
in_use.fit(train_x[old], train_y[old], epochs=30, verbose=0)


def show(name, model):
    right = model.predict(test_x, verbose=0).argmax(axis=1) == test_y
    shares = (f"{right[part].mean():8.1%}" for part in (test_old, ~test_old, slice(None)))
    print(f"{name:28}", *shares)


def updated(method, *memory, old_per_class=0, **arguments):
    """The model in use as a learner that was trained on the digits 7 to 9."""
    network = nccl_tf.networks.logits_of(in_use)  # a copy without the softmax
    learner = method(network, *memory, known_classes=range(7), **arguments)
    learner.compile("adam")
    learner.add_classes(3)
    if old_per_class:
        kept = [np.flatnonzero(train_y == digit)[:old_per_class] for digit in range(7)]
        learner.remember(train_x[np.concatenate(kept)], train_y[np.concatenate(kept)])
    learner.fit(train_x[~old], train_y[~old], epochs=5, batch_size=10, verbose=0)
    return learner


def ring(per_class):
    return nccl_tf.RingMemory(per_class, task_classes=[range(7)])


print(f"{'right of the test images':28}", *(f"{part:>8}" for part in ("old", "new", "all")))
show("before", in_use)
show("new images alone: finetune", updated(nccl_tf.Finetune))
show("new images alone: LwF", updated(nccl_tf.LwF, stream_mask="present"))
show("196 old images: ER", updated(nccl_tf.ExperienceReplay, ring(28), old_per_class=28))
show("196 old images: DER++", updated(nccl_tf.DERpp, ring(28), old_per_class=28))
learner = updated(nccl_tf.ExperienceReplay, ring(130), old_per_class=130)
show("910 old images: ER", learner)
served = keras.Sequential([learner.serving_model(), keras.layers.Softmax()])
show("the same, as plain Keras", served)  # to be saved or exported
