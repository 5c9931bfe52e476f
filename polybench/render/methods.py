"""How a study was measured, as a paragraph for a paper."""

from __future__ import annotations

from collections.abc import Sequence

from polybench.render.study import count_runs, short_cpu
from polybench.schema import units
from polybench.schema.result import Result, library_versions
from polybench.schema.study import StudyDocument

_FRAMEWORKS = {
    **{"flux": "Flux", "lux": "Lux", "torch": "PyTorch", "tensorflow": "TensorFlow", "jax": "JAX", "keras": "Keras"}
}
"""Frameworks by the name of their version."""

_PRECISIONS = {"fp32": "float32", "tf32": "TensorFloat-32", "bf16": "bfloat16"}


def methods_text(study: StudyDocument) -> str:
    """Describe workload, frameworks, machine, check, statistics and repetitions of a study in sentences."""
    measured = [result for result in study.results if result.is_measured]
    if not measured:
        return "Nothing was measured."
    between = [f"{study.repetitions.description}."] if study.repetitions else []
    parts = [_workload(study, measured), _runs(study, measured), *_check(measured), *_statistics(measured), *between]
    return " ".join(parts)


def frameworks(result: Result) -> str:
    """Name an engine's framework with its version, and the language: "Flux 0.16.10 (Julia 1.10.8)"."""
    versions = library_versions(result.versions)
    names = [f"{title} {versions[name]}" for name, title in _FRAMEWORKS.items() if name in versions]
    julia = f" (Julia {versions['julia']})" if "julia" in versions else ""
    return f"{names[0]}{julia}" if names else result.engine


def _workload(study: StudyDocument, measured: Sequence[Result]) -> str:
    settings, host = study.settings, study.host
    precision = ", ".join(_PRECISIONS.get(one, one) for one in settings.precision.split(","))
    step = "forward pass" if settings.pass_ == "forward" else "training step"
    gpus = f" and {', '.join(host.gpus)}" if host.gpus else ""
    threads = units.plural(settings.threads, "thread")
    return (
        f"We measured one {step} of {settings.model} on {settings.data_name}"
        f" ({units.format_count(settings.parameters)} parameters; batch {settings.batch_size}; {precision}; {threads};"
        f" malloc {settings.malloc})"
        f" in {_and(list(dict.fromkeys(map(frameworks, measured))))} with polybench {study.polybench.version} on"
        f" {units.plural(host.cores, 'core')} of {short_cpu(host)}{gpus}."
    )


def _runs(study: StudyDocument, measured: Sequence[Result]) -> str:
    processes, rounds, steps = count_runs([one.step_times for one in measured if one.step_times])
    waited = " Other programs were given time to stop before each process." if study.host.idle_wait_seconds else ""
    return (
        f"Each configuration ran in {processes} of its own, one at a time, in {rounds} of random order, interleaved"
        f" with those of the others, of {steps} each.{waited}"
    )


def _check(measured: Sequence[Result]) -> list[str]:
    checked = [one for one in measured if one.parity.status == "pass" and one.parity.float64]
    if not checked:
        return ["Losses, gradients and weights were not compared with a reference."]
    largest = max(max(one.parity.float64.tolerance.values()) for one in checked if one.parity.float64)
    rules = dict.fromkeys(found.rule for one in checked for found in one.parity.known_deviations)
    exceptions = f", except for documented rules ({'; '.join(rules)})" if rules else ""
    what = "logits" if checked[0].workload.is_forward_pass else "losses, gradients and weights"
    return [f"Before timing, {what} agreed with a float64 reference to {_power(largest)}{exceptions}."]


def _statistics(measured: Sequence[Result]) -> list[str]:
    processes = max(len(one.nested_step_times) for one in measured)
    if processes < 2:
        return ["With a single process, differences between processes are unknown."]
    return [
        "The speed-up is the ratio of mean step times, each the mean over processes; intervals are Student's t"
        f" over processes (n = {processes}, 95 %), those of speed-ups over pairs that ran side by side. An engine is"
        " called faster only if Holm's correction for the number of comparisons allows it. The intervals do not contain"
        " differences between repetitions of the study on other days."
    ]


def _power(tolerance: float) -> str:
    return f"{tolerance:g}".replace("e-0", "e-")


def _and(names: Sequence[str]) -> str:
    return " and ".join([*([", ".join(names[:-1])] if names[1:] else []), names[-1]])
