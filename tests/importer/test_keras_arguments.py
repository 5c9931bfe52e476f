"""Every argument of Keras's layers, calls, models and losses is imported, has no effect, or is refused by its value."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from polybench.engines.job import NumericalConventions
from polybench.engines.reference.network import loss_and_gradients
from polybench.engines.shared.keras_layout import batch_to_keras
from polybench.errors import BadInput
from polybench.importer.proof import canonical_weights
from tests.lazy import Lazy

keras: Any = Lazy("keras", "tensorflow")
layers: Any = Lazy("keras.layers", "tensorflow")
ops: Any = Lazy("keras.ops", "tensorflow")
keras_graph: Any = Lazy("polybench.importer.keras_graph", "tensorflow")
models: Any = Lazy("tests.importer.keras_models", "tensorflow")

BATCH, RATE = 4, 0.1


def image(layer: Any, **call: Any) -> Any:
    """Build a model of images with this layer."""
    inputs = keras.Input((8, 8, 3))
    x = layers.Conv2D(4, 3, padding="same", name="before")(inputs)
    x = layers.Flatten()(layer(x, **call))
    return keras.Model(inputs, layers.Dense(5, name="after")(x))


def dense(layer: Any) -> Any:
    """Build a model with this layer after a flatten."""
    return keras.Sequential([keras.Input((4, 4, 3)), layers.Flatten(), layer, layers.Dense(5)])


def tokens(layer: Any) -> Any:
    """Build a model of tokens with this embedding."""
    return keras.Sequential([keras.Input((6,)), layer, layers.GlobalAveragePooling1D(), layers.Dense(5)])


def sequence(layer: Any, **call: Any) -> Any:
    """Build a model of sequences with this recurrent layer."""
    inputs = keras.Input((6, 4), batch_size=BATCH)
    return keras.Model(inputs, layers.Dense(5)(layer(inputs, **call)))


def attention(**arguments: Any) -> Any:
    """Build a model with self-attention."""
    call = {name: arguments.pop(name) for name in ("use_causal_mask",) if name in arguments}
    inputs = keras.Input((6, 4))
    x = layers.LayerNormalization()(inputs)
    x = layers.MultiHeadAttention(2, 2, **arguments)(x, x, **call)
    return keras.Model(inputs, layers.Dense(5)(x))


def conv(**arguments: Any) -> Any:
    return image(layers.Conv2D(4, 3, **arguments))


def relu(x: Any) -> Any:
    """Compute something else than its name says."""
    return ops.relu(x) * 2


def sigmoid(x: Any) -> Any:
    return ops.sigmoid(x) / 2


def nested(dtype: str = "float32", **call: Any) -> Any:
    """Build a model in a model."""
    inputs = keras.Input((8, 8, 3))
    body = keras.Sequential([keras.Input((8, 8, 3), dtype=dtype), layers.Conv2D(4, 3)], name="body")
    return keras.Model(inputs, layers.Dense(5)(layers.Flatten()(body(inputs, **call))))


def with_input(**arguments: Any) -> Any:
    return keras.Sequential([keras.Input((8, 8, 3), **arguments), layers.Flatten(), layers.Dense(5)])


def with_state() -> Any:
    inputs = keras.Input((6, 4))
    state = layers.Dense(4)(layers.Flatten()(inputs))
    return keras.Model(inputs, layers.Dense(5)(layers.LSTM(4)(inputs, initial_state=[state, state])))


def plus_one() -> Any:
    inputs = keras.Input((8, 8, 3))
    return keras.Model(inputs, layers.Dense(5)(layers.Flatten()(inputs + 1.0)))


def sum_of_three() -> Any:
    """Build a model that adds three values, of which Keras broadcasts the last one."""
    inputs = keras.Input((6,))
    one, two, three = (layers.Dense(size)(inputs) for size in (5, 5, 1))
    return keras.Model(inputs, layers.Add()([one, two, three]))


def functional_class() -> Any:
    return models.Net()


def own_step() -> Any:
    return models.OwnStep()


REFUSED: list[tuple[str, Callable[[], Any]]] = [
    ("Conv2D: kernel_regularizer=L2(l2=0.01): expected None", lambda: conv(kernel_regularizer="l2")),
    ("Conv2D: bias_regularizer=L1(l1=0.5)", lambda: conv(bias_regularizer=keras.regularizers.L1(0.5))),
    ("Conv2D: activity_regularizer=L2(l2=0.1)", lambda: conv(activity_regularizer=keras.regularizers.L2(0.1))),
    ("Conv2D: kernel_constraint=MaxNorm(max_value=", lambda: conv(kernel_constraint=keras.constraints.MaxNorm(0.1))),
    ("Conv2D: bias_constraint=NonNeg()", lambda: conv(bias_constraint="non_neg")),
    ("Conv2D: trainable=False: expected True", lambda: conv(trainable=False)),
    ("Conv2D: dtype=mixed_float16: expected float32 or", lambda: conv(dtype="mixed_float16")),
    ("Conv2D: activation=tests.importer.test_keras_arguments.relu: expected Keras's", lambda: conv(activation=relu)),
    ("Conv2D: activation=keras.src.ops.nn.gelu: expected", lambda: conv(activation=ops.gelu)),
    ("Conv2D: dilation_rate=(2, 2)", lambda: conv(dilation_rate=2)),
    ("Conv2D: data_format=channels_first: expected channels_last", lambda: conv(data_format="channels_first")),
    ("depthwise_regularizer=L2(l2=0.01)", lambda: image(layers.DepthwiseConv2D(3, depthwise_regularizer="l2"))),
    ("depthwise_constraint=UnitNorm(", lambda: image(layers.DepthwiseConv2D(3, depthwise_constraint="unit_norm"))),
    ("Dense: activity_regularizer=L2(l2=0.01)", lambda: dense(layers.Dense(4, activity_regularizer="l2"))),
    (
        "Dense: kernel_regularizer=OrthogonalRegul",
        lambda: dense(layers.Dense(4, kernel_regularizer="orthogonal_regularizer")),
    ),
    ("Dense: lora_rank=2", lambda: dense(layers.Dense(4, lora_rank=2))),
    ("Dense: dtype=int8_from_float32", lambda: dense(layers.Dense(4, dtype="int8_from_float32"))),
    ("gamma_regularizer=L2(l2=0.01)", lambda: image(layers.BatchNormalization(gamma_regularizer="l2"))),
    ("beta_constraint=NonNeg()", lambda: image(layers.BatchNormalization(beta_constraint="non_neg"))),
    ("BatchNormalization: renorm=True", lambda: image(layers.BatchNormalization(renorm=True))),
    ("BatchNormalization: synchronized=True", lambda: image(layers.BatchNormalization(synchronized=True))),
    ("BatchNormalization: center=False", lambda: image(layers.BatchNormalization(center=False))),
    ("BatchNormalization: axis=1", lambda: image(layers.BatchNormalization(axis=1))),
    ("BatchNormalization: called with training=True", lambda: image(layers.BatchNormalization(), training=True)),
    ("rms_scaling=True", lambda: image(layers.LayerNormalization(rms_scaling=True))),
    ("axis=[1, 3]: expected the last axis", lambda: image(layers.LayerNormalization(axis=[3, 1]))),
    ("beta_regularizer=L2(l2=0.01)", lambda: image(layers.LayerNormalization(beta_regularizer="l2"))),
    ("gamma_constraint=NonNeg()", lambda: image(layers.GroupNormalization(2, gamma_constraint="non_neg"))),
    ("ReLU: negative_slope=0.1: expected 0.0", lambda: image(layers.ReLU(negative_slope=0.1))),
    ("ReLU: max_value=5", lambda: image(layers.ReLU(max_value=5))),
    ("Dropout: noise_shape=(None, 1, 1, 4)", lambda: image(layers.Dropout(0.5, noise_shape=(None, 1, 1, 4)))),
    ("Dropout: called with training=True: expected False", lambda: image(layers.Dropout(0.5), training=True)),
    ("keepdims=True", lambda: image(layers.GlobalAveragePooling2D(keepdims=True))),
    ("Softmax: axis=1: expected -1", lambda: image(layers.Softmax(axis=1))),
    ("MaxPooling2D: data_format=channels_first", lambda: image(layers.MaxPooling2D(data_format="channels_first"))),
    ("embeddings_regularizer=L2(l2=0.01)", lambda: tokens(layers.Embedding(9, 4, embeddings_regularizer="l2"))),
    ("embeddings_constraint=UnitNorm(", lambda: tokens(layers.Embedding(9, 4, embeddings_constraint="unit_norm"))),
    ("Embedding: mask_zero=True", lambda: tokens(layers.Embedding(9, 4, mask_zero=True))),
    ("Embedding: lora_rank=2", lambda: tokens(layers.Embedding(9, 4, lora_rank=2))),
    ("recurrent_regularizer=L2(l2=0.01)", lambda: sequence(layers.LSTM(4, recurrent_regularizer="l2"))),
    ("recurrent_constraint=NonNeg()", lambda: sequence(layers.LSTM(4, recurrent_constraint="non_neg"))),
    ("LSTM: recurrent_dropout=0.2", lambda: sequence(layers.LSTM(4, recurrent_dropout=0.2))),
    ("LSTM: go_backwards=True", lambda: sequence(layers.LSTM(4, go_backwards=True))),
    ("LSTM: stateful=True", lambda: sequence(layers.LSTM(4, stateful=True))),
    ("LSTM: activation=relu: expected tanh", lambda: sequence(layers.LSTM(4, activation="relu"))),
    (
        "recurrent_activation=tests.importer.test_keras_arguments.sigmoid: expected sigmoid",
        lambda: sequence(layers.LSTM(4, recurrent_activation=sigmoid)),
    ),
    ("LSTM: use_bias=False", lambda: sequence(layers.LSTM(4, use_bias=False))),
    ("LSTM: called with initial_state=a value of the model: expected None", with_state),
    (
        "LSTM: called with mask=tf.Tensor( [[ True False True] [ True False True]], shape=(2, 3), dtype=bool):",
        lambda: sequence(layers.LSTM(4), mask=ops.convert_to_tensor([[True, False, True]] * 2)),
    ),
    ("merge_mode=sum: expected concat", lambda: sequence(layers.Bidirectional(layers.LSTM(4), merge_mode="sum"))),
    ("bias_regularizer=L2(l2=0.01)", lambda: sequence(layers.Bidirectional(layers.LSTM(4, bias_regularizer="l2")))),
    ("MultiHeadAttention: kernel_regularizer=L2(l2=0.01)", lambda: attention(kernel_regularizer="l2")),
    ("MultiHeadAttention: activity_regularizer=L2(l2=0.01)", lambda: attention(activity_regularizer="l2")),
    ("MultiHeadAttention: use_gate=True", lambda: attention(use_gate=True)),
    ("MultiHeadAttention: sliding_window=2", lambda: attention(sliding_window=2)),
    ("MultiHeadAttention: dropout=0.1", lambda: attention(dropout=0.1)),
    ("MultiHeadAttention: output_shape=(5,)", lambda: attention(output_shape=(5,))),
    ("MultiHeadAttention: called with use_causal_mask=True: expected False", lambda: attention(use_causal_mask=True)),
    ("body: Sequential: called with training=False: expected None", lambda: nested(training=False)),
    ("InputLayer: dtype=int32: expected float32", lambda: nested("int32")),
    ("InputLayer: dtype=float16: expected float32", lambda: with_input(dtype="float16")),
    ("InputLayer: sparse=True: expected None", lambda: with_input(sparse=True)),
    ("Add: called with x2=1.0: expected values that depend on the input", plus_one),
    ("Add: adds shapes (5,) and (1,): expected equal shapes", sum_of_three),
]

IMPORTED: dict[str, Callable[[], Any]] = {
    "kernel_initializer": lambda: conv(kernel_initializer="he_normal"),
    "bias_initializer": lambda: conv(bias_initializer="ones"),
    "padding": lambda: conv(padding="same"),
    "padding and strides": lambda: conv(padding="same", strides=2),
    "padding of an even kernel": lambda: image(layers.DepthwiseConv2D(4, padding="same")),
    "padding of a maximum": lambda: image(layers.MaxPooling2D(3, 2, "same")),
    "padding of an average": lambda: image(layers.AveragePooling2D(3, 2, "same")),
    "strides": lambda: conv(strides=2),
    "groups": lambda: conv(groups=2),
    "use_bias": lambda: conv(use_bias=False),
    "activation": lambda: conv(activation="gelu"),
    "name": lambda: conv(name="other"),
    "dtype": lambda: conv(dtype="float64"),
    "trainable": lambda: image(layers.ReLU(trainable=False)),
    "depth_multiplier": lambda: image(layers.DepthwiseConv2D(3, depth_multiplier=2)),
    "momentum": lambda: image(layers.BatchNormalization(momentum=0.7)),
    "epsilon": lambda: image(layers.GroupNormalization(2, epsilon=0.1)),
    "moving_variance_initializer": lambda: image(layers.BatchNormalization(moving_variance_initializer="zeros")),
    "center": lambda: sequence(layers.LayerNormalization(center=False)),
    "max_value": lambda: image(layers.ReLU(max_value=6)),
    "pool_size": lambda: image(layers.AveragePooling2D(3, strides=1)),
    "rate": lambda: image(layers.Dropout(0, seed=1)),
    "embeddings_initializer": lambda: tokens(layers.Embedding(9, 4, embeddings_initializer="ones")),
    "unroll": lambda: sequence(layers.LSTM(4, unroll=True)),
    "unit_forget_bias": lambda: sequence(layers.LSTM(4, unit_forget_bias=False)),
    "return_sequences": lambda: sequence(layers.Bidirectional(layers.LSTM(4, return_sequences=True))),
    "attention use_bias": lambda: attention(use_bias=False),
    "flash_attention": lambda: attention(flash_attention=False),
    "subclass": functional_class,
    "batch_size": lambda: with_input(batch_size=BATCH),
}


@pytest.mark.filterwarnings("ignore:You passed `rms_scaling:UserWarning")
@pytest.mark.parametrize(("message", "make"), REFUSED, ids=[message for message, _ in REFUSED])
def test_an_argument_that_no_layer_has_is_refused_by_name_and_value(message: str, make: Callable[[], Any]) -> None:
    with pytest.raises(BadInput) as error:
        keras_graph.translate(make())
    assert message in str(error.value)


def patched(which: int, method: str) -> Any:
    """Build a model, and replace a method of it or of a layer."""
    model = compiled(None)
    part = model if which < 0 else model.layers[which]
    setattr(part, method, lambda *_: None)
    return model


def of_kernel(attribute: str, value: Any) -> Any:
    """Build a model, and change its variable afterwards."""
    model = compiled(None)
    setattr(model.layers[-1].kernel, attribute, value)
    return model


def with_unused_weight() -> Any:
    model = models.Net()
    model.other = layers.Dense(4, name="other")
    model.other.build((None, 3))
    return model


def with_added_loss() -> Any:
    model = compiled(None)
    model.add_loss(ops.sum(model.layers[-1].kernel))
    return model


def called_twice() -> Any:
    body = keras.Sequential([keras.Input((8, 8, 3)), layers.Conv2D(3, 3, padding="same")], name="body")
    inputs = keras.Input((8, 8, 3))
    return keras.Model(inputs, layers.Dense(5)(layers.Flatten()(body(body(inputs)))))


@pytest.mark.parametrize(
    ("message", "make"),
    [
        ("Dropout: a class of your own: no layer computes", lambda: image(models.Dropout(0.5))),
        ("Doubling: a class of your own: no layer computes", lambda: image(models.Doubling())),
        ("Lambda: no layer computes", lambda: image(layers.Lambda(relu))),
        ("OwnStep: your own train_step: expected the training step of Keras", own_step),
        ("OwnLoss: your own compute_loss", lambda: models.OwnLoss([keras.Input((4,)), layers.Dense(5)])),
        (": OwnStep: your own train_step", lambda: keras.Sequential([keras.Input((8, 8, 3)), models.OwnStep()])),
        ("Sequential: your own train_step", lambda: patched(-1, "train_step")),
        ("Dense: your own call", lambda: patched(1, "call")),
        ("kernel: trainable=False: expected True", lambda: of_kernel("trainable", False)),
        ("kernel: regularizer=L2: expected None", lambda: of_kernel("regularizer", keras.regularizers.L2())),
        ("kernel: constraint=NonNeg: expected None", lambda: of_kernel("constraint", keras.constraints.NonNeg())),
        ("other/kernel: the output does not depend on this weight", with_unused_weight),
        ("add_loss: 1 losses: expected only the cross-entropy", with_added_loss),
        ("body: Sequential: the model calls it twice", called_twice),
    ],
)
def test_classes_and_methods_of_the_user_are_not_those_of_keras(message: str, make: Callable[[], Any]) -> None:
    with pytest.raises(BadInput) as error:
        keras_graph.translate(make())
    assert message in str(error.value)


def compiled(loss: Any, last: str | None = None, **options: Any) -> Any:
    model = keras.Sequential([keras.Input((8, 8, 3)), layers.Flatten(), layers.Dense(5, activation=last)])
    if loss is not None:
        model.compile("adam", loss, **options)
    return model


def cross_entropy(**options: Any) -> Any:
    return keras.losses.SparseCategoricalCrossentropy(from_logits=True, **options)


def smoothed(**options: Any) -> Any:
    return keras.losses.CategoricalCrossentropy(from_logits=True, **options)


@pytest.mark.parametrize(
    ("message", "make"),
    [
        ("compile: loss=mse: expected SparseCategoricalCrossentropy or", lambda: compiled("mse")),
        ("loss=CategoricalFocalCrossentropy", lambda: compiled(keras.losses.CategoricalFocalCrossentropy())),
        ("loss=tests.importer.test_keras_arguments.relu", lambda: compiled(relu)),
        ("from_logits=False: expected True", lambda: compiled("sparse_categorical_crossentropy")),
        ("from_logits=True: expected False", lambda: compiled(cross_entropy(), "softmax")),
        ("ignore_class=0: expected None", lambda: compiled(cross_entropy(ignore_class=0))),
        ("reduction=sum: expected sum_over_batch_size", lambda: compiled(cross_entropy(reduction="sum"))),
        ("label_smoothing=0.1: expected 0.0", lambda: compiled(smoothed(label_smoothing=0.1))),
        ("loss_weights=[2.0]: expected one loss", lambda: compiled(cross_entropy(), loss_weights=[2.0])),
    ],
)
def test_a_loss_other_than_the_mean_cross_entropy_is_refused(message: str, make: Callable[[], Any]) -> None:
    with pytest.raises(BadInput) as error:
        keras_graph.translate(make())
    assert message in str(error.value)


@pytest.mark.parametrize(
    "make",
    [
        lambda: compiled("sparse_categorical_crossentropy", "softmax"),
        lambda: compiled([cross_entropy()], loss_weights=[1.0], metrics=["accuracy"]),
        lambda: compiled(smoothed()),
    ],
)
def test_a_compiled_model_has_a_note_about_its_optimizer(make: Callable[[], Any]) -> None:
    notes = keras_graph.translate(make()).translation.notes
    assert "the optimizer of compile, Adam, is not imported: set it in the network file" in notes


def test_every_row_reads_arguments_that_its_class_has() -> None:
    for kind, row in keras_graph.LAYERS.items():
        parameters = inspect.signature(kind.__init__).parameters
        assert set(row.arguments) <= set(parameters), kind


@pytest.fixture(scope="module")
def in_float64() -> Iterator[None]:
    """Let Keras compute in float64."""
    keras.config.set_floatx("float64")
    keras.config.set_dtype_policy("float64")
    yield
    keras.config.set_floatx("float32")
    keras.config.set_dtype_policy("float32")


@pytest.mark.usefixtures("in_float64")
@pytest.mark.parametrize("make", IMPORTED.values(), ids=IMPORTED)
def test_an_imported_model_takes_the_training_step_of_the_original(make: Callable[[], Any]) -> None:
    model = make()
    translation = keras_graph.translate(model).translation
    network = translation.model

    def weights() -> dict[str, Any]:
        return dict(canonical_weights(translation, {one.path: np.array(one.numpy()) for one in model.variables}))

    before, random = weights(), np.random.default_rng(0)
    shape = (BATCH, *network.input_shape)
    inputs: Any = random.integers(9, size=shape) if network.vocabulary_size else random.random(shape)
    labels = random.integers(network.classes, size=(BATCH, *network.label_shape))
    conventions = NumericalConventions(running_variance="biased")
    expected = loss_and_gradients(network, before, inputs, labels, conventions, {})
    model.compile(keras.optimizers.SGD(RATE), cross_entropy(), run_eagerly=True)
    loss = model.train_on_batch(batch_to_keras(inputs), labels)
    assert loss == pytest.approx(expected.loss, abs=1e-6)
    after = weights()
    updated = {name: before[name] - RATE * gradient for name, gradient in expected.gradients.items()}
    for name, value in (updated | expected.state).items():
        np.testing.assert_allclose(after[name], value, atol=1e-6, err_msg=name)
