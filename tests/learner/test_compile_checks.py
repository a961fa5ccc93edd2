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
    ],
)
def test_another_form_is_named(arguments, said):
    model = nccl_tf.Finetune(tiny_network())
    with pytest.raises(UserError, match=said):
        model.compile(**arguments)
    model.compile(metrics=("accuracy",))
