"""The identity check, tensor by tensor, for people."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from tabulate import tabulate

from polybench.core import units
from polybench.core.document.identity import Parity, TensorError
from polybench.core.document.result import Result
from polybench.core.document.study import StudyDocument
from polybench.export.heading import heading
from polybench.export.rows import Column, outcome
from polybench.metrics.parity import PARITY

_PARTS = {
    "algorithm": "the algorithm: float64, running freely, against the float64 reference",
    "timed": "the timed configuration: at its precision, the reference at the engine's own weights",
}


def render(study: StudyDocument, _: Sequence[Column]) -> str:
    """A table of errors for each cell, largest relative error of each tensor and step."""
    blocks = ["\n".join(heading(study)[:1]), *map(_cell, study.results)]
    return "\n\n".join(blocks) + "\n"


def _cell(result: Result) -> str:
    parity = result.parity
    if result.status != "ok" and parity.status == "skipped":
        return f"{result.cell}: {outcome(result)}"
    reason = f": {parity.reason}" if parity.reason else ""
    lines = [f"{result.cell}: {PARITY.text(result)}{reason}"]
    for part, title in _PARTS.items():
        tensors = [tensor for tensor in parity.tensors if tensor.part == part]
        if tensors:
            lines += ["", f"  {title}", _table(tensors)]
    lines += _deviations(parity)
    return "\n".join(lines)


def _table(tensors: list[TensorError]) -> str:
    """One row a tensor and kind, one column a step; a failing error has a mark."""
    steps = sorted({tensor.step for tensor in tensors})
    rows: dict[tuple[str, str], dict[int, TensorError]] = {}
    for tensor in tensors:
        rows.setdefault((tensor.name, tensor.kind), {})[tensor.step] = tensor
    table = [
        [name, kind, *(_error(by_step.get(step)) for step in steps), f"{_tolerance(by_step):g}"]
        for (name, kind), by_step in rows.items()
    ]
    header = ["tensor", "kind", *(f"step {step}" for step in steps), "allowed"]
    align = ["left", "left", *["right"] * (len(steps) + 1)]
    text = tabulate(table, headers=header, colalign=align, disable_numparse=True)
    return "\n".join(f"  {line}" for line in text.splitlines())


def _error(tensor: TensorError | None) -> str:
    if tensor is None:
        return ""
    number = "not finite" if tensor.relative_error is None else units.scientific(tensor.relative_error)
    return number if tensor.passed else f"{number} !"


def _tolerance(by_step: dict[int, TensorError]) -> float:
    return next(iter(by_step.values())).tolerance


def _deviations(parity: Parity) -> list[str]:
    """A block for each declared rule: how far it leads every tensor from the exact one."""
    lines = []
    for (what, source), found in groupby(parity.deviations, key=lambda each: (each.what, each.source)):
        lines += ["", f"  declared: {what} ({source}); from the exact rule:"]
        lines += [f"    {each.tensor}  {units.scientific(each.error)}" for each in found]
    return lines
