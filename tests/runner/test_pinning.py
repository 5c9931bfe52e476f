"""CPU pinning of workers, observed from outside during a study."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from tomllib import loads as from_toml

import psutil
import pytest

from polybench.errors import BadInput
from polybench.machine import cores
from tests.runner.studies import RecordingProgress, run
from tests.runner.test_study import REAL_PIPELINE, assert_pipeline_is_timed


def allowed_cpus(pids: Iterable[int]) -> set[str]:
    """Return `Cpus_allowed_list` of all threads of these processes."""
    statuses = [file for pid in pids for file in Path(f"/proc/{pid}/task").glob("*/status")]
    return {
        line.partition(":")[2].strip()
        for status in statuses
        for line in status.read_text().splitlines()
        if line.startswith("Cpus_allowed_list")
    }


class Affinities(RecordingProgress):
    """Records the CPU affinity of workers and their children in each round, and not of other tests' processes."""

    def __init__(self) -> None:
        super().__init__()
        self.others = set(psutil.Process().children(recursive=True))
        self.cpu_lists: set[str] = set()
        self.max_processes = 0

    def on_stage(self, text: str) -> None:
        super().on_stage(text)
        if "round" in text:
            children = set(psutil.Process().children(recursive=True)) - self.others
            self.cpu_lists |= allowed_cpus(child.pid for child in children)
            self.max_processes = max(self.max_processes, len(children))


@pytest.mark.parametrize(
    ("engine", "processes"),
    [
        ("fake", 1),
        # The second process is that of its DataLoader. engines/flux/test_worker.py tests Julia's threads.
        ("torch", 2),
    ],
)
def test_all_threads_and_children_of_a_worker_run_on_the_studys_cores(engine: str, processes: int) -> None:
    """PyTorch's pipeline with its child processes also passes the parity check there."""
    listener = Affinities()
    fields = {"threads": 1} if engine == "fake" else REAL_PIPELINE
    result = run(engine, listener=listener, pin_cpus=True, processes=1, rounds_per_process=2, **fields)
    if result.results[0].status == "unavailable":
        pytest.skip(result.results[0].reason or "")
    assert result.results[0].status == "ok"
    if engine != "fake":
        assert_pipeline_is_timed(result.results[0])
    (cpu,) = result.settings.pinned_cpus
    assert listener.cpu_lists == {str(cpu)}
    assert listener.max_processes >= processes
    assert from_toml(result.study)["pin_cpus"] is True


def test_a_study_with_one_usable_core_is_pinned_to_it() -> None:
    script = (
        "import os; os.sched_setaffinity(0, {CPU})\n"
        "from polybench.schema.options import Study; from polybench.planning.plan import resolve\n"
        "print(resolve(Study(('fake',), pin_cpus=True)).cpus, resolve(Study(('fake',))).cpus)"
    )
    for cpu in os.sched_getaffinity(0):
        command = [sys.executable, "-c", script.replace("CPU", str(cpu))]
        output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        assert output == f"({cpu},) ()\n"


def test_a_worker_without_pinning_inherits_the_affinity_of_its_parent() -> None:
    listener = Affinities()
    assert run("fake", listener=listener, processes=1, rounds_per_process=1).settings.pinned_cpus == []
    assert listener.cpu_lists == allowed_cpus([os.getpid()])


def test_pinning_is_bad_input_if_the_physical_cores_are_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cores, "physical_cores", list)
    with pytest.raises(BadInput, match="physical cores are unknown"):
        run("fake", pin_cpus=True)
