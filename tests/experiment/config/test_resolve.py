"""Settings: defaults by data set and method, checks, and a hash of what determines results."""

import pytest
from hypothesis import given as hypothesis_given
from hypothesis import strategies as st

from nccl_tf.errors import UserError
from nccl_tf.experiment.config.resolve import resolve
from nccl_tf.experiment.run.build import build_learner, build_stream, task_learning_rates
from nccl_tf.records.options import check_options, resolve_options
from nccl_tf.records.settings import Settings, settings_digest


def settings(**given):
    return resolve(given)


def test_defaults_are_those_of_the_main_job():
    s = settings()
    assert (s.method, s.dataset, s.head) == ("nccl_ring", "permuted_digits", "single")
    assert (s.num_tasks, s.tuning_tasks, s.max_tasks) == (10, 0, 10)
    assert (s.network, s.hidden, s.conv_init, s.mask) == ("mlp", (256, 256), None, None)
    assert (s.memory, s.memory_slots, s.memory_batch_size, s.reservoir) == ("ring", 5, 10, None)
    assert s.learning_rate == s.first_task_learning_rate == 0.1
    assert dict(s.hyperparameters)["smoothness"] == 1.0


@pytest.mark.parametrize(
    ("method", "dataset", "rate"),
    [
        ("nccl_ring", "permuted_mnist", 0.1),
        ("nccl_ring", "split_cifar100", 0.001),
        ("nccl_reservoir", "split_mini_imagenet", 0.003),
        ("er_reservoir", "split_cifar10", 0.1),
        ("agem", "split_cifar100", 0.03),
    ],
)
def test_learning_rate_by_method_and_data_set(method, dataset, rate):
    assert settings(method=method, dataset=dataset).learning_rate == rate


@pytest.mark.parametrize(
    ("dataset", "per_class", "capacity"),
    [("split_cifar100", 5, 425), ("permuted_mnist", 5, 1000), ("split_mnist", 3, 30)],
)
def test_reservoir_capacity(dataset, per_class, capacity):
    s = settings(method="er_reservoir", dataset=dataset, memory_per_class=per_class, max_tasks=2)
    assert s.memory_capacity == capacity
    assert s.memory_slots is None


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"method": "nccl_rong"}, "nccl_ring"),
        ({"head": "multi"}, "permuted"),
        ({"head": "both"}, "--?head|head 'both'"),
        ({"network": "vgg"}, "resnet18"),
        ({"precision": "float16"}, "mixed_bfloat16"),
        ({"distribute": "horovod"}, "mirrored"),
        (
            {"distribute": "mirrored", "method": "ewc"},
            "expected one of finetune, cumulative, er_ring",
        ),
        ({"distribute": "mirrored", "precision": "mixed_float16"}, "one device only"),
        ({"schedule": "linear"}, "inverse_sqrt"),
        ({"schedule": "cosine", "method": "gdumb"}, "a schedule of its own"),
        ({"schedule": "cosine", "method": "stable_sgd"}, "rate_decay"),
        ({"optimizer": "adamm"}, "did you mean 'adam'"),
        ({"optimizer": "adam", "method": "slda"}, "slda, which learns without a gradient step"),
        ({"optimizer": "adam", "method": "stable_sgd"}, "recipe is of SGD with --momentum"),
        (
            {"optimizer_arguments": ("momentum:0.9",), "method": "stable_sgd"},
            "take --momentum=0.9",
        ),
        ({"optimizer_arguments": ("momentum:0.9",), "method": "slda"}, "no use for an optimizer"),
        ({"rates": ("hidden1:0.1",), "method": "slda"}, "no use for a rate"),
        ({"rates": ("hidden1",)}, "a finite factor from 0"),
        ({"augment": ("turn",), "dataset": "split_digits"}, "flip, crop"),
        ({"augment": ("flip",)}, "pixels are permuted"),
        ({"augment": ("flip",), "dataset": "split_digits", "method": "slda"}, "as it is"),
        ({"augment": ("flip",), "dataset": "split_digits", "batch_norm": "frozen"}, "frozen"),
        ({"learning_rate": 1.0}, "alpha L below 1"),
        ({"learning_rate": float("nan")}, "finite"),
        ({"memory_batch_size": 501}, "capacity of 500"),
        ({"memory": 99}, "no slot"),
        ({"memory": 200, "memory_per_class": 2}, "one of them"),
        ({"dataset": "split_digits", "num_tasks": 3}, "1, 2, 5, 10"),
        ({"tuning_tasks": 10}, "no task to evaluate"),
        ({"max_tasks": 11}, "at most the 10"),
        ({"hidden": (256, 0)}, "hidden=256,0"),
        ({"hidden": (1,) * 1001}, "received 1001 layers, expected at most 1000"),
        ({"method": "er_ring", "beta_max": 0.1}, "nccl_ring, nccl_reservoir"),
        ({"method": "finetune", "memory_per_class": 5}, "no memory"),
        ({"reservoir": "exact"}, "no reservoir"),
        ({"mask": "own"}, "multi-head"),
        (
            {"conv_init": "he"},
            "--conv_init=he has no effect here.*mlp is no ResNet-18; leave it out",
        ),
        ({"dataset": "split_cifar10", "hidden": (8,)}, "only the mlp"),
        ({"replay_labels": 0.0}, "leave no memory loss"),
        ({"dark": 1.0, "method": "finetune"}, "finetune, which draws no memory batch"),
        ({"stream_mask": "seen", "method": "gdumb"}, "gdumb, which takes no step on the stream"),
        (
            {"stream_mask": "present", "dataset": "split_digits"},
            "--head=multi: a head is its mask already",
        ),
        (
            {"stream_mask": "present", "dataset": "split_digits", "head": "single"},
            "nccl_ring, whose ring memory reads nothing of the open task",
        ),
        (
            {"stream_mask": "present", "dataset": "split_mnist", "head": "single", "method": "mir"},
            "mir, whose past_reservoir memory reads nothing of the open task",
        ),
        (
            {"alignment": "class", "dataset": "split_digits"},
            "--head=multi: an alignment trains one head",
        ),
        ({"alignment": "shared", "method": "slda"}, "slda, which takes a class by statistics"),
        ({"alignment": "shared", "average_weights": 0.9}, "is no average"),
        ({"replay_labels": 0.5, "method": "mc_sgd"}, "mc_sgd, which reads its memory"),
        ({"stores": "every_epoch"}, "stores"),
        ({"stores": "every_epoch", "epochs": 2, "method": "finetune"}, "stores"),
    ],
)
def test_impossible_settings(given, said):
    with pytest.raises(UserError, match=said):
        resolve(given)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"seeds": (0, 0)}, "seeds=0,0"),
        ({"seeds": (-1,)}, "seeds=-1"),
        ({"record_every": 0}, "record_every"),
        ({"steps_per_execution": 0}, "steps_per_execution"),
        ({"jit_compile": "on"}, "choose one of auto, true, false"),
    ],
)
def test_impossible_options(given, said):
    with pytest.raises(UserError, match=said):
        resolve_options(given)


