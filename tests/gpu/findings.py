"""From what a command left to lines of the summary: documents of polybench, and pytest's report."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

from polybench.core.document.result import Result
from polybench.core.document.study import StudyDocument, from_json
from polybench.core.document.sweep import SweepDocument, sweep_from_json
from polybench.core.units import seconds
from polybench.report.usage import BY_PROCESS
from tests.gpu.running import Done
from tests.gpu.summary import Line, Verdict

Finder = Callable[[Done], Iterator[Line]]

_STATUS: dict[str, Verdict] = {
    "ok": "shown",
    "failed": "failed",
    "unavailable": "could not be tried",
    "interrupted": "could not be tried",
}


def identity(done: Done) -> Iterator[Line]:
    """Of each cell, whether it computed what the reference computes."""
    for result in _study(done).results:
        what = f"{_name(result)} computes what the reference computes"
        parity = result.parity
        if result.status != "ok" and parity.status != "fail":
            yield Line(what, _STATUS[result.status], result.reason or "")
        elif parity.status == "pass" and parity.algorithm is not None:
            error = parity.algorithm.max_gradient_error
            yield Line(what, "shown", f"in float64 gradients to {error:.1e}" if error is not None else "")
        else:
            verdict: Verdict = "failed" if parity.status == "fail" else "could not be tried"
            yield Line(what, verdict, parity.reason or result.reason or "")


def speeds(done: Done) -> Iterator[Line]:
    """Of each cell its step, and how many times faster than on the CPU; of a GPU's what was read of it."""
    study = _study(done)
    for result in study.results:
        yield Line(f"{_name(result)} is measured", _STATUS[result.status], _speed(result))
        if result.status == "ok" and result.device != "cpu":
            yield _read_of_gpu(result)
    yield from _beside_published(study)


def swept(done: Done) -> Iterator[Line]:
    """Of each cell its step at every point."""
    sweep = _sweep(done)
    for cell in dict.fromkeys(cell.cell for point in sweep.points for cell in point.cells):
        found = [(point.values, one) for point in sweep.points for one in point.cells if one.cell == cell]
        times = [
            f"{' '.join(map(str, values.values()))}: {seconds(one.seconds_per_step)}"
            for values, one in found
            if one.seconds_per_step is not None
        ]
        missing = [one.reason or one.status for _, one in found if one.seconds_per_step is None]
        verdict: Verdict = (
            "shown" if len(times) == len(found) else "failed" if times else "could not be tried"
        )
        yield Line(f"{sweep.model} {cell} at every batch size", verdict, "; ".join(times + missing))


def one_fails_and_the_next_runs(done: Done) -> Iterator[Line]:
    """The first cell has no memory, or crashes, and is a failed row; the last is measured."""
    first, *_, last = _study(done).results
    fails = first.status == "failed"
    yield Line(
        f"{_name(first)} is a failed row", "shown" if fails else "failed", first.reason or first.status
    )
    yield Line(f"{_name(last)}, the next, is measured", _STATUS[last.status], last.reason or _speed(last))


def stranger_is_noticed(done: Done) -> Iterator[Line]:
    """Another process is on the GPU meanwhile."""
    for result in _study(done).results:
        what = f"{_name(result)} says that another process is on its GPU"
        noticed = [warning for warning in result.warnings if "another process was on the GPU" in warning]
        if noticed:
            yield Line(what, "shown", noticed[0])
        elif result.status == "ok" and result.memory.device_nvml_source == BY_PROCESS:
            yield Line(what, "failed", "; ".join(result.warnings) or "it does not")
        else:
            yield Line(what, "could not be tried", result.reason or "NVML does not list processes here")


def tests(done: Done) -> Iterator[Line]:
    """Of each test that has ended what it found; see `conftest.Report`."""
    outcomes: dict[str, Verdict] = {"passed": "shown", "failed": "failed", "skipped": "could not be tried"}
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
    return f"{workload.model} {result.cell} ({workload.precision}, batch {workload.batch_size})"


def _speed(result: Result) -> str:
    if result.step_seconds is None:
        return result.reason or ""
    said = [f"step {seconds(result.step_seconds.median)}"]
    if (faster := result.device_speedup) is not None:
        said.append(f"{faster.speedup:.3g} times {faster.cpu_cell}")
    if result.parity.status == "fail":
        said.append(f"not identical: {result.parity.reason}")
    return ", ".join(said)


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
        "throttling": used.throttle,
        "energy": result.energy.joules_per_epoch,
    }
    missing = [name for name, value in readings.items() if value is None]
    known = ", ".join(f"{name} {value}" for name, value in readings.items() if value is not None)
    why = (
        f"; lacks {', '.join(missing)}: {'; '.join(result.warnings) or 'no reason given'}" if missing else ""
    )
    return Line(f"{_name(result)}: its GPU is read", "failed" if missing else "shown", known + why)


def _beside_published(study: StudyDocument) -> Iterator[Line]:
    cells = {result.cell: result for result in study.results}
    for number in study.published:
        if number.cell is not None and number.cell.endswith("/cuda"):
            what = f"{study.settings.model}: beside {number.label} on {number.hardware}"
            detail = f"{number.quantity} {number.value} {number.unit}, {number.source}"
            found = cells.get(number.cell)
            if found is not None and found.epoch_seconds is not None:
                epochs = f"{seconds(found.epoch_seconds * (number.epochs or 1))} here"
                yield Line(what, "shown", f"{detail}; {epochs}")
            else:
                yield Line(what, "could not be tried", f"{detail}; {number.cell} was not measured")
