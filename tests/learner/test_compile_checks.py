"""What `compile` receives in another form than its own is named, with the form that it takes."""

import keras
import pytest

import nccl_tf
from nccl_tf.errors import UserError
from tests.tiny import tiny_network


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"optimizer": None}, "received None as optimizer"),
        ({"optimizer": keras.optimizers.SGD}, "the class SGD as optimizer"),
        ({"metrics": "accuracy"}, "metrics='accuracy', expected a list"),
        ({"metrics": {"dense": "accuracy"}}, "expected a list"),
        ({"metrics": keras.metrics.SparseCategoricalAccuracy()}, "metrics=SparseCategorical"),
        ({"optimizer": "sdg"}, "'sdg' as optimizer"),
        ({"optimizer": {"learning_rate": 0.1}}, "'learning_rate': 0.1} as optimizer"),
        ({"metrics": ["acuracy"]}, "the metric 'acuracy'"),
        ({"metrics": [None]}, "the metric None"),
        ({"metrics": [["accuracy"]]}, r"the metric \['accuracy'\]"),
        ({"metrics": [{"accuracy": 1}]}, "the metric {"),
        ({"weighted_metrics": 0}, "expected a list"),
        ({"loss": "mean_square_error"}, "the loss 'mean_square_error'"),
        ({"loss": ["mse"]}, "the loss"),
        ({"run_eagerly": "False"}, "run_eagerly='False', expected True or False"),
        ({"run_eagerly": None}, "run_eagerly=None"),
        ({"auto_scale_loss": "False"}, "auto_scale_loss='False'"),
        ({"steps_per_execution": True}, "steps_per_execution=True"),
        ({"steps_per_execution": "auto"}, "steps_per_execution='auto'"),
        ({"steps_per_execution": 0}, "steps_per_execution=0"),
        ({"steps_per_execution": 2**31}, "steps_per_execution=2147483648"),
        ({"loss_weights": [1.0, 0.5]}, r"loss_weights=\[1.0, 0.5\], expected None"),
        ({"jit_compile": "True"}, "jit_compile='True', expected True, False"),
        ({"jit_compile": 1}, "jit_compile=1"),
        ({"classes": "rows"}, "form of classes 'rows'"),
    ],
)
def test_another_form_is_named(arguments, said):
    model = nccl_tf.Finetune(tiny_network())
    with pytest.raises(UserError, match=said):
        model.compile(**arguments)
    model.compile(metrics=("accuracy",))


def test_auto_is_what_none_is():
    found = {}
    for given in (None, "auto"):
        model = nccl_tf.Finetune(tiny_network())
        model.compile(jit_compile=given)
        found[given] = model.get_compile_config()["jit_compile"]
    assert found == {None: None, "auto": None}
