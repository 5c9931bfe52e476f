from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from polybench.core.errors import BadInput
from polybench.core.layers import Conv, Dense, Flatten, MaxPool, walk
from polybench.core.model import Model
from polybench.models import MODELS, NAMES, find_model


def kinds(model: Model) -> Counter[str]:
    return Counter(type(layer).__name__ for layer in walk(model.layers))


TWO_LOGITS = {"imdb-bilstm": 2_658_945 + 129, "imdb-fasttext": (20_000 + 2**20 + 1) * 50 + 1 + 51}
"""What their author counts, with a weight and a bias for the second logit; he prints no number of bigrams."""


@pytest.mark.parametrize(
    "name", [*(name for name in MODELS if name not in TWO_LOGITS), "catdog-3", "catdog-4"]
)
def test_a_network_has_as_many_parameters_as_its_author_counts(name: str) -> None:
    model = find_model(name)
    assert model.name == name
    assert model.published_parameters is not None, "write published_parameters, from the publication"
    assert model.parameters() == model.published_parameters


@pytest.mark.parametrize(("name", "parameters"), TWO_LOGITS.items())
def test_a_network_with_another_output_than_its_authors_has_that_much_more(
    name: str, parameters: int
) -> None:
    assert find_model(name).parameters() == parameters


@pytest.mark.parametrize(
    ("name", "total"),
    [("lenet", 39_558), ("smallvgg", 58_091_396), ("resnet32", 468_986), ("catdog-30", 1_368_002)],
)
def test_what_is_not_trained_is_counted_too(name: str, total: int) -> None:
    assert find_model(name).total_parameters() == total


@pytest.mark.parametrize(
    ("name", "features"),
    [
        ("lenet", 200),
        ("keras-cnn", 2304),
        ("rosetta", 6400),
        ("smallvgg", 56_448),
        ("catdog-2", 6272),
    ],
)
def test_flattened_features(name: str, features: int) -> None:
    shapes = [shape for layer, shape in find_model(name).activations() if isinstance(layer, Flatten)]
    assert shapes == [(features,)]


def test_resnet32_has_32_layers_with_weights_and_2_projections() -> None:
    found = kinds(MODELS["resnet32"])
    assert (found["Conv"], found["Dense"], found["Residual"], found["BatchNorm"]) == (31 + 2, 1, 15, 31)
    assert not any(layer.bias for layer in walk(MODELS["resnet32"].layers) if isinstance(layer, Conv))


@settings(max_examples=20)
@given(st.integers(2, 60))
def test_catdog_has_as_many_convolutions_as_it_says(depth: int) -> None:
    found = kinds(find_model(f"catdog-{depth}"))
    assert (found["Conv"], found["MaxPool"], found["Dropout"]) == (depth, min(depth, 4), int(depth > 2))


def test_further_convolutions_of_catdog_stand_before_the_last_poolings_first() -> None:
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
def test_a_network_for_images_of_another_size(name: str, shape: tuple[int, ...], features: int) -> None:
    model = find_model(name)
    assert (model.name, model.input_shape) == (name, shape)
    assert next(layer for layer in model.layers if isinstance(layer, Dense)).inputs == features
    assert 2 <= model.parity_batch_size <= find_model(name.partition("@")[0]).parity_batch_size


@pytest.mark.parametrize("name", ["catdog-2@64", "catdog-4@128", "resnet32@32", "lenet@32"])
def test_its_own_size_is_the_network_itself(name: str) -> None:
    assert find_model(name) == find_model(name.partition("@")[0])


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("lenet@64", "lenet is made for images of 32 x 32; resnet32 and catdog-N take others"),
        ("catdog-4@45", "nothing is left of so small an image"),
        ("imdb-bilstm@64", "imdb-bilstm takes no images of any other size"),
        ("mnist-cnn@64", "mnist-cnn takes no images of any other size"),
        ("catdog-4@", "catdog-4@: after @ stands the height and width"),
        ("resnet32@64x64", "after @ stands the height and width"),
        (
            "lenett",
            f"did you mean 'lenet'.*models are: {', '.join(sorted(NAMES))}$",
        ),
        ("catdog-1", "catdog-1: the number of convolutions is 2 to 1000"),
        ("catdog-99999999", "the number of convolutions is 2 to 1000"),
        ("catdog-N", "give its number of convolutions, 2 to 1000: catdog-4"),
        ("catdog", "unknown model 'catdog'; did you mean 'catdog-N'"),
    ],
)
def test_an_unknown_name_gets_a_hint(name: str, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        find_model(name)
