"""A network of your own: any Keras model from images to one logit per class.

    python examples/own_network.py

Scaling of the pixels is a layer of the network, so that a saved learner takes raw images.
"""

import tempfile

import keras

import nccl_tf


def network(example_shape: tuple[int, int, int], num_classes: int) -> keras.Model:
    """A small convolutional network with batch normalisation."""
    inputs = keras.Input(example_shape, dtype="uint8")
    x = keras.layers.Rescaling(1 / 16)(inputs)
    x = keras.layers.Conv2D(16, 3, padding="same", use_bias=False)(x)
    x = keras.layers.BatchNormalization()(x)
    x = keras.layers.ReLU()(x)
    x = keras.layers.MaxPooling2D()(x)
    x = keras.layers.Flatten()(x)
    return keras.Model(inputs, keras.layers.Dense(num_classes)(x))


def main() -> None:
    keras.utils.set_random_seed(0)
    stream = nccl_tf.load_stream("split_digits", seed=0)
    memory = nccl_tf.ReservoirMemory(100, stream.example_shape)
    model = nccl_tf.NCCL(
        network(stream.example_shape, stream.num_classes),
        memory,
        heads=stream.heads,
        batch_norm="separate",  # memory and stream batch each with statistics of its own
    )
    model.compile(keras.optimizers.SGD(0.05), metrics=["accuracy"])
    for task in stream:
        model.fit(task.train_batches(batch_size=10, seed=0), shuffle=False, verbose=0)
    with tempfile.TemporaryDirectory() as folder:
        model.save(f"{folder}/own_network.keras")
        loaded = nccl_tf.load_model(f"{folder}/own_network.keras")
    accuracies = [loaded.accuracy(*task.test, task.task_id) for task in stream]
    print("accuracy on each task:", " ".join(f"{a:.0%}" for a in accuracies))


if __name__ == "__main__":
    main()
