"""Networks of translated programs, without a framework."""

from __future__ import annotations

import pytest

from polybench.data.synthetic import image_count
from polybench.errors import BadInput
from polybench.importer.graph import Node, Source, Translation, build
from polybench.networks import layers as spec
from polybench.networks.layers import Shape

_SOURCE = Source("operation", "model.py:1")


def translation(shape: Shape) -> Translation:
    """Build a network of images of this shape with two classes."""
    start = x = Node(None, (), shape, _SOURCE)
    for layer in (spec.GlobalAveragePool(), spec.Dense("dense", shape[0], 2)):
        x = Node(layer, (x,), layer.output_shape(x.shape), _SOURCE)
    return build(x, start, "Net")


@pytest.mark.parametrize(("shape", "batch_size"), [((3, 32, 32), 128), ((3, 810, 810), 78), ((1, 1600, 1600), 60)])
def test_synthetic_data_have_a_batch_for_every_imported_network(shape: Shape, batch_size: int) -> None:
    model = translation(shape).model
    assert model.batch_size == batch_size
    assert image_count("train", model.input_shape) >= batch_size


def test_an_input_larger_than_all_data_is_refused() -> None:
    with pytest.raises(BadInput, match=r"no synthetic test data of 3 x 3600 x 3600: .* choose a smaller input"):
        translation((3, 3600, 3600))
