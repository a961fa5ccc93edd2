"""A method of your own in 20 lines: override `combine`, which sees both gradients of a step.

    python examples/own_method.py
    python run.py --plugin=examples/own_method.py --method=equal_lengths

This one gives the memory gradient the length of the stream gradient and steps along the mean of the
two. What `combine` returns in its dictionary is logged by `fit`.
"""

import keras
import tensorflow as tf

import nccl_tf
from nccl_tf import gradients


@keras.saving.register_keras_serializable(package="examples")
class Balanced(nccl_tf.ReplayGradientLearner):
    """x+ = x - alpha/2 (g_J + |g_J|/|f_I| f_I)."""

    quantities = ("loss", "memory_loss", "lambda", "beta_h", "alpha_h")
    cumulative = ()

    def combine(self, memory_gradients, stream_gradients):
        lambda_ = gradients.inner_product(memory_gradients, stream_gradients)
        ratio = tf.sqrt(
            gradients.squared_norm(stream_gradients)
            / tf.maximum(gradients.squared_norm(memory_gradients), 1e-12)
        )
        direction = gradients.weighted_sum(ratio / 2, memory_gradients, 0.5, stream_gradients)
        alpha = tf.cast(self.optimizer.learning_rate, tf.float32)
        return direction, {"lambda": lambda_, "alpha_h": alpha * ratio / 2, "beta_h": alpha / 2}


nccl_tf.register_method(
    nccl_tf.Method(name="equal_lengths", title="Equal lengths", learner=Balanced, memory="ring")
)


def main() -> None:
    stream = nccl_tf.load_stream("permuted_digits", seed=0, max_tasks=3)
    network = nccl_tf.networks.mlp(stream.example_shape, stream.num_classes, pixels=stream.pixels)
    memory = nccl_tf.RingMemory(5, stream.task_classes, stream.example_shape)
    model = Balanced(network, memory)
    model.compile(keras.optimizers.SGD(0.1), metrics=["accuracy"])
    for task in stream:
        logs = model.fit(task.train_batches(batch_size=10, seed=0), shuffle=False, verbose=0)
    print("alpha_h in the last task:", round(logs.history["alpha_h"][-1], 4))
    accuracies = [model.accuracy(*task.test, task.task_id) for task in stream]
    print("accuracy on each task:", " ".join(f"{a:.0%}" for a in accuracies))


if __name__ == "__main__":
    main()
