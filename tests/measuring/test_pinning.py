"""Studies whose workers run on the same cores, looked at from outside while they are measured."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from tomllib import loads as from_toml

import psutil
import pytest

from polybench.core.errors import BadInput
from polybench.machine import cores
from tests.measuring.test_study import REAL_PIPELINE, Listener, assert_its_pipeline_is_timed, run, small_data

__all__ = ["small_data"]


def allowed_cpus(pids: Iterable[int]) -> set[str]:
    """`Cpus_allowed_list` of all threads of these processes."""
    statuses = [file for pid in pids for file in Path(f"/proc/{pid}/task").glob("*/status")]
    return {
        line.partition(":")[2].strip()
        for status in statuses
        for line in status.read_text().splitlines()
        if line.startswith("Cpus_allowed_list")
    }


class Affinities(Listener):
    """Sees the workers, and what they have started, in each round; not what other tests have left running."""

    def __init__(self) -> None:
        super().__init__()
        self.others = set(psutil.Process().children(recursive=True))
        self.seen: set[str] = set()
        self.most_processes = 0

    def stage(self, text: str) -> None:
        super().stage(text)
        if "round" in text:
            children = set(psutil.Process().children(recursive=True)) - self.others
            self.seen |= allowed_cpus(child.pid for child in children)
            self.most_processes = max(self.most_processes, len(children))


@pytest.mark.parametrize(
    ("engine", "processes"),
    [
        ("fake", 1),
        # The second is its DataLoader's. Julia's threads are looked at in engines/flux/test_worker.py.
        pytest.param("torch", 2, marks=pytest.mark.slow),
    ],
)
def test_all_threads_and_children_of_a_worker_run_on_the_studys_cores(engine: str, processes: int) -> None:
    """And a pipeline of PyTorch's, with its children, gives identical training there."""
    watch = Affinities()
    fields = {"threads": 1} if engine == "fake" else REAL_PIPELINE
    result = run(engine, listener=watch, pin=True, processes=1, rounds=2, **fields)
    if result.results[0].status == "unavailable":
        pytest.skip(result.results[0].reason or "")
    assert result.results[0].status == "ok"
    if engine != "fake":
        assert_its_pipeline_is_timed(result.results[0])
    (cpu,) = result.settings.pinned
    assert watch.seen == {str(cpu)}
    assert watch.most_processes >= processes
    assert from_toml(result.study)["pin"] is True


def test_a_study_within_one_core_is_pinned_to_that_one() -> None:
    script = (
        "import os; os.sched_setaffinity(0, {CPU})\n"
        "from polybench.core.spec import Study; from polybench.planning.plan import resolve\n"
        "print(resolve(Study(('fake',), pin=True)).cpus, resolve(Study(('fake',))).cpus)"
    )
    for cpu in os.sched_getaffinity(0):
        command = [sys.executable, "-c", script.replace("CPU", str(cpu))]
        output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        assert output == f"({cpu},) ()\n"


def test_without_pin_a_worker_runs_where_its_parent_may() -> None:
    watch = Affinities()
    assert run("fake", listener=watch, processes=1, rounds=1).settings.pinned == []
    assert watch.seen == allowed_cpus([os.getpid()])


def test_pinning_is_refused_where_the_system_does_not_tell_its_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cores, "physical_cores", list)
    with pytest.raises(BadInput, match="does not tell its physical cores"):
        run("fake", pin=True)
