"""What the reader of a finished study must know before trusting its numbers."""

from __future__ import annotations

from collections.abc import Iterator

from polybench.core.document.study import StudyDocument
from polybench.core.spec import Study
from polybench.core.statistics import Ratio, half_width


def final_warnings(document: StudyDocument, study: Study, cut_short: bool) -> Iterator[str]:
    """One sentence for each caveat.

    Args:
        document: the finished study.
        study: what was asked for.
        cut_short: the budget ended before the rounds that were asked for were done.
    """
    if cut_short:
        yield f"the budget of {study.budget:g} s ended before all rounds were done; try a larger --budget"
    yield from _noise(document)
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


def _noise(document: StudyDocument) -> Iterator[str]:
    affected = [reading for reading in document.host.noise if reading.affected]
    if affected:
        worst = max(affected, key=lambda reading: reading.other_cpu_percent + reading.steal_percent)
        yield (
            f"{len(affected)} of {len(document.host.noise)} rounds were disturbed; at worst other processes"
            f" took {worst.other_cpu_percent:.0f} % of a core, the hypervisor {worst.steal_percent:.0f} %"
        )
