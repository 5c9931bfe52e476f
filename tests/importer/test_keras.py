"""`polybench import` of Keras models: plain programs are proven, and what has no layer is refused by its name."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent
from typing import Any

import numpy as np
import pytest

import polybench
from polybench.engines.reference import network as reference
from polybench.errors import BadInput, ConfigurationFailed
from polybench.importer import translate_model
from polybench.importer.proof import canonical_weights
from polybench.networks import find_model
from polybench.networks.layers import AveragePool, Conv, MaxPool
from polybench.planning.study_file import read_network
from tests.commands import printed, printed_json, refused
from tests.lazy import Lazy, needs

keras_graph: Any = Lazy("polybench.importer.keras_graph", "tensorflow")
pytestmark = needs("tensorflow", "keras")


def program(folder: Path, body: str) -> Path:
    """Write a file whose `model` has these lines."""
    file = folder / "model.py"
    file.write_text("import keras\nfrom keras import layers\n\n" + dedent(body), "utf-8")
    return file


@pytest.mark.parametrize("network", ["lenet", "resnet32", "dlframeworks-cnn", "imdb-bilstm"])
def test_every_plain_program_is_proven_and_is_its_network(network: str, tmp_path: Path) -> None:
    model, net = find_model(network), tmp_path / "net.toml"
    printed("export", network, "--framework", "keras", "-o", tmp_path / "plain.py")
    document = printed_json("import", f"{tmp_path / 'plain.py'}:network", "-o", net, "--format", "json")
    assert document["proof"]["failure"] is None
    imported = read_network(net)
    assert imported.parameters() == model.parameters()
    assert [type(layer) for layer, _ in imported.activations()] == [type(layer) for layer, _ in model.activations()]
    with np.load(net.with_suffix(".npz")) as weights:
        assert {name: weights[name].shape for name in weights} == imported.tensor_shapes()


_FUNCTIONAL = """
image = keras.Input((18, 18, 3))
x = layers.Conv2D(8, 3, strides=2, padding="same", use_bias=False)(image)
x = layers.ReLU(max_value=6)(layers.BatchNormalization(momentum=0.99, epsilon=1e-3)(x))
y = layers.DepthwiseConv2D(3, padding="same")(layers.GroupNormalization(2)(x))
x = layers.add([x, layers.Activation("silu")(y)])
x = layers.ZeroPadding2D(1)(x)
x = layers.Conv2D(8, 3, strides=2)(x)
x = layers.AveragePooling2D(2)(x)
x = layers.Flatten()(x)
x = layers.Dropout(0.2)(x)
model = keras.Model(image, layers.Dense(5, activation="softmax")(x))
"""

_TRANSFORMER = """
image = keras.Input((16, 16, 3))
x = layers.Reshape((-1, 12))(layers.Conv2D(12, 4, 4)(image))
y = layers.LayerNormalization(epsilon=1e-5)(x)
x = x + layers.MultiHeadAttention(3, 4)(y, y)
x = layers.GlobalAveragePooling1D()(x)
model = keras.Model(image, layers.Dense(5)(x))
"""

_NESTED = """
body = keras.Sequential([keras.Input((12, 12, 3)), layers.Conv2D(4, 3, activation="relu"), layers.MaxPooling2D(2)])
model = keras.Sequential([keras.Input((12, 12, 3)), body, layers.GlobalAveragePooling2D(), layers.Dense(5)])
"""


@pytest.mark.parametrize(
    ("body", "types"),
    [
        (_FUNCTIONAL, {"relu6", "batch_norm", "group_norm", "silu", "residual", "average_pool", "flatten", "dropout"}),
        (_TRANSFORMER, {"patches", "layer_norm", "attention", "residual", "mean_over_time"}),
        (_NESTED, {"conv", "relu", "max_pool", "global_average_pool", "dense"}),
    ],
    ids=["functional", "transformer", "nested"],
)
def test_functional_models_are_recognized(body: str, types: set[str], tmp_path: Path) -> None:
    import keras
    from keras import layers

    namespace = {"keras": keras, "layers": layers}
    exec(body, namespace)
    document, _ = translate_model(namespace["model"], None, tmp_path, None, "model")
    assert document.proof.failure is None
    assert types <= {layer.type for layer in document.layers}


def sequential(layer: str) -> str:
    return f"""
model = keras.Sequential([
    keras.Input((16, 16, 3)), layers.Conv2D(4, 3, name="first"), {layer}, layers.Flatten(), layers.Dense(5)
])
"""


def functional(model: str) -> str:
    return f"""
