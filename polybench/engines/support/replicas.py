"""What no engine can do in replicas: a network whose step needs more than each one's part of a batch."""

from __future__ import annotations

from collections.abc import Collection

from polybench.core.errors import Unavailable
from polybench.core.job import Job
from polybench.core.layers import BatchNorm, walk


def refuse_batch_norm(job: Job, source: str) -> None:
    """Raise Unavailable for a network with batch norm, whose statistics would be of a replica's part alone.

    That is another network than one process trains, so there is nothing that it could be held to.

    Args:
        job: what is built.
        source: where it can be read that this is so.
    """
    if any(isinstance(layer, BatchNorm) for layer in walk(job.model.layers)):
        raise Unavailable(
            f"{job.model.name} has batch norm, and each replica would take its statistics from its own part"
            f" of the batch ({source}): not what one process computes",
            "leave --replicas out, or choose a network without batch norm: --model lenet",
        )


def refuse_variants(job: Job, known: Collection[str]) -> None:
    """Raise Unavailable for variants that have not been brought together with replicas."""
    for variant in job.variants:
        if variant not in known:
            raise Unavailable(
                f"+{variant} has no data-parallel training in polybench",
                f"leave +{variant} or --replicas out",
            )
