"""Warnings about finished studies as a whole, which readers should know before they trust the numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from polybench.planning.suggested_commands import measured_study
from polybench.schema import units
from polybench.schema.options import Study, missing_prices
from polybench.schema.resources import Interference
from polybench.schema.result import STEAL, STEAL_REMEDY
from polybench.schema.study import StudyDocument
from polybench.stats.statistics import NOTABLE_TREND, margin_of_error, upward_trend_of_processes

_CONTENTION, _MARGIN, _WAITED = "CPU contention", "margin of error of speedups above", "waited"
"""Beginnings of the warnings that `shared_warnings` sums up over studies."""

_SPINNING = "more runnable threads than cores"
_SPINS = "torch"
"""The engine, or Keras's backend, whose threads come from OpenMP and spin while they wait for each other."""

_MAX_NAMED = 2
"""Points or machines that a warning names; more are counted."""

_MAX_MARGINS = 4
"""Ratios that a missed margin names; of more, the widest."""

NamedStudies = Sequence[tuple[str, StudyDocument]]
"""Studies with the names of their points or machines."""


def final_warnings(document: StudyDocument, study: Study, cut_short: bool) -> Iterator[str]:
    """Yield a sentence for each caveat; `cut_short` if the budget ended before all rounds were measured."""
    if cut_short:
        fix = ", without --quick" if study == study.quick() else ""
        yield f"the budget of {study.budget:g} s ended before all rounds were measured; try a larger --budget{fix}"
    yield from missing_prices(study.prices, [one.device for one in document.results], document.settings.threads)
    yield from _swapping(document)
    yield from _slower_processes(document)
    yield from _summed_up([("", document)], study, "")


def _slower_processes(document: StudyDocument) -> Iterator[str]:
    """Yield how much slower later process runs are, if all results together show that the machine became slower."""
    trend = upward_trend_of_processes([result.nested_step_times for result in document.results]) or 0.0
    if trend >= NOTABLE_TREND:
        yield (
            f"steps became {trend:.1%} slower from the first process run to the last; possible causes are thermal"
            " throttling and another program"
        )


def shared_warnings(studies: NamedStudies, noun: str) -> list[str]:
    """Return the warnings of several studies, each once, with the points or machines (`noun`) that have it."""
    names_by_text: dict[str, list[str]] = {}
    for name, document in studies:
        for text in dict.fromkeys(document.warnings):
            if not text.startswith((_CONTENTION, _SPINNING, _MARGIN, _WAITED)):
                names_by_text.setdefault(text, []).append(name)
    found = []
    for text, names in names_by_text.items():
        if len(names) == len(studies):
            found.append(text)
        elif len(names) > _MAX_NAMED:
            found.append(f"{len(names)} of {len(studies)} {noun}s: {text}")
        else:
            found.append(f"{'; '.join(names)}: {text}")
    if studies:
        found += _summed_up(studies, measured_study(studies[0][1]), noun)
    return found


def _summed_up(studies: NamedStudies, study: Study, noun: str) -> Iterator[str]:
    """Yield one sentence each about contention, waits and margins of error of all studies together."""
    yield from _contention(studies, study, noun)
    if waited := sum(round(document.host.idle_wait_seconds) for _, document in studies):
        yield f"{_WAITED} {waited} s for an idle machine"
    if study.processes > 1:
        yield from _missed_margins(studies, study, noun)


def _contention(studies: NamedStudies, study: Study, noun: str) -> Iterator[str]:
    """Yield how many timing blocks were re-measured or stayed affected, by whom, and a fix."""
    blocks = rerun = affected = 0
    programs: dict[str, None] = {}
    disturbed = []
    for _, document in studies:
        results = [result.interference for result in document.results]
        counts = sum(one.blocks_rerun or 0 for one in results), sum(one.blocks_affected or 0 for one in results)
        blocks += sum(len(process) for one in results for process in one.blocks)
        rerun, affected = rerun + counts[0], affected + counts[1]
        if any(counts):
            disturbed.append(document)
            programs |= dict.fromkeys(document.host.busiest_programs)
    if disturbed:
        where = f" in {len(disturbed)} of {len(studies)} {noun}s" if noun else ""
        if rerun:
            outcome = f"{rerun} of {blocks} timing blocks {_were(rerun)} re-measured; "
            outcome += f"{affected} {_are(affected)} still affected" if affected else "none is still affected"
        else:
            outcome = f"{affected} of {blocks} timing blocks {_are(affected)} affected"
        is_mostly_steal = _is_mostly_steal(disturbed)
        busy = f"; busiest programs: {', '.join(programs)}" if programs else ""
        longer = f"{max(60.0, 2 * study.wait_idle):g}s"
        fix = f"; {STEAL_REMEDY if is_mostly_steal else 'close busy programs'} or try --wait-idle {longer}"
        yield f"{_CONTENTION}{where}: {outcome}{f'; {STEAL}' if is_mostly_steal else busy}{fix if affected else ''}"
        if spinning := dict.fromkeys(name for document in disturbed for name in _spinning(document)):
            others = ", ".join(programs) or "other programs"
            yield (
                f"{_SPINNING}: {', '.join(spinning)} beside {'other machines' if is_mostly_steal else others}; OpenMP's"
                " threads spin while they wait for each other, so that steps can take 30 times as long;"
                f" try --wait-idle {longer} or fewer --threads"
            )


def _is_mostly_steal(documents: Sequence[StudyDocument]) -> bool:
    """Return True if the hypervisor took more CPU time from the affected blocks of all studies than programs did."""
    blocks = [process for one in documents for result in one.results for process in result.interference.blocks]
    return Interference(blocks=blocks).is_mostly_steal


def _spinning(document: StudyDocument) -> Iterator[str]:
    """Yield the configurations whose threads spun while other programs needed their cores."""
    for result in document.results:
        blocks = [block for process in result.interference.blocks for block in process if block.affected]
        others = sum(block.other_process_cpu_seconds or 0.0 for block in blocks)
        wall = sum(block.wall_seconds for block in blocks)
        spins = _SPINS in (result.engine, *(result.variant or "").split("+"))
        if blocks and spins and document.settings.threads > max(1, document.host.threads - others / wall):
            yield result.configuration


def _missed_margins(studies: NamedStudies, study: Study, noun: str) -> Iterator[str]:
    """Yield the speed-ups whose margin of error is wider than the requested one, and a fix."""
    wide = [
        (width, f"{result.configuration} over {found.baseline} {units.format_margin(width)}", name)
        for name, document in studies
        for result in document.results
        if (found := result.vs_baseline) and found.ci95
        if (width := margin_of_error(found)) > study.margin
    ]
    if not wide:
        return
    where = f" in {len({name for *_, name in wide})} of {len(studies)} {noun}s" if noun else ""
    shown = sorted(wide, reverse=True)[:_MAX_MARGINS] if len(wide) > _MAX_MARGINS else wide
    texts = [f"{text} at {name}" if noun else text for _, text, name in shown]
    widest = "the widest are " if len(shown) < len(wide) else ""
    yield (
        f"{_MARGIN} ±{100 * study.margin:.3g}%{where}: {widest}{', '.join(texts)};"
        f" try --processes {2 * study.processes} or an idle machine"
    )


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
