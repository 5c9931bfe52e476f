"""A study as a table: rows by status, the important columns, notes and summary; and as records."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from polybench.render import published_results
from polybench.render.footnotes import failed_parity, footnotes, key_notes
from polybench.render.table import DEFAULTS, WIDTH, Column, Records, Table, TableOptions, name_text, with_reason
from polybench.render.terminal import table_width
from polybench.render.verdicts import WITHOUT_RESULT, summary_sentences
from polybench.schema import units
from polybench.schema.metadata import Host, Settings
from polybench.schema.metrics import DEFAULT_COLUMNS, METRICS, Metric, in_table_order, select_metrics
from polybench.schema.names import namer
from polybench.schema.result import Result, StepTimes, library_versions
from polybench.schema.study import StudyDocument

_MAX_BASELINE_WIDTH = 16
"""Characters of a baseline's name in the title of a column."""

_CPU_CLUTTER = re.compile(r"\((?:R|TM|tm)\)|\b(?:CPU|Processor)\b|@ [\d.]+ ?GHz")

NOT_RANKED = "not ranked: failed the parity check"


def table(study: StudyDocument, options: TableOptions = DEFAULTS) -> Table:
    """Build the table with the chosen columns, or with the important ones; the fastest row comes first."""
    if not options.published:
        study = msgspec.structs.replace(study, published=[])
    metrics = important_columns(study, options.width) if options.columns is None else options.columns
    names = [metric.name for metric in metrics]
    key = key_notes(study, names, options.width or WIDTH)
    every = [*header_lines(study)[:2], *footnotes(study, names)]
    others = [note for note in every if note not in key.lines]
    left_out = [] if options.columns is not None else _left_out(study, names)
    return msgspec.structs.replace(
        _rows(study, metrics, key.marks, with_margin=options.columns is not None),
        id=study.id,
        origin=f"polybench {study.polybench.version}, study {study.id}, {study.created}",
        title=[*filter(None, [name_text(study.title, study.tags)]), title_line(study)],
        summary=summary_sentences(study),
        statuses=[
            (result.configuration, status_text(result))
            for result in study.results
            if not result.is_ranked and not failed_parity(result) and not _is_busy(result)
        ],
        notes=[*key.lines, *_empty_columns(study, metrics), *(others if options.notes else ())],
        further_notes=[] if options.notes else others,
        more=[] if options.notes else _more(study, options.name, len(every), left_out),
        published=published_results.table(study.published, published_results.from_study(study.results)),
        details={"Versions": _versions(study), "Study file for <code>polybench run STUDY.toml</code>": study.study},
    )


def latex_table(study: StudyDocument, options: TableOptions = DEFAULTS) -> Table:
    """Build the table for a paper: engine with version, step time, throughput and speed with their intervals.

    Chosen columns replace these. The notes are the methods; all others become comments.
    """
    from polybench.render.methods import frameworks, methods_text  # it imports this module

    whole = table(study, options)
    if options.columns is None:
        results = {result.configuration: result for result in study.results}
        rows = [_paper_row(results[row[0]], frameworks(results[row[0]])) for row in whole.rows]
        titles = [_title(study, METRICS[name]) for name in ("step_time", "throughput", "speedup")]
        columns = [Column("engine"), *(Column(title, numeric=True) for title in titles)]
        whole = msgspec.structs.replace(whole, columns=columns, rows=rows, tables=[])
    without_result = [sentence for sentence in whole.summary if sentence.startswith(WITHOUT_RESULT)]
    notes = [*without_result, methods_text(study), *(whole.notes if options.columns is not None else ())]
    comments = [one for one in (*whole.summary, *whole.notes, *whole.further_notes) if one not in notes]
    return msgspec.structs.replace(whole, summary=(), notes=notes, further_notes=comments)


def _paper_row(result: Result, framework: str) -> list[str]:
    texts = [_seconds_text(result), METRICS["throughput"].text(result), METRICS["speedup"].text(result)]
    return [f"{result.configuration}: {framework}", *texts]


def _seconds_text(result: Result) -> str:
    """Format the step time with its interval, or the mark that replaces it."""
    text = METRICS["step_time"].text(result, with_margin=False)
    step = result.step_time
    return text if step is None or text == units.NO_RESULT else units.format_seconds_with_ci(step.mean, step.ci95)


def _versions(study: StudyDocument) -> list[str]:
    versions = [f"Python {study.host.python}, {study.host.os}"]
    for result in study.results:
        packages = [f"{package} {text}" for package, text in library_versions(result.versions).items()]
        if packages:
            versions.append(f"{result.configuration}: {', '.join(packages)}")
    return versions


def _more(study: StudyDocument, name: str, notes: int, left_out: Sequence[str]) -> list[str]:
    """List the commands that print more about the study, and the columns that do not fit."""
    explainable = sum(result.is_ranked for result in study.results) > 1
    return [
        *([f"Why: polybench explain {name}"] if explainable else []),
        *([f"Programs: polybench export {name}"] if any(result.program for result in study.results) else []),
        f"{units.plural(notes, 'note')}: polybench show {name} --notes",
        *([f"columns left out: {', '.join(left_out)}"] if left_out else []),
    ]


