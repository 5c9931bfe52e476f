"""Parity check, tensor by tensor: a table per configuration and precision."""

from __future__ import annotations

from itertools import groupby

from polybench.render.study import header_lines, status_text
from polybench.render.table import DEFAULTS, Records, Table, TableOptions, number_columns, text_columns
from polybench.schema import units
from polybench.schema.metrics import METRICS
from polybench.schema.parity import TensorComparison
from polybench.schema.result import Result
from polybench.schema.study import StudyDocument

_PARTS = {
    "float64": "float64: free-running, compared with the float64 reference",
    "timed": "timed precision and batch size: each step starts from the engine's weights, also in the reference",
}


_FORWARD_PARTS = {
    "float64": "float64: logits in evaluation mode, compared with the float64 reference",
    "timed": "timed precision and batch size: logits of the step that is timed",
}


def table(study: StudyDocument, _: TableOptions = DEFAULTS) -> Table:
    """Build tables with the largest relative error of each tensor at each step."""
    return Table(id=study.id, title=header_lines(study)[:1], tables=[_configuration(one) for one in study.results])


def records(study: StudyDocument, _: TableOptions) -> Records:
    """List a record per comparison of a tensor with the reference."""
    fields = ["configuration", "status", *TensorComparison.__struct_fields__]
    return Records(
        fields,
        (
            [result.configuration, result.parity.status, *(getattr(tensor, name) for name in fields[2:])]
            for result in study.results
            for tensor in result.parity.tensors
        ),
    )


def _configuration(result: Result) -> Table:
    parity = result.parity
    if result.status != "ok" and parity.status == "skipped":
        return Table(title=[f"{result.configuration}: {status_text(result)}"])
    reason = f": {parity.reason}" if parity.reason else ""
    parts = _FORWARD_PARTS if result.workload.is_forward_pass else _PARTS
    tensors = {part: [tensor for tensor in parity.tensors if tensor.part == part] for part in parts}
    deviations = groupby(parity.known_deviations, key=lambda one: (one.rule, one.source))
    return Table(
        title=[f"{result.configuration}: {METRICS['parity'].text(result)}{reason}"],
        tables=[
            *(_tensors(parts[part], found) for part, found in tensors.items() if found),
            *(
                Table(
                    title=[f"known deviation: {rule} ({source})"],
                    columns=[*text_columns("tensor"), *number_columns("error")],
                    rows=[[one.tensor, units.format_scientific(one.error)] for one in found],
                )
                for (rule, source), found in deviations
            ),
        ],
    )


def _tensors(title: str, tensors: list[TensorComparison]) -> Table:
    """Build a row per tensor and kind, a column per step; "!" marks errors above the tolerance."""
    steps = sorted({tensor.step for tensor in tensors})
    comparisons: dict[tuple[str, str], dict[int, TensorComparison]] = {}
    for tensor in tensors:
        comparisons.setdefault((tensor.name, tensor.kind), {})[tensor.step] = tensor
    return Table(
        title=[title],
        columns=[*text_columns("tensor", "kind"), *number_columns(*(f"step {step}" for step in steps), "tolerance")],
        rows=[
            [*key, *(_error(by_step.get(step)) for step in steps), f"{next(iter(by_step.values())).tolerance:g}"]
            for key, by_step in comparisons.items()
        ],
    )


def _error(tensor: TensorComparison | None) -> str:
    if tensor is None:
        return ""
    number = "not finite" if tensor.relative_error is None else units.format_scientific(tensor.relative_error)
    return number if tensor.passed else f"{number} !"
