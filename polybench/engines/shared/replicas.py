"""Checks for data-parallel training: networks and variants that replicas do not support."""

from __future__ import annotations

from collections.abc import Collection

from polybench.engines.job import Job
from polybench.errors import EngineUnavailable
from polybench.networks.layers import BatchNorm, walk


def reject_batch_norm(job: Job, source: str) -> None:
    """Raise EngineUnavailable for batch norm, whose statistics would come from a replica's shard only.

    The result would differ from training in one process, so the parity check could not verify it.

    Args:
        job: job to check.
        source: reference for this behavior of the framework.
    """
    if any(isinstance(layer, BatchNorm) for layer in walk(job.model.layers)):
        raise EngineUnavailable(
            f"{job.model.name} has batch norm, and each replica would compute its statistics from its own"
            f" shard of the batch ({source}), unlike a single process",
            "omit --replicas, or choose a network without batch norm: --model lenet",
        )


def reject_variants(job: Job, supported: Collection[str]) -> None:
    """Raise EngineUnavailable for variants without data-parallel training."""
    for variant in job.variants:
        if variant not in supported:
            raise EngineUnavailable(
                f"+{variant} has no data-parallel training in polybench", f"omit +{variant} or --replicas"
            )
