"""Studies on a GPU: parity of every network, speeds, published numbers, faults, and a sweep over the batch size."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from polybench.networks import MODELS
from polybench.results.usage import NVML_BY_PROCESS
from polybench.schema.documents import DOCUMENT_KINDS, kind_of
from polybench.schema.encoding import decode, encode, find_schema
from polybench.schema.measurements import SweepDocument
from polybench.schema.result import Result
from polybench.schema.study import StudyDocument, from_json
from polybench.schema.units import format_seconds
from polybench.storage.anonymize import anonymize
from tests.gpu.conftest import installed_engines
from tests.gpu.engine_fixtures import FAST_COMPILATION
from tests.gpu.gpu_load import gpu_load

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(0)]  # each command has its own time limit

TABLES = ("lenet", "resnet32", "keras-cnn", "dlframeworks-cnn", "small-vgg")
EXAMPLES = ("flux_tutorial", "dlframeworks_cnn")
VARIANTS = ("torch", "torch+channels_last", "torch+compile", "torch+cudagraph", "jax", "tf", "tf+xla", "flux")
PARITY_SECONDS = 110.0
SAVE_SECONDS = 8.0
"""Seconds between SIGINT, after which polybench saves its results, and SIGKILL."""
SET_FOR_TESTS = ("OPENBLAS_NUM_THREADS", "OMP_WAIT_POLICY")
"""Variables of `tests/conftest.py` that would change the times on the CPU."""
LEFT_MIB = 1024
"""GPU memory to leave: a CUDA context takes half of it, and lenet's preloaded epoch 586 MiB."""


class Here(NamedTuple):
    """Conditions of the commands; a rehearsal without a GPU uses the engine `fake`."""

    engines: tuple[str, ...]
    device: str = "cuda"
    precisions: str = "fp32,tf32,bf16"

    @property
    def rehearsed(self) -> bool:
        """True for a rehearsal."""
        return self.device == "cpu"


REHEARSAL = Here(("fake",), "cpu", "fp32")


def commands(here: Here) -> dict[str, list[str]]:
    """Return the arguments of polybench for each study."""
    engines, device = ",".join(here.engines), here.device
    both = "cpu" if here.rehearsed else f"cpu,{device}"
    variants = "fake,fake+slow" if here.rehearsed else _of_installed(VARIANTS, here)
    first = "faulty+crash,fake" if here.rehearsed else "torch"
    sweep = "fake" if here.rehearsed else _of_installed(("torch", "torch+cudagraph", "jax"), here)
    sizes = "1,4" if here.rehearsed else "1,4,16,64,256,1024,4096"
    shortest = " --quick --no-parity --budget"
    lines = {
        # All networks at the same time, because nothing is timed.
        f"parity-{name}": f"parity --model {name} --engines {engines} --devices {device} --threads 2"
        f" --precision {here.precisions}"
        for name in MODELS
    }
    lines |= {
        # The parity checks come first, and the time limit of a table is too short to repeat them.
        f"table-{name}": f"compare --model {name} --engines {engines} --devices {both} --quick --no-parity"
        for name in TABLES
    }
    lines["variants"] = f"compare --engines {variants} --devices {device} --quick --no-parity --budget 12s"
    lines |= {
        name: f"run examples/{name}.toml --engines {engines} --devices {device} {shortest} 5s" for name in EXAMPLES
    }
    lines["memory"] = f"compare --engines {first} --devices {','.join(reversed(both.split(',')))} {shortest} 4s"
    lines["load"] = f"compare --engines {here.engines[0]} --devices {device} {shortest} 4s"
    lines["sweep"] = f"sweep --engines {sweep} --devices {device} --batch-size {sizes}"
    lines["sweep"] += " --processes 1 --no-parity --budget 14s"
    few = " --rounds-per-process 1 --steps-per-round 3" if here.rehearsed else ""
    end = "--verbose --format json"
    return {name: f"{line} {end}{'' if name.startswith('parity') else few}".split() for name, line in lines.items()}


def _of_installed(configurations: tuple[str, ...], here: Here) -> str:
    return ",".join(one for one in configurations if one.partition("+")[0] in here.engines)


@pytest.fixture(scope="module")
def here(request: pytest.FixtureRequest) -> Here:
    if request.config.getoption("--rehearse", False):
        return REHEARSAL
    return Here(installed_engines())


def without_names(text: bytes) -> bytes:
    """Return an anonymous document, which may be published. The summary needs the reasons and warnings of the other."""
    return encode(anonymize(decode(text, DOCUMENT_KINDS[kind_of(find_schema(text))].type)))


