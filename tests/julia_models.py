"""Writes the networks for the Julia package into `julia/models/`: `make readme`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import tomli_w

from polybench.networks import MODELS
from polybench.networks.model import Model

IN_JULIA = {name: model for name, model in MODELS.items() if model.input_shape[0] == 3}
"""Networks of color images; PolyBench.jl has data for these only."""

FOLDER = Path(__file__).parents[1] / "julia" / "models"


def as_toml(model: Model) -> str:
    """Return the content that `julia/src/models.jl` reads."""
    fields = {
        "name": model.name,
        "input_shape": model.input_shape,
        "classes": model.classes,
        "batch_size": model.batch_size,
        "initialization": model.initialization,
        "optimizer": model.optimizer,
        "layers": model.layers,
    }
    return tomli_w.dumps(_without_none(msgspec.to_builtins(fields)))


def _without_none(value: Any) -> Any:
    """Remove None, because TOML has no null."""
    if isinstance(value, dict):
        return {key: _without_none(item) for key, item in value.items() if item is not None}
    return [_without_none(item) for item in value] if isinstance(value, list | tuple) else value


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name, model in IN_JULIA.items():
        (FOLDER / f"{name}.toml").write_text(as_toml(model), "utf-8")
