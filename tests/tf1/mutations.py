"""Rules broken on purpose, each in a copy of the package, and which programs notice."""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

import nccl_tf


class Mutation(NamedTuple):
    """A change of a line.

    Attributes:
        rule: What it breaks.
        file: In `nccl_tf`.
        old: What stands there, once.
        new: What takes its place.
        among: The programs that run, by words in their names.
    """

    rule: str
    file: str
    old: str
    new: str
    among: tuple


STEP_SIZES = "step_sizes.py"
TWO = "A-GEM, two tapes", "NCCL, two tapes", "NCCL, β_max, by rows"
PENALTY, REPLAY = ("EWC", "SGD"), ("ER, reservoir", "MER")
RESNET, ORTHOG = ("NCCL resnet",), ("2 iterations",)
MUTATIONS = [
    Mutation("NCCL's sign of Λ", STEP_SIZES, "interference = lambda_ <= 0.0\n    bound",
             "interference = lambda_ >= 0.0\n    bound", TWO),
    Mutation("NCCL's least of two bounds", STEP_SIZES,
             "tf.clip_by_value(beta_star, 0.0, bound)", "tf.zeros_like(beta_star) + bound", TWO),
    Mutation("NCCL's δ", STEP_SIZES, "alpha * (1.0 - delta)", "alpha", TWO),
    Mutation("NCCL's β_max", STEP_SIZES, "tf.constant(beta_max", "tf.constant(0.9 * beta_max", TWO),
    Mutation("A-GEM's condition", STEP_SIZES, "interference = lambda_ < 0.0",
             "interference = lambda_ > 0.0", TWO),
    Mutation("EWC's factor 2", "learner/penalties.py", "g + 2 * strength * f",
             "g + strength * f", PENALTY),
    Mutation("EWC's newest window", "methods/ewc.py", "NEWEST = 0.9", "NEWEST = 0.8", PENALTY),
    Mutation("EWC's emptied window", "methods/ewc.py",
             "newest * window.value)\n            window.assign(tf.zeros_like(window.value))",
             "newest * window.value)", PENALTY),
    Mutation("Stable SGD's first decay", "learner/options/rate_decay.py",
             "self._tasks_ended.value + 1", "self._tasks_ended.value", PENALTY),
    Mutation("MER's interpolation", "methods/mer.py", "lerp(start.weights, end, self.meta_rate)",
             "lerp(end, start.weights, self.meta_rate)", REPLAY),
    Mutation("ORTHOG-SUBSPACE's projection", "methods/orthog_subspace/method.py",
             "self._parts.head(features * kept)", "self._parts.head(features)", ORTHOG),
    Mutation("ORTHOG-SUBSPACE's 1/k", "methods/orthog_subspace/method.py",
             "tasks = 1 + tf.math", "tasks = 2 + tf.math", ORTHOG),
    Mutation("ORTHOG-SUBSPACE's cap", "methods/orthog_subspace/stiefel.py",
             "tau = tf.minimum(tf.cast(rate, w.dtype), longest)", "tau = tf.cast(rate, w.dtype)",
             ORTHOG),
    Mutation("ER's mean over both batches", "learner/replay.py",
             "tf.concat([*memory_weights,", "tf.concat([*(2 * w for w in memory_weights),", REPLAY),
    Mutation("the mask of a head", "learner/heads.py", "keep = self.of(tasks)",
             "keep = self.of(0 * tasks) | self.of(tasks)", RESNET),
    Mutation("batch norm by batch", "learner/replay.py", 'batch_norm: str = "separate"',
             'batch_norm: str = "joint"', RESNET),
    Mutation("batch norm's order", "learner/replay.py",
             "*memory, stream = self.forward_all(self.raw_logits, *replays, batch)",
             "stream, *memory = self.forward_all(self.raw_logits, batch, *replays)", RESNET),
    Mutation("batch norm's momentum", "networks/resnet.py", "momentum=0.9", "momentum=0.99",
             RESNET),
]  # fmt: skip


def broken(mutation, folder):
    """Copy the package and its programs into a folder, and break a rule there."""
    shutil.copytree(Path(nccl_tf.__file__).parent, folder / "nccl_tf")
    shutil.copytree(Path(__file__).parent, folder / "tests" / "tf1")
    (folder / "tests" / "__init__.py").touch()
    path = folder / "nccl_tf" / mutation.file
    text = path.read_text()
    assert text.count(mutation.old) == 1, f"{mutation.file} has changed: {mutation.old}"
    path.write_text(text.replace(mutation.old, mutation.new))


def caught(mutation):
    """The rule, the change, and the programs whose row of the short form is above its bound."""
    with tempfile.TemporaryDirectory() as name:
        broken(mutation, Path(name))
        run = subprocess.run(
            [sys.executable, "-m", "tests.tf1", "--short", *mutation.among],
            cwd=name, env={**os.environ, "PYTHONPATH": name}, capture_output=True, text=True,
        )  # fmt: skip
    last = run.stderr.strip().splitlines()[-1] if run.returncode else "nobody"
    change = " ".join(f"`{mutation.new}` for `{mutation.old}`".split()).replace("|", "\\|")
    return mutation.rule, change, last.removeprefix("above its bound: ")
