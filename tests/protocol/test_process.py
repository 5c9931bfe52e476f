"""Worker processes: requests, responses, and every way in which a worker can end."""

from __future__ import annotations

import inspect
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from polybench.errors import ConfigurationFailed, EngineUnavailable
from polybench.machine import memory
from polybench.protocol import calls
from polybench.protocol.interpreter import Interpreter
from polybench.protocol.process import WorkerProcess, last_log_lines
from polybench.worker.handler import Worker
from tests import small_datasets
from tests.plugin.faulty_engine import ENGINE
from tests.processes import becomes_true, has_ended, have_ended

FAULTY = ENGINE.factory


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[WorkerProcess]:
    with WorkerProcess({}, tmp_path / "logs" / "worker.log") as process:
        yield process


def prepare(worker: WorkerProcess, folder: Path, *variants: str) -> Any:
    files = small_datasets.files(folder)
    job = small_datasets.job()
    job = type(job)(job.model, job.workload, "cpu", "float32", variants)
    worker.request(calls.load(FAULTY), 30)
    return worker.request(calls.prepare(job, str(files.weights), files.epoch, warmup_steps=2), 30)


def test_a_worker_responds_to_requests(worker: WorkerProcess, tmp_path: Path) -> None:
    prepared = prepare(worker, tmp_path)
    assert prepared.startup.process_seconds > 0
    assert prepared.startup.first_step_seconds > 0
    assert len(prepared.losses) == 2
    measured = worker.request(calls.measure_block(5), 30)
    assert len(measured.step_seconds) == 5
    assert measured.peak_rss_bytes > 1 << 20


def test_a_worker_leads_its_own_session(worker: WorkerProcess) -> None:
    assert os.getsid(worker.pid) == worker.pid != os.getsid(0)


def test_a_crash_is_reported_with_its_signal(worker: WorkerProcess, tmp_path: Path) -> None:
    prepare(worker, tmp_path, "crash")
    with pytest.raises(ConfigurationFailed, match="SIGSEGV"):
        worker.request(calls.measure_block(5), 30)


@pytest.mark.parametrize(
    ("before", "after", "cause"),
    [
        (7, 8, r"killed: probably out of memory \(SIGKILL, and the kernel's out-of-memory count rose\)"),
        (7, 7, r"killed by SIGKILL from another process \(the machine was not out of memory\)"),
        (None, 7, r"killed by SIGKILL \(the kernel sends it when memory runs out\)"),
        (7, None, r"killed by SIGKILL \(the kernel sends it when memory runs out\)"),
    ],
    ids=["more", "equal", "unknown-before", "unknown-after"],
)
def test_the_reason_of_a_kill_follows_from_the_kernels_out_of_memory_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: int | None, after: int | None, cause: str
) -> None:
    counted = iter([before, after])
    monkeypatch.setattr(memory, "kill_count", lambda: next(counted))
    with WorkerProcess({}, tmp_path / "log") as worker:
        os.kill(worker.pid, signal.SIGKILL)
        with pytest.raises(ConfigurationFailed, match=f"the worker was {cause}"):
            worker.request(calls.load(FAULTY), 30)


def test_a_hanging_worker_is_killed_after_the_timeout(worker: WorkerProcess, tmp_path: Path) -> None:
    prepare(worker, tmp_path, "hang")
    with pytest.raises(ConfigurationFailed, match=r"no response to measure_block within 0.5 s"):
        worker.request(calls.measure_block(5), 0.5)
    assert not psutil.pid_exists(worker.pid)


def test_a_malformed_message_fails(worker: WorkerProcess, tmp_path: Path) -> None:
    prepare(worker, tmp_path, "bad_message")
    with pytest.raises(ConfigurationFailed, match="malformed message"):
        worker.request(calls.measure_block(5), 30)


def test_an_exit_is_reported_with_its_code_and_the_last_lines_are_in_its_log(tmp_path: Path) -> None:
    environment = {"PYTHONPATH": str(tmp_path)}
    (tmp_path / "sitecustomize.py").write_text("import os; os.write(2, b'the end is near\\n'); os._exit(7)")
    with (
        WorkerProcess(environment, tmp_path / "log") as worker,
        pytest.raises(ConfigurationFailed, match=r"exited with code 7$"),
    ):
        worker.request(calls.load(FAULTY), 30)
    assert last_log_lines(tmp_path / "log") == ["the end is near"]


