"""Tasks of KerasHub as networks: their preprocessor is applied as they do it themselves."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import nccl_tf
from nccl_tf.batch import PLACE_WEIGHTS
from nccl_tf.errors import UserError
from nccl_tf.learner.preprocessor import prepared
from tests.learner.hub import gpt2, keras_hub

WORDS = ["good", "bad", "film", "play", "a", "the"]
TEXTS = np.array(
    [f"{a} {b} {c}" for a in WORDS[:2] for b in ("a", "the") for c in ("film", "play")]
)
LABELS = np.arange(8) // 4


def words():
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]
    return keras_hub().models.BertTokenizer(vocabulary=vocabulary)


def byte_pairs():
    """Of GPT-2: a graph of hundreds of operations each time that it is traced."""
    letters = {
        "<|endoftext|>": 0,
        **{letter: i + 1 for i, letter in enumerate("abdefghilmoptyĠ")},
        "go": 16,
    }
    return keras_hub().models.GPT2Tokenizer(vocabulary=letters, merges=["g o"])


def language_model(tokenizer, length=8):
    preprocessor = keras_hub().models.GPT2CausalLMPreprocessor(tokenizer, sequence_length=length)
    return gpt2(tokenizer.vocabulary_size(), length, preprocessor)


def text_classifier(classes=2):
    hub, tokenizer = keras_hub(), words()
    keras.utils.set_random_seed(0)
    preprocessor = hub.models.BertTextClassifierPreprocessor(tokenizer, sequence_length=6)
    backbone = hub.models.BertBackbone(
        vocabulary_size=tokenizer.vocabulary_size(), num_layers=1, num_heads=2, hidden_dim=8,
        intermediate_dim=16, max_sequence_length=6, dropout=0.0,
    )  # fmt: skip
    return hub.models.BertTextClassifier(
        backbone, num_classes=classes, preprocessor=preprocessor, dropout=0.0
    )


def image_classifier():
    hub = keras_hub()
    keras.utils.set_random_seed(0)
    backbone = hub.models.ViTBackbone(
        image_shape=(8, 8, 3), patch_size=4, num_layers=1, num_heads=2, hidden_dim=8, mlp_dim=16,
        dropout_rate=0.0, attention_dropout=0.0,
    )  # fmt: skip
    converter = hub.layers.ImageConverter(image_size=(8, 8), scale=1 / 255)
    preprocessor = hub.models.ViTImageClassifierPreprocessor(converter)
    return hub.models.ViTImageClassifier(
        backbone, num_classes=2, preprocessor=preprocessor, dropout=0.0, activation=None
    )


def cross_entropy():
    return keras.losses.SparseCategoricalCrossentropy(from_logits=True)


@pytest.mark.seconds(16)  # it generates three times
@pytest.mark.eager
def test_a_language_model_without_preprocessor_generates_where_it_is_served(tmp_path):
    network = gpt2()
    learner = nccl_tf.ExperienceReplay(network, nccl_tf.ReservoirMemory(20), memory_batch_size=4)
    learner.compile(keras.optimizers.SGD(0.1), cross_entropy())
    x = {
        "token_ids": np.arange(64).reshape(8, 8) % 16,
        "padding_mask": np.ones((8, 8), "int32"),
    }
    learner.fit(x, x["token_ids"], verbose=0)
    learner.save(tmp_path / "learner.keras")
    prompt = {"token_ids": x["token_ids"][:1], "padding_mask": np.array([[1, 1, 1, 0, 0, 0, 0, 0]])}
    expected = network.generate(prompt, stop_token_ids=None)["token_ids"]
    for served in (
        learner.serving_model(),
        nccl_tf.load_model(tmp_path / "learner.keras").serving_model(),
    ):
        found = served.generate(prompt, stop_token_ids=None)["token_ids"]
        assert found.shape == expected.shape
        np.testing.assert_array_equal(found[:, :3], x["token_ids"][:1, :3])
        np.testing.assert_allclose(
            served.predict(x, verbose=0), learner.predict(x, verbose=0), atol=1e-6
        )


@pytest.mark.seconds(24)  # a model with its tokenizer is saved, loaded, served and generates
@pytest.mark.eager
def test_raw_texts_reach_the_memory_of_a_language_model_as_rows_of_tokens(tmp_path):
    task, plain = language_model(words()), language_model(words())
    learner = nccl_tf.ExperienceReplay(task, nccl_tf.ReservoirMemory(20), memory_batch_size=4)
    learner.compile(keras.optimizers.SGD(0.1), cross_entropy(), metrics=["perplexity"])
    learner.remember(TEXTS[:2].tolist())
    x, y, weights = plain.preprocess_samples(TEXTS[:2].tolist())
    stored = learner.memory.read_all()
    for name, rows in x.items():
        np.testing.assert_array_equal(stored.inputs[name], rows)
    np.testing.assert_array_equal(stored.labels, y)
    np.testing.assert_array_equal(stored.extras[PLACE_WEIGHTS], weights)

    found = learner.evaluate(TEXTS.tolist(), verbose=0, return_dict=True)["perplexity"]
    x, y, weights = plain.preprocess_samples(TEXTS.tolist())
    logs = tf.nn.log_softmax(plain(x)).numpy()
    losses = -np.take_along_axis(logs, np.asarray(y)[..., None], -1)[..., 0]
    assert found == pytest.approx(np.exp(np.average(losses, weights=weights)), rel=1e-4)

    learner.fit(TEXTS.tolist(), batch_size=4, verbose=0)
    data = tf.data.Dataset.from_tensor_slices(TEXTS).batch(4)
    learner.fit(data, verbose=0)
    assert int(learner.memory.readable_count()) == 18
    expected = learner.predict(TEXTS, verbose=0)
    learner.save(tmp_path / "learner.keras")
    loaded = nccl_tf.load_model(tmp_path / "learner.keras")
    served = learner.serving_model()
    for other in (task, loaded, served):
        np.testing.assert_allclose(other.predict(TEXTS, verbose=0), expected, atol=1e-5)
    served.compile(sampler="greedy", jit_compile=False)
    assert served.generate("good", max_length=8).startswith("good")


@pytest.mark.eager
def test_a_step_without_memory_is_that_of_the_task():
    task, plain = language_model(words()), language_model(words())
    texts = ["bad film", "a play"] * 4  # of as many tokens each, as Keras counts places
    learner = nccl_tf.Finetune(task)
    learner.compile(keras.optimizers.SGD(0.1), cross_entropy())
    learner.train_on_batch(texts)
    loss = keras.losses.SparseCategoricalCrossentropy(
        from_logits=True, reduction="mean_with_sample_weight"
    )
    plain.compile(optimizer=keras.optimizers.SGD(0.1), loss=loss, weighted_metrics=None)
    plain.fit(texts, batch_size=8, verbose=0)
    for mine, theirs in zip(task.get_weights(), plain.get_weights(), strict=True):
        np.testing.assert_allclose(mine, theirs, atol=1e-6)


@pytest.mark.seconds(40)  # a stream, with the graphs of each verb
def test_a_text_classifier_learns_a_stream_of_texts():
    stream = nccl_tf.stream_from_arrays((TEXTS, LABELS), (TEXTS, LABELS), num_tasks=2)
    task = text_classifier()
    learner = nccl_tf.create("er_reservoir", task, stream, memory=8, memory_batch_size=4)
    learner.compile(keras.optimizers.SGD(0.1), metrics=["accuracy"])
    result = nccl_tf.learn(learner, stream, batch_size=4, epochs=3, verbose=0)
    assert set(learner.memory.example_shape) == {"token_ids", "segment_ids", "padding_mask"}
    assert learner.accuracy(TEXTS, LABELS) == result.average_accuracy
    assert learner.accuracy(stream[1]) == result.matrix[1, 1]
    np.testing.assert_array_equal(
        learner.predict_on_batch(TEXTS[:2]), learner.predict(TEXTS[:2], verbose=0)
    )


@pytest.mark.seconds(24)  # graphs to train, validate, predict and serve
def test_a_served_task_hides_classes_that_were_not_seen():
    learner = nccl_tf.Finetune(text_classifier(3))
    learner.compile(keras.optimizers.SGD(0.1))
    learner.fit(TEXTS, LABELS, validation_data=(TEXTS, LABELS), batch_size=4, verbose=0)
    served = learner.serving_model().predict(TEXTS, verbose=0)
    np.testing.assert_allclose(served, learner.predict(TEXTS, verbose=0), rtol=1e-5, atol=1e-5)
    assert (served[:, 2] < -1e8).all()


@pytest.mark.seconds(16)  # the tokenizer is traced twice
def test_byte_pairs_are_those_of_the_task():
    task = language_model(byte_pairs())
    found = prepared(task, TEXTS[:2].tolist())
    for mine, theirs in zip(
        tf.nest.flatten(found),
        tf.nest.flatten(task.preprocess_samples(TEXTS[:2].tolist())),
        strict=True,
    ):
        np.testing.assert_array_equal(mine, theirs)


def test_what_a_task_prepares_is_traced_once_and_anew_when_it_is_set():
    task, traces = text_classifier(), []
    apply = task.preprocess_samples
    task.preprocess_samples = lambda *columns: (traces.append(1), apply(*columns))[1]
    for _ in range(2):  # the first call builds its layers
        prepared(task, TEXTS)
    before = len(traces)
    for count in (1, 3, 8):
        x, y, _ = prepared(task, TEXTS[:count], LABELS[:count])
        assert x["token_ids"].shape == (count, 6) and y.tolist() == LABELS[:count].tolist()
    assert len(traces) == before + 1  # with labels
    prepared(task, tf.data.Dataset.from_tensor_slices(TEXTS).batch(8))
    prepared(task, tf.data.Dataset.from_tensor_slices(TEXTS).batch(8))
    assert len(traces) == before + 1
    task.preprocessor.sequence_length = 4
    assert prepared(task, TEXTS)[0]["token_ids"].shape == (8, 4)
    vocabulary = task.preprocessor.tokenizer.get_vocabulary()
    first = prepared(task, TEXTS)[0]["token_ids"]
    task.preprocessor.tokenizer.set_vocabulary([*vocabulary[:5], *reversed(vocabulary[5:])])
    assert (prepared(task, TEXTS)[0]["token_ids"] != first).any()


def test_an_image_classifier_scales_its_images():
    images = np.random.default_rng(0).integers(0, 256, (8, 8, 8, 3)).astype("uint8")
    task = image_classifier()
    learner = nccl_tf.ExperienceReplay(task, nccl_tf.ReservoirMemory(8))
    learner.compile(keras.optimizers.SGD(0.1), metrics=["accuracy"])
    learner.fit(images, LABELS, batch_size=4, verbose=0)
    assert learner.memory.read_all().inputs.max() <= 1
    np.testing.assert_allclose(
        learner.predict(images, verbose=0), task.predict(images, verbose=0), atol=1e-5
    )
    assert learner.test_on_batch(images, LABELS, return_dict=True)["accuracy"] <= 1


def test_a_generator_is_refused():
    learner = nccl_tf.Finetune(text_classifier())
    learner.compile("sgd")
    with pytest.raises(UserError, match=r"network\.preprocessor = None"):
        learner.fit(((TEXTS, LABELS) for _ in range(2)), verbose=0)
