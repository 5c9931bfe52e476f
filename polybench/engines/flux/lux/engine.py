"""The engine `lux`: runs the program of Lux in the Julia session of `flux`."""

from __future__ import annotations

from polybench.engines.base import Weights
from polybench.engines.flux.engine import FluxEngine
from polybench.engines.flux.julia import discovery
from polybench.engines.flux.julia import environment as julia_environment
from polybench.engines.flux.lux.emitter import emit
from polybench.engines.job import Job
from polybench.errors import EngineUnavailable

_NAME = "lux"
"""The engine, by which `discovery` knows its package."""


class LuxEngine(FluxEngine):
    """`Training.single_train_step!` with Zygote on a Lux `Chain`."""

    def build(self, job: Job, weights: Weights) -> None:
        if job.device != "cpu":
            raise EngineUnavailable("lux supports the CPU only", "use --devices cpu")
        super().build(job, weights)

    def write_program(self, job: Job) -> str:
        return emit(job)


def environment(
    device: str, study_threads: int, variants: tuple[str, ...], project: str | None = None
) -> dict[str, str]:
    """Variables for a worker; see `EngineSpec.environment_factory`."""
    return julia_environment.environment(device, study_threads, (*variants, _NAME), project)


def check_requirements(variants: tuple[str, ...]) -> None:
    """Check for Julia and Lux.jl without starting Julia; see `EngineSpec.requirement_check`."""
    discovery.check_requirements((*variants, _NAME))
