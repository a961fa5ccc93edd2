"""A tiny language model of KerasHub, where that is installed."""

import keras
import pytest


def keras_hub():
    """The package; a test that asks for it is skipped where it is missing."""
    return pytest.importorskip("keras_hub", reason="needs the extra hub: pip install keras-hub")


def gpt2(tokens=16, length=8, preprocessor=None, seed=0):
    """A `CausalLM` of two layers."""
    hub = keras_hub()
    keras.utils.set_random_seed(seed)
    backbone = hub.models.GPT2Backbone(
        vocabulary_size=tokens, num_layers=2, num_heads=2, hidden_dim=8, intermediate_dim=16,
        max_sequence_length=length, dropout=0.0,
    )  # fmt: skip
    return hub.models.GPT2CausalLM(backbone=backbone, preprocessor=preprocessor)