image = keras.Input((8, 8, 3), name="image")
x = layers.Flatten(name="flat")(layers.Conv2D(4, 3)(image))
logits = layers.Dense(5, name="logits")(x)
model = {model}
"""


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (sequential("layers.LeakyReLU(name='leaky')"), "layer leaky: LeakyReLU: no layer computes this"),
        (
            sequential("layers.Conv2D(4, 3, activation='tanh', name='c')"),
            "layer c: Conv2D: activation=keras.src.activations.activations.tanh",
        ),
        (sequential("layers.Conv2D(4, (3, 1), name='c')"), "layer c: Conv2D: kernel_size (3, 1)"),
        (
            sequential("layers.BatchNormalization(scale=False, name='b')"),
            "layer b: BatchNormalization: scale=False: expected True",
        ),
        (sequential("layers.Softmax(name='s')"), "layer s: Softmax: a softmax before the end"),
        (
            sequential("layers.Conv2D(4, 3, trainable=False, name='c')"),
            "layer c: Conv2D: trainable=False: expected True",
        ),
        (
            "model = keras.Sequential([keras.Input((113,)), layers.Dense(5)], name='net')",
            "net: the input has 113 numbers, which polybench takes for tokens: expected an embedding first, or features"
            " of shape (1, 113), --input 1x113, and a flatten layer",
        ),
        (
            functional("keras.Model(image, [logits, x], name='net')"),
            "net: 2 outputs, logits, flat: expected one, the logits, because a network has one loss",
        ),
        (
            functional("keras.Model(image, {'a': logits, 'b': logits}, name='net')"),
            "net: 2 outputs, logits, logits: exp",
        ),
        (
            functional("keras.Model(image, keras.Model(image, [logits, logits, x], name='inner')(image)[0])"),
            "inner: a model in the model: 3 outputs, logits, logits, flat: expected one",
        ),
        (
            functional("keras.Model([image, keras.Input((2,), name='depth')], logits, name='net')"),
            "net: 2 inputs, image, depth: expected one",
        ),
        ("model = keras.Sequential([layers.Dense(5)])", "expected a functional or sequential Keras model"),
        ("model = keras.Sequential([keras.Input((None, 8, 3)), layers.Flatten()])", "expected fixed numbers"),
    ],
)
def test_what_has_no_layer_is_refused_by_its_name(body: str, message: str) -> None:
    import keras
    from keras import layers

    namespace = {"keras": keras, "layers": layers}
    exec(dedent(body), namespace)
    with pytest.raises(BadInput) as error:
        polybench.import_model(namespace["model"])
    assert message in str(error.value)


@pytest.mark.wide  # starts TensorFlow; test_torch.py has the same end of a process
def test_a_refused_model_writes_nothing(tmp_path: Path) -> None:
    file, net = (
        program(tmp_path, sequential("layers.Conv2D(4, 3, kernel_regularizer='l2', name='c')")),
        tmp_path / "net.toml",
    )
    message = refused("import", f"{file}:model", "-o", net)
    assert message == "layer c: Conv2D: kernel_regularizer=L2(l2=0.01): expected None"
    assert not list(tmp_path.glob("*net*"))


_END = ((0, 1), (0, 1))
_CORNER = ("ZeroPadding2D", ((0, 1), (2, 0)))


@pytest.mark.parametrize(
    ("parts", "size", "padding"),
    [
        ([("Conv2D", 8, 3, 2, "same")], (32, 32), [_END]),
        ([("Conv2D", 8, 3, 2, "same")], (32, 33), [((0, 1), (1, 1))]),
        ([("Conv2D", 8, 3, 2, "same")], (33, 33), [1]),
        ([("DepthwiseConv2D", 4, 1, "same")], (9, 9), [((1, 2), (1, 2))]),
        ([_CORNER, ("Conv2D", 8, 3, 2, "same")], (32, 32), [((1, 2), (2, 1))]),
        ([("ZeroPadding2D", 1), _CORNER, ("Conv2D", 8, 3)], (9, 9), [((1, 2), (3, 1))]),
        ([("MaxPooling2D", 3, 2, "same"), ("AveragePooling2D", 3, 2, "same")], (32, 32), [_END, _END]),
        ([("ReLU",), ("ZeroPadding2D", 1), ("MaxPooling2D", 3, 2)], (9, 9), [1]),
        ([_CORNER, ("AveragePooling2D", 3)], (9, 9), [((0, 1), (2, 0))]),
    ],
)
def test_padding_is_that_of_keras(parts: list[Any], size: tuple[int, int], padding: list[Any]) -> None:
    model = with_parts(parts, size)
    translation, _ = keras_graph.translate(model)
    padded = [layer for layer in translation.model.layers[1:] if isinstance(layer, Conv | MaxPool | AveragePool)]
    assert [layer.padding for layer in padded] == padding
    x = np.random.default_rng(0).normal(size=(2, *size, 3))
    weights = canonical_weights(translation, {one.path: np.asarray(one, "f8") for one in model.variables})
    expected = reference.logits(translation.model, weights, x.transpose(0, 3, 1, 2))
    np.testing.assert_allclose(np.asarray(model(x.astype("f4"))), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ([_CORNER, ("MaxPooling2D", 3, 2)], "pads with 0: expected -inf or, after a ReLU, 0 before"),
        ([_CORNER, ("AveragePooling2D", 3, 2, "same")], 'padding "same" after ZeroPadding2D: expected one of'),
        ([_CORNER, ("ReLU",)], "padding is only supported right before a convolution or pool"),
        ([("ReLU",), _CORNER, ("MaxPooling2D", 2)], "MaxPooling2D: .*padding .* has windows without pixels"),
    ],
)
def test_padding_without_a_record_is_refused(parts: list[Any], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        keras_graph.translate(with_parts(parts, (9, 9)))


def with_parts(parts: list[Any], size: tuple[int, int]) -> Any:
    """Make a model with these layers between a convolution and the head."""
    import keras
    from keras import layers

    made = [getattr(layers, kind)(*arguments) for kind, *arguments in parts]
    head = [layers.GlobalAveragePooling2D(), layers.Dense(5)]
    return keras.Sequential([keras.Input((*size, 3)), layers.Conv2D(4, 1), *made, *head])


def small_model(*, training: bool | None = None, softmax: bool = False, compiled: Any = None, **arguments: Any) -> Any:
    """Build a model whose convolution has further arguments, and compile it with these arguments, if any."""
    import keras
    from keras import layers

    keras.utils.set_random_seed(0)
    image = keras.Input((9, 9, 3))
    x = layers.BatchNormalization()(layers.Conv2D(4, 3, activation="relu", **arguments)(image))
    x = layers.Flatten()(layers.Dropout(0.5)(x, training=training))
    model = keras.Model(image, layers.Dense(5, activation="softmax" if softmax else None)(x))
    if compiled:
        model.compile("adam", **compiled)
    return model


_NAMED = "regularizer=|constraint="

_SMOOTHED = {"class_name": "CategoricalCrossentropy", "config": {"label_smoothing": 0.1}}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"training": True}, "Dropout: called with training=True: expected False"),
        ({"compiled": {"loss": "sparse_categorical_crossentropy"}}, "from_logits=False: expected True"),
        ({"softmax": True, "compiled": {"loss": _SMOOTHED}}, "label_smoothing=0.1: expected 0.0"),
        ({"softmax": True, "compiled": {"loss": "categorical_crossentropy", "loss_weights": [2.0]}}, "weights=.2.0."),
        ({"compiled": {"loss": "mse"}}, "loss=mse: expected SparseCategoricalCrossentropy"),
        ({"kernel_regularizer": "l2"}, _NAMED),
        ({"bias_regularizer": "l1", "bias_initializer": "ones"}, _NAMED),
        ({"activity_regularizer": "l2"}, _NAMED),
        ({"kernel_constraint": "unit_norm"}, _NAMED),
        ({"kernel_initializer": "zeros", "kernel_constraint": "unit_norm"}, _NAMED),
    ],
    ids=str,
)
def test_a_training_step_that_differs_is_never_the_same(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises((BadInput, ConfigurationFailed), match=message):
        polybench.import_model(small_model(**arguments))


@pytest.mark.parametrize(
    ("softmax", "loss"),
    [
        (True, "categorical_crossentropy"),
        (True, "sparse_categorical_crossentropy"),
        (False, {"class_name": "SparseCategoricalCrossentropy", "config": {"from_logits": True}}),
    ],
)
def test_a_model_compiled_with_the_cross_entropy_is_proven(softmax: bool, loss: Any) -> None:
    import keras

    model = small_model(softmax=softmax, compiled={"loss": loss, "metrics": ["accuracy"]})
    assert polybench.import_model(model).classes == 5
    assert model.compiled
    assert keras.config.floatx() == "float32"


def test_a_model_with_one_output_in_a_dictionary_is_proven() -> None:
    import keras
    from keras import layers

    image = keras.Input((9, 9, 3))
    x = layers.GlobalAveragePooling2D()(layers.Conv2D(4, 3)(image))
    assert polybench.import_model(keras.Model(image, {"logits": layers.Dense(5)(x)})).classes == 5


def test_a_live_model_is_a_network_and_is_not_changed() -> None:
    import keras
    from keras import layers

    inputs = keras.Input((9, 9, 3))
    x = layers.GlobalAveragePooling2D()(layers.Conv2D(4, 3, activation="relu")(inputs))
    model = keras.Model(inputs, layers.Dense(5, activation="softmax")(x))
    before = model.get_weights()
    network = polybench.import_model(model)
    assert (network.input_shape, network.classes) == ((3, 9, 9), 5)
    assert all(np.array_equal(a, b) for a, b in zip(before, model.get_weights(), strict=True))
    assert keras.config.floatx() == "float32"