def test_a_missing_engine_is_unavailable_with_a_hint(worker: WorkerProcess, tmp_path: Path) -> None:
    with pytest.raises(EngineUnavailable) as caught:
        prepare(worker, tmp_path, "unavailable")
    assert caught.value.hint


def test_an_exception_is_a_response_and_its_traceback_is_in_the_log(worker: WorkerProcess, tmp_path: Path) -> None:
    prepare(worker, tmp_path)
    with pytest.raises(ConfigurationFailed, match="NotImplementedError in take_snapshot"):
        worker.request(calls.take_snapshot(0, str(tmp_path / "g.npz"), str(tmp_path / "w.npz")), 30)
    worker.request(calls.measure_block(5), 30)
    worker.close()
    assert "Traceback" in worker.log_path.read_text()


def test_output_of_libraries_goes_to_the_log(tmp_path: Path) -> None:
    (tmp_path / "noisy.py").write_text(
        "from polybench.engines.fake.engine import FakeEngine\n"
        "class Noisy(FakeEngine):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        '        print(\'{"type": "closed"}\', flush=True)\n'
    )
    with WorkerProcess({"PYTHONPATH": str(tmp_path)}, tmp_path / "log") as worker:
        worker.request(calls.load("noisy:Noisy"), 30)
    assert "closed" in (tmp_path / "log").read_text()


def test_a_busy_worker_dies_with_its_parent(tmp_path: Path) -> None:
    """Kill the parent while the worker computes, when it does not read the pipe that its parent has closed."""
    os.mkfifo(tmp_path / "started")
    (tmp_path / "busy.py").write_text(
        "import os\n"
        "class Busy:\n"
        "    def __init__(self):\n"
        f"        with open({str(tmp_path / 'started')!r}, 'w') as started:\n"
        "            started.write(str(os.getpid()))\n"
        "        while True: pass\n"
    )
    script = (
        "from pathlib import Path\n"
        "from polybench.protocol import calls, process\n"
        f"worker = process.WorkerProcess({{'PYTHONPATH': {str(tmp_path)!r}}}, Path({str(tmp_path / 'log')!r}))\n"
        "worker.request(calls.load('busy:Busy'), 600)"
    )
    with subprocess.Popen([sys.executable, "-c", script]) as parent:
        worker = psutil.Process(int((tmp_path / "started").read_text()))
        parent.kill()
    try:
        assert have_ended([worker])
    finally:
        worker.kill()


def test_a_worker_can_be_killed_twice(tmp_path: Path) -> None:
    worker = WorkerProcess({}, tmp_path / "log")
    worker.kill()
    worker.kill()
    worker.close()


def test_an_answer_to_another_request_is_a_failure(worker: WorkerProcess) -> None:
    worker.send(calls.load(FAULTY))
    with pytest.raises(ConfigurationFailed, match="unexpected response to measure_block: load"):
        worker.receive(calls.measure_block(5), 30)


def test_a_worker_answers_every_call_of_the_table() -> None:
    for name, call in calls.CALLS.items():
        signature = f"{name}({', '.join(('self', *call.arguments.__struct_fields__))})"
        _, *parameters = inspect.signature(getattr(Worker, name, lambda _: None)).parameters
        assert (*parameters,) == call.arguments.__struct_fields__, f"polybench/worker/handler.py: write {signature}"
        assert hasattr(Worker, name), f"polybench/worker/handler.py: write {signature}"


MALICIOUS_ENGINES = """
import json, os
from polybench.engines.fake.engine import FakeEngine

def write(data):
    os.write(int(os.environ["POLYBENCH_RESPONSES_FD"]), data)

class Flood(FakeEngine):
    def __init__(self):
        while True:
            write(b"x" * 65536)

class Drip(FakeEngine):
    def __init__(self):
        import time
        while True:
            write(b"x")
            time.sleep(0.05)

class InvalidUtf8(FakeEngine):
    def __init__(self):
        super().__init__()
        write(b"\\xff\\xfe\\n")

class DeeplyNested(FakeEngine):
    def __init__(self):
        super().__init__()
        write(b"[" * 200_000 + b"\\n")

class ZeroTime(FakeEngine):
    def __init__(self):
        super().__init__()
        measured = {"step_seconds": [1e-300], "steps_per_value": 1, "peak_rss_bytes": 1}
        write(json.dumps({"type": "answer", "call": "measure_block", "value": measured}).encode() + b"\\n")
"""


