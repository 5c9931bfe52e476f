"""Worker processes: what they are given, and every way in which they can end."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from polybench.core.errors import CellFailed, Unavailable
from polybench.engines import ENGINES
from polybench.machine import out_of_memory
from polybench.wire.interpreter import Interpreter
from polybench.wire.messages import (
    Load,
    Loaded,
    Measure,
    Measured,
    Prepare,
    Prepared,
    SnapshotTaken,
    TakeSnapshot,
)
from polybench.wire.process import WorkerProcess
from tests import small

FAKE = ENGINES["fake"].factory


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[WorkerProcess]:
    with WorkerProcess({}, tmp_path / "logs" / "worker.log") as process:
        yield process


def prepare(worker: WorkerProcess, folder: Path, *variants: str) -> Any:
    files = small.files(folder)
    job = small.job()
    job = type(job)(job.model, job.workload, "cpu", "float32", variants)
    worker.ask(Load(FAKE), Loaded, 30)
    return worker.ask(Prepare(job, str(files.weights), files.epoch, warm_up=2), Prepared, 30)


def test_a_conversation(worker: WorkerProcess, tmp_path: Path) -> None:
    prepared = prepare(worker, tmp_path)
    assert prepared.startup.process_seconds > 0
    assert prepared.startup.first_step_seconds > 0
    assert len(prepared.losses) == 2
    measured = worker.ask(Measure(5), Measured, 30)
    assert len(measured.step_seconds) == 5
    assert measured.peak_rss_bytes > 1 << 20


def test_a_worker_has_a_session_of_its_own(worker: WorkerProcess) -> None:
    assert os.getsid(worker.pid) == worker.pid != os.getsid(0)


def test_a_crash_is_told_with_its_signal(worker: WorkerProcess, tmp_path: Path) -> None:
    prepare(worker, tmp_path, "crash")
    with pytest.raises(CellFailed, match="SIGSEGV"):
        worker.ask(Measure(5), Measured, 30)


@pytest.mark.parametrize(
    ("before", "after", "why"),
    [
        (7, 8, r"killed: probably out of memory \(SIGKILL; the kernel ended a process"),
        (7, 7, "killed by SIGKILL, and not for want of memory"),
        (None, 7, r"killed by SIGKILL \(the kernel does that when memory runs out\)"),
        (7, None, r"killed by SIGKILL \(the kernel does that when memory runs out\)"),
    ],
    ids=["more", "as-many", "unknown-before", "unknown-after"],
)
def test_why_a_worker_was_killed_is_what_the_kernels_counter_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: int | None, after: int | None, why: str
) -> None:
    counted = iter([before, after])
    monkeypatch.setattr(out_of_memory, "kills", lambda: next(counted))
    with WorkerProcess({}, tmp_path / "log") as worker:
        os.kill(worker.pid, signal.SIGKILL)
        with pytest.raises(CellFailed, match=f"the worker was {why}"):
            worker.ask(Load(FAKE), Loaded, 30)


def test_a_hanging_worker_is_killed_after_the_timeout(worker: WorkerProcess, tmp_path: Path) -> None:
    prepare(worker, tmp_path, "hang")
    with pytest.raises(CellFailed, match=r"no answer to measure within 0.5 s"):
        worker.ask(Measure(5), Measured, 0.5)
    assert not psutil.pid_exists(worker.pid)


def test_garbage_is_no_message(worker: WorkerProcess, tmp_path: Path) -> None:
    prepare(worker, tmp_path, "garbage")
    with pytest.raises(CellFailed, match="this is no message"):
        worker.ask(Measure(5), Measured, 30)


def test_an_exit_is_told_with_its_code_and_the_end_of_the_log(tmp_path: Path) -> None:
    environment = {"PYTHONPATH": str(tmp_path)}
    (tmp_path / "sitecustomize.py").write_text("import os; os.write(2, b'the end is near\\n'); os._exit(7)")
    with (
        WorkerProcess(environment, tmp_path / "log") as worker,
        pytest.raises(CellFailed, match=r"exited with code 7.*the end is near"),
    ):
        worker.ask(Load(FAKE), Loaded, 30)


def test_a_missing_engine_is_unavailable_with_a_remedy(worker: WorkerProcess, tmp_path: Path) -> None:
    with pytest.raises(Unavailable) as caught:
        prepare(worker, tmp_path, "unavailable")
    assert caught.value.remedy


def test_an_exception_is_an_answer_and_its_traceback_is_in_the_log(
    worker: WorkerProcess, tmp_path: Path
) -> None:
    prepare(worker, tmp_path)
    with pytest.raises(CellFailed, match="NotImplementedError in snapshot"):
        worker.ask(TakeSnapshot(0, str(tmp_path / "g.npz"), str(tmp_path / "w.npz")), SnapshotTaken, 30)
    assert "Traceback" in worker.log.read_text()
    worker.ask(Measure(5), Measured, 30)


def test_what_a_library_prints_goes_to_the_log(tmp_path: Path) -> None:
    (tmp_path / "noisy.py").write_text(
        "from polybench.engines.fake.engine import FakeEngine\n"
        "class Noisy(FakeEngine):\n"
        "    def load_framework(self):\n"
        '        print(\'{"type": "closed"}\', flush=True)\n'
    )
    with WorkerProcess({"PYTHONPATH": str(tmp_path)}, tmp_path / "log") as worker:
        worker.ask(Load("noisy:Noisy"), Loaded, 30)
    assert "closed" in (tmp_path / "log").read_text()


def test_none_outlives_its_parent(tmp_path: Path) -> None:
    script = (
        "import sys, time; from pathlib import Path; from polybench.wire.process import WorkerProcess\n"
        f"w = WorkerProcess({{}}, Path({str(tmp_path / 'log')!r})); print(w.pid, flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        time.sleep(1.0)  # let the worker ask the kernel for its death signal
        parent.kill()
    psutil.wait_procs([psutil.Process(pid)] if psutil.pid_exists(pid) else [], timeout=10)
    assert not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


def test_killing_twice_is_fine(tmp_path: Path) -> None:
    worker = WorkerProcess({}, tmp_path / "log")
    worker.kill()
    worker.kill()
    worker.close()


def test_an_answer_of_another_kind_is_a_failure(worker: WorkerProcess) -> None:
    with pytest.raises(CellFailed, match="answered load with loaded"):
        worker.ask(Load(FAKE), Measured, 30)


HOSTILE = """
import json, os
from polybench.engines.fake.engine import FakeEngine

