"""Texts: strings in, a network that reads them, and a memory that keeps strings.

    python examples/text.py

A small corpus is made up, so that nothing is downloaded: news of six subjects, which come in three
tasks of two. With texts of your own, put them in place of `corpus()`.
"""

import argparse

import keras
import numpy as np
import tensorflow as tf

import nccl_tf

SUBJECTS = {
    "cooking": "oven bread salt pan butter recipe taste kitchen",
    "football": "goal match team coach league score keeper penalty",
    "music": "song guitar band concert album melody drum singer",
    "sailing": "boat harbour sail wind anchor mast crew tide",
    "banking": "loan interest account credit market bond fund branch",
    "gardening": "seed soil garden rose tree water lawn flower",
}
COMMON = "the a of and in was with for on after very new old said year people time first"
TASKS = ((0, 1), (2, 3), (4, 5))
LENGTH = 16


def corpus(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Texts, an array of strings [count], and the number of the subject of each."""
    random = np.random.default_rng(seed)
    words = [subject.split() for subject in SUBJECTS.values()]
    labels = random.integers(0, len(words), count)
    texts = []
    for label in labels:
        own = random.choice(words[label], 4)
        others = random.choice(words[random.integers(len(words))], 1)
        text = np.concatenate([own, others, random.choice(COMMON.split(), LENGTH - 5)])
        texts.append(" ".join(random.permutation(text)))
    return np.array(texts), labels


def reader(texts: np.ndarray) -> keras.Model:
    """A network from strings to a logit for each subject."""
    vectorize = keras.layers.TextVectorization(output_sequence_length=LENGTH)
    vectorize.adapt(texts)
    inputs = keras.Input((), dtype="string")
    x = keras.layers.Embedding(vectorize.vocabulary_size(), 32)(vectorize(inputs))
    x = keras.layers.GlobalAveragePooling1D()(x)
    x = keras.layers.Dense(32, "relu")(x)
    return keras.Model(inputs, keras.layers.Dense(len(SUBJECTS))(x))


def learn(name: str, model: keras.Model, count: int) -> None:
    """Learn the tasks one after another, and print the accuracy on all of them."""
    (texts, labels), (new, new_labels) = corpus(count, seed=1), corpus(600, seed=2)
    model.compile(keras.optimizers.Adam(0.01), metrics=["accuracy"])
    for task in TASKS:
        own = np.isin(labels, task)
        model.fit(tf.constant(texts[own]), labels[own], batch_size=10, epochs=2, verbose=0)
    each = [np.isin(new_labels, task) for task in TASKS]
    shown = [model.accuracy(tf.constant(new[own]), new_labels[own], 0) for own in each]
    print(f"{name}: accuracy on each task", " ".join(f"{a:.0%}" for a in shown))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=3000, help="texts to learn from")
    count = parser.parse_args().count
    keras.utils.set_random_seed(0)
    texts, _ = corpus(count, seed=1)
    learn("fine-tuning", nccl_tf.Finetune(reader(texts)), count)
    learn("replay", nccl_tf.ExperienceReplay(reader(texts), nccl_tf.ReservoirMemory(120)), count)


if __name__ == "__main__":
    main()
