"""Keras callbacks on a learner: they see a learner as any Keras model.

    python examples/callbacks.py [--mlflow | --wandb]

The two trackers log through Keras callbacks of their own and are not needed:
`pip install mlflow` or `pip install wandb`.
"""

import sys
import tempfile
from pathlib import Path

import keras

import nccl_tf


def tracker() -> list[keras.callbacks.Callback]:
    """The callback of the tracker that the command line names."""
    if "--mlflow" in sys.argv:
        import mlflow

        mlflow.start_run()
        return [mlflow.keras.MlflowCallback()]
    if "--wandb" in sys.argv:
        import wandb
        from wandb.integration.keras import WandbMetricsLogger

        wandb.init(project="nccl_tf")
        return [WandbMetricsLogger(log_freq=50)]
    return []


def main() -> None:
    stream = nccl_tf.load_stream("permuted_digits", seed=0, max_tasks=2)
    network = nccl_tf.networks.mlp(stream.example_shape, stream.num_classes, pixels=stream.pixels)
    memory = nccl_tf.RingMemory(5, stream.task_classes, stream.example_shape)
    model = nccl_tf.NCCL(network, memory)
    model.compile(keras.optimizers.SGD(0.1), metrics=["accuracy"], steps_per_execution=10)
    folder = Path(tempfile.mkdtemp(prefix="callbacks_"))
    shared = [
        keras.callbacks.CSVLogger(folder / "epochs.csv", append=True),
        nccl_tf.callbacks.StepRecord(folder / "steps.csv", every=10),
        *tracker(),
    ]
    for task in stream:
        stop = keras.callbacks.EarlyStopping("val_loss", patience=2, restore_best_weights=True)
        # A folder a task: Keras counts steps from 0 in every `fit`.
        logs = folder / "tensorboard" / f"task{task.task_id}"
        board = keras.callbacks.TensorBoard(logs, write_graph=False)
        model.fit(
            task.train_batches(batch_size=10, seed=0),
            validation_data=task.test_batches(),
            epochs=6,
            shuffle=False,
            verbose=0,
            callbacks=[*shared, stop, board],
        )
        print(f"task {task.task_id}: best after epoch {stop.best_epoch + 1}")
    print(f"see {folder}")


if __name__ == "__main__":
    main()
