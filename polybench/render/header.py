"""Header of a table: the workload, the extent of the measurement and the machine."""

from __future__ import annotations

from collections.abc import Iterable

from polybench.schema import units
from polybench.schema.metadata import Host, Settings
from polybench.schema.result import StepTimes
from polybench.schema.study import StudyDocument


def header_lines(study: StudyDocument) -> list[str]:
    """Describe a study in three lines, and in a fourth if it is unfinished."""
    measured = [result.step_times for result in study.results if result.step_times]
    unfinished = ["unfinished: the study was killed or is still running"] if study.finished is False else []
    return header_for(study.settings, study.host, measured) + unfinished


def header_for(settings: Settings, host: Host, step_times: list[StepTimes]) -> list[str]:
    """Describe any document; `step_times` contains those of each of its configurations."""
    data = "synthetic data" if settings.dataset == "synthetic" else settings.dataset
    baseline = f"; baseline {settings.baseline}" if settings.baseline else ""
    return [
        f"{settings.model} ({units.format_count(settings.parameters)} parameters) on {data}, "
        f"batch {settings.batch_size}, {settings.precision}, {units.plural(settings.threads, 'thread')}"
        f"{_pinned(settings)}, malloc {settings.malloc}, seed {settings.seed}{_input(settings)}",
        f"{_extent(step_times) or 'nothing measured'}{baseline}",
        f"{host.cpu}, {units.plural(host.cores, 'core')}{''.join(f', {gpu}' for gpu in host.gpus)}",
    ]


def _pinned(settings: Settings) -> str:
    """Name the CPUs to which the threads are pinned; "" if they are not pinned."""
    cpus = settings.pinned_cpus
    return f" pinned to {'CPUs' if len(cpus) > 1 else 'CPU'} {','.join(map(str, cpus))}" if cpus else ""


def _input(settings: Settings) -> str:
    """Describe the input pipeline; "" for preloaded batches."""
    if settings.input == "preload":
        return ""
    augmented = ", augmented" if settings.augment else ""
    return f", {settings.input} with {units.plural(settings.loader_workers or 0, 'loader worker')}{augmented}"


def _extent(step_times: list[StepTimes]) -> str:
    """Count processes, rounds and steps that ran; a budget or an interruption may have ended them early."""
    if not step_times:
        return ""
    processes = [process for times in step_times for process in times.values]
    steps = (
        len(values) * times.steps_per_value for times in step_times for process in times.values for values in process
    )
    return " x ".join(
        (
            _format_range((len(times.values) for times in step_times), "process", "processes"),
            _format_range((len(process) for process in processes), "round", "rounds"),
            _format_range(steps, "step", "steps"),
        )
    )


def _format_range(numbers: Iterable[int], singular: str, plural: str) -> str:
    values = sorted(numbers)
    low, high = values[0], values[-1]
    word = singular if high == 1 else plural
    return f"{high} {word}" if low == high else f"{low} to {high} {word}"
