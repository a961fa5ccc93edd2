"""A language model: a small GPT-2 of KerasHub learns three corpora that every installation has.

They are licence texts, source of the standard library and documentation of NumPy and SciPy.
"""

import os
import sys
import tempfile
from pathlib import Path

import keras
import keras_hub
import numpy as np
import scipy.linalg

import nccl_tf


def corpora(folder: Path, size: int = 40_000) -> nccl_tf.Stream:
    licences = sorted(Path(np.__file__).parents[1].glob("*.dist-info/**/LICENSE.txt"))
    library = sorted(Path(os.__file__).parent.glob("*.py"))
    docs = [part.__doc__ or "" for m in (np.linalg, scipy.linalg) for part in vars(m).values()]
    for name, parts in (("1_licences", licences), ("2_library", library), ("3_docs", docs)):
        (folder / name).mkdir()
        texts = [p.encode() if isinstance(p, str) else p.read_bytes() for p in parts]
        (folder / name / "all.txt").write_bytes(b"\n".join(texts)[:size])
    return nccl_tf.load_stream(f"text:{folder}", length=64)


def learned(learner: nccl_tf.Learner, tasks, seed: int) -> nccl_tf.LearnResult:
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    learner.compile(keras.optimizers.Adam(0.003), loss)
    how = {"batch_size": 16, "epochs": 3, "metric": "perplexity", "verbose": 0}
    return nccl_tf.learn(learner, tasks, seed=seed, **how)


def main(seed: int) -> dict[str, nccl_tf.LearnResult]:
    keras.utils.set_random_seed(seed)
    with tempfile.TemporaryDirectory() as folder:
        stream = corpora(Path(folder))
    backbone = keras_hub.models.GPT2Backbone(256, 2, 4, 64, 128, max_sequence_length=64)
    base = keras_hub.models.GPT2CausalLM(backbone, preprocessor=None)
    learned(nccl_tf.Finetune(base), stream.tasks[:1], seed)
    results = {}
    for name in ("fine-tuning", "ER", "fine-tuning, LoRA", "ER, LoRA"):
        network = type(base).from_config(base.get_config())
        network.set_weights(base.get_weights())
        if "LoRA" in name:
            network.backbone.enable_lora(8)
        memory = nccl_tf.ReservoirMemory(200) if "ER" in name else None
        learner = nccl_tf.ExperienceReplay(network, memory) if memory else nccl_tf.Finetune(network)
        result = results[name] = learned(learner, stream, seed)
        print(f"{name}: forgetting {result.forgetting:.2f}, {result.bytes_stored:,} bytes stored")
        print(result.matrix.round(1))
    return results


if __name__ == "__main__":
    main(seed=int((*sys.argv[1:], 0)[0]))
