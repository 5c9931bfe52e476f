"""Compares the configurations of two saved studies, with reasons if they are not comparable. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean
from typing import Any, NamedTuple

import msgspec

from polybench.analysis.verdicts import DIFFERENCES, judge
from polybench.results.interference import inconclusive_reason, unaffected_step_times
from polybench.results.repetitions import Repetitions
from polybench.results.summaries import StudySummary
from polybench.schema import units
from polybench.schema.analyses import ENOUGH_REPETITIONS, Changed, DiffDocument, DiffRow, StudyInfo, StudySpread
from polybench.schema.metadata import UNKNOWN_HOST, Host
from polybench.schema.options import RENAME, Study
from polybench.schema.result import Interval, Result, largest_change
from polybench.schema.study import StudyDocument
from polybench.stats.between_studies import LogRatioChange, combine, difference_of_shifts, log_ratio_change
from polybench.stats.statistics import process_log_means, process_means, q_values

TOLERANCE = Study().tolerance
"""Smallest difference of step times that is named, as in a study: a verdict needs an interval besides."""

WORKLOAD = (
    *("pass_", "model", "dataset", "batch_size", "optimizer", "precision", "threads", "input", "loader_workers"),
    *("augment", "replicas"),
)
"""Fields of a result's workload; results that differ in one of them did different work."""

GLOBAL_SETTINGS = ("malloc", "pinned_cpus")
"""Settings that may change the times of all configurations."""

_SETTINGS = (
    *("pass_", "model", "dataset", "data_sha256", "batch_size", "optimizer", "precision", "threads", "malloc"),
    *("pinned_cpus", "seed", "input", "loader_workers", "augment", "processes"),
)
_HOST = ("hostname", "os", "cpu", "cores", "threads", "memory_bytes", "gpus", "cpu_governor", "python")

_NOTABLE_PEAK_CHANGE = 0.05
"""Relative change of a peak that is reported, equal to `schema.measurements.MAX_DRIFT`."""

SIGNIFICANCE_LEVEL = 0.05
"""Expected fraction of false verdicts among all verdicts of a difference."""


class _Compared(NamedTuple):
    """A row without its verdict, and its change: without drift, if it `is_corrected`; None if it is not comparable."""

    row: DiffRow
    change: LogRatioChange | None = None
    is_corrected: bool = True


def diff(
    a: StudyDocument,
    b: StudyDocument,
    tolerance: float = TOLERANCE,
    *,
    same_machine: bool = False,
    saved: Sequence[StudySummary] = (),
) -> DiffDocument:
    """Compare each configuration of A with the one of the same name in B.

    A configuration is faster or slower if its ratio exceeds the tolerance and its interval excludes 1, and does not
    differ if the interval lies within the tolerance. The level of the interval limits the rate of false verdicts among
    many rows. The mean change of all other engines on the same device, whose versions did not change, is attributed to
    the machine. Intervals contain the spread between studies of this machine, estimated from its `saved` ones. With
    `same_machine`, both host names belong to one machine, as with containers.
    """
    results_b = {result.configuration: result for result in b.results}
    names_a = {result.configuration for result in a.results}
    machine = machine_difference(a.host, b.host, by_name=not same_machine)
    candidates = [_candidate(a, b, one, results_b.get(one.configuration), machine) for one in a.results]
    candidates += [_Compared(_row(one, "only in B")) for one in b.results if one.configuration not in names_a]
    changed = study_changes(a, b)
    repetitions = Repetitions(saved, {"A": a, "B": b}, same_machine=machine is None)
    all_changed = any(name in changed for name in GLOBAL_SETTINGS)
    compared = list(_with_intervals(candidates, repetitions, all_changed=all_changed))
    rows = list(_with_verdicts(compared, tolerance))
    return DiffDocument(
        a=_study_info(a),
        b=_study_info(b),
        tolerance=tolerance,
        changed=changed,
        rows=rows,
        warnings=[
            *([f"cannot tell: {machine}"] if machine else []),
            *machine_warnings(rows),
            *_uncertain_drift(rows),
            *_suggest_versions(rows, tolerance),
        ],
    )


