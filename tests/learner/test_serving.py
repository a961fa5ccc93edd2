"""Plain models that answer as a learner's `predict` does, also where nccl_tf is not."""

import subprocess
import sys

import keras
import numpy as np
import pytest

import nccl_tf
from nccl_tf.errors import UserError
from tests.methods.learners import build, fit
from tests.tiny import IMAGE_SHAPE, TASK_CLASSES

IMAGES = np.random.default_rng(0).integers(0, 256, (6, *IMAGE_SHAPE), np.uint8)
TASKS = np.array([0, 1, 1, 0, 0, 1], np.int32)


def learned(name, heads=None, **arguments):
    learner = build(name, heads, **arguments)
    # A few steps, which make no graph: what is served is the subject.
    learner.compile(keras.optimizers.SGD(0.1), metrics=["accuracy"], run_eagerly=True)
    fit(learner, *range(1 + (heads is not None)), count=40)
    return learner


# Of every class as it is made by default, the battery shows it.
CASES = {
    "seen": ("finetune", None, {"average_weights": 0.5}),
    "heads": ("finetune", TASK_CLASSES, {}),
    "ncm by cosine": ("ncm", TASK_CLASSES, {"ncm_distance": "cosine"}),
    "icarl heads": ("icarl", TASK_CLASSES, {}),
    "subspaces": ("orthog_subspace", TASK_CLASSES, {}),
}


@pytest.mark.parametrize("case", CASES)
def test_it_answers_as_predict(case, tmp_path):
    name, heads, arguments = CASES[case]
    learner = learned(name, heads, **arguments)
    received = IMAGES if heads is None else {"inputs": IMAGES, "task": TASKS}
    expected = learner.predict(received, verbose=0)
    served = learner.serving_model()
    weights = [weight.numpy() for weight in learner.variables]
    assert not isinstance(served, nccl_tf.Learner) and (expected == -1e9).any()
    np.testing.assert_allclose(served.predict(received, verbose=0), expected, rtol=1e-5, atol=1e-5)
    served.save(tmp_path / "served.keras")
    again = keras.models.load_model(tmp_path / "served.keras")
    np.testing.assert_allclose(again.predict(received, verbose=0), expected, rtol=1e-5, atol=1e-5)
    for variable, weight in zip(learner.variables, weights, strict=True):
        np.testing.assert_array_equal(variable.numpy(), weight)


def test_it_stays_as_it_is_while_the_learner_goes_on():
    learner = learned("finetune")
    served, before = learner.serving_model(), learner.predict(IMAGES, verbose=0)
    fit(learner, 1, count=40)
    assert not np.array_equal(learner.predict(IMAGES, verbose=0), before)
    np.testing.assert_allclose(served.predict(IMAGES, verbose=0), before, rtol=1e-5)


def test_what_layers_have_looked_at_is_copied():
    """A vocabulary is no weight and no argument."""
    words = np.array(["ant", "bee", "cat", "bee"])
    lookup = keras.layers.StringLookup(max_tokens=5)
    lookup.adapt(words)
    layers = [lookup, keras.layers.Embedding(5, 4), keras.layers.Dense(2)]
    learner = nccl_tf.Finetune(keras.Sequential([keras.Input((), dtype="string"), *layers]))
    learner.compile(keras.optimizers.SGD(0.1))
    learner.fit(words, np.array([0, 1, 0, 1]), verbose=0)
    expected = learner.predict(words, verbose=0)
    served = learner.serving_model()
    np.testing.assert_allclose(served.predict(words.astype(object), verbose=0), expected, rtol=1e-6)


def test_a_method_without_one_says_why():
    with pytest.raises(UserError, match="SupSup makes no serving model: it runs"):
        build("supsup").serving_model()


CODE = """
import sys
import numpy as np, tensorflow as tf
served = tf.saved_model.load(sys.argv[1])
given = np.load(sys.argv[2])
outputs = served.serve({"inputs": given["inputs"], "task": given["task"]})
assert not any(name.startswith("nccl_tf") for name in sys.modules)
np.testing.assert_allclose(outputs, given["expected"], rtol=1e-5)
"""


@pytest.mark.processes
def test_it_serves_where_the_package_is_not(tmp_path):
    learner = learned("finetune", TASK_CLASSES)
    expected = learner.predict({"inputs": IMAGES, "task": TASKS}, verbose=0)
    learner.serving_model().export(tmp_path / "served", verbose=False)
    given = tmp_path / "given.npz"
    np.savez(given, inputs=IMAGES, task=TASKS, expected=expected)
    argv = [sys.executable, "-c", CODE, str(tmp_path / "served"), str(given)]
    done = subprocess.run(argv, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
