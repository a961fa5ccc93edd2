"""Each private name that the package uses, so that a release without one is told of here."""

import gc
import logging
import weakref

import keras
import numpy as np
import pytest
import tensorflow as tf

from nccl_tf import keras_private as private
from nccl_tf.learner.learner import Learner
from nccl_tf.methods.finetune import Finetune


def nested():
    inner = keras.Sequential([keras.Input((3,)), keras.layers.Dense(4, name="inner")], name="part")
    inputs = keras.Input((3,))
    return keras.Model(inputs, keras.layers.Dense(2, name="head")(inner(inputs)))


def test_the_kernel_under_adapters_is_the_one_before_them():
    layer = keras.layers.Dense(2)
    layer.build((None, 3))
    before = layer.kernel.numpy()
    layer.enable_lora(1)
    layer.lora_kernel_b.assign(np.ones((1, 2)))
    assert not np.array_equal(layer.kernel, before)
    assert np.array_equal(private.base_kernel(layer), before), (
        "_kernel is another: look for the variable that layer.kernel adds the adapters to"
    )


def test_layers_within_layers():
    model = nested()
    names = [layer.name for layer in private.layers_of(model)]
    assert {"inner", "head", "part"} <= set(names), (
        "Layer._flatten_layers is another: look for a public walk over the layers within a layer"
    )
    assert private.layers_of(model, include_self=True)[0] is model


def test_variables_of_a_layer_alone():
    layer = keras.layers.BatchNormalization()
    layer.build((None, 3))
    layer.trainable = False
    assert (
        len(private.own_trainable(layer)) == len(private.own_others(layer)) == 2
        and private.count_own_variables(layer) == 4
    ), (
        "Layer._trainable_variables or _non_trainable_variables is another: look for the variables "
        "that save_own_variables writes"
    )


def test_how_a_model_is_made_of_calls():
    model = nested()
    head, part = model.get_layer("head"), model.get_layer("part")
    (output,) = model.outputs
    said = "KerasTensor._keras_history or Operation._inbound_nodes is another: look for what made "
    said += "a symbolic tensor"
    assert private.maker(output) is head, said
    (between,) = private.made_from(output)
    assert private.maker(between) is part, said
    calls = [call.operation for call in private.calls_of(model)]
    said = "Function._nodes_by_depth is another: look for a public list of a model's calls in order"
    assert calls[-2:] == [part, head], said
    assert [call.operation for call in private.calls_on(part)][-1] is head, (
        "Operation._outbound_nodes is another: look for the layers that take another's output"
    )
    assert private.inputs_of_calls(head) == [[between]]
    assert private.is_called(part) and not private.is_called(model)
    chain = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    assert private.calls_of(chain)[-1].operation is chain.layers[0], (
        "Sequential._functional is another: look for the calls of a Sequential model"
    )
    private.set_shape(output, (None, 5))
    assert output.shape == (None, 5), "KerasTensor._shape is another: look for a way to set it"


def test_a_mask_on_a_tensor():
    made = keras.layers.Masking()(tf.zeros([1, 2, 3]))
    assert private.mask_of(made) is not None, (
        "_keras_mask is another: look for keras.src.backend.get_keras_mask"
    )
    assert private.mask_of(tf.zeros([1])) is None


def test_a_variable_of_another_shape():
    variable = keras.Variable(np.zeros(2, "float32"))
    before = private.held([variable])
    private.give_new_shape(variable, np.ones(3, "float32"))
    said = "Variable._initialize, _value or _shape is another: look for how Keras makes a variable"
    assert variable.shape == (3,) and variable.numpy().tolist() == [1, 1, 1], said
    private.put_back(before)
    assert variable.shape == (2,) and variable.numpy().tolist() == [0, 0], said


def test_an_optimizer_applies_what_each_replica_has():
    class Sums(keras.optimizers.SGD):
        summed = 0

        def _all_reduce_sum_gradients(self, pairs):
            type(self).summed += 1
            return super()._all_reduce_sum_gradients(pairs)

    strategy = tf.distribute.MirroredStrategy(["CPU:0"])
    with strategy.scope():
        variable, optimizer = keras.Variable(1.0), Sums(0.5)
        optimizer.build([variable])

    def apply():
        optimizer.apply_gradients([(tf.constant(1.0), variable)])

    strategy.run(apply)
    assert Sums.summed == 1 and float(variable.value.numpy()) == 0.5, (
        "Keras does not call _all_reduce_sum_gradients: look for where an optimizer sums gradients "
        "over replicas"
    )
    with private.without_sum(optimizer):
        strategy.run(apply)
    assert Sums.summed == 1 and float(variable.value.numpy()) == 0.0
    strategy.run(apply)
    assert Sums.summed == 2


def test_averages_of_an_optimizer():
    weight = keras.Variable(np.full(2, 3.0, "float32"))
    inner = keras.optimizers.SGD(0.0, use_ema=True)
    for optimizer in (inner, keras.optimizers.LossScaleOptimizer(inner)):
        optimizer.build([weight])
        optimizer.apply([keras.ops.zeros(2)], [weight])
        ((found, average),) = private.averages_of(optimizer)
        assert found is weight and np.array_equal(average.numpy(), weight.numpy()), (
            "Optimizer._model_variables_moving_average is another: look for the slots of use_ema"
        )
    assert private.averages_of(keras.optimizers.SGD(0.1)) == []