def _left_out(study: StudyDocument, shown: Sequence[str]) -> list[str]:
    """List the important columns that have values, but do not fit."""
    return [name for name in _with_values(study, select_metrics(DEFAULT_COLUMNS)) if name not in shown]


def _rows(
    study: StudyDocument, metrics: Sequence[Metric], marks: Mapping[str, str], *, with_margin: bool = False
) -> Table:
    """Build the rows with times, ranked and unranked; marks refer to footnotes."""
    columns = [Column("engine"), *(Column(_title(study, one), one.unit is not None) for one in metrics)]

    def text(result: Result, metric: Metric) -> str:
        cell = metric.text(result, with_margin=with_margin)
        mark = marks.get(result.configuration, "") if metric.name == "parity" else ""
        return f"{cell} {mark}".strip()

    def part(results: list[Result]) -> Table:
        ordered = sorted(results, key=lambda result: result.step_time.mean if result.step_time else math.inf)
        rows = [[result.configuration, *(text(result, metric) for metric in metrics)] for result in ordered]
        return Table(columns=columns, rows=rows)

    ranked = part([result for result in study.results if result.is_ranked or _is_busy(result)])
    failed = [result for result in study.results if failed_parity(result)]
    unranked = [msgspec.structs.replace(part(failed), title=[NOT_RANKED])] if failed else []
    return msgspec.structs.replace(ranked, tables=unranked)


def _is_busy(result: Result) -> bool:
    """Return True if the result would be ranked without interference in all of its timing blocks."""
    return result.busy and result.status != "failed" and result.parity.status != "fail"


def _title(study: StudyDocument, metric: Metric) -> str:
    """Return the title of a column, with the kind of input, and with a baseline whose name is short."""
    if metric.name == "speedup" and study.settings.baseline:
        baseline = next((one for one in study.results if one.configuration == study.settings.baseline), None)
        name = namer(study)(baseline) if baseline else study.settings.baseline
        return f"{metric.title} vs. {name if len(name) <= _MAX_BASELINE_WIDTH else 'baseline'}"
    return units.with_input_kind(metric.title, study.settings.input_kind)


def fastest_rows(study: StudyDocument) -> list[list[str]]:
    """Name the fastest configuration, and those whose intervals overlap with its own; nothing if all of them do."""
    results = [result for result in study.results if result.is_for_production]
    compared = [(result.configuration, one) for result in results if (one := result.vs_baseline)]
    if any(one.is_inconclusive and one.baseline != name for name, one in compared):
        return []
    bounds = {name: one.ci95 or (one.speedup, one.speedup) for name, one in compared}
    best = max((one.speedup, bounds[name][0]) for name, one in compared)[1] if compared else 0.0
    fastest = [[name] for name, (_, high) in bounds.items() if high >= best]
    return fastest if len(fastest) < len(compared) else []


def fit_columns(study: StudyDocument, candidates: Sequence[Metric], width: int | None) -> list[Metric]:
    """Select the candidates that have a value in some row, as many as fit into a line, by importance.

    The first one is always selected. A narrower column may still fit after one that does not.
    """
    marks = key_notes(study, ["parity"], width or WIDTH).marks
    selected: list[Metric] = []
    for metric in _with_values(study, candidates).values():
        if (
            width is None
            or not selected
            or table_width(_rows(study, in_table_order([*selected, metric]), marks)) <= width
        ):
            selected.append(metric)
    return selected


def _with_values(study: StudyDocument, candidates: Sequence[Metric]) -> dict[str, Metric]:
    """Return the candidates that have a value in some row, by name."""
    measured = [result for result in study.results if result.is_measured or result.busy]
    return {one.name: one for one in candidates if any(one.text(result) for result in measured)}


def important_columns(study: StudyDocument, width: int | None) -> list[Metric]:
    """Choose the default columns: the important metrics that have a value and fit.

    Metrics of the study's published results come right after the step time.
    """
    published = [number.metric for number in study.published if number.configuration]
    first = ("step_time", *published) if published else ()
    return in_table_order(fit_columns(study, select_metrics((*first, *DEFAULT_COLUMNS)), width))


def _empty_columns(study: StudyDocument, metrics: Sequence[Metric]) -> list[str]:
    """Explain why chosen columns have no values."""
    measured = [result for result in study.results if result.is_measured]
    empty: dict[str, list[str]] = {}
    for metric in metrics:
        if measured and not any(metric.text(result) for result in measured):
            empty.setdefault(metric.unavailable_hint, []).append(metric.name)
    return [f"{', '.join(names)}: empty: {hint}" for hint, names in empty.items()]


