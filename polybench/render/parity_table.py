"""Parity check as text, tensor by tensor."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from tabulate import tabulate

from polybench.render.header import header_lines
from polybench.render.study_table import Column, status_text
from polybench.schema import units
from polybench.schema.metrics import METRICS
from polybench.schema.parity import ParityCheck, TensorComparison
from polybench.schema.result import Result
from polybench.schema.study import StudyDocument

_PARTS = {
    "float64": "float64: free-running, compared with the float64 reference",
    "timed": "timed precision: each step starts from the engine's weights, also in the reference",
}


def render(study: StudyDocument, _: Sequence[Column]) -> str:
    """Render a table per configuration: the largest relative error of each tensor at each step."""
    blocks = ["\n".join(header_lines(study)[:1]), *map(_block, study.results)]
    return "\n\n".join(blocks) + "\n"


def _block(result: Result) -> str:
    parity = result.parity
    if result.status != "ok" and parity.status == "skipped":
        return f"{result.configuration}: {status_text(result)}"
    reason = f": {parity.reason}" if parity.reason else ""
    lines = [f"{result.configuration}: {METRICS['parity'].text(result)}{reason}"]
    for part, title in _PARTS.items():
        tensors = [tensor for tensor in parity.tensors if tensor.part == part]
        if tensors:
            lines += ["", f"  {title}", _table(tensors)]
    lines += _deviation_lines(parity)
    return "\n".join(lines)


def _table(tensors: list[TensorComparison]) -> str:
    """Lay out a row per tensor and kind, a column per step; "!" marks errors above the tolerance."""
    steps = sorted({tensor.step for tensor in tensors})
    comparisons: dict[tuple[str, str], dict[int, TensorComparison]] = {}
    for tensor in tensors:
        comparisons.setdefault((tensor.name, tensor.kind), {})[tensor.step] = tensor
    rows = [
        [name, kind, *(_error(by_step.get(step)) for step in steps), f"{_tolerance(by_step):g}"]
        for (name, kind), by_step in comparisons.items()
    ]
    titles = ["tensor", "kind", *(f"step {step}" for step in steps), "tolerance"]
    alignment = ["left", "left", *["right"] * (len(steps) + 1)]
    text = tabulate(rows, headers=titles, colalign=alignment, disable_numparse=True)
    return "\n".join(f"  {line}" for line in text.splitlines())


def _error(tensor: TensorComparison | None) -> str:
    if tensor is None:
        return ""
    number = "not finite" if tensor.relative_error is None else units.format_scientific(tensor.relative_error)
    return number if tensor.passed else f"{number} !"


def _tolerance(by_step: dict[int, TensorComparison]) -> float:
    return next(iter(by_step.values())).tolerance


def _deviation_lines(parity: ParityCheck) -> list[str]:
    """Format a block for each known deviation, with its error in every tensor."""
    lines = []
    for (rule, source), deviations in groupby(parity.known_deviations, key=lambda one: (one.rule, one.source)):
        lines += ["", f"  known deviation: {rule} ({source}); errors:"]
        lines += [f"    {one.tensor}  {units.format_scientific(one.error)}" for one in deviations]
    return lines
