"""Networks of translated programs, without a framework."""

from __future__ import annotations

import math

import numpy as np
import pytest

from polybench.data.synthetic import image_count
from polybench.errors import BadInput
from polybench.importer.flux_graph import _slot
from polybench.importer.graph import Names, Node, Slot, Source, Translation, build, pad, split_padding, tied_owner
from polybench.networks import layers as spec
from polybench.networks.layers import Shape
from polybench.networks.padding import Sides

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


def test_the_longer_branch_of_a_sum_is_the_body() -> None:
    start = x = Node(None, (), (3, 8, 8), _SOURCE)
    relu = Node(spec.ReLU(), (x,), x.shape, _SOURCE)
    conv = Node(spec.Conv("conv", 3, 3, 1), (relu,), x.shape, _SOURCE)
    total = Node(None, (Node(spec.SiLU(), (x,), x.shape, _SOURCE), conv), x.shape, _SOURCE)
    pooled = Node(spec.GlobalAveragePool(), (total,), (3,), _SOURCE)
    built = build(pooled, start, "Net")
    block, _ = built.model.layers
    assert [layer.type for layer in built.layers] == ["relu", "conv", "silu", "residual", "global_average_pool"]
    assert block == spec.Residual((spec.ReLU(), spec.Conv("conv", 3, 3, 1)), (spec.SiLU(),))


def test_zeros_are_below_the_maximum_after_a_relu_only() -> None:
    image = Node(None, (), (3, 8, 8), _SOURCE)
    positive = Node(spec.ReLU(), (image,), image.shape, _SOURCE)
    sides = Sides(1, 2, 3, 0)
    assert split_padding(pad(positive, sides, 0.0, _SOURCE), -math.inf) == (positive, sides)
    assert split_padding(pad(image, sides, 0.0, _SOURCE), 0.0) == (image, sides)
    with pytest.raises(BadInput, match="pads with 0: expected -inf or, after a ReLU, 0 before the next layer"):
        split_padding(pad(image, sides, 0.0, _SOURCE), -math.inf)
    with pytest.raises(BadInput, match="pads with 1: expected 0 before the next layer"):
        split_padding(pad(positive, sides, 1.0, _SOURCE), 0.0)


def test_a_tied_layer_has_the_whole_weight_of_its_owner_in_order() -> None:
    indices = np.arange(9).reshape(3, 3)
    owner = Node(spec.Dense("first", 3, 3), (), (3,), _SOURCE, {"weight": Slot("w", indices)})
    assert tied_owner({"w": owner}, Slot("w", indices)) == "first"
    assert tied_owner({"w": owner}, Slot("w", indices.T)) is None
    assert tied_owner({"w": owner}, Slot("other", indices)) is None


@pytest.mark.parametrize("indices", [[0, 1], [0, 1, 1], [0, 1, 2, 2]])
def test_a_network_uses_each_value_of_a_weight_once(indices: list[int]) -> None:
    built = translation((3, 8, 8))._replace(slots={"dense.bias": Slot("bias", np.array(indices))})
    with pytest.raises(BadInput, match="bias: the layers use some of its values twice or not at all"):
        built.check_complete({"bias": 3})
    built._replace(slots={"dense.bias": Slot("bias", np.array([2, 0, 1]))}).check_complete({"bias": 3})


def test_flux_stores_matrices_transposed_and_kernels_flipped() -> None:
    random = np.random.default_rng(0)
    matrix, kernel = random.random((2, 3)), random.random((4, 3, 2, 2))
    assert np.array_equal(_slot("w", (2, 3), converts=True).read({"w": matrix.T.copy()}), matrix)
    assert np.array_equal(_slot("w", (4, 3, 2, 2), converts=True).read({"w": kernel[:, :, ::-1, ::-1].copy()}), kernel)
    assert np.array_equal(_slot("w", (2, 3), converts=False).read({"w": matrix}), matrix)


def test_names_differ_by_more_than_dots() -> None:
    names = Names()
    given = ["block.conv", "block.conv", "block_conv", "head_out", "head.out"]
    assert [names.unique(name, "conv") for name in given] == [
        "block.conv", "block.conv1", "block_conv2", "head_out", "head.out1",
    ]  # fmt: skip
