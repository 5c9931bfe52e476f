"""What the reader of a finished study must know before trusting its numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from polybench.core import units
from polybench.core.document.study import StudyDocument
from polybench.core.prices import unpriced
from polybench.core.spec import Study
from polybench.core.statistics import Ratio, half_width


def of_points(points: Sequence[tuple[Mapping[str, int], StudyDocument]]) -> list[str]:
    """Those of all studies of a sweep, each once, with the points that it is of if not of all."""
    said: dict[str, list[str]] = {}
    for values, document in points:
        for text in dict.fromkeys(document.warnings):
            said.setdefault(text, []).append(units.point(values))
    return [
        text if len(where) == len(points) else f"{'; '.join(where)}: {text}" for text, where in said.items()
    ]


def final_warnings(document: StudyDocument, study: Study, cut_short: bool) -> Iterator[str]:
    """One sentence for each caveat.

    Args:
        document: the finished study.
        study: what was asked for.
        cut_short: the budget ended before the rounds that were asked for were done.
    """
    if cut_short:
        yield f"the budget of {study.budget:g} s ended before all rounds were done; try a larger --budget"
    yield from unpriced(study.prices, [one.device for one in document.results], document.settings.threads)
    yield from _swapped(document)
    yield from _disturbed(document, study)
    if study.processes > 1:
        wide = [
            f"{result.cell} ±{width:.1%}"
            for result in document.results
            if (found := result.relative) and found.interval95
            if (width := half_width(Ratio(found.speedup, found.interval95, found.scope))) > study.target
        ]
        if wide:
            yield (
                f"the target of ±{100 * study.target:.3g} % was not reached: {', '.join(wide)};"
                f" try --processes {2 * study.processes}, or a quieter machine"
            )


def _disturbed(document: StudyDocument, study: Study) -> Iterator[str]:
    """Blocks that were measured again, and those that stayed as they were; by whom, and what to do."""
    rows = [result.disturbance for result in document.results]
    blocks = sum(len(process) for row in rows for process in row.blocks)
    repeated = sum(row.blocks_repeated or 0 for row in rows)
    stayed = sum(row.blocks_disturbed or 0 for row in rows)
    if repeated or stayed:
        again = f"others took the cores: of {blocks} blocks {repeated} were measured again"
        rest = f", {stayed} stayed disturbed" if stayed else ", and none stayed disturbed"
        seen = f"; busy: {', '.join(document.host.busiest)}" if document.host.busiest else ""
        longer = f"{2 * study.patience:g}s" if study.patience else "30s"
        advice = f"; close what is busy, or try --patience {longer}" if stayed else ""
        yield again + rest + seen + advice
    if waited := round(document.host.waited_seconds):
        yield f"waited {waited} s for a quiet machine"


def _swapped(document: StudyDocument) -> Iterator[str]:
    swapping = [reading for reading in document.host.noise if reading.swapped_bytes > 0]
    if swapping:
        yield (
            f"the machine swapped in {len(swapping)} of {len(document.host.noise)} rounds: memory is short,"
            " and times are the disk's"
        )
