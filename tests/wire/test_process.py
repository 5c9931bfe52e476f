"""Worker processes: what they are given, and every way in which they can end."""

from __future__ import annotations

import os
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


def test_out_of_memory_is_told(worker: WorkerProcess, tmp_path: Path) -> None:
    prepare(worker, tmp_path)
    os.kill(worker.pid, signal.SIGKILL)
    with pytest.raises(CellFailed, match="memory runs out"):
        worker.ask(Measure(5), Measured, 30)


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