def _study_info(study: StudyDocument) -> StudyInfo:
    version = " ".join(filter(None, (study.polybench.version, study.polybench.commit)))
    return StudyInfo(study.id, study.created, study.title, study.host.hostname, version)


def _row(result: Result, reason: str | None, **fields: Any) -> DiffRow:
    return DiffRow(
        configuration=result.configuration,
        engine=result.engine,
        device=result.device,
        verdict="not comparable",
        reason=reason,
        **fields,
    )


def _candidate(
    a: StudyDocument, b: StudyDocument, result_a: Result, result_b: Result | None, machine: str | None
) -> _Compared:
    if result_b is None:
        return _Compared(_row(result_a, "only in A"))
    seconds = tuple(one.step_time.mean if one.step_time else None for one in (result_a, result_b))
    different = next(work_differences(a, b, result_a, result_b), None)
    reason = different or machine or _inconclusive(result_a, result_b)
    row = _row(result_a, reason, step_seconds=seconds, changed=result_changes(result_a, result_b))
    if different:
        return _Compared(row)
    row = msgspec.structs.replace(row, verdict="cannot tell")
    step_times = unaffected_step_times(result_a), unaffected_step_times(result_b)
    one, two = map(process_log_means, step_times)
    row = msgspec.structs.replace(row, ratio=math.exp(fmean(one) - fmean(two)))
    return _Compared(row, log_ratio_change(*step_times))


def work_differences(a: StudyDocument, b: StudyDocument, result_a: Result, result_b: Result) -> Iterator[str]:
    """Yield the reasons why the two results are not measurements of the same work."""
    for result, study in ((result_a, "A"), (result_b, "B")):
        if result.parity.status == "fail" and not result.is_ranked:
            yield f"failed the parity check in {study}"
        elif not result.is_ranked:
            yield f"{result.status} in {study}: {result.reason}" if result.reason else f"not measured in {study}"
    if result_a.parity.status != result_b.parity.status:
        words = {"pass": "passed", "skipped": "was skipped", "fail": "failed"}
        yield f"the parity check {words[result_a.parity.status]} in A but {words[result_b.parity.status]} in B"
    for name in WORKLOAD:
        one, two = (_plain(getattr(result.workload, name)) for result in (result_a, result_b))
        if one != two:
            label = RENAME.get(name, name).replace("_", " ")
            yield f"different {label}: {format_value(one)} in A, {format_value(two)} in B"
    if a.settings.data_sha256 != b.settings.data_sha256:
        yield f"different {a.settings.input_kind}s"
    resolutions = [one.step_times.resolution if one.step_times else None for one in (result_a, result_b)]
    if resolutions[0] != resolutions[1]:
        yield f"step times are of a {resolutions[0]} in A but of a {resolutions[1]} in B"


def _inconclusive(result_a: Result, result_b: Result) -> str | None:
    for result, study in ((result_a, "A"), (result_b, "B")):
        if len(process_means(unaffected_step_times(result))) < 2:
            return f"only one process in {study}, and another one may differ; use --processes 5"
        if (reason := inconclusive_reason(result)) is not None:
            return f"{reason} in {study}"
    return None


def study_changes(a: StudyDocument, b: StudyDocument) -> Changed:
    """Return changed settings, machine and polybench; not rounds and steps, which depend on the speed."""
    fields = (
        *((RENAME.get(name, name), a.settings, b.settings, name) for name in _SETTINGS),
        *((f"host.{name}", a.host, b.host, name) for name in _HOST),
        *((f"polybench.{name}", a.polybench, b.polybench, name) for name in ("version", "commit")),
    )
    pairs = {name: (getattr(one, field), getattr(two, field)) for name, one, two, field in fields}
    return _different(pairs)


def result_changes(a: Result, b: Result) -> Changed:
    """Return changed versions, builds, environment variables, conventions and peak of a configuration."""
    one, two = _flat(a.versions), _flat(b.versions)
    pairs = {name: (one.get(name), two.get(name)) for name in dict.fromkeys([*one, *two])}
    conventions = [sorted({one.rule for one in result.parity.known_deviations}) for result in (a, b)]
    pairs["conventions"] = (conventions[0], conventions[1])
    if a.peak and b.peak and abs(b.peak.flops_per_second / a.peak.flops_per_second - 1) > _NOTABLE_PEAK_CHANGE:
        pairs["peak"] = (a.peak.flops_per_second, b.peak.flops_per_second)
    return _different(pairs)


