"""Two saved studies -> a row for each cell, with the reasons why some are not comparable. Pure."""

from __future__ import annotations

from polybench.core.document.diff import DiffDocument, DiffRow, Side
from polybench.core.document.result import Result
from polybench.core.document.study import StudyDocument
from polybench.core.shifts import ratio_of_studies, shift
from polybench.core.statistics import process_levels
from polybench.report.changed import CIRCUMSTANCES, of_results, of_studies, other_machine, other_work
from polybench.report.disturbance import no_verdict, quiet_steps
from polybench.report.verdicts import Compared, judged, of_the_machine

TOLERANCE = 0.02
"""Fresh processes of one program differ by several percent, and so may, on a smaller scale, two hours of a
machine; no decision hangs on less."""


def diff(
    a: StudyDocument, b: StudyDocument, tolerance: float = TOLERANCE, *, same_machine: bool = False
) -> DiffDocument:
    """Compare each cell of A with the one of the same name in B.

    A cell is faster or slower where its ratio is beyond the tolerance, and its interval has no 1, at a level
    that keeps false verdicts rare among many rows. Where all other engines on the same device certainly moved
    the same way, as much of it is taken for the machine's.

    Args:
        a: the earlier study, or what is compared with.
        b: the other one.
        tolerance: the fraction by which a step may change without a difference.
        same_machine: whether the two hosts are one machine by two names, as containers are.
    """
    theirs = {result.cell: result for result in b.results}
    mine = {result.cell for result in a.results}
    machine = other_machine(a.host, b.host, by_name=not same_machine)
    compared = [_compared(a, b, result, theirs.get(result.cell), machine) for result in a.results]
    compared += [Compared(_alone(result, "B")) for result in b.results if result.cell not in mine]
    changed = of_studies(a, b)
    rows = judged(compared, tolerance, all_changed=any(name in changed for name in CIRCUMSTANCES))
    return DiffDocument(
        a=_side(a),
        b=_side(b),
        tolerance=tolerance,
        changed=changed,
        rows=rows,
        warnings=[*([f"no verdict: {machine}"] if machine else []), *of_the_machine(rows)],
    )


def _side(study: StudyDocument) -> Side:
    tool = " ".join(filter(None, (study.polybench.version, study.polybench.commit)))
    return Side(study.id, study.created, study.title, study.host.hostname, tool)


def _alone(result: Result, side: str) -> DiffRow:
    return DiffRow(
        cell=result.cell,
        engine=result.engine,
        device=result.device,
        verdict="not comparable",
        reason=f"only in {side}",
    )


def _compared(
    a: StudyDocument, b: StudyDocument, ours: Result, theirs: Result | None, machine: str | None
) -> Compared:
    if theirs is None:
        return Compared(_alone(ours, "A"))
    seconds = [one.step_seconds.median if one.step_seconds else None for one in (ours, theirs)]
    other = _unranked(ours, "A") or _unranked(theirs, "B") or _other_check(ours, theirs)
    other = other or other_work(a, b, ours, theirs) or _other_samples(ours, theirs)
    reason = other or machine or _uncertain(ours, theirs)
    quiet = quiet_steps(ours), quiet_steps(theirs)
    ratio = None if other else ratio_of_studies(*quiet)
    row = DiffRow(
        cell=ours.cell,
        engine=ours.engine,
        device=ours.device,
        verdict="not comparable",
        reason=reason,
        seconds=(seconds[0], seconds[1]),
        ratio=None if ratio is None else ratio.value,
        interval95=None if ratio is None else ratio.interval95,
        changed=of_results(ours, theirs),
    )
    return Compared(row, None if reason else shift(*quiet))


def _unranked(result: Result, side: str) -> str | None:
    if result.ranked:
        return None
    if result.parity.status == "fail":
        return f"in {side} it did not do the same arithmetic"
    return f"{result.status} in {side}: {result.reason}" if result.reason else f"not measured in {side}"


def _other_check(ours: Result, theirs: Result) -> str | None:
    words = {"pass": "passed", "skipped": "was not made", "fail": "failed"}
    one, two = ours.parity.status, theirs.parity.status
    return None if one == two else f"the identity check {words[one]} in A, and {words[two]} in B"


def _other_samples(ours: Result, theirs: Result) -> str | None:
    one, two = (result.samples.kind if result.samples else None for result in (ours, theirs))
    return None if one == two else f"samples are of a {one} in A, of a {two} in B"


def _uncertain(ours: Result, theirs: Result) -> str | None:
    for result, side in ((ours, "A"), (theirs, "B")):
        if len(process_levels(quiet_steps(result))) < 2:
            return f"one process in {side}, and the next one may differ; --processes 5 tells"
        if (disturbed := no_verdict(result)) is not None:
            return f"{disturbed} in {side}"
    return None
