from __future__ import annotations

import msgspec
import pytest

from polybench.engines.shared.frameworks import TRANSFORMER_LAYERS, reject_transformers
from polybench.errors import EngineUnavailable
from polybench.networks import MODELS
from polybench.networks.layers import Conv, Dense, Flatten, Layer, walk
from polybench.networks.model import Model
from tests.example_networks import EVERYTHING, PATCHED, SEQUENCES, TEXT


def network(*layers: Layer) -> Model:
    return msgspec.structs.replace(EVERYTHING, input_shape=(2, 2, 2), layers=layers)


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        (TEXT, r"X has no positions in polybench \(positions\)"),
        (PATCHED, r"X has no conv with groups = 3 in polybench \(grouped\)"),
        (network(Flatten(), Dense("d", 8, 3, bias=False)), r"X has no dense with bias = false in polybench \(d\)"),
    ],
)
def test_an_engine_without_todays_layers_names_the_first(model: Model, reason: str) -> None:
    with pytest.raises(EngineUnavailable, match=reason) as caught:
        reject_transformers("X", model)
    assert caught.value.hint == "choose other engines, or change that layer"


OLDER = [
    model for model in MODELS.values() if not any(isinstance(one, TRANSFORMER_LAYERS) for one in walk(model.layers))
]


@pytest.mark.parametrize("model", [*OLDER, EVERYTHING, SEQUENCES], ids=lambda model: model.name)
def test_an_engine_without_todays_layers_accepts_older_networks(model: Model) -> None:
    reject_transformers("X", model)


def test_a_depthwise_convolution_has_several_groups() -> None:
    with pytest.raises(EngineUnavailable, match="groups = 2"):
        reject_transformers("X", network(Conv("c", 2, 2, 1, groups=2), Flatten(), Dense("d", 8, 3)))