def machine_difference(a: Host, b: Host, *, by_name: bool) -> str | None:
    """Describe a certain or possible difference between two machines; None if they are the same.

    With `by_name`, host names count, and the machine of an anonymous study is unknown.
    """
    unknown = by_name and UNKNOWN_HOST in (a.hostname, b.hostname)
    for name in ("hostname", "cpu", "cores", "gpus")[0 if by_name and not unknown else 1 :]:
        one, two = getattr(a, name), getattr(b, name)
        if one != two:
            return f"different machine: {name} is {format_value(one)} in A, {format_value(two)} in B"
    if unknown:
        return "an anonymous study may come from another machine; if it does not, add --same-machine"
    return None


def format_value(value: Any) -> str:
    """Format a value of a setting for users."""
    if value is None:
        return "none"
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {format_value(item)}" for key, item in value.items() if item not in (None, [], 0.0))
    if isinstance(value, list | tuple):
        return " ".join(map(format_value, value)) or "none"
    return str(value)


def _different(pairs: Mapping[str, tuple[Any, Any]]) -> Changed:
    plain = {name: (_plain(one), _plain(two)) for name, (one, two) in pairs.items()}
    return {name: pair for name, pair in plain.items() if pair[0] != pair[1]}


def _plain(value: Any) -> Any:
    return msgspec.to_builtins(value)


