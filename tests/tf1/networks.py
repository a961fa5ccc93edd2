"""The networks of the TF1 code, as functions on variables named as those of the Keras networks."""

import numpy as np
import tensorflow as tf

v1 = tf.compat.v1
DECAY, EPSILON = 0.9, 1e-3
SCALE = float(np.float32(1 / 255))
"""Of pixels; Keras rounds a layer's numbers to float32 whatever the layer's dtype."""


class Network:
    """Variables, and passes through them.

    Args:
        weights: First values by name.
        subspaces: [tasks, features] of 0 and 1, what ORTHOG-SUBSPACE keeps; None without.
    """

    def __init__(self, weights, subspaces=None):
        trainable = lambda name: "moving" not in name  # noqa: E731
        self.variables = {
            name: v1.Variable(value, trainable=trainable(name)) for name, value in weights.items()
        }
        self.trainable = [v for name, v in self.variables.items() if trainable(name)]
        self.subspaces = subspaces


class Dense(Network):
    """784-256-256-10; a subspace is applied before the second ReLU."""

    def logits(self, images, tasks, training):
        """Logits, the updates of moving averages and what enters each ReLU."""
        v = self.variables
        x = tf.reshape(images * SCALE, [-1, v["hidden1/kernel"].shape[0]])
        first = tf.matmul(x, v["hidden1/kernel"]) + v["hidden1/bias"]
        second = tf.matmul(tf.nn.relu(first), v["hidden2/kernel"]) + v["hidden2/bias"]
        if self.subspaces is not None:
            second *= tf.gather(tf.constant(self.subspaces, x.dtype), tasks)
        logits = tf.matmul(tf.nn.relu(second), v["logits/kernel"]) + v["logits/bias"]
        return logits, [], [first, second]


class ResNet(Network):
    """RESNET-S of the A-GEM code: 3x3 stem, filters 20, 40, 80, 160, two blocks each."""

    def logits(self, images, tasks, training):
        """As `Dense.logits`."""
        updates, before_relu = [], []

        def convolution(x, name, stride):
            return tf.nn.conv2d(x, self.variables[f"{name}_conv/kernel"], stride, "SAME")

        def batch_norm(x, name):
            v = {w: self.variables[f"{name}_norm/{w}"] for w in ("gamma", "beta")}
            moving = [self.variables[f"{name}_norm/moving_{w}"] for w in ("mean", "variance")]
            if training:
                moments = tf.nn.moments(x, [0, 1, 2])
                for average, value in zip(moving, moments, strict=True):
                    updates.append(v1.assign(average, DECAY * average + (1 - DECAY) * value))
            else:
                moments = moving
            return tf.nn.batch_normalization(x, *moments, v["beta"], v["gamma"], EPSILON)

        def relu(x):
            before_relu.append(x)
            return tf.nn.relu(x)

        x = relu(batch_norm(convolution(images * SCALE, "stem", 1), "stem"))
        for stage in range(1, 5):
            for block in (1, 2):
                name = f"stage{stage}_block{block}"
                stride = 2 if stage > 1 and block == 1 else 1
                y = relu(batch_norm(convolution(x, f"{name}_a", stride), f"{name}_a"))
                y = batch_norm(convolution(y, f"{name}_b", 1), f"{name}_b")
                if stride == 2:
                    short = f"{name}_shortcut"
                    x = batch_norm(convolution(x, short, stride), short)
                x = relu(y + x)
        features = tf.reduce_mean(x, [1, 2])
        logits = tf.matmul(features, self.variables["logits/kernel"])
        return logits + self.variables["logits/bias"], updates, before_relu
