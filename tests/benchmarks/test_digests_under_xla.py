"""Chunks of steps under XLA compute what single steps compute, over 200 steps in float64."""

import numpy as np
import pytest

from benchmarks.digests import FOLDER, Run, numbers64
from nccl_tf.methods.registry import METHODS

COMPILED = [name for name, row in METHODS.items() if not row.learner_class().why_not("jit_compile")]

ROUNDED = {"er_gmed": 1e-8, "mir_gmed": 1e-8, "inflora": 1e-7}
"""Edited inputs in the memory, and adapters of Keras, are float32 in a network of float64."""


@pytest.mark.nightly
@pytest.mark.seconds(120)  # of CN-DPM, whose experts are compiled one by one
@pytest.mark.parametrize("method", COMPILED)
def test_a_method_learns_the_same(method):
    stored = np.load(FOLDER / "float64.npz")[method]
    found = numbers64(Run(METHODS[method]), xla=True)
    np.testing.assert_allclose(
        found, stored, rtol=0, atol=ROUNDED.get(method, 1e-9) * np.max(np.abs(stored))
    )
