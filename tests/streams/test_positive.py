"""Which of two named classes metrics judge: the stream's choice, or a sentence that names it."""

import keras
import numpy as np
import pandas
import pytest

import nccl_tf
from nccl_tf.errors import UserError

RNG = np.random.default_rng(0)
X = RNG.normal(size=(80, 4)).astype("float32")
IS_FRAUD = X[:, 0] + 0.5 * RNG.normal(size=80) > 1
NAMES = np.where(IS_FRAUD, "fraud", "ok")
HALVES = np.arange(80) // 40


def table(folder):
    frame = pandas.DataFrame(X, columns=list("abcd"))
    frame.assign(outcome=NAMES, half=HALVES).to_csv(folder / "table.csv", index=False)
    return f"csv:{folder / 'table.csv'}"


STREAMS = {
    "arrays": lambda folder, **given: nccl_tf.stream_from_arrays(
        (X, NAMES), test_fraction=0.25, domains=HALVES, **given
    ),
    "frames": lambda folder, **given: nccl_tf.stream_from_arrays(
        (pandas.DataFrame(X), pandas.Series(NAMES, dtype="category")),
        test_fraction=0.25, domains=HALVES, **given,
    ),
    "csv": lambda folder, **given: nccl_tf.load_stream(
        table(folder), label="outcome", domain="half", **given
    ),
    "datasets": lambda folder, **given: nccl_tf.stream_from_datasets(
        [((X[i == HALVES], NAMES[i == HALVES]),) * 2 for i in range(2)], **given
    ),
}  # fmt: skip


@pytest.mark.parametrize("form", STREAMS)
def test_the_positive_class_has_the_number_1(form, tmp_path):
    stream, other = (STREAMS[form](tmp_path, positive=name) for name in ("fraud", "ok"))
    assert (stream.class_names, stream.positive) == (("ok", "fraud"), "fraud")
    assert (other.class_names, other.positive) == (("fraud", "ok"), "ok")
    plain = STREAMS[form](tmp_path)
    assert (plain.class_names, plain.positive) == (("fraud", "ok"), None)
    for one, two, three in zip(stream, other, plain, strict=True):
        for part in ("train", "test"):
            inputs, labels = getattr(one, part)
            found = {tuple(row): label for row, label in zip(inputs, labels, strict=True)}
            known = {tuple(row): fraud for row, fraud in zip(X, IS_FRAUD, strict=True)}
            assert all(known[row] == label for row, label in found.items())
            np.testing.assert_array_equal(getattr(two, part).labels, getattr(three, part).labels)


def test_a_share_that_learn_holds_out_keeps_the_choice():
    stream = STREAMS["arrays"](None, positive="fraud")
    network = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
    model = nccl_tf.Finetune(network)
    model.compile(keras.optimizers.SGD(0.1), run_eagerly=True)
    result = nccl_tf.learn(model, stream, validation=0.25, verbose=0)
    assert result.run.settings.positive == "fraud"


@pytest.mark.parametrize(
    ("labels", "positive", "said"),
    [
        (NAMES, "bad", "received positive='bad' for the classes fraud, ok"),
        (np.array(["a", "b", "c", "d"])[np.arange(80) % 4], "a", "one of two classes"),
        (IS_FRAUD.astype(int), "1", "labels that are no names"),
    ],
)
def test_what_is_none_of_two_names_is_refused(labels, positive, said):
    with pytest.raises(UserError, match=said):
        nccl_tf.stream_from_arrays(
            (X, labels), test_fraction=0.5, domains=HALVES, positive=positive
        )
    with pytest.raises(UserError, match="is no data set by name"):
        nccl_tf.load_stream("split_digits", positive="1")


def learner(outputs=2, metrics=()):
    network = keras.Sequential([keras.Input((4,)), keras.layers.Dense(outputs)])
    made = nccl_tf.Finetune(network)
    loss = keras.losses.BinaryCrossentropy(from_logits=True) if outputs == 1 else None
    made.compile(keras.optimizers.SGD(0.1), loss, metrics=list(metrics))
    return made


