"""FLOPs and minimum bytes of every network's layers, compared with XLA's cost analysis."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any

import msgspec

from polybench.networks import MODELS, find_model
from polybench.networks.layers import Conv, Dense, Layer, Operation, Shape
from polybench.networks.timed_layers import TimedLayer, split_layers
from tests.engines.engine_fixtures import EngineFixture, in_process_of
from tests.engines.jax.layer_programs import program_of
from tests.example_networks import PADDED

IMAGES = 2
SIZED_NETWORKS = ("catdog-4", "resnet32@48")
"""Networks whose layers depend on a number in their name, in addition to MODELS."""


def convolutions_and_products() -> Iterator[TimedLayer]:
    """Yield the convolutions and dense layers of all networks, without duplicates."""
    seen: set[tuple[Layer, Shape]] = set()
    models = (*MODELS.values(), *map(find_model, SIZED_NETWORKS))
    padded_on_one_side = split_layers(PADDED)[0]
    for timed_layer in itertools.chain([padded_on_one_side], *map(split_layers, models)):
        if isinstance(timed_layer.layer, Conv | Dense):
            shape = msgspec.structs.replace(timed_layer.layer, name=""), timed_layer.input_shape
            if shape not in seen:
                seen.add(shape)
                yield timed_layer


def padding_macs(layer: Conv | Dense, timed_layer: TimedLayer) -> int:
    """Multiply-adds of an image with padding zeros, which polybench counts and XLA does not."""
    if isinstance(layer, Dense):
        return 0
    starts = layer.pads.top, layer.pads.left
    _, *sizes = timed_layer.input_shape
    outputs, *output_sizes = timed_layer.output_shape()
    inside = math.prod(
        sum(0 <= i * layer.stride + tap - start < size for i in range(n) for tap in range(layer.kernel))
        for n, size, start in zip(output_sizes, sizes, starts, strict=True)
    )
    return layer.inputs // layer.groups * outputs * (layer.kernel**2 * math.prod(output_sizes) - inside)


def count_with_xla(timed_layer: TimedLayer) -> dict[Operation, tuple[int, int]]:
    """Count FLOPs and bytes of each operation of this layer in the engine, before fusion."""
    import jax
    import jax.numpy as jnp

    network = program_of((timed_layer.layer,), timed_layer.input_shape).network

    def forward(x: Any, weights: Any) -> Any:
        return network(weights, x)

    def input_gradient(x: Any, weights: Any, dy: Any) -> Any:
        return jax.vjp(lambda x: forward(x, weights), x)[1](dy)

    def weight_gradient(x: Any, weights: Any, dy: Any) -> Any:
        (name,) = (name for name in weights if name.endswith(".weight"))
        return jax.vjp(lambda weight: forward(x, weights | {name: weight}), weights[name])[1](dy)

    weights = {name: jax.ShapeDtypeStruct(shape, jnp.float32) for name, shape in timed_layer.weight_shapes().items()}
    x, dy = (
        jax.ShapeDtypeStruct((IMAGES, *shape), jnp.float32)
        for shape in (timed_layer.input_shape, timed_layer.output_shape())
    )
    costs: dict[Operation, Any] = {
        "forward": jax.jit(forward).lower(x, weights).cost_analysis(),
        "input gradient": jax.jit(input_gradient).lower(x, weights, dy).cost_analysis(),
        "weight gradient": jax.jit(weight_gradient).lower(x, weights, dy).cost_analysis(),
    }
    return {operation: (cost["flops"], cost["bytes accessed"]) for operation, cost in costs.items()}


@in_process_of("jax")
def test_flops_and_bytes_equal_the_cost_analysis_of_xla(fixture: EngineFixture) -> None:
    for timed_layer in (checked := list(convolutions_and_products())):
        layer = timed_layer.layer
        assert isinstance(layer, Conv | Dense)
        kernel, bias = (
            math.prod(timed_layer.weight_shapes().get(f"{layer.name}.{name}", (0,))) for name in ("weight", "bias")
        )
        bias_additions = IMAGES * math.prod(timed_layer.output_shape()) if bias else 0
        # Gradients do not read the bias. The input gradient is a convolution with the flipped kernel, which XLA also
        # writes and reads; it does so again to regroup the kernel of a grouped convolution.
        copies = (2 if layer.groups > 1 else 1) if isinstance(layer, Conv) and layer.kernel > 1 else 0
        for operation, (flops, bytes_moved) in count_with_xla(timed_layer).items():
            own_flops, min_bytes = timed_layer.flops(operation, IMAGES), timed_layer.min_bytes_moved(operation, IMAGES)
            assert own_flops is not None
            assert min_bytes is not None
            direct = own_flops - 2 * IMAGES * padding_macs(layer, timed_layer)
            case = timed_layer, operation
            if operation == "forward":  # one addition of a bias for each output value
                assert flops == direct + bias_additions, case
                continue
            assert flops == direct, case
            copied = 2 * copies * kernel if operation == "input gradient" else 0
            assert bytes_moved == min_bytes + 4 * (copied - bias), case
    assert len(checked) > 30
