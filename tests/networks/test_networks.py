from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from polybench.errors import BadInput
from polybench.networks import MODEL_NAMES, MODELS, find_model
from polybench.networks.layers import Conv, Dense, Flatten, MaxPool, walk
from polybench.networks.model import Model


def kinds(model: Model) -> Counter[str]:
    return Counter(type(layer).__name__ for layer in walk(model.layers))


TWO_LOGITS = {"imdb-bilstm": 2_658_945 + 129, "imdb-fasttext": (20_000 + 2**20 + 1) * 50 + 1 + 51}
"""The author's count, plus a weight and a bias for the second logit. He does not print a number of bigrams.
"""


@pytest.mark.parametrize("name", [*(name for name in MODELS if name not in TWO_LOGITS), "catdog-3", "catdog-4"])
def test_a_network_has_as_many_parameters_as_its_author_counts(name: str) -> None:
    model = find_model(name)
    assert model.name == name
    assert model.published_parameters is not None, "set published_parameters, as the author counts them"
    assert model.parameters() == model.published_parameters


@pytest.mark.parametrize(("name", "parameters"), TWO_LOGITS.items())
def test_second_logit_adds_its_weights_to_the_published_parameters(name: str, parameters: int) -> None:
    assert find_model(name).parameters() == parameters


@pytest.mark.parametrize(
    ("name", "total"), [("lenet", 39_558), ("small-vgg", 58_091_396), ("resnet32", 468_986), ("catdog-30", 1_368_002)]
)
def test_total_parameters_include_untrained_ones(name: str, total: int) -> None:
    assert find_model(name).total_parameters() == total


@pytest.mark.parametrize(
    ("name", "features"),
    [("lenet", 200), ("keras-cnn", 2304), ("dlframeworks-cnn", 6400), ("small-vgg", 56_448), ("catdog-2", 6272)],
)
def test_flatten_yields_the_expected_number_of_features(name: str, features: int) -> None:
    shapes = [shape for layer, shape in find_model(name).activations() if isinstance(layer, Flatten)]
    assert shapes == [(features,)]


def test_resnet32_has_32_layers_with_weights_and_2_projections() -> None:
    found = kinds(MODELS["resnet32"])
    assert (found["Conv"], found["Dense"], found["Residual"], found["BatchNorm"]) == (31 + 2, 1, 15, 31)
    assert not any(layer.bias for layer in walk(MODELS["resnet32"].layers) if isinstance(layer, Conv))


@settings(max_examples=20)
@given(st.integers(2, 60))
def test_catdog_has_as_many_convolutions_as_its_name_says(depth: int) -> None:
    found = kinds(find_model(f"catdog-{depth}"))
    assert (found["Conv"], found["MaxPool"], found["Dropout"]) == (depth, min(depth, 4), int(depth > 2))


def test_extra_convolutions_of_catdog_go_before_the_last_poolings_first() -> None:
    layers = find_model("catdog-7").layers
    text = "".join("c" if isinstance(x, Conv) else "p" for x in layers if isinstance(x, Conv | MaxPool))
    assert text == "cp" + 3 * "ccp"


@pytest.mark.parametrize(
    ("name", "shape", "features"),
    [
        ("catdog-2@96", (3, 96, 96), 32 * 22 * 22),
        ("catdog-5@64", (3, 64, 64), 64 * 2 * 2),
        ("resnet32@64", (3, 64, 64), 64),
    ],
)
def test_network_can_take_images_of_another_size(name: str, shape: tuple[int, ...], features: int) -> None:
    model = find_model(name)
    assert (model.name, model.input_shape) == (name, shape)
    assert next(layer for layer in model.layers if isinstance(layer, Dense)).inputs == features
    assert 2 <= model.parity_batch_size <= find_model(name.partition("@")[0]).parity_batch_size


@pytest.mark.parametrize("name", ["catdog-2@64", "catdog-4@128", "resnet32@32", "lenet@32"])
def test_default_image_size_yields_the_network_itself(name: str) -> None:
    assert find_model(name) == find_model(name.partition("@")[0])


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("lenet@64", "lenet supports only images of 32 x 32; use resnet32 or catdog-N for other sizes"),
        ("catdog-4@45", "the image is too small for the poolings"),
        ("imdb-bilstm@64", "imdb-bilstm supports only one input size"),
        ("mnist-cnn@64", "mnist-cnn supports only one input size"),
        ("catdog-4@", "catdog-4@: expected the height and width of images in pixels after @"),
        ("resnet32@64x64", "expected the height and width of images in pixels after @"),
        ("lenett", f"did you mean 'lenet'.*models are: {', '.join(sorted(MODEL_NAMES))}$"),
        ("catdog-1", "catdog-1: expected 2 to 1000 convolutions"),
        ("catdog-99999999", "expected 2 to 1000 convolutions"),
        ("catdog-N", "expected a number of convolutions from 2 to 1000, such as catdog-4"),
        ("catdog", "unknown model 'catdog'; did you mean 'catdog-N'"),
    ],
)
def test_unknown_model_name_is_rejected_with_a_hint(name: str, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        find_model(name)
