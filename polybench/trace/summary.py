"""`polybench trace show`: what a trace contains."""

from __future__ import annotations

from polybench.schema.trace import TraceSummary
from polybench.trace.file import Trace


def summarize(trace: Trace) -> TraceSummary:
    """List the settings, steps and tensors of a trace."""
    return TraceSummary(
        file=str(trace.path),
        bytes=trace.path.stat().st_size,
        header=trace.header,
        steps=trace.steps,
        gradients={step: len(trace.names(step, "gradient")) for step in trace.steps},
        weights=trace.shapes(0, "weight"),
        dtypes={name: trace.dtype(0, "weight", name) for name in trace.names(0, "weight")},
    )