def write(data):
    os.write(int(os.environ["POLYBENCH_ANSWERS_FD"]), data)

class Flood(FakeEngine):
    def load_framework(self):
        while True:
            write(b"x" * 65536)

class Drip(FakeEngine):
    def load_framework(self):
        import time
        while True:
            write(b"x")
            time.sleep(0.05)

class NoText(FakeEngine):
    def load_framework(self):
        write(b"\\xff\\xfe\\n")

class Deep(FakeEngine):
    def load_framework(self):
        write(b"[" * 200_000 + b"\\n")

class NoTime(FakeEngine):
    def load_framework(self):
        measured = {"type": "measured", "step_seconds": [1e-300], "steps_per_sample": 1, "peak_rss_bytes": 1}
        write(json.dumps(measured).encode() + b"\\n")
"""


@pytest.mark.parametrize(
    ("engine", "timeout", "reason"),
    [
        ("Flood", 60, "MiB that do not end"),
        ("Drip", 1, "timed out"),
        ("NoText", 30, "no message"),
        ("Deep", 30, "no message"),
        ("NoTime", 30, "no message.*step_seconds"),
    ],
)
def test_whatever_comes_over_the_pipe_fails_that_cell_alone(
    tmp_path: Path, engine: str, timeout: float, reason: str
) -> None:
    (tmp_path / "hostile.py").write_text(HOSTILE)
    with (
        WorkerProcess({"PYTHONPATH": str(tmp_path)}, tmp_path / "log") as worker,
        pytest.raises(CellFailed, match=reason),
    ):
        worker.ask(Load(f"hostile:{engine}"), Loaded, timeout)
    assert not psutil.pid_exists(worker.pid)


def test_files_of_the_current_folder_are_not_taken_for_modules(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("torch", "statistics", "random", "numpy"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('foreign code has run')")
    (tmp_path / "polybench").mkdir()
    (tmp_path / "polybench" / "__init__.py").write_text("raise SystemExit('foreign code has run')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", os.pathsep)  # two empty entries: the current folder
    with WorkerProcess({}, tmp_path / "log") as worker:
        worker.ask(Load(FAKE), Loaded, 30)
        prepare(worker, tmp_path)
    assert "foreign" not in (tmp_path / "log").read_text()


def test_of_a_long_log_the_end_is_told(worker: WorkerProcess) -> None:
    worker.log.write_bytes(b"begin\n" + b"a line without end " * 1_000_000 + b"\nthe end\n")
    assert worker.last_lines()[-1] == "the end"
    assert sum(map(len, worker.last_lines())) < 2000


def test_descriptors_above_a_thousand_will_do(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 1200:
        pytest.skip("no more than 1,200 descriptors are allowed here")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 1200), hard))
    opened = [os.open(os.devnull, os.O_RDONLY) for _ in range(1100)]
    try:
        with WorkerProcess({}, tmp_path / "log") as worker:
            worker.ask(Load(FAKE), Loaded, 30)
    finally:
        for descriptor in opened:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_no_descriptor_is_left_where_a_process_cannot_start(tmp_path: Path) -> None:
    before = len([*Path("/proc/self/fd").iterdir()])
    with pytest.raises(FileNotFoundError):
        WorkerProcess({}, tmp_path / "log", Interpreter(str(tmp_path / "none")))
    assert len([*Path("/proc/self/fd").iterdir()]) == before


def test_children_of_a_worker_that_is_gone_are_gone_too(tmp_path: Path) -> None:
    (tmp_path / "parent.py").write_text(
        "import os, subprocess\n"
        "from polybench.engines.fake.engine import FakeEngine\n"
        "class Parent(FakeEngine):\n"
        "    def load_framework(self):\n"
        "        child = subprocess.Popen(['sleep', '60'])\n"
        "        print(child.pid, flush=True)\n"
        "        os._exit(3)\n"
    )
    with (
        WorkerProcess({"PYTHONPATH": str(tmp_path)}, tmp_path / "log") as worker,
        pytest.raises(CellFailed, match="exited with code 3"),
    ):
        worker.ask(Load("parent:Parent"), Loaded, 30)
    child = int((tmp_path / "log").read_text().split()[0])
    psutil.wait_procs([psutil.Process(child)] if psutil.pid_exists(child) else [], timeout=10)
    assert not psutil.pid_exists(child) or psutil.Process(child).status() == psutil.STATUS_ZOMBIE


def test_a_log_that_nobody_would_read_is_shortened(tmp_path: Path) -> None:
    with WorkerProcess({}, tmp_path / "log") as worker, worker.log.open("ab") as log:
        log.write(b"begin\n" + bytes(20 << 20) + b"the end\n")
    content = worker.log.read_bytes()
    assert len(content) == 1 << 24
    assert content.startswith(b"begin")
    assert content.endswith(b"the end\n")
