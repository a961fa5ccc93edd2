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
in_use.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
in_use.fit(train_x[old], train_y[old], epochs=30, verbose=0)
_, before = in_use.evaluate(test_x[test_old], test_y[test_old], verbose=0)
# Of its training images ten of each class are still at hand.
kept = np.concatenate([np.flatnonzero(train_y == digit)[:10] for digit in range(7)])

memory = nccl_tf.RingMemory(10, task_classes=[range(7)])
for name, method, arguments in (
    ("fine-tuning", nccl_tf.Finetune, {}),
    ("replay", nccl_tf.ExperienceReplay, {"memory": memory}),
):
    network = keras.models.clone_model(in_use)
    network.set_weights(in_use.get_weights())
    learner = method(network, known_classes=range(7), **arguments)
    learner.compile("adam", "sparse_categorical_crossentropy")
    learner.add_classes(3)
    if arguments:
        learner.remember(train_x[kept], train_y[kept])
    learner.fit(train_x[~old], train_y[~old], epochs=5, batch_size=10, verbose=0)
    after = learner.accuracy(test_x[test_old], test_y[test_old])
    new = learner.accuracy(test_x[~test_old], test_y[~test_old])
    print(f"{name}: old classes {before:.1%} before, {after:.1%} after; new ones {new:.1%}")

served = learner.serving_model()  # plain Keras again, to be saved or exported
found = served.predict(test_x, verbose=0).argmax(axis=1)
print(f"served again: {np.mean(found == test_y):.1%} of all digits")
