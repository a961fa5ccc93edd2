"""Alignment: the moments of a task, the draws, and a head trained on them by NumPy alone."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import nccl_tf
from nccl_tf.learner.options import alignment as module
from nccl_tf.learner.options.alignment import AlignHead
from nccl_tf.learner.options.option import Option

RNG = np.random.default_rng(3)
CLASSES, SIDE, WIDTH = 4, 5, 3
INPUTS = RNG.normal(size=(40, SIDE)).astype(np.float32) + np.arange(40)[:, None] % 4
LABELS = np.arange(40) % 4
FIRST = RNG.normal(size=(SIDE, WIDTH)).astype(np.float32)


def network(classes=CLASSES):
    keras.utils.set_random_seed(0)
    inputs = keras.Input((SIDE,))
    features = keras.layers.Dense(WIDTH, use_bias=False, trainable=False)(inputs)
    model = keras.Model(inputs, keras.layers.Dense(classes)(features))
    model.layers[1].set_weights([FIRST])
    return model


def tasks(*of):
    return [np.isin(LABELS, classes) for classes in of or ((0, 1), (2, 3))]


def learner(rate=0.1, **options):
    made = nccl_tf.Finetune(network(), **{"stream_mask": "task", **options})
    made.compile(keras.optimizers.SGD(rate))
    return made


def fit(made, rows, **arguments):
    data = {"batch_size": 8, "shuffle": False, "verbose": 0, **arguments}
    made.fit(INPUTS[rows], LABELS[rows], **data)


def test_moments_are_those_of_all_features():
    """The head below is aligned by the covariances of classes, of two tasks as well."""
    made = learner(alignment="shared")
    for rows in tasks():
        fit(made, rows)
    option = made.option(AlignHead)
    features = INPUTS @ FIRST
    means = np.stack([features[k == LABELS].mean(0) for k in range(CLASSES)])
    np.testing.assert_allclose(option.means.numpy(), means, rtol=1e-5)
    each = np.stack([np.cov(features[k == LABELS].T) for k in range(CLASSES)])
    # All have ten examples.
    np.testing.assert_allclose(option.covariance(0), each.mean(0), rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(option.tasks.numpy(), [0, 0, 1, 1])


def aligned_by_numpy(kernel, bias, how, parts, seed=0):
    """The head after an alignment at the end of the second task, and nothing of TensorFlow."""
    features = (INPUTS @ FIRST).astype(np.float64)
    seen = sorted(parts[0] + parts[1])
    task = np.array([int(k in parts[1]) for k in seen])
    means = np.stack([features[k == LABELS].mean(0) for k in seen])
    each = np.stack([np.cov(features[k == LABELS].T) for k in seen])
    if how.covariance == "class":
        factors = np.linalg.cholesky(each + 1e-4 * np.eye(WIDTH))
    else:
        values, axes = np.linalg.eigh(each.mean(0) + 1e-4 * np.eye(WIDTH))
        factors = (axes * np.sqrt(values))[None]
    draws = np.random.default_rng([seed, 11, 1])
    shares = 1 - how.decay + how.decay * (task + 1) / 2
    weights = [kernel[:, seen].astype(np.float64), bias[seen].astype(np.float64)]
    speeds = [0.0, 0.0]
    for epoch in range(how.epochs):
        rate = how.learning_rate * (1 + np.cos(np.pi * epoch / how.epochs)) / 2
        noise = draws.standard_normal((len(seen), how.drawn, WIDTH), np.float32)
        moved = noise @ factors.transpose(0, 2, 1)
        z = (shares[:, None, None] * means[:, None] + moved).reshape(-1, WIDTH)
        y = np.repeat(np.arange(len(seen)), how.drawn)
        for rows in draws.permutation(len(y)).reshape(-1, how.drawn):
            x, one_hot = z[rows], np.eye(len(seen))[y[rows]]
            o = x @ weights[0] + weights[1]
            norms = np.stack([np.linalg.norm(o[:, task == t], axis=1) for t in (0, 1)], axis=1)
            mean = norms.mean(1, keepdims=True)
            logits = o / mean / how.logit_norm
            p = np.exp(logits - logits.max(1, keepdims=True))
            p /= p.sum(1, keepdims=True)
            by_logit = (p - one_hot) / len(x)  # dL/d(logits), then through the quotient
            along = np.sum(by_logit * o, axis=1, keepdims=True) / mean**2 / how.logit_norm
            by_norm = o / norms[:, task] / 2
            by_output = by_logit / mean / how.logit_norm - along * by_norm
            gradients = [x.T @ by_output, by_output.sum(0)]
            for i, gradient in enumerate(gradients):
                speeds[i] = 0.9 * speeds[i] + gradient + 5e-4 * weights[i]
                weights[i] = weights[i] - rate * speeds[i]
    kernel, bias = kernel.copy(), bias.copy()
    kernel[:, seen], bias[seen] = weights
    return kernel, bias


@pytest.mark.parametrize(
    ("covariance", "parts"),
    [
        ("shared", ((0, 1), (2, 3))),
        pytest.param("class", ((0, 2), (3,)), marks=pytest.mark.eager),
    ],
)
def test_the_head_is_aligned_as_by_numpy_and_put_back_when_the_next_task_begins(covariance, parts):
    how = nccl_tf.Alignment(epochs=2, drawn=6, covariance=covariance, decay=0.3)
    plain, made = learner(), learner(alignment=how)
    for rows in tasks(*parts):
        fit(plain, rows)
        fit(made, rows)
    before = plain.network.layers[-1].get_weights()
    after = made.network.layers[-1].get_weights()
    for value, expected in zip(after, aligned_by_numpy(*before, how, parts), strict=True):
        np.testing.assert_allclose(value, expected, rtol=2e-4, atol=2e-5)
    assert np.abs(after[0] - before[0]).max() > 1e-3
    made.begin_task(2)
    for value, expected in zip(made.network.layers[-1].get_weights(), before, strict=True):
        np.testing.assert_array_equal(value, expected)


@pytest.mark.eager
def test_the_first_task_is_not_aligned():
    plain, made = learner(), learner(alignment="shared")
    fit(plain, tasks()[0])
    fit(made, tasks()[0])
    np.testing.assert_array_equal(made.network.get_weights()[1], plain.network.get_weights()[1])


@pytest.mark.eager
def test_classes_to_come_keep_their_columns():
    made = learner(alignment=nccl_tf.Alignment(epochs=1, drawn=4))
    first = made.network.get_weights()[1]
    for rows in tasks((0,), (1, 2)):
        fit(made, rows)
    np.testing.assert_array_equal(made.network.get_weights()[1][:, 3], first[:, 3])


@pytest.mark.eager
@pytest.mark.parametrize("covariance", ["shared", "class"])
def test_one_example_of_a_class_and_features_of_a_huge_scale_give_no_nan(covariance):
    made = learner(0.0, alignment=nccl_tf.Alignment(2, 3, covariance))
    made.network.layers[1].set_weights([1e6 * np.ones_like(FIRST)])  # Of rank one.
    for k in range(CLASSES):
        fit(made, np.flatnonzero(k == LABELS)[:1])
    assert all(np.isfinite(weight).all() for weight in made.get_weights())


def test_a_covariance_that_is_not_positive_has_a_factor():
    covariance = np.array([[1.0, 2.0], [2.0, 1.0]])  # Eigenvalues 3 and -1.
    factor = module.factor_of(covariance)
    half = (3 + 1e-4) / 2
    np.testing.assert_allclose(factor @ factor.T, [[half, half], [half, half]])


@pytest.mark.eager
def test_a_task_that_ends_without_its_pass_is_told_once(caplog):
    made = learner(alignment="shared")
    fit(made, tasks()[0])
    assert "asks for" not in caplog.text
    for rows in tasks():
        fit(made, rows, end_task=False)
        made.end_task()
    assert caplog.text.count("task 1 ends without the pass over its examples that AlignHead") == 1
    np.testing.assert_array_equal(made.option(AlignHead).counts.numpy() > 0, [1, 1, 0, 0])


@pytest.mark.eager
def test_an_adapted_head_is_aligned_by_its_adapters_alone():
    net = network()
    net.layers[-1].enable_lora(2)
    made = nccl_tf.Finetune(net, stream_mask="task", alignment=nccl_tf.Alignment(2, 8))
    made.compile(keras.optimizers.SGD(0.1))
    kernel = net.layers[-1]._kernel.numpy()
    fit(made, tasks()[0])
    before = [v.numpy() for v in net.layers[-1].trainable_variables]
    fit(made, tasks()[1])
    np.testing.assert_array_equal(net.layers[-1]._kernel, kernel)
    after = [v.numpy() for v in net.layers[-1].trainable_variables]
    assert len(after) == 3
    assert all(np.any(one != two) for one, two in zip(before, after, strict=True))


def test_padding_and_nan_are_not_counted():
    made = learner(alignment="shared")
    rows = np.flatnonzero(LABELS < 2)[:8]
    inputs, labels, weights = INPUTS[rows].copy(), LABELS[rows], np.ones(8)
    inputs[0, 2], weights[3] = np.nan, 0.0
    data = tf.data.Dataset.from_tensor_slices((inputs, labels, weights)).batch(4)
    made.fit(data, verbose=0)
    counts = made.option(AlignHead).counts.numpy()
    np.testing.assert_array_equal(counts, [3, 3, 0, 0])
    kept = [row for row in (4, 6, 2) if labels[row] == labels[4]]
    mean = (inputs[kept] @ FIRST).mean(0)
    np.testing.assert_allclose(made.option(AlignHead).means.numpy()[labels[4]], mean, rtol=1e-5)


@pytest.mark.parametrize("dtype", ["float16", "float64"])
def test_inputs_of_another_dtype_are_counted_as_they_are(dtype):
    """As features are that `map` keeps in half the memory."""
    inputs = INPUTS.astype(dtype)
    inputs[0, 2] = np.nan
    data = tf.data.Dataset.from_tensor_slices((inputs, LABELS)).batch(8)
    made = learner(alignment="shared")
    made.fit(data, epochs=1, verbose=0)
    counted = inputs[1:].astype(np.float32) @ FIRST
    means = [counted[LABELS[1:] == k].mean(0) for k in range(CLASSES)]
    np.testing.assert_allclose(made.option(AlignHead).means.numpy(), means, rtol=1e-4, atol=1e-5)


@pytest.mark.eager
def test_a_class_that_comes_again_has_the_moments_of_its_last_task():
    made = learner(alignment="class")
    fit(made, LABELS < 2)
    rows = np.flatnonzero(LABELS == 1)[:4]
    fit(made, rows)
    option = made.option(AlignHead)
    features = INPUTS[rows] @ FIRST
    np.testing.assert_allclose(option.means.numpy()[1], features.mean(0), rtol=1e-5)
    np.testing.assert_allclose(option.covariance(1), np.cov(features.T), rtol=1e-4)
    np.testing.assert_array_equal(option.tasks.numpy()[:2], [0, 1])


@pytest.mark.eager
@pytest.mark.parametrize(
    ("at_once", "covariance"), [(1, "shared"), (12, "shared"), (12, "class"), (1000, "shared")]
)
def test_moments_are_the_same_of_rows_of_several_batches(covariance, at_once, monkeypatch):
    """Of tasks of twenty examples in batches of eight, the last of four.

    Batches are joined before moments are taken: one case tells of covariances of classes.
    """
    monkeypatch.setattr(AlignHead, "rows_at_once", at_once)
    made, calls = learner(alignment=covariance), []
    option = made.option(AlignHead)
    sums = option.task_sums
    option.task_sums = lambda *args: calls.append(0) or sums(*args)
    fit(made, tasks()[0])
    assert len(calls) == {1: 3, 12: 2, 1000: 1}[at_once]
    features = INPUTS @ FIRST
    each = np.stack([np.cov(features[k == LABELS].T) for k in (0, 1)])
    expected = each if covariance == "class" else each.mean(0)[None]
    found = [option.covariance(k) for k in range(len(expected))]
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.eager
def test_each_option_that_asks_for_a_pass_gets_all_batches_of_learn():
    class Counts(Option):
        task_pass = ("end",)
        found = ()

        def task_sums(self, rows, when):
            return tf.reduce_sum(rows.weights)

        def on_task_pass(self, when, sums):
            self.found = (*self.found, None if sums is None else float(sums))

    made, added = learner(alignment="shared"), Counts()
    made.add_option(added)
    nccl_tf.learn(made, stream(), batch_size=8, verbose=0)
    assert added.found == (20, 20)
    np.testing.assert_array_equal(made.option(AlignHead).counts.numpy(), [10, 10, 10, 10])


@pytest.mark.eager
def test_a_file_within_a_task_goes_on_to_the_bit(tmp_path):
    made = learner(alignment=nccl_tf.Alignment(epochs=1, drawn=4))
    for rows in tasks():
        fit(made, rows)
    made.save(tmp_path / "aligned.keras")
    loaded = nccl_tf.load_model(tmp_path / "aligned.keras")
    for each in (made, loaded):
        fit(each, LABELS == 0)
    for one, other in zip(made.get_weights(), loaded.get_weights(), strict=True):
        np.testing.assert_array_equal(one, other)
    assert loaded.get_config()["alignment"]["config"]["drawn"] == 4


@pytest.mark.eager
def test_a_record_names_what_is_not_by_default():
    made = learner(alignment=nccl_tf.Alignment(1, 8, "class", logit_norm=None))
    run = nccl_tf.learn(made, stream(), batch_size=20, verbose=0).run
    settings = run.settings
    assert run.measured["examples_passed"] == 2 * len(LABELS)  # Once learned, once measured.
    assert settings.alignment == "class"
    own = {k: v for k, v in settings.hyperparameters.items() if k.startswith("alignment")}
    assert own == {"alignment_epochs": 1, "alignment_drawn": 8, "alignment_logit_norm": "none"}


def stream():
    return nccl_tf.stream_from_arrays((INPUTS, LABELS), (INPUTS, LABELS), num_tasks=2)


@pytest.mark.eager
def test_learn_aligns_as_fit_does_and_resumes_to_the_bit(tmp_path):
    def learned(made, **arguments):
        nccl_tf.learn(made, stream(), batch_size=8, verbose=0, **arguments)
        return made.get_weights()

    how = nccl_tf.Alignment(epochs=1, drawn=4)
    made, fitted = learner(alignment=how), learner(alignment=how)
    whole = learned(made)
    for task in stream():
        fitted.fit(task, batch_size=8, verbose=0)
    killed, passes = learner(alignment=how), []
    option = killed.option(AlignHead)
    rows_of = option.task_rows

    class Killed(Exception):
        pass

    def killing(batch, when):
        passes.append(when)
        if len(passes) == 2:
            raise Killed
        return rows_of(batch, when)

    option.task_rows = killing
    with pytest.raises(Killed):
        learned(killed, backup_dir=tmp_path)
    resumed = learned(learner(alignment=how), backup_dir=tmp_path)
    for one, fit_too, other in zip(whole, fitted.get_weights(), resumed, strict=True):
        np.testing.assert_array_equal(one, fit_too)
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"alignment": "both"}, "shared, class"),
        ({"alignment": 3}, "nccl_tf.Alignment"),
        ({"alignment": "shared", "average_weights": 0.9}, "alignment and average_weights"),
        ({"alignment": "shared", "stream_mask": "all", "heads": [[0, 1], [2, 3]]}, "and heads"),
    ],
)
def test_what_leaves_no_room_for_it_is_refused(options, said):
    with pytest.raises(nccl_tf.UserError, match=said):
        learner(**options)


@pytest.mark.parametrize(
    "numbers",
    [
        {"epochs": 0},
        {"drawn": 0},
        {"decay": 1.5},
        {"decay": "half"},
        {"decay": None},
        {"logit_norm": 0},
        {"logit_norm": "none"},
        {"learning_rate": -1},
        {"learning_rate": True},
    ],
)
def test_numbers_out_of_range_are_refused(numbers):
    with pytest.raises(nccl_tf.UserError, match=next(iter(numbers))):
        nccl_tf.Alignment(**numbers)


def test_a_frozen_head_another_loss_and_a_generator_are_refused():
    frozen = network()
    frozen.layers[-1].trainable = False
    with pytest.raises(nccl_tf.UserError, match="frozen"):
        nccl_tf.Finetune(frozen, alignment="shared")
    convolution = keras.Sequential(
        [keras.Input((4, 1)), keras.layers.Conv1D(2, 4), keras.layers.Flatten()]
    )
    with pytest.raises(nccl_tf.UserError, match="ends in Flatten"):
        nccl_tf.Finetune(convolution, alignment="shared")
    named = keras.Sequential([
        keras.Input((SIDE,)), keras.layers.Dense(CLASSES, name="makes_logits"),
        keras.layers.Dense(CLASSES, name="last"),
    ])  # fmt: skip
    nccl_tf.Finetune(named, alignment="shared", head="last")
    with pytest.raises(nccl_tf.UserError, match=r"head='makes_logits'.* 'last'"):
        nccl_tf.Finetune(named, alignment="shared", head="makes_logits")
    with pytest.raises(nccl_tf.UserError, match="softmax"):
        nccl_tf.Finetune(network(), alignment="shared").compile("sgd", loss="mse")
    made = learner(alignment="shared")
    with pytest.raises(nccl_tf.UserError, match="generator"):
        made.fit(iter([(INPUTS, LABELS)]), verbose=0)
