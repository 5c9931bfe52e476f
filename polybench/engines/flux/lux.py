"""Lux.jl across Flux's border: the same networks and optimizers, trained by Lux's own step."""

from __future__ import annotations

from polybench.core.errors import Unavailable
from polybench.core.job import Job
from polybench.core.layers import walk
from polybench.core.sequence_layers import LSTM
from polybench.engines.base import Weights
from polybench.engines.flux.engine import FluxEngine
from polybench.engines.flux.julia import environment as julia_environment
from polybench.engines.support.frameworks import no_such_layer

_WAY = "lux"


class LuxEngine(FluxEngine):
    """`Training.single_train_step!` with Zygote on a Lux `Chain` (`julia/ext/PolyBenchLuxExt.jl`)."""

    ways = (_WAY,)

    def build(self, job: Job, weights: Weights) -> None:
        if lstm := next((layer for layer in walk(job.model.layers) if isinstance(layer, LSTM)), None):
            raise no_such_layer("Lux.jl", lstm)
        if job.device != "cpu":
            raise Unavailable("lux is written for the CPU only", "use --devices cpu")
        super().build(job, weights)


def environment(
    device: str, study_threads: int, variants: tuple[str, ...], project: str | None = None
) -> dict[str, str]:
    """Variables for a worker; see `EngineRow.environment_factory`."""
    return julia_environment.environment(device, study_threads, (*variants, _WAY), project)
