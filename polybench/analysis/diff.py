"""Compares the configurations of two saved studies, with reasons if they are not comparable. Pure."""

from __future__ import annotations

from polybench.analysis.setting_changes import (
    GLOBAL_SETTINGS,
    machine_difference,
    result_changes,
    study_changes,
    workload_difference,
)
from polybench.analysis.verdicts import Candidate, classify, machine_warnings
from polybench.results.interference import inconclusive_reason, unaffected_step_times
from polybench.schema.analyses import DiffDocument, DiffRow, StudyInfo
from polybench.schema.result import Result
from polybench.schema.study import StudyDocument
from polybench.stats.statistics import compare_studies, log_ratio_change, process_log_medians

TOLERANCE = 0.02
"""Relative change of a step time that counts as no difference.

Fresh processes of one program differ by several percent, and a machine differs somewhat less from hour to
hour. Smaller differences rarely matter."""


def diff(
    a: StudyDocument, b: StudyDocument, tolerance: float = TOLERANCE, *, same_machine: bool = False
) -> DiffDocument:
    """Compare each configuration of A with the one of the same name in B.

    A configuration is faster or slower if its ratio exceeds the tolerance and its interval excludes 1. The
    level of the interval limits the rate of false verdicts among many rows. If all other engines on the same
    device significantly changed in the same direction, that much of the change is attributed to the machine.

    Args:
        a: the earlier study or the baseline.
        b: the other study.
        tolerance: relative change of a step time that counts as no difference.
        same_machine: True if the two host names belong to one machine, as with containers.
    """
    results_b = {result.configuration: result for result in b.results}
    names_a = {result.configuration for result in a.results}
    machine = machine_difference(a.host, b.host, by_name=not same_machine)
    candidates = [_candidate(a, b, one, results_b.get(one.configuration), machine) for one in a.results]
    candidates += [Candidate(_unmatched(one, "B")) for one in b.results if one.configuration not in names_a]
    changed = study_changes(a, b)
    rows = classify(candidates, tolerance, all_changed=any(name in changed for name in GLOBAL_SETTINGS))
    return DiffDocument(
        a=_study_info(a),
        b=_study_info(b),
        tolerance=tolerance,
        changed=changed,
        rows=rows,
        warnings=[*([f"inconclusive: {machine}"] if machine else []), *machine_warnings(rows)],
    )


def _study_info(study: StudyDocument) -> StudyInfo:
    version = " ".join(filter(None, (study.polybench.version, study.polybench.commit)))
    return StudyInfo(study.id, study.created, study.title, study.host.hostname, version)


def _unmatched(result: Result, study: str) -> DiffRow:
    return DiffRow(
        configuration=result.configuration,
        engine=result.engine,
        device=result.device,
        verdict="not comparable",
        reason=f"only in {study}",
    )


def _candidate(
    a: StudyDocument, b: StudyDocument, result_a: Result, result_b: Result | None, machine: str | None
) -> Candidate:
    if result_b is None:
        return Candidate(_unmatched(result_a, "A"))
    seconds = [one.step_time.median if one.step_time else None for one in (result_a, result_b)]
    different = _unranked(result_a, "A") or _unranked(result_b, "B") or _different_check(result_a, result_b)
    different = different or workload_difference(a, b, result_a, result_b)
    different = different or _different_resolution(result_a, result_b)
    reason = different or machine or _inconclusive(result_a, result_b)
    step_times = unaffected_step_times(result_a), unaffected_step_times(result_b)
    ratio = None if different else compare_studies(*step_times)
    row = DiffRow(
        configuration=result_a.configuration,
        engine=result_a.engine,
        device=result_a.device,
        verdict="not comparable",
        reason=reason,
        step_seconds=(seconds[0], seconds[1]),
        ratio=None if ratio is None else ratio.value,
        ci95=None if ratio is None else ratio.ci95,
        changed=result_changes(result_a, result_b),
    )
    return Candidate(row, None if reason else log_ratio_change(*step_times))


def _unranked(result: Result, study: str) -> str | None:
    if result.is_ranked:
        return None
    if result.parity.status == "fail":
        return f"failed the parity check in {study}"
    return f"{result.status} in {study}: {result.reason}" if result.reason else f"not measured in {study}"


def _different_check(result_a: Result, result_b: Result) -> str | None:
    words = {"pass": "passed", "skipped": "was skipped", "fail": "failed"}
    one, two = result_a.parity.status, result_b.parity.status
    return None if one == two else f"the parity check {words[one]} in A but {words[two]} in B"


def _different_resolution(result_a: Result, result_b: Result) -> str | None:
    one, two = (one.step_times.resolution if one.step_times else None for one in (result_a, result_b))
    return None if one == two else f"step times are of a {one} in A but of a {two} in B"


def _inconclusive(result_a: Result, result_b: Result) -> str | None:
    for result, study in ((result_a, "A"), (result_b, "B")):
        if len(process_log_medians(unaffected_step_times(result))) < 2:
            return f"only one process in {study}, and another one may differ; use --processes 5"
        if (reason := inconclusive_reason(result)) is not None:
            return f"{reason} in {study}"
    return None
