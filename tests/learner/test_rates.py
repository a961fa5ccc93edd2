"""Rates of layers: the update of an optimizer, scaled, whatever it is."""

import keras
import numpy as np
import pytest

import nccl_tf

RNG = np.random.default_rng(4)
INPUTS, LABELS = RNG.normal(size=(12, 3)).astype(np.float32), np.arange(12) % 2


def network():
    keras.utils.set_random_seed(0)
    return keras.Sequential([
        keras.Input((3,)), keras.layers.Dense(4, "tanh", name="body"),
        keras.layers.Dense(2, name="top"),
    ])  # fmt: skip


def stepped(optimizer, rates=None, start=None, jit_compile=False):
    learner = nccl_tf.Finetune(network(), rates=rates)
    learner.compile(optimizer(), jit_compile=jit_compile)
    if start is not None:
        learner.network.set_weights(start)
    learner.fit(INPUTS, LABELS, batch_size=12, shuffle=False, verbose=0)
    return learner.network.get_weights()


def decayed_sgd():
    return keras.optimizers.SGD(0.5, momentum=0.9, weight_decay=0.1)


@pytest.mark.parametrize(
    ("optimizer", "jit_compile"),
    [
        pytest.param(decayed_sgd, False, marks=pytest.mark.eager),
        pytest.param(lambda: keras.optimizers.AdamW(0.1), False, marks=pytest.mark.eager),
        pytest.param(lambda: keras.optimizers.Lion(0.1), False, marks=pytest.mark.eager),
        (decayed_sgd, True),
    ],
)
def test_the_update_of_a_layer_is_scaled(optimizer, jit_compile):
    """Whatever the optimizer, which the scale knows nothing of: of one the program is compiled."""
    start = network().get_weights()
    whole = stepped(optimizer, jit_compile=jit_compile)
    scaled = stepped(optimizer, {"body": 0.25}, jit_compile=jit_compile)
    for number, (x0, x, found) in enumerate(zip(start, whole, scaled, strict=True)):
        factor = 0.25 if number < 2 else 1.0
        np.testing.assert_allclose(found, x0 + factor * (x - x0), rtol=1e-5, atol=1e-7)


@pytest.mark.eager
@pytest.mark.parametrize("method", ["bgd", "clser", "si", "ewc"])
def test_the_update_is_scaled_where_a_method_has_a_state_of_its_own(method):
    def learned(**options):
        memory = {"memory": 4} if method == "clser" else {}
        made = nccl_tf.create(method, network(), nccl_tf.stream_from_arrays(
            (INPUTS, LABELS), (INPUTS, LABELS), num_tasks=1), **memory, **options)  # fmt: skip
        made.compile(keras.optimizers.SGD(0.5))
        made.fit(INPUTS, LABELS, batch_size=12, shuffle=False, verbose=0)
        return made

    start, whole, scaled = network().get_weights(), learned(), learned(rates={"body": 0.25})

    def check(found):
        for number, (x0, (x, y)) in enumerate(zip(start, zip(*found, strict=True), strict=True)):
            factor = 0.25 if number < 2 else 1.0
            np.testing.assert_allclose(y, x0 + factor * (x - x0), rtol=1e-5, atol=1e-7)

    check([made.network.get_weights() for made in (whole, scaled)])
    if method == "clser":  # Its averages are those of the weights that the step left.
        check([[v.numpy() for v in made.plastic.variables] for made in (whole, scaled)])
    if method == "bgd":  # The deviations follow the gradient, and have no rate.
        for one, other in zip(whole.sigmas, scaled.sigmas, strict=True):
            np.testing.assert_array_equal(one, other)


@pytest.mark.eager
def test_the_longest_name_counts_and_zero_leaves_a_weight_as_it_is():
    rates = {"body": 0.5, "body/bias": 0.0}
    start, whole = network().get_weights(), stepped(lambda: keras.optimizers.SGD(0.5))
    found = stepped(lambda: keras.optimizers.SGD(0.5), rates)
    np.testing.assert_allclose(found[0], (start[0] + whole[0]) / 2, rtol=1e-5)
    np.testing.assert_array_equal(found[1], start[1])
    np.testing.assert_array_equal(found[2], whole[2])


@pytest.mark.eager
def test_a_model_in_the_network_is_a_layer_and_what_is_within_it_comes_first():
    """Its weights have paths without its name."""
    keras.utils.set_random_seed(0)
    inputs = keras.Input((3,))
    hidden = keras.layers.Dense(4, "tanh", name="a_dense_layer_with_a_long_name")(inputs)
    backbone = keras.Model(inputs, keras.layers.Dense(4, name="last")(hidden), name="backbone")
    inputs = keras.Input((3,))
    outputs = keras.layers.Dense(2, name="top")(backbone(inputs))
    found = []
    for rates in (None, {"backbone": 0.0, "last": 0.5}):
        model = keras.models.clone_model(keras.Model(inputs, outputs))
        model.set_weights(keras.Model(inputs, outputs).get_weights())
        assert not any("backbone" in v.path for v in model.trainable_variables)
        learner = nccl_tf.Finetune(model, rates=rates)
        learner.compile(keras.optimizers.SGD(0.5))
        start = model.get_weights()
        learner.fit(INPUTS, LABELS, batch_size=12, shuffle=False, verbose=0)
        found.append(model.get_weights())
    for number, (x0, x, y) in enumerate(zip(start, *found, strict=True)):
        factor = (0.0, 0.0, 0.5, 0.5, 1.0, 1.0)[number]
        np.testing.assert_allclose(y, x0 + factor * (x - x0), rtol=1e-5, atol=1e-7)


@pytest.mark.eager
def test_a_file_and_a_record_have_them(tmp_path):
    learner = nccl_tf.Finetune(network(), rates={"body": 0.5})
    learner.compile("sgd")
    learner.save(tmp_path / "rates.keras")
    assert nccl_tf.load_model(tmp_path / "rates.keras").get_config()["rates"] == {"body": 0.5}
    stream = nccl_tf.stream_from_arrays((INPUTS, LABELS), (INPUTS, LABELS), num_tasks=2)
    settings = nccl_tf.learn(learner, stream, verbose=0).run.settings
    assert settings.rates == ("body:0.5",)


@pytest.mark.parametrize(
    ("rates", "said"),
    [
        ({}, "expected factors"),
        (0.5, "expected factors"),
        ({"body": -1}, "finite factor"),
        ({"body": "slow"}, "finite factor"),
        ({"head": 0.1}, "'head', which fits no trainable weight"),
    ],
)
def test_rates_without_a_meaning_are_refused(rates, said):
    with pytest.raises(nccl_tf.UserError, match=said):
        nccl_tf.Finetune(network(), rates=rates)
    with pytest.raises(nccl_tf.UserError, match="without a gradient step"):
        nccl_tf.NCM(network(), rates={"top": 0.1})


def test_averages_that_an_optimizer_takes_itself_are_refused():
    learner = nccl_tf.Finetune(network(), rates={"body": 0.25})
    with pytest.raises(nccl_tf.UserError, match="use_ema"):
        learner.compile(keras.optimizers.SGD(0.5, use_ema=True))