def test_what_an_optimizer_knows_of_variables():
    one, two = (keras.Variable(np.zeros(2, "float32")) for _ in range(2))
    optimizer = keras.optimizers.SGD(0.1, weight_decay=0.1)
    optimizer.exclude_from_weight_decay(var_list=[two])
    optimizer.build([one, two])
    assert private.trained_by(optimizer) == [one, two], (
        "Optimizer._trainable_variables is another: look for the variables of its build"
    )
    assert private.decays(optimizer, one) and not private.decays(optimizer, two), (
        "Optimizer._use_weight_decay is another: look for where exclude_from_weight_decay is asked"
    )
    before, key = private.keys_of(optimizer), private.key_of(optimizer, one)
    private.give_new_shape(one, np.ones(3, "float32"))
    said = (
        "Optimizer._var_key or _trainable_variables_indices is another: look for how an optimizer "
    )
    said += "finds the slots of a variable"
    with pytest.raises((KeyError, ValueError)):
        optimizer._get_variable_index(one)
    private.rename_keys(optimizer, {key: private.key_of(optimizer, one)})
    assert optimizer._get_variable_index(one) == 0, said
    private.put_keys_back(optimizer, before)
    assert private.keys_of(optimizer) == before, said


def test_a_model_that_fits():
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    x, y = np.ones((8, 2), "float32"), np.ones((8, 1), "float32")
    model.fit(x, y, verbose=0)
    assert private.loss_mean(model).name == "loss", (
        "Trainer._loss_tracker is another: look for the first of model.metrics"
    )
    model._initial_epoch = 3
    model.fit(x, y, epochs=4, verbose=0)
    assert model.history.epoch == [3] and private.epoch_of_backup(model) == 3, (
        "Trainer._initial_epoch is another: look for what BackupAndRestore sets"
    )
    private.forget_epoch_of_backup(model)
    assert private.epoch_of_backup(model) is None
    steps = private.function_of_steps(model, lambda data: {"sum": tf.reduce_sum(data)})
    batches = iter(tf.data.Dataset.from_tensors(tf.ones([3])).repeat())
    assert float(steps(batches)["sum"]) == 3, (
        "Trainer._make_function is another: look for what make_train_function calls"
    )


def test_keras_iterates_over_an_adapter_of_our_making():
    class Batches:
        count = 3

        def __iter__(self):
            return iter([(np.ones((2, 2)), np.ones((2, 1)))] * self.count)

    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    model.fit(private.adapter_of(Batches()), verbose=0)
    assert int(model.optimizer.iterations) == 3, (
        "data_adapters.get_data_adapter takes no DataAdapter: look for what fit iterates over"
    )


@pytest.mark.parametrize("name", ["_flatten_metrics_in_order", "_maybe_symbolic_build"])
def test_keras_has_what_a_learner_overrides(name):
    assert name in vars(Learner) and hasattr(keras.Model, name), (
        f"keras.Model.{name} is gone: look for what fit calls in its place"
    )


def test_validation_is_told_apart():
    asked = []

    class Asked(keras.Model):
        def evaluate(self, *args, **kwargs):
            asked.append(private.is_validation(kwargs))
            return super().evaluate(*args, **kwargs)

    inputs = keras.Input((2,))
    model = Asked(inputs, keras.layers.Dense(1)(inputs))
    model.compile("sgd", "mse")
    x, y = np.ones((8, 2), "float32"), np.ones((8, 1), "float32")
    model.fit(x, y, validation_data=(x, y), verbose=0)
    model.evaluate(x, y, verbose=0)
    assert asked == [True, False], (
        "evaluate(_use_cached_eval_dataset=) is another: look for how Trainer.fit calls evaluate"
    )


def test_what_a_metric_says_of_itself():
    accuracy = keras.metrics.SparseCategoricalAccuracy()
    said = "Metric._direction is another: look for how Keras Tuner learns whether more is better"
    assert (private.direction(accuracy), private.direction(keras.metrics.MeanSquaredError())) == (
        "up", "down",
    ), said  # fmt: skip
    private.set_direction(accuracy, None)
    assert private.direction(accuracy) is None
    assert private.function_of(accuracy) is keras.metrics.sparse_categorical_accuracy, (
        "MeanMetricWrapper._fn is another: look for its function in get_config"
    )
    binary = keras.metrics.BinaryAccuracy(threshold=0.25)
    assert private.arguments_of(binary) == {"threshold": 0.25}, (
        "MeanMetricWrapper._fn_kwargs is another: look for the threshold in get_config"
    )
    area = keras.metrics.AUC(from_logits=True)
    assert private.takes_logits(area) and not private.takes_logits(keras.metrics.AUC()), (
        "AUC._from_logits is another: look for it in get_config"
    )


