"""A saved study and what belongs to it -> an explanation of its differences. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from polybench.core import units
from polybench.core.document.explanation import Account, ExplanationDocument, Pair, Sentence
from polybench.core.document.layers import LayersDocument
from polybench.core.document.result import Result
from polybench.core.document.study import StudyDocument
from polybench.core.document.times import Relative
from polybench.core.errors import BadInput
from polybench.core.names import pick
from polybench.core.statistics import Ratio, differs
from polybench.planning.follow_ups import measured_study
from polybench.report.accounts import by_batch_size, by_layers, by_start, difference
from polybench.report.advice import gains
from polybench.report.belonging import layers_of, varied
from polybench.report.comparisons import relative
from polybench.report.explanation_words import advice, sentences
from polybench.report.not_measured import left_out, not_measured

_POINTS = 3
"""Through two batch sizes there always is a line; the third can show that there is none."""


class Saved(NamedTuple):
    """All other documents, the newest first."""

    layers: Sequence[LayersDocument] = ()
    studies: Sequence[StudyDocument] = ()


def explain(document: StudyDocument, saved: Saved, against: str | None = None) -> ExplanationDocument:
    """Take each difference of two rows apart, and say what was measured to be faster.

    Args:
        document: the study.
        saved: what may belong to it.
        against: the cell with which the others are compared, by default the study's baseline.

    Raises:
        BadInput: there are no two rows with times that may be compared, or `against` is none of them.
    """
    ranked = [result for result in document.results if result.ranked]
    base = _base(document, ranked, against)
    study = measured_study(document)
    pairs = [_pair(document, base, other, saved) for other in ranked if other is not base]
    slower = {pair.cell if pair.seconds > 0 else pair.against: None for pair in pairs}
    cells = [document.result(cell) for cell in slower]
    found = [gain for cell in cells for gain in gains(document, cell, saved.studies)]
    return ExplanationDocument(
        study=document.id,
        created=document.created,
        polybench=document.polybench,
        settings=document.settings,
        host=document.host,
        pairs=sorted(pairs, key=lambda pair: pair.uncertain is None),
        advice=[_of_inputs(advice(gain), document) for gain in sorted(found, key=lambda gain: -gain.seconds)],
        missing=list(not_measured(document, study, pairs, cells, saved.studies, saved.layers)),
        left_out=list(left_out(document, study)),
    )


def _base(document: StudyDocument, ranked: Sequence[Result], against: str | None) -> Result:
    by_cell = {result.cell: result for result in ranked}
    if against is not None:
        result = pick(against, {result.cell: result for result in document.results}, "cell")
        if against not in by_cell:
            raise BadInput(f"{_why_not(result)}; give --against one of {', '.join(by_cell)}")
    if len(ranked) < 2:
        others = "".join(f"; {_why_not(result)}" for result in document.results if not result.ranked)
        rows = f"one row with times, {ranked[0].cell}" if ranked else "no row with times"
        raise BadInput(
            f"study {document.id} has {rows}, and a difference needs two{others}; measure them together:"
            " polybench compare --engines torch,tf"
        )
    return by_cell.get(against or document.settings.baseline or "", ranked[0])


def _why_not(result: Result) -> str:
    reason = "did not do the same arithmetic" if result.parity.status == "fail" else result.reason or ""
    remedy = f" ({result.remedy})" if result.remedy else ""
    return " ".join(f"{result.cell}: {result.status}: {reason}{remedy}".split()).removesuffix(":")


def _pair(document: StudyDocument, base: Result, other: Result, saved: Saved) -> Pair:
    found = relative(base, other)
    seconds, interval = difference(base, other)
    accounts = (_layers(document, base, other, saved), _batch_size(document, base, other, saved))
    pair = Pair(
        cell=other.cell,
        against=base.cell,
        ours=other.typical_seconds,
        theirs=base.typical_seconds,
        seconds=seconds,
        interval95=interval,
        speedup=found.speedup if found else base.typical_seconds / other.typical_seconds,
        speedup95=found.interval95 if found else None,
        uncertain=_uncertain(found),
        accounts=[one for one in (*accounts, by_start(base, other)) if one is not None],
    )
    pair.sentences = [_of_inputs(one, document) for one in sentences(pair, base, other)]
    return pair


def _of_inputs(sentence: Sentence, document: StudyDocument) -> Sentence:
    """About sequences where those are what the study trains on."""
    text = units.of_inputs(sentence.text, document.settings.unit)
    return msgspec.structs.replace(sentence, text=text)


def _uncertain(found: Relative | None) -> str | None:
    if found is None:
        return "the two were never measured in the same round"
    if found.no_verdict is not None:
        return found.no_verdict
    verdict = differs(Ratio(found.speedup, found.interval95, found.scope))
    if verdict is None:
        return "all was measured within one run, and the next one may differ; --processes 5 tells"
    return None if verdict else "the interval of the ratio has 1 in it"


def _layers(document: StudyDocument, base: Result, other: Result, saved: Saved) -> Account | None:
    belonging = layers_of(document, saved.layers, [base.cell, other.cell])
    return None if belonging is None else by_layers(base, other, belonging)


def _batch_size(document: StudyDocument, base: Result, other: Result, saved: Saved) -> Account | None:
    rows = varied(document, [base.cell, other.cell], "batch_size", saved.studies)
    studies = {int(one.value): one.study for one, _ in rows} | {document.settings.batch_size: document}
    return by_batch_size(base, other, studies) if len(studies) >= _POINTS else None