class Polybench:
    """Runs commands whose documents and logs go into one folder."""

    def __init__(self, here: Here, folder: Path, deadline: float) -> None:
        self.here = here
        self._commands, self._folder, self._deadline = commands(here), folder, deadline
        (folder / "logs").mkdir(parents=True, exist_ok=True)
        own = {"XDG_CACHE_HOME": str(folder / "cache"), "POLYBENCH_RESULTS": str(folder / "documents")}
        inherited = {name: value for name, value in os.environ.items() if name not in SET_FOR_TESTS}
        self._environment = inherited | own | FAST_COMPILATION | {"NO_COLOR": "1"}

    @contextmanager
    def started(self, name: str) -> Iterator[subprocess.Popen[bytes]]:
        command = [sys.executable, "-m", "polybench", *self._commands[name], "--output", str(self._document(name))]
        self._log(name, "command").write_text(" ".join(command) + "\n", "utf-8")
        with (
            self._log(name, "log").open("wb") as log,
            subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=log, env=self._environment) as process,
        ):
            try:
                yield process
            finally:
                process.kill()

    def result(self, name: str, process: subprocess.Popen[bytes], end: float) -> bytes:
        """Wait for a command, and return its document; if it is stopped, that has what was measured before."""
        end = min(end, self._deadline - SAVE_SECONDS)
        try:
            process.wait(max(0.0, end - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGINT)
            with suppress(subprocess.TimeoutExpired):
                process.wait(SAVE_SECONDS)
        if (document := self._document(name)).exists() and (text := document.read_bytes()):
            document.write_bytes(without_names(text))
            return text
        lines = self._log(name, "log").read_text("utf-8", "replace").split("\n")
        last = next((line for line in reversed(lines) if line.strip()), "no output")
        if process.returncode is None or time.monotonic() >= end:
            pytest.skip(f"stopped at its time limit: {last}")
        pytest.fail(f"exit code {process.returncode}: {last}")

    def run(self, name: str, seconds: float) -> bytes:
        end = time.monotonic() + seconds
        with self.started(name) as process:
            return self.result(name, process, end)

    def _log(self, name: str, kind: str) -> Path:
        return self._folder / "logs" / f"{name}.{kind}"

    def _document(self, name: str) -> Path:
        return self._folder / f"{name}.json"


@pytest.fixture(scope="module")
def polybench(
    request: pytest.FixtureRequest, here: Here, deadline: float, tmp_path_factory: pytest.TempPathFactory
) -> Polybench:
    if not here.engines:
        pytest.skip("no framework is installed")
    folder = request.config.getoption("--gpu-folder", None) or tmp_path_factory.mktemp("gpu")
    return Polybench(here, folder, deadline)


class Findings:
    """Findings for the summary; a test fails after all of them are recorded."""

    def __init__(self, record: Callable[[str, object], None]) -> None:
        self._record = record
        self._failed: list[str] = []
        self._passed = 0

    def add(self, what: str, ok: bool | None, detail: str | None) -> None:
        """`ok` is None if it could not be tried."""
        verdict = {True: "", False: "FAILED: ", None: "could not be tried: "}[ok]
        self._record("found", f"{what}: {verdict}{detail or ''}")
        self._passed += ok is True
        if ok is False:
            self._failed.append(what)

    def check(self) -> None:
        assert not self._failed, ", ".join(self._failed)
        if not self._passed:
            pytest.skip("nothing could be tried")


@pytest.fixture
def findings(record_property: Callable[[str, object], None]) -> Findings:
    return Findings(record_property)


def name_of(result: Result) -> str:
    return f"{result.configuration} ({result.workload.precision})"


def status_of(result: Result) -> bool | None:
    return {"ok": True, "failed": False}.get(result.status)


def add_speed(findings: Findings, result: Result) -> None:
    detail = result.reason or ""
    if result.step_time is not None:
        detail = f"step {format_seconds(result.step_time.median)}"
        if (faster := result.gpu_speedup) is not None:
            detail += f", {faster.speedup:.3g} times {faster.baseline}"
        if result.parity.status == "fail":
            detail += f", not identical: {result.parity.reason}"
    findings.add(name_of(result), status_of(result), detail)
    if result.status == "ok" and result.device != "cpu":
        add_meters(findings, result)


def add_meters(findings: Findings, result: Result) -> None:
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
    detail = ", ".join(f"{name} {value}" for name, value in readings.items() if value is not None)
    if missing:
        detail += f"; lacks {', '.join(missing)}: {'; '.join(result.warnings) or 'no reason given'}"
    findings.add(f"meters of {name_of(result)}", not missing, detail)


def add_published(findings: Findings, study: StudyDocument) -> None:
    measured = {result.configuration: result for result in study.results}
    for number in study.published:
        if number.configuration is not None and number.configuration.endswith("/cuda"):
            found = measured.get(number.configuration)
            detail = f"{number.quantity} {number.value} {number.unit}, {number.source}"
            if ok := found is not None and found.epoch_seconds is not None:
                detail += f"; {format_seconds(found.epoch_seconds * (number.epochs or 1))} here"
            findings.add(f"{number.label} on {number.hardware}", ok or None, detail)


@pytest.fixture(scope="module")
def parity_checks(polybench: Polybench) -> Iterator[Callable[[str], bytes]]:
    """Start the parity checks of all networks, which end at the same time; provide their documents."""
    end = time.monotonic() + PARITY_SECONDS
    with ExitStack() as stack:
        started = {name: stack.enter_context(polybench.started(f"parity-{name}")) for name in MODELS}
        timer = threading.Timer(PARITY_SECONDS, lambda: [one.send_signal(signal.SIGINT) for one in started.values()])
        timer.start()
        stack.callback(timer.cancel)
        yield lambda name: polybench.result(f"parity-{name}", started[name], end + SAVE_SECONDS)


@pytest.mark.parametrize("model", MODELS)
def test_the_network_is_identical(model: str, parity_checks: Callable[[str], bytes], findings: Findings) -> None:
    for result in from_json(parity_checks(model)).results:
        parity = result.parity
        if parity.status == "pass" and parity.float64 is not None:
            findings.add(name_of(result), True, f"gradients to {parity.float64.max_gradient_error or 0.0:.1e}")
        else:
            failed = parity.status == "fail" or result.status == "failed"
            findings.add(name_of(result), False if failed else None, parity.reason or result.reason)
    findings.check()


SECONDS = {"table-lenet": 45, "variants": 90}
LATER = {f"table-{name}": 60 for name in TABLES[1:]} | dict.fromkeys(EXAMPLES, 40)
"""Measured after all other tests, as far as the time allows."""


@pytest.mark.parametrize(("name", "seconds"), SECONDS.items(), ids=SECONDS)
def test_configurations_are_measured(name: str, seconds: float, polybench: Polybench, findings: Findings) -> None:
    check_speeds(name, seconds, polybench, findings)


def check_speeds(name: str, seconds: float, polybench: Polybench, findings: Findings) -> None:
    study = from_json(polybench.run(name, seconds))
    for result in study.results:
        add_speed(findings, result)
    add_published(findings, study)
    findings.check()


def test_a_configuration_without_memory_fails_and_the_next_is_measured(
    polybench: Polybench, findings: Findings
) -> None:
    with gpu_load("--leave", str(LEFT_MIB), rehearsed=polybench.here.rehearsed):
        first, *_, last = from_json(polybench.run("memory", 40)).results
    findings.add(f"{name_of(first)} fails", first.status == "failed", first.reason)
    add_speed(findings, last)
    findings.check()


def test_another_process_on_the_gpu_is_reported(polybench: Polybench, findings: Findings) -> None:
    with gpu_load("--busy", rehearsed=polybench.here.rehearsed):
        (result,) = from_json(polybench.run("load", 40)).results
    noticed = [warning for warning in result.warnings if "another process used the GPU" in warning]
    listed = result.status == "ok" and result.memory.device_nvml_source == NVML_BY_PROCESS
    detail = "; ".join(noticed or result.warnings) or result.reason or "NVML lists no processes here"
    findings.add(name_of(result), True if noticed else False if listed else None, detail)
    findings.check()


def test_every_batch_size_is_measured(polybench: Polybench, findings: Findings) -> None:
    found: dict[str, list[tuple[Any, Any]]] = {}
    for point in decode(polybench.run("sweep", 120), SweepDocument).points:
        for one in point.configurations:
            found.setdefault(one.configuration, []).append((*point.parameters.values(), one))
    for configuration, points in found.items():
        missing = [one for _, one in points if one.step_seconds is None]
        times = [
            f"{size}: {one.reason or one.status if one.step_seconds is None else format_seconds(one.step_seconds)}"
            for size, one in points
        ]
        findings.add(configuration, None if len(missing) == len(points) else not missing, "; ".join(times))
    findings.check()


@pytest.mark.parametrize(("name", "seconds"), LATER.items(), ids=LATER)
def test_more_configurations_are_measured(name: str, seconds: float, polybench: Polybench, findings: Findings) -> None:
    check_speeds(name, seconds, polybench, findings)