def test_no_learner_warns_of_the_graphs_of_others(monkeypatch):
    from tensorflow.python.eager.polymorphic_function import polymorphic_function as functions

    class Told(logging.Handler):
        def emit(self, record):
            messages.append(record.getMessage())

    messages, told = [], Told()
    counter = functions._FrequentTracingDetectorManager()
    monkeypatch.setattr(functions, "_frequent_tracing_detector_manager", counter)
    monkeypatch.setattr(functions, "FREQUENT_TRACING_WARNING_THRESHOLD", 2)
    batches = tf.data.Dataset.range(3)
    tf.get_logger().addHandler(told)
    for _ in range(2):
        learner = Finetune(nested())
        learner.compile()
        steps = private.function_of_steps(learner, lambda number: {"loss": number})
        assert int(steps(iter(batches))["loss"]) == 0
        assert int(steps(range(1))["loss"]) == 0  # as train_on_batch calls it
        learner.make_test_function()
        learner.make_predict_function()
        for made in (learner.test_function, learner.predict_function):
            graphs = graphs_within(made)
            assert graphs and all(part._omit_frequent_tracing_warning for part in graphs)
    tf.get_logger().removeHandler(told)
    assert len(counter._detectors) == 2 and messages == []


def graphs_within(made):
    """Those of `tf.function` that a function is, or calls."""
    cells = [cell.cell_contents for cell in getattr(made, "__closure__", None) or ()]
    inner = [part for cell in cells if callable(cell) for part in graphs_within(cell)]
    return inner + ([made] if hasattr(made, "_omit_frequent_tracing_warning") else [])


def test_graphs_go_with_their_owner():
    quiet = private.graph(lambda: 1)
    assert quiet._omit_frequent_tracing_warning is True
    assert "_omit_frequent_tracing_warning" in vars(tf.function(lambda: 2)), (
        "TensorFlow does not look at _omit_frequent_tracing_warning: look for reduce_retracing"
    )
    functions = []

    @tf.function(autograph=False)
    def outer(x):
        functions.append(tf.compat.v1.get_default_graph())
        return tf.cond(x > 0, lambda: x + 1, lambda: x - 1)

    assert float(outer(tf.constant(1.0))) == 2
    inside = [part for graph in functions for part in private._parts_of(graph)]
    assert len(inside) >= 2, (
        "an operation has no _true_graph: look for where TensorFlow holds the graphs of a condition"
    )
    gone = weakref.ref(inside[0])
    del inside, outer
    private.dismantle(functions)
    gc.collect()
    assert functions == [] and gone() is None, (
        "dismantle_func_graph is another: look for it in tensorflow.python.framework"
    )


def test_operations_are_added_to_a_graph_as_they_are_in_another():
    @tf.function(autograph=False)
    def inner(x):
        return 2.0 * x

    outer = tf.function(lambda x: inner(x) + 1.0, autograph=False)
    graph = outer.get_concrete_function(tf.TensorSpec([], tf.float32)).graph
    calls = [op for op in graph.get_operations() if op.type.endswith("PartitionedCall")]
    name = calls[0].get_attr("f").name
    assert private.function_in(graph, name) is not None, (
        "Graph._get_function is another: look for a graph's functions by name"
    )
    (add,) = (op for op in graph.get_operations() if op.type == "AddV2")
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        inputs = [tf.constant(3.0), tf.constant(4.0)]
        made = private.add_operation(add, inputs, [tf.float32], dict(add.node_def.attr))
        assert session.run(made.outputs[0]) == 7, (
            "Graph._create_op_internal is another: look for what tf.raw_ops calls"
        )


def test_the_entries_that_a_given_mean_is_spread_over():
    told = []
    with private.before_normalization(told.append):
        layer = keras.layers.Normalization(axis=(1, 2), mean=0.5, variance=1.0)
        layer.build((None, 3, 4))
        keras.layers.Normalization().build((None, 5))  # of variables, which Keras tells of
    keras.layers.Normalization(mean=0.5, variance=1.0).build((None, 6))
    assert told == [12] and layer.mean.shape == (1, 3, 4), (
        "Normalization.build or input_mean is another: look for what spreads a given mean"
    )


def test_steps_in_a_call_of_validation():
    class Watched(keras.Model):
        def evaluate(self, *args, **kwargs):
            private.call_steps_of_validation(self, 1)
            return super().evaluate(*args, **kwargs)

    inputs, calls = keras.Input((1,)), []
    model = Watched(inputs, keras.layers.Dense(1)(inputs))
    model.compile("sgd", "mse", steps_per_execution=2)
    counts = keras.callbacks.LambdaCallback()
    counts.on_test_batch_begin = lambda batch, logs=None: calls.append(batch)
    data = np.ones((8, 1)), np.ones((8, 1))
    model.fit(
        *data, batch_size=1, verbose=0, validation_data=data, validation_steps=2,
        callbacks=[counts],
    )  # fmt: skip
    assert calls == [0, 1], (
        "Model._eval_epoch_iterator.steps_per_execution is another: look for the iterator that "
        "Trainer.fit makes of validation data"
    )
