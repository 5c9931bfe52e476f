"""Computes the document of allocation sites from its log. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from polybench.log import AnyEvent
from polybench.results.document import derive_measured, within_bounds
from polybench.results.measured import measured_study
from polybench.schema.measurements import AllocationProfile, AllocationsDocument, ConfigurationAllocations
from polybench.schema.result import Result, status_fields


def derive_allocations(events: Iterable[AnyEvent], *, salvage: bool = False) -> AllocationsDocument:
    """Compute the allocation sites of each configuration; raises DamagedLog as `derive`."""
    measured = measured_study(events, salvage=salvage)
    study = derive_measured(measured)
    document = AllocationsDocument(
        **study.header(),
        study=study.study,
        settings=study.settings,
        interference=study.interference,
        warnings=study.warnings,
        configurations=[
            _configuration_allocations(result, run.profile)
            for result, run in zip(study.results, measured.runs, strict=True)
        ],
    )
    return within_bounds(document)


def _configuration_allocations(result: Result, profile: AllocationProfile | None) -> ConfigurationAllocations:
    allocations = ConfigurationAllocations(**status_fields(result))
    if profile is not None:
        allocations.source, allocations.coverage, allocations.sites = (profile.source, profile.coverage, profile.sites)
        allocations.bytes_per_step = sum(site.bytes_per_step for site in profile.sites)
        allocations.count_per_step = sum(site.count_per_step for site in profile.sites)
    return allocations
