"""How near a training step comes to the most arithmetic that this machine was seen to do."""

from __future__ import annotations

from polybench.core import units
from polybench.metrics.base import Metric

ROOF = Metric(
    name="roof",
    title="% of roof",
    unit="",
    better="higher",
    value=lambda result: result.roof.share if result.roof else None,
    show=units.percent,
    needs="needs `polybench limit`, with the same threads, heap, precision and versions, before the study",
    note="a step's FLOP/s to those of the fastest product that `polybench limit` measured here, empty before"
    " that; of direct convolutions, so Winograd's may pass 1",
)