@pytest.mark.parametrize(
    "given", [{"distribute": "mirrored"}, {"augment": ("flip",), "dataset": "split_digits"}]
)
def test_what_xla_cannot_compile_is_refused_where_it_is_asked_for(given):
    check_options(settings(**given), resolve_options({}))
    asked = resolve_options({"jit_compile": "true"})
    with pytest.raises(UserError, match=f"--jit_compile=true with --{next(iter(given))}="):
        check_options(settings(**given), asked)


def test_options_that_are_not_used_leave_settings_as_they_were():
    told = settings(dark=0.0, replay_labels=1.0, stream_mask="all")
    assert told.digest() == settings().digest() and told.as_json() == settings().as_json()
    assert {told.as_json()[name] for name in ("dark", "replay_labels", "stream_mask")} == {None}
    used = settings(dark=0.5, replay_labels=0.0)
    assert (used.as_json()["dark"], used.as_json()["replay_labels"]) == (0.5, 0.0)


def test_a_later_setting_or_hyperparameter_leaves_the_hash_as_it_was():
    """A record from before lacks it; with another value than the default it is another run."""
    now = settings()
    numbers = dict(now.hyperparameters)
    del numbers["grad_scope"]
    before = {name: value for name, value in now.as_json().items() if name != "angles"}
    assert settings_digest({**before, "hyperparameters": numbers}) == now.digest()
    other = {**numbers, "grad_scope": "layer"}
    assert settings_digest({**before, "hyperparameters": other}) != now.digest()


def test_settings_without_stores_are_of_runs_that_stored_every_epoch():
    """As records have them of before there was a choice; of one epoch there is none."""
    given = {"method": "er_reservoir", "dataset": "split_digits", "max_tasks": 1}
    assert settings(**given).stores is None
    now, before = settings(**given, epochs=2), settings(**given, epochs=2, stores="every_epoch")
    recorded = {name: value for name, value in before.as_json().items() if name != "stores"}
    assert (now.stores, before.stores) == ("first_epoch", None)
    assert settings_digest(recorded) == before.digest() != now.digest()
    stream = build_stream(now, resolve_options({}), 0)
    for told, stores in ((now, "first_epoch"), (Settings(**recorded), "every_epoch")):
        assert build_learner(told, stream, 0).stores == stores


def test_what_keeps_a_sample_of_a_task_stores_too():
    stored = {
        name: settings(method=name, epochs=2).stores for name in ("mas", "ncm", "cn_dpm", "lwf")
    }
    assert stored == {"mas": "first_epoch", "ncm": "first_epoch", "cn_dpm": None, "lwf": None}


