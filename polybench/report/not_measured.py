"""What nobody measured of a difference, with the commands that do. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from polybench.core.document.explanation import Pair, Sentence
from polybench.core.document.layers import LayersDocument
from polybench.core.document.result import Result
from polybench.core.document.study import StudyDocument
from polybench.core.spec import Study
from polybench.planning.follow_ups import (
    command_line,
    engine_of,
    for_check,
    for_comparison,
    for_layers,
    for_series,
    has_layers,
    other_variants,
)
from polybench.report.belonging import layers_of, varied
from polybench.report.disturbance import NOTABLE_SHARE, fault_share


def not_measured(
    document: StudyDocument,
    study: Study,
    pairs: Sequence[Pair],
    slower: Sequence[Result],
    studies: Sequence[StudyDocument],
    layers: Sequence[LayersDocument],
) -> Iterator[Sentence]:
    """One sentence for each thing that would tell more.

    Args:
        document: the study that is explained.
        study: its settings.
        pairs: with all accounts that could be made.
        slower: the slower cell of each pair.
        studies: saved ones, the newest first.
        layers: saved ones, the newest first.
    """
    compared = {cell for pair in pairs for cell in (pair.cell, pair.against)}
    ranked = [result for result in document.results if result.cell in compared]
    yield from _layers(document, study, pairs, layers)
    if any(pair.account("batch size") is None for pair in pairs):
        yield _missing(
            "what a step costs whatever its batch size",
            "overhead",
            command_line("overhead", for_series(study, map(engine_of, ranked), "batch_size")),
        )
    yield from _threads(document, study, slower, studies)
    yield from _batch_sizes(document, study, slower, studies)
    yield from _variants(document, study, slower)
    yield from _heap(document, study, slower, studies)
    if document.settings.input == "preload":
        with_pipeline = for_comparison(study, map(engine_of, ranked), input="pipeline")
        yield _missing(
            "waiting for data, since all of it was loaded beforehand",
            "waiting_time",
            command_line("compare", with_pipeline),
        )


def left_out(document: StudyDocument, study: Study) -> Iterator[Sentence]:
    """Cells that cannot be compared: why, and what mends it."""
    for result in document.results:
        if result.ranked:
            continue
        engine = engine_of(result)
        if result.parity.status == "fail":
            why, command = "did not do the same arithmetic", command_line("parity", for_check(study, engine))
        else:
            why = f"{result.status}{': ' + ' '.join(result.reason.split()) if result.reason else ''}"
            command = command_line("compare", for_comparison(study, [engine]))
        remedy = f" ({' '.join(result.remedy.split())})" if result.remedy else ""
        yield Sentence(text=f"{result.cell}: {why}{remedy}", figure="status", command=command)


def _missing(what: str, figure: str, command: str) -> Sentence:
    return Sentence(text=f"Not measured: {what}.", figure=figure, command=command)


def _layers(
    document: StudyDocument, study: Study, pairs: Sequence[Pair], layers: Sequence[LayersDocument]
) -> Iterator[Sentence]:
    """Names what has none; measured are both cells of each pair, since only times of one run are compared."""
    without = [(pair.cell, pair.against) for pair in pairs if pair.account("layers") is None]
    open_ones = [both for both in without if all(has_layers(document.result(cell)) for cell in both)]
    names = {cell for both in open_ones for cell in both}
    cells = [result for result in document.results if result.cell in names]
    wanted = for_layers(study, cells) if cells else None
    if wanted is None:
        return
    known = [cell for cell in cells if layers_of(document, layers, [cell.cell])]
    missing = [cell for cell in cells if cell not in known]
    what = f"the layers of {_names(missing or cells)}"
    if known:
        what += f", beside those of {_names(known)}" if missing else " in one run"
    yield _missing(what, "layers", command_line("layers", wanted))


def _threads(
    document: StudyDocument, study: Study, slower: Sequence[Result], studies: Sequence[StudyDocument]
) -> Iterator[Sentence]:
    cores = document.host.cores
    values = sorted({2**power for power in range(cores.bit_length()) if 2**power <= cores} | {cores})
    unknown = [result for result in slower if not varied(document, [result.cell], "threads", studies)]
    if unknown and len(values) > 1:
        series = for_series(study, map(engine_of, unknown), "threads")
        yield _missing(
            f"other numbers of threads for {_names(unknown)}",
            "sweep",
            command_line("sweep", series, "--threads", ",".join(map(str, values))),
        )


def _batch_sizes(
    document: StudyDocument, study: Study, slower: Sequence[Result], studies: Sequence[StudyDocument]
) -> Iterator[Sentence]:
    own = document.settings.batch_size
    values = sorted({max(1, own // 4), own, 4 * own})
    unknown = [result for result in slower if not varied(document, [result.cell], "batch_size", studies)]
    if unknown:
        series = for_series(study, map(engine_of, unknown), "batch_size")
        yield _missing(
            f"other batch sizes for {_names(unknown)}",
            "sweep",
            command_line("sweep", series, "--batch-size", ",".join(map(str, values))),
        )


def _variants(document: StudyDocument, study: Study, slower: Sequence[Result]) -> Iterator[Sentence]:
    known = {engine_of(result) for result in document.results}
    for result in {engine_of(result): result for result in slower}.values():
        others = [name for name in other_variants(result) if name not in known]
        if others:
            again = for_comparison(study, [engine_of(result), *others])
            yield _missing(
                f"other ways to run {result.cell}: {', '.join(others)}",
                "step_time",
                command_line("compare", again),
            )


def _heap(
    document: StudyDocument, study: Study, slower: Sequence[Result], studies: Sequence[StudyDocument]
) -> Iterator[Sentence]:
    """Only where page faults cost something, and the heap is not kept already."""
    costly = [
        result
        for result in slower
        if (fault_share(result.disturbance) or 0.0) > NOTABLE_SHARE
        and not varied(document, [result.cell], "heap", studies)
    ]
    if costly and document.settings.heap == "system":
        kept = for_comparison(study, map(engine_of, costly), heap="keep")
        yield _missing(
            f"{_names(costly)} with a heap that keeps its memory",
            "page_faults",
            command_line("compare", kept),
        )


def _names(results: Sequence[Result]) -> str:
    return ", ".join(result.cell for result in results)
