"""Which saved documents belong to a study: measured alike, on the same machine and versions. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal, NamedTuple

from polybench.core.document.circumstances import Host, Settings
from polybench.core.document.layers import LayersDocument
from polybench.core.document.result import Result
from polybench.core.document.study import StudyDocument
from polybench.report.anonymous import is_anonymous

Axis = Literal["batch_size", "threads", "heap"]
"""What one study may have that another has not, and still say something about it."""

_ALIKE = ("model", "data_sha256", "batch_size", "optimizer", "threads", "heap")


class Varied(NamedTuple):
    """A cell as another study measured it, and the value that this one has of an axis."""

    value: int | str
    study: StudyDocument
    result: Result


def layers_of(
    study: StudyDocument, documents: Iterable[LayersDocument], cells: Sequence[str]
) -> LayersDocument | None:
    """The first of these documents that has the layers of all these cells.

    Layers are timed with preloaded batches whatever the study's input is.

    Args:
        study: with these cells.
        documents: the newest first.
        cells: ranked in the study.
    """
    for document in documents:
        if not (_alike(study.settings, document.settings) and _same_machine(study.host, document.host)):
            continue
        found = [document.engine(cell) for cell in cells]
        if all(
            engine and engine.rows and _same_versions(engine.versions, study.result(cell).versions)
            for cell, engine in zip(cells, found, strict=True)
        ):
            return document
    return None


def varied(
    study: StudyDocument, cells: Sequence[str], axis: Axis, studies: Iterable[StudyDocument]
) -> list[list[Varied]]:
    """These cells in studies that have another value of `axis`, and are alike in all else.

    Args:
        study: with these cells.
        cells: ranked in the study.
        axis: a field of settings.
        studies: the newest first; of those with the same value the first counts.

    Returns:
        For each value one list, as long as `cells`.
    """
    found: dict[int | str, list[Varied]] = {}
    for other in studies:
        value = getattr(other.settings, axis)
        if value == getattr(study.settings, axis) or value in found or not _differ_in(study, other, axis):
            continue
        results = {result.cell: result for result in other.results if result.ranked}
        if all(
            cell in results and _same_versions(results[cell].versions, study.result(cell).versions)
            for cell in cells
        ):
            found[value] = [Varied(value, other, results[cell]) for cell in cells]
    return list(found.values())


def _differ_in(study: StudyDocument, other: StudyDocument, axis: Axis) -> bool:
    """Whether this is all in which they differ."""
    one, two = study.settings, other.settings
    same_input = (one.input, one.augment) == (two.input, two.augment)
    same_workers = one.workers == two.workers or axis == "threads"  # as many as threads, if nobody says
    return _alike(one, two, axis) and same_input and same_workers and _same_machine(study.host, other.host)


def _alike(one: Settings, two: Settings, but: str = "") -> bool:
    """Of several precisions the first one counts: a cell's name says whether it has another."""
    same = all(getattr(one, name) == getattr(two, name) for name in _ALIKE if name != but)
    precisions = {settings.precision.partition(",")[0] for settings in (one, two)}
    return same and len(precisions) == 1 and bool(one.pinned) == bool(two.pinned)


_MACHINE = ("hostname", "cpu", "cores", "gpus")
_NAMELESS = (*_MACHINE, "os", "threads", "memory_bytes", "governor")
"""Of an anonymous study all has to agree that is known; it may still be another machine of the same kind."""


def _same_machine(one: Host, two: Host) -> bool:
    fields = _NAMELESS if is_anonymous(one) else _MACHINE
    return all(getattr(one, name) == getattr(two, name) for name in fields)


def _same_versions(one: dict[str, Any], two: dict[str, Any]) -> bool:
    """Of frameworks and libraries; how they were built and started follows from these and the settings."""
    mine, yours = (
        {name: value for name, value in versions.items() if not isinstance(value, dict)}
        for versions in (one, two)
    )
    return mine == yours