@pytest.mark.parametrize(
    ("dataset", "batch", "rate", "numbers"),
    [
        ("permuted_mnist", 64, 0.1, {"rate_decay": 0.8, "momentum": 0.8, "dropout": 0.25}),
        ("split_cifar100", 10, 0.15, {"rate_decay": 0.85, "momentum": 0.8, "dropout": 0.1}),
    ],
)
def test_stable_sgd_has_its_authors_recipe_of_the_data_set(dataset, batch, rate, numbers):
    told = settings(method="stable_sgd", dataset=dataset)
    assert (told.batch_size, told.learning_rate) == (batch, rate)
    assert told.hyperparameters == numbers
    assert settings(method="stable_sgd", dataset=dataset, batch_size=3, dropout=0.5).batch_size == 3


def test_the_usual_training_leaves_hashes_as_they_were_where_it_is_not_used():
    usual = settings(optimizer="sgd", optimizer_arguments=("momentum:0", "nesterov:false"))
    assert usual.as_json() == settings().as_json()
    told = settings(
        optimizer="adamw", optimizer_arguments=("weight_decay:0.01", "beta_1:0.8"),
        dataset="split_digits", augment=("crop", "flip"),
    ).as_json()  # fmt: skip
    assert told["optimizer_arguments"] == ["beta_1:0.8", "weight_decay:0.01"]
    assert (told["augment"], told["learning_rate"]) == (["flip", "crop"], 0.001)


def test_hash_ignores_what_does_not_determine_results():
    given = {
        "seeds": (3,), "output_dir": "x", "overwrite": True, "tensorboard": True, "data_dir": "y",
        "manual_dir": "z", "record_every": 7, "steps_per_execution": 9, "jit_compile": "true",
        "compile_cache": "off",
    }  # fmt: skip
    assert resolve(given).digest() == settings().digest()


@pytest.mark.parametrize(
    "given",
    [
        {"learning_rate": 0.2}, {"method": "er_ring"}, {"max_tasks": 2}, {"beta_max": 0.1},
        {"batch_size": 5}, {"precision": "mixed_bfloat16"}, {"memory_per_class": 4},
        {"schedule": "inverse_sqrt"}, {"hidden": (256,)},
        {"deterministic": True}, {"examples_per_task": 50}, {"dark": 0.5}, {"replay_labels": 0.5},
        {"stream_mask": "seen"}, {"average_weights": 0.99}, {"schedule": "cosine"},
        {"optimizer": "adam", "learning_rate": 0.1}, {"optimizer_arguments": ("momentum:0.9",)},
        {"rates": ("hidden1:0.1",)}, {"epochs": 2}, {"epochs": 2, "stores": "every_epoch"},
    ],
)  # fmt: skip
def test_hash_tells_different_settings_apart(given):
    assert resolve(given).digest() != settings().digest()


@hypothesis_given(st.floats(1e-4, 0.3), st.lists(st.integers(1, 5000), min_size=1, max_size=4))
def test_inverse_sqrt_keeps_rate_times_root_of_steps(rate, steps):
    s = settings(method="finetune", learning_rate=rate, schedule="inverse_sqrt")
    rates = task_learning_rates(s, steps)
    products = [r * n**0.5 for r, n in zip(rates, steps, strict=True)]
    assert products == pytest.approx([rate * 1000**0.5] * len(steps))


def test_a_schedule_that_breaks_alpha_l_is_refused():
    s = settings(learning_rate=0.5, schedule="inverse_sqrt")
    with pytest.raises(UserError, match="inverse_sqrt"):
        task_learning_rates(s, [100])


def test_a_data_set_by_name_is_known_by_name_and_content_wherever_it_lies(tmp_path):
    digests = []
    for place, values in (("one", "abab"), ("two", "abab"), ("three", "abcabc")):
        path = tmp_path / place / "my table.csv"
        path.parent.mkdir()
        path.write_text("x,kind of it\n" + "".join(f"{i},{v}\n" for i, v in enumerate(values)))
        told = settings(dataset=f"csv:{path}", label="kind of it", num_tasks=1)
        assert (told.dataset, told.label, told.kind) == ("csv:my_table.csv", "kind_of_it", "split")
        digests.append(told.digest())
    assert digests[0] == digests[1] != digests[2]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"dataset": "folder:/none", "num_tasks": 2}, "is no folder"),
        ({"dataset": "csv:/none.csv", "image_size": 4}, "a table has no images"),
        ({"dataset": "folder:/none", "label": "x"}, "no columns"),
        ({"kind": "split"}, "no data set by name"),
    ],
)
def test_flags_of_a_data_set_by_name(given, said):
    with pytest.raises(UserError, match=said):
        resolve(given)
