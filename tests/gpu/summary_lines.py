"""Converts the results of commands to lines of the summary: documents of polybench, and pytest's report."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

from polybench.results.usage import NVML_BY_PROCESS
from polybench.schema.result import Result
from polybench.schema.study import StudyDocument, from_json
from polybench.schema.sweep import SweepDocument, sweep_from_json
from polybench.schema.units import format_seconds
from tests.gpu.subprocesses import Done
from tests.gpu.summary import Line, Verdict

Finder = Callable[[Done], Iterator[Line]]

_STATUS: dict[str, Verdict] = {
    "ok": "passed",
    "failed": "failed",
    "unavailable": "could not be tried",
    "interrupted": "could not be tried",
}


def parity_results(done: Done) -> Iterator[Line]:
    """Yield the parity check of each configuration."""
    for result in _study(done).results:
        what = f"{_name(result)} is identical"
        parity = result.parity
        if result.status != "ok" and parity.status != "fail":
            yield Line(what, _STATUS[result.status], result.reason or "")
        elif parity.status == "pass" and parity.float64 is not None:
            error = parity.float64.max_gradient_error
            yield Line(what, "passed", f"in float64 gradients to {error:.1e}" if error is not None else "")
        else:
            verdict: Verdict = "failed" if parity.status == "fail" else "could not be tried"
            yield Line(what, verdict, parity.reason or result.reason or "")


def speeds(done: Done) -> Iterator[Line]:
    """Yield the step time of each configuration and its speed-up over the CPU;
    for a GPU also the meters that were read."""
    study = _study(done)
    for result in study.results:
        yield Line(f"{_name(result)} is measured", _STATUS[result.status], _speed(result))
        if result.status == "ok" and result.device != "cpu":
            yield _read_of_gpu(result)
    yield from _beside_published(study)


def swept(done: Done) -> Iterator[Line]:
    """Yield the step time of each configuration at every point."""
    sweep = _sweep(done)
    for configuration in dict.fromkeys(
        configuration.configuration for point in sweep.points for configuration in point.configurations
    ):
        found = [
            (point.parameters, one)
            for point in sweep.points
            for one in point.configurations
            if one.configuration == configuration
        ]
        times = [
            f"{' '.join(map(str, values.values()))}: {format_seconds(one.step_seconds)}"
            for values, one in found
            if one.step_seconds is not None
        ]
        missing = [one.reason or one.status for _, one in found if one.step_seconds is None]
        verdict: Verdict = "passed" if len(times) == len(found) else "failed" if times else "could not be tried"
        yield Line(f"{sweep.model} {configuration} at every batch size", verdict, "; ".join(times + missing))


def one_fails_and_the_next_runs(done: Done) -> Iterator[Line]:
    """Check that the first configuration failed, for lack of memory or a crash, and that the last was measured."""
    first, *_, last = _study(done).results
    fails = first.status == "failed"
    yield Line(f"{_name(first)} failed as expected", "passed" if fails else "failed", first.reason or first.status)
    yield Line(f"{_name(last)}, the next configuration, is measured", _STATUS[last.status], last.reason or _speed(last))


def load_is_reported(done: Done) -> Iterator[Line]:
    """Check that another process on the GPU is reported."""
    for result in _study(done).results:
        what = f"{_name(result)} reports another process on its GPU"
        noticed = [warning for warning in result.warnings if "another process used the GPU" in warning]
        if noticed:
            yield Line(what, "passed", noticed[0])
        elif result.status == "ok" and result.memory.device_nvml_source == NVML_BY_PROCESS:
            yield Line(what, "failed", "; ".join(result.warnings) or "it does not")
        else:
            yield Line(what, "could not be tried", result.reason or "NVML does not list processes here")


def tests(done: Done) -> Iterator[Line]:
    """Yield the findings of each finished test; see `conftest.Report`."""
    outcomes: dict[str, Verdict] = {"passed": "passed", "failed": "failed", "skipped": "could not be tried"}
    for text in done.folder.joinpath(f"{done.command.name}.jsonl").read_text("utf-8").splitlines():
        line = json.loads(text)
        what = line["test"].removeprefix("test_").replace("_", " ")
        yield Line(what, outcomes[line["outcome"]], line["detail"])


def _study(done: Done) -> StudyDocument:
    return from_json(done.output.read_bytes())


def _sweep(done: Done) -> SweepDocument:
    return sweep_from_json(done.output.read_bytes())


def _name(result: Result) -> str:
    workload = result.workload
    return f"{workload.model} {result.configuration} ({workload.precision}, batch {workload.batch_size})"


def _speed(result: Result) -> str:
    if result.step_time is None:
        return result.reason or ""
    details = [f"step {format_seconds(result.step_time.median)}"]
    if (faster := result.gpu_speedup) is not None:
        details.append(f"{faster.speedup:.3g} times {faster.baseline}")
    if result.parity.status == "fail":
        details.append(f"not identical: {result.parity.reason}")
    return ", ".join(details)


def _read_of_gpu(result: Result) -> Line:
    device, memory, used = result.allocations.device, result.memory, result.utilization
    readings = {
        "allocations": device and device.count_per_step,
        "peak of its pool": memory.device_peak_bytes,
        "memory by NVML": memory.device_nvml_bytes,
        "utilization": used.gpu_percent,
        "power": used.power,
        "clocks": used.clocks,
        "temperature": used.temperature,
        "throttling": used.throttle_reasons,
        "energy": result.energy.joules_per_epoch,
    }
    missing = [name for name, value in readings.items() if value is None]
    known = ", ".join(f"{name} {value}" for name, value in readings.items() if value is not None)
    why = f"; lacks {', '.join(missing)}: {'; '.join(result.warnings) or 'no reason given'}" if missing else ""
    return Line(f"{_name(result)}: GPU meters are read", "failed" if missing else "passed", known + why)


def _beside_published(study: StudyDocument) -> Iterator[Line]:
    configurations = {result.configuration: result for result in study.results}
    for number in study.published:
        if number.configuration is not None and number.configuration.endswith("/cuda"):
            what = f"{study.settings.model}: next to {number.label} on {number.hardware}"
            detail = f"{number.quantity} {number.value} {number.unit}, {number.source}"
            found = configurations.get(number.configuration)
            if found is not None and found.epoch_seconds is not None:
                epochs = f"{format_seconds(found.epoch_seconds * (number.epochs or 1))} here"
                yield Line(what, "passed", f"{detail}; {epochs}")
            else:
                yield Line(what, "could not be tried", f"{detail}; {number.configuration} was not measured")