def area():
    return keras.metrics.AUC(curve="PR", name="area")


@pytest.mark.parametrize("outputs", [1, 2])
def test_the_area_is_that_of_the_positive_class(outputs):
    keras.utils.set_random_seed(0)
    found = []
    for labels, given in ((IS_FRAUD.astype(int), {}), (NAMES, {"positive": "fraud"})):
        keras.utils.set_random_seed(0)
        stream = nccl_tf.stream_from_arrays(
            (X, labels), test_fraction=0.25, domains=HALVES, **given
        )
        result = nccl_tf.learn(learner(outputs), stream, metric=area(), epochs=3, verbose=0)
        found.append(result.average_accuracy)
    assert found[0] == pytest.approx(found[1], abs=1e-6)


VERBS = {
    "fit": lambda made, task: made.fit(task, verbose=0),
    "evaluate": lambda made, task: made.evaluate(task, verbose=0),
    "learn": lambda made, task: nccl_tf.learn(made, [task], metric=area(), verbose=0),
}


@pytest.mark.eager
@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("outputs", [1, 2])
def test_without_a_choice_one_sentence_names_the_class_that_is_judged(verb, outputs, caplog):
    made = learner(outputs, [] if verb == "learn" else [area(), "accuracy"])
    for _ in range(2):
        VERBS[verb](made, STREAMS["arrays"](None)[0])
    (said,) = [r.message for r in caplog.records if "positive" in r.message]
    assert said.startswith("area judges the class 'ok'") and "positive='fraud'" in said


@pytest.mark.parametrize(
    ("metrics", "given"), [([area], {"positive": "ok"}), ([lambda: "accuracy"], {})]
)
def test_there_is_no_word_where_it_was_chosen_or_does_not_matter(metrics, given, caplog):
    made = learner(metrics=[make() for make in metrics])
    made.fit(STREAMS["arrays"](None, **given)[0], verbose=0)
    assert not [r for r in caplog.records if "positive" in r.message]


@pytest.mark.eager
def test_a_saved_learner_knows_it(tmp_path, caplog):
    stream = STREAMS["arrays"](None, positive="fraud")
    made = learner(metrics=[area()])
    made.fit(stream[0], verbose=0)
    made.save(tmp_path / "learner.keras")
    loaded = nccl_tf.load_model(tmp_path / "learner.keras")
    assert loaded.get_config()["classes"] == [["ok", "fraud"], "fraud"]
    loaded.evaluate(stream[1], verbose=0)
    assert not [r for r in caplog.records if "positive" in r.message]
    with pytest.raises(UserError, match="expected one number for each class"):
        loaded.evaluate(STREAMS["arrays"](None)[1], verbose=0)


def test_a_record_and_the_title_of_its_table_have_it(tmp_path):
    from nccl_tf.experiment.config.resolve import resolve
    from nccl_tf.reports.records import Records
    from nccl_tf.reports.tables import results_by_stream

    stream = STREAMS["arrays"](None, positive="fraud")
    result = nccl_tf.learn(learner(), stream, metric="accuracy", verbose=0)
    result.save(tmp_path / "runs")
    (record,) = Records.required(tmp_path / "runs").records
    (table_of_stream,) = results_by_stream([record])
    assert record.settings.positive == "fraud" and "positive fraud" in table_of_stream.title
    given = {"dataset": table(tmp_path), "label": "outcome", "domain": "half"}
    assert resolve({**given, "positive": "fraud"}).positive == "fraud"
    with pytest.raises(UserError, match="positive='bad'"):
        resolve({**given, "positive": "bad"})
    with pytest.raises(UserError, match="no data set by name"):
        resolve({"dataset": "split_digits", "positive": "1"})
