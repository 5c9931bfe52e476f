"""Warnings about a finished study as a whole, which readers should know before they trust its numbers."""

from __future__ import annotations

from collections.abc import Iterator

from polybench.schema.options import Study, missing_prices
from polybench.schema.study import StudyDocument
from polybench.stats.statistics import margin_of_error


def final_warnings(document: StudyDocument, study: Study, cut_short: bool) -> Iterator[str]:
    """Yield a sentence for each caveat; `cut_short` if the budget ended before all rounds were measured."""
    if cut_short:
        yield f"the budget of {study.budget:g} s ended before all rounds were measured; try a larger --budget"
    yield from missing_prices(study.prices, [one.device for one in document.results], document.settings.threads)
    yield from _swapping(document)
    yield from _interference(document, study)
    if study.processes > 1:
        wide = [
            f"{result.configuration} ±{width:.1%}"
            for result in document.results
            if (found := result.vs_baseline) and found.ci95
            if (width := margin_of_error(found)) > study.margin
        ]
        if wide:
            yield (
                f"margin of error above ±{100 * study.margin:.3g} %: {', '.join(wide)};"
                f" try --processes {2 * study.processes} or an idle machine"
            )


def _interference(document: StudyDocument, study: Study) -> Iterator[str]:
    """Yield how many timing blocks were re-measured or stayed affected, by which programs, and a fix."""
    results = [result.interference for result in document.results]
    blocks = sum(len(process) for one in results for process in one.blocks)
    rerun = sum(one.blocks_rerun or 0 for one in results)
    affected = sum(one.blocks_affected or 0 for one in results)
    if rerun or affected:
        remeasured = f"CPU contention: {rerun} of {blocks} timing blocks {_were(rerun)} re-measured"
        rest = f"; {affected} {_are(affected)} still affected" if affected else "; none is still affected"
        if not rerun:
            remeasured, rest = f"CPU contention: {affected} of {blocks} timing blocks {_are(affected)} affected", ""
        programs = document.host.busiest_programs
        busy = f"; busiest programs: {', '.join(programs)}" if programs else ""
        longer = f"{2 * study.wait_idle:g}s" if study.wait_idle else "30s"
        fix = f"; close busy programs or try --wait-idle {longer}" if affected else ""
        yield remeasured + rest + busy + fix
    if waited := round(document.host.idle_wait_seconds):
        yield f"waited {waited} s for an idle machine"


def _were(count: int) -> str:
    return "was" if count == 1 else "were"


def _are(count: int) -> str:
    return "is" if count == 1 else "are"


def _swapping(document: StudyDocument) -> Iterator[str]:
    swapping = [one for one in document.interference if one.swapped_bytes > 0]
    if swapping:
        yield (
            f"the machine swapped memory in {len(swapping)} of {len(document.interference)} rounds: memory"
            " is short, so times include disk access"
        )
