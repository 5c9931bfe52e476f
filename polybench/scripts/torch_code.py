"""A network in plain PyTorch: the program of the torch engine, which makes `network` with the weights beside it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from polybench.engines.job import Job
from polybench.engines.torch.emitter import emit_network
from polybench.errors import BadInput, EngineUnavailable
from polybench.networks.model import Model
from polybench.schema.options import Workload
from polybench.scripts.network_code import Code


def write(model: Model, weights: Mapping[str, Any]) -> Code:
    """Return the program, whose weights have the canonical names and layout."""
    workload = Workload(model.name, "", model.batch_size, model.optimizer, "fp32", 1)
    try:
        return Code("", emit_network(Job(model, workload, "cpu", "float32")), weights)
    except EngineUnavailable as error:
        raise BadInput(error.reason) from error
