"""Programs of layers alone in JAX."""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType

from polybench.engines.jax.emitter import emit_layer
from polybench.engines.job import Job
from polybench.engines.shared.program import import_program
from polybench.networks.layers import Layer, Shape
from polybench.networks.lenet import LENET
from polybench.schema.options import Workload


def program_of(layers: Sequence[Layer], shape: Shape) -> ModuleType:
    """Return the imported program of these layers in float32, for inputs of `shape`."""
    workload = Workload("lenet", "noise", 4, LENET.optimizer, "fp32", 2)
    return import_program(emit_layer(layers, shape, Job(LENET, workload, "cpu", "float32")), None)
