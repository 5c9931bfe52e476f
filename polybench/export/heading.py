"""The lines above a table: what all its cells share."""

from __future__ import annotations

from collections.abc import Iterable

from polybench.core import units
from polybench.core.document.circumstances import Host, Settings
from polybench.core.document.study import StudyDocument
from polybench.core.document.times import Samples


def heading(study: StudyDocument) -> list[str]:
    """The workload; how it was measured; on what; and whether that has come to its end."""
    measured = [result.samples for result in study.results if result.samples]
    unfinished = ["not finished: it was killed, or runs still"] if study.finished is False else []
    return heading_of(study.settings, study.host, measured) + unfinished


def heading_of(settings: Settings, host: Host, measured: list[Samples]) -> list[str]:
    """The same of a document of another kind; `measured` has the samples of each of its cells."""
    data = "synthetic data" if settings.dataset == "synthetic" else settings.dataset
    how = _extent(measured)
    baseline = f"; baseline {settings.baseline}" if settings.baseline else ""
    return [
        f"{settings.model} ({units.count(settings.parameters)} parameters) on {data}, "
        f"batch {settings.batch_size}, {settings.precision}, {units.plural(settings.threads, 'thread')}"
        f"{_pinned(settings)}, heap {settings.heap}, seed {settings.seed}{_input(settings)}",
        f"{how or 'nothing measured'}{baseline}",
        f"{host.cpu}, {units.plural(host.cores, 'core')}{''.join(f', {gpu}' for gpu in host.gpus)}",
    ]


def _pinned(settings: Settings) -> str:
    """The CPUs to which the threads were bound; nothing where they were not."""
    if not settings.pinned:
        return ""
    return f" pinned to {'CPUs' if len(settings.pinned) > 1 else 'CPU'} {','.join(map(str, settings.pinned))}"


def _input(settings: Settings) -> str:
    """How the batches came to the engines; nothing where they were there from the beginning."""
    if settings.input == "preload":
        return ""
    augmented = ", augmented" if settings.augment else ""
    return f", {settings.input} with {units.plural(settings.workers or 0, 'worker')}{augmented}"


def _extent(measured: list[Samples]) -> str:
    """What was measured, not what was asked for: the budget or an interrupt may have ended it earlier."""
    if not measured:
        return ""
    processes = [process for samples in measured for process in samples.step_seconds]
    steps = (
        len(one_round) * samples.steps_per_sample
        for samples in measured
        for process in samples.step_seconds
        for one_round in process
    )
    return " x ".join(
        (
            _span((len(samples.step_seconds) for samples in measured), "process", "processes"),
            _span((len(process) for process in processes), "round", "rounds"),
            _span(steps, "step", "steps"),
        )
    )


def _span(numbers: Iterable[int], singular: str, plural: str) -> str:
    values = sorted(numbers)
    low, high = values[0], values[-1]
    word = singular if high == 1 else plural
    return f"{high} {word}" if low == high else f"{low} to {high} {word}"