def _flat(versions: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Flatten nested dictionaries: `{"build": {"MKL": "2024"}}` becomes `{"build.MKL": "2024"}`."""
    flat: dict[str, Any] = {}
    for name, value in versions.items():
        flat |= _flat(value, f"{prefix}{name}.") if isinstance(value, dict) else {f"{prefix}{name}": value}
    return flat


def _with_intervals(
    candidates: Sequence[_Compared], repetitions: Repetitions, *, all_changed: bool
) -> Iterator[_Compared]:
    """Yield the rows with their intervals, and the changes that show whether there is a difference.

    The interval within one study does not cover the shifts of a machine from study to study. Unchanged configurations
    reveal the common part of the shifts: the mean change of all other engines on the same device is attributed to the
    machine. What remains are the configurations' own shifts. With `all_changed`, no engine reveals the machine's.
    The drift that few engines reveal may be less certain than the change itself, which then shows whether there is a
    difference.
    """
    judged = [one for one in candidates if one.change is not None and one.row.reason is None]
    unchanged = [] if all_changed else [one for one in judged if not set(one.row.changed) - {"peak"}]
    for one in candidates:
        row, change, _ = one
        if change is None:
            yield one
            continue
        # This change is not a repetition.
        total = [repetitions.spread(name, device=row.device, without=("B", None)) for name in "AB"]
        found = corrected = change.subtract(difference_of_shifts(*total))
        fields: dict[str, Any] = {"ci95": found.ci95}
        if row.reason is None:
            controls = [
                other for other in unchanged if other.row.engine != row.engine and other.row.device == row.device
            ]
            used = total[0]
            if controls:
                used = repetitions.spread("A", device=row.device, without=("B", row.engine), of_own_shifts=True)
                share = 1 / len(controls)
                drift = combine(*((share, other.change) for other in controls if other.change))
                fields["machine_drift_ratio"] = drift.ratio
                corrected = combine((1, change), (-1, drift), (math.sqrt(1 + share), difference_of_shifts(used, used)))
                found = _more_certain(change, corrected, [*total, used])
            names = [other.row.configuration for other in controls]
            fields |= {"controls": names, "spread": used}
            fields |= {"corrected_ratio": corrected.ratio, "corrected_ci95": corrected.ci95}
        yield _Compared(msgspec.structs.replace(row, **fields), None if row.reason else found, found is corrected)


def _more_certain(change: LogRatioChange, corrected: LogRatioChange, spreads: Sequence[StudySpread]) -> LogRatioChange:
    """Return the change without drift, or the smaller one of the two with the variance of the change itself.

    The second one only if shifts are assumed, so that those of other engines do not widen the interval of a change
    that is clear without them. The shifts of a machine are at least the configurations' own.
    """
    widest = max(spreads, key=lambda spread: spread.std)
    own = change.subtract(difference_of_shifts(widest, widest))
    if corrected.variance <= own.variance or min(spread.repetitions for spread in spreads) >= ENOUGH_REPETITIONS:
        return corrected
    return own._replace(log=min(change.log, corrected.log, key=abs))


def _with_verdicts(compared: Sequence[_Compared], tolerance: float) -> Iterator[DiffRow]:
    rates = iter(q_values([one.change.p_value for one in compared if one.change is not None]))
    for row, change, is_corrected in compared:
        if change is None:
            yield row
            continue
        rate = next(rates)
        # If nothing is known to have changed, a change of the controls must not create a difference.
        suffices = row.changed and is_corrected
        verdict, reason = judge(
            row.corrected_ratio or change.ratio,
            _interval(row),
            tolerance,
            is_significant=rate < SIGNIFICANCE_LEVEL,
            confirming=None if suffices else row.ratio,
        )
        yield msgspec.structs.replace(row, verdict=verdict, q_value=rate, reason=reason)


def _interval(row: DiffRow) -> Interval:
    """Return the interval that the verdict refers to."""
    return row.corrected_ci95 or row.ci95 or (1.0, 1.0)


def _uncertain_drift(rows: Sequence[DiffRow]) -> Iterator[str]:
    """Name the verdicts that the interval without drift does not show."""
    names = [row.configuration for row in rows if row.verdict in DIFFERENCES and _contains_1(_interval(row))]
    if names:
        yield f"{', '.join(names)}: the drift that the other engines show is less certain than the change itself"


def _contains_1(interval: Interval) -> bool:
    return interval[0] <= 1 <= interval[1]


def _suggest_versions(rows: Sequence[DiffRow], tolerance: float) -> Iterator[str]:
    """Suggest to measure side by side if a row that changed may differ by more than the tolerance."""
    judged = [row for row in rows if row.q_value is not None and row.verdict == "cannot tell"]
    undecided = [row for row in judged if row.changed or units.describe_too_wide(_interval(row))]
    open_change = max((largest_change(_interval(row)) for row in undecided), default=0.0)
    if open_change > tolerance:
        yield (
            f"studies of different times leave changes of up to {100 * open_change:.2g}% open: polybench versions"
            " measures two versions side by side and finds smaller ones:"
            " polybench versions OLD NEW --package NAME, or --checkout FOLDER"
        )


def machine_warnings(rows: Sequence[DiffRow]) -> list[str]:
    """Warn for each device if all engines changed in the same way, or if drift cannot be ruled out."""
    by_device: dict[str, list[DiffRow]] = {}
    for row in rows:
        if row.q_value is not None and row.ratio and row.ci95:
            by_device.setdefault(row.device, []).append(row)
    return [text for device, compared in by_device.items() for text in _device_warnings(device, compared)]


def _device_warnings(device: str, rows: Sequence[DiffRow]) -> list[str]:
    ratios = [row.ratio for row in rows if row.ratio]
    all_significant = all(row.ci95 and not _contains_1(row.ci95) for row in rows)
    same_direction = len({ratio > 1 for ratio in ratios}) == 1
    if len({row.engine for row in rows}) > 1 and same_direction and all_significant:
        typical = math.exp(fmean(map(math.log, ratios)))
        word, factor = ("faster", typical) if typical > 1 else ("slower", 1 / typical)
        return [
            f"all configurations on {device} are {word} by a factor of about {units.format_number(factor)}:"
            " the machine or something that all engines share probably changed; measure both side by side to"
            " find out"
        ]
    if any(row.verdict in DIFFERENCES and not row.controls for row in rows):
        return [
            f"no other engine on {device} is unchanged between the studies, so a change of the machine cannot"
            " be distinguished from one of the engine; measure both side by side, or add another engine"
        ]
    if any(row.verdict in DIFFERENCES and not row.changed and len(row.controls) == 1 for row in rows):
        return [
            f"only two engines on {device} are unchanged between the studies, so a change of one of them cannot be"
            " distinguished from a change of the other; add another engine"
        ]
    return []
