"""A bisection: a row per measured version, and the version at which the step time changed."""

from __future__ import annotations

import math
from collections.abc import Iterator
from statistics import fmean

from polybench.render.table import DEFAULTS, Records, Table, TableOptions, one_line, text_columns
from polybench.schema import units
from polybench.schema.analyses import BisectDocument


def table(document: BisectDocument, _: TableOptions = DEFAULTS) -> Table:
    """Build a row for each measured version, in order."""
    rows = []
    for version in document.versions:
        ratios = [pair.ratio for pair in document.pairs if pair.version == version]
        if ratios:
            mark = "* " if version == document.version else ""
            typical = math.exp(fmean(map(math.log, ratios)))
            rows.append([f"{mark}{version}", str(len(ratios)), _change(typical)])
    first, last = document.versions[0], document.versions[-1]
    number = units.plural(len(document.versions) - 1, "possible change")
    return Table(
        title=[f"{one_line(document.subject)} in {document.engine}: {first} to {last}, {number}"],
        columns=text_columns("version", "pairs", f"step time over {first}"),
        rows=rows,
        summary=[_conclusion(document)],
        notes=list(_notes(document)),
    )


def records(document: BisectDocument, _: TableOptions) -> Records:
    """List a record per pair."""
    return Records(["version", "study", "ratio"], [[one.version, one.study, one.ratio] for one in document.pairs])


def _conclusion(document: BisectDocument) -> str:
    if document.version is None or document.ratio is None or document.ci95 is None:
        within = document.credible_versions
        where = "" if within is None else f"the step time changed between {within[0]} and {within[1]} (95 %); "
        return f"cannot tell: {where}{document.inconclusive_reason}"
    word = "slower" if document.ratio > 1 else "faster"
    low, high = document.ci95
    name = " ".join(filter(None, [document.version, one_line(document.description or "")]))
    return (
        f"{word} since {name}: the step time changed by {_change(document.ratio)} [{_change(low)}, {_change(high)}]"
        f" over {document.previous}; {units.plural(len(document.pairs), 'pair')}"
    )


def _notes(document: BisectDocument) -> Iterator[str]:
    yield f"a pair: {units.plural(document.processes, 'process run')} of the version and of {document.versions[0]}"
    yield "a search assumes one change; if there are several, it names one of them"
    for version, reason in document.skipped.items():
        yield f"skipped {version}: {one_line(reason)}"
    if document.version is not None:
        first, last = map(document.versions.index, (document.previous or "", document.version))
        if between := document.versions[first + 1 : last]:
            yield f"{', '.join(between)} could not be measured: the change may be there as well"


def _change(ratio: float) -> str:
    return f"{ratio - 1:+.1%}"