@pytest.mark.parametrize(
    ("engine", "timeout", "reason"),
    [
        ("Flood", 60, "MiB without an end"),
        ("Drip", 1, "timed out"),
        ("InvalidUtf8", 30, "invalid response"),
        ("DeeplyNested", 30, "invalid response"),
        ("ZeroTime", 30, "invalid response.*step_seconds"),
    ],
)
def test_invalid_data_from_a_worker_fails_only_its_configuration(
    tmp_path: Path, engine: str, timeout: float, reason: str
) -> None:
    (tmp_path / "malicious.py").write_text(MALICIOUS_ENGINES)
    with (
        WorkerProcess({"PYTHONPATH": str(tmp_path)}, tmp_path / "log") as worker,
        pytest.raises(ConfigurationFailed, match=reason),
    ):
        worker.request(calls.load(f"malicious:{engine}"), timeout)
    assert not psutil.pid_exists(worker.pid)


def test_workers_do_not_import_modules_from_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("torch", "statistics", "random", "numpy"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('foreign code has run')")
    (tmp_path / "polybench").mkdir()
    (tmp_path / "polybench" / "__init__.py").write_text("raise SystemExit('foreign code has run')")
    monkeypatch.chdir(tmp_path)
    # Two empty entries: the current folder.
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(("", os.environ["PYTHONPATH"], "")))
    with WorkerProcess({}, tmp_path / "log") as worker:
        worker.request(calls.load(FAULTY), 30)
        prepare(worker, tmp_path)
    assert "foreign" not in (tmp_path / "log").read_text()


def test_the_last_lines_of_a_long_log_are_reported(worker: WorkerProcess) -> None:
    worker.log_path.write_bytes(b"begin\n" + b"a line without end " * 1_000_000 + b"\nthe end\n")
    assert last_log_lines(worker.log_path)[-1] == "the end"
    assert sum(map(len, last_log_lines(worker.log_path))) < 2000


def test_the_last_lines_of_a_log_that_have_text_are_shown(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("".join(f"{number}\n\n" for number in range(20)))
    assert last_log_lines(tmp_path / "log") == ["15", "16", "17", "18", "19"]


def test_file_descriptors_above_1000_are_supported(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 1200:
        pytest.skip("this machine allows fewer than 1,200 descriptors")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 1200), hard))
    opened = [os.open(os.devnull, os.O_RDONLY) for _ in range(1100)]
    try:
        with WorkerProcess({}, tmp_path / "log") as worker:
            worker.request(calls.load(FAULTY), 30)
    finally:
        for descriptor in opened:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_no_descriptor_leaks_if_a_process_cannot_start(tmp_path: Path) -> None:
    before = len([*Path("/proc/self/fd").iterdir()])
    with pytest.raises(FileNotFoundError):
        WorkerProcess({}, tmp_path / "log", Interpreter(str(tmp_path / "none")))
    assert len([*Path("/proc/self/fd").iterdir()]) == before


def test_children_of_a_worker_that_has_exited_are_killed(tmp_path: Path) -> None:
    (tmp_path / "parent.py").write_text(
        "import os, subprocess\n"
        "from polybench.engines.fake.engine import FakeEngine\n"
        "class Parent(FakeEngine):\n"
        "    def __init__(self):\n"
        "        child = subprocess.Popen(['sleep', '600'])\n"
        "        print(child.pid, flush=True)\n"
        "        os._exit(3)\n"
    )
    with (
        WorkerProcess({"PYTHONPATH": str(tmp_path)}, tmp_path / "log") as worker,
        pytest.raises(ConfigurationFailed, match="exited with code 3"),
    ):
        worker.request(calls.load("parent:Parent"), 30)
    child = int((tmp_path / "log").read_text().split()[0])
    assert becomes_true(lambda: not psutil.pid_exists(child) or has_ended(psutil.Process(child)))


def test_the_middle_of_a_very_large_log_is_cut(tmp_path: Path) -> None:
    with WorkerProcess({}, tmp_path / "log") as worker, Path(f"/proc/{worker.pid}/fd/1").open("ab") as log:
        log.write(b"begin\n" + bytes(20 << 20) + b"the end\n")
    content = worker.log_path.read_bytes()
    assert len(content) == 1 << 22
    assert content.startswith(b"begin")
    assert content.endswith(b"the end\n")


def test_a_worker_starts_without_a_folder_for_its_log(tmp_path: Path) -> None:
    """The results folder became a file during the study."""
    (tmp_path / "results").write_text("")
    with WorkerProcess({}, tmp_path / "results" / "logs" / "worker.log") as process:
        assert not process.has_ended
    assert (tmp_path / "results").read_text() == ""