def status_text(result: Result) -> str:
    """Describe why a configuration has no times, with a hint and the log file."""
    log = f" (log: {result.log_path})" if result.log_path else ""
    return with_reason(result.status, result.reason, result.hint) + log


def title_line(study: StudyDocument) -> str:
    """Describe workload, machine and date in a line: "lenet on cifar10, batch 128, fp32, 2 threads; AMD EPYC, ..."."""
    settings, host = study.settings, study.host
    machine = ", ".join([short_cpu(host), units.plural(host.cores, "core"), *host.gpus])
    unfinished = "; unfinished: killed or still running" if study.finished is False else ""
    return (
        f"{units.format_model(settings.model, settings.pass_)} on {_workload(settings)}{_input(settings)};"
        f" {machine}; {study.created[:10]}{unfinished}"
    )


def short_cpu(host: Host) -> str:
    """Return the processor without trademarks and its clock: "Intel Xeon"."""
    return " ".join(_CPU_CLUTTER.sub(" ", host.cpu).split())


def _workload(settings: Settings) -> str:
    cpus = settings.pinned_cpus
    pinned = f" pinned to {'CPUs' if len(cpus) > 1 else 'CPU'} {','.join(map(str, cpus))}" if cpus else ""
    threads = units.plural(settings.threads, "thread")
    return f"{settings.data_name}, batch {settings.batch_size}, {settings.precision}, {threads}{pinned}"


def header_lines(study: StudyDocument) -> list[str]:
    """Describe a study in three lines, and in a fourth if it is unfinished."""
    measured = [result.step_times for result in study.results if result.step_times]
    unfinished = ["unfinished: the study was killed or is still running"] if study.finished is False else []
    return header_for(study.settings, study.host, measured) + unfinished


def header_for(settings: Settings, host: Host, step_times: list[StepTimes]) -> list[str]:
    """Describe workload, extent and machine of any document with the step times of its configurations."""
    baseline = f"; baseline {settings.baseline}" if settings.baseline else ""
    return [
        f"{units.format_model(settings.model, settings.pass_)} ({units.format_count(settings.parameters)} parameters)"
        f" on {_workload(settings)}, malloc {settings.malloc}, seed {settings.seed}{_input(settings)}",
        f"{_extent(step_times) or 'nothing measured'}{baseline}",
        f"{host.cpu}, {units.plural(host.cores, 'core')}{''.join(f', {gpu}' for gpu in host.gpus)}",
    ]


def _input(settings: Settings) -> str:
    """Describe the input pipeline; "" for preloaded batches."""
    if settings.input == "preload":
        return ""
    augmented = ", augmented" if settings.augment else ""
    return f", {settings.input} with {units.plural(settings.loader_workers or 0, 'loader worker')}{augmented}"


def _extent(step_times: list[StepTimes]) -> str:
    """Count processes, rounds and steps that ran; a budget or an interruption may have ended them early."""
    return " x ".join(count_runs(step_times)) if step_times else ""


def count_runs(step_times: list[StepTimes]) -> tuple[str, str, str]:
    """Describe the numbers of processes, of rounds in a process, and of steps in a round."""
    processes = [process for times in step_times for process in times.values]
    steps = (
        len(values) * times.steps_per_value for times in step_times for process in times.values for values in process
    )
    return (
        _format_range((len(times.values) for times in step_times), "process", "processes"),
        _format_range((len(process) for process in processes), "round", "rounds"),
        _format_range(steps, "step", "steps"),
    )


def _format_range(numbers: Iterable[int], singular: str, plural: str) -> str:
    values = sorted(numbers)
    low, high = values[0], values[-1]
    word = singular if high == 1 else plural
    return f"{high} {word}" if low == high else f"{low} to {high} {word}"


def records(study: StudyDocument, options: TableOptions) -> Records:
    """List a record per configuration, by default with every column.

    The fields depend only on the columns, and every record contains the workload and the host. Files of
    several studies can therefore be concatenated.
    """
    metrics = list(METRICS.rows().values()) if options.columns is None else options.columns
    fields = ["study", "created", "model", "data", "batch_size", "threads", "host", "configuration", "engine"]
    fields += ["variant", "environment", "device", "precision", "status", "ranked"]
    for metric in metrics:
        unit = f" [{metric.unit}]" if metric.unit else ""
        fields += [name if name.endswith("_inconclusive") else f"{name}{unit}" for name in metric.field_names]
    return Records([*fields, "reason", "hint"], (_record(study, result, metrics) for result in study.results))


def _record(study: StudyDocument, result: Result, metrics: Sequence[Metric]) -> list[object]:
    work = result.workload
    row: list[object] = [study.id, study.created, work.model, work.dataset, work.batch_size, work.threads]
    row += [study.host.hostname, result.configuration, result.engine, result.variant, result.environment]
    row += [result.device, work.precision, result.status, result.is_ranked]
    for metric in metrics:
        row += metric.fields(result).values()
    return [*row, result.reason, result.hint]
