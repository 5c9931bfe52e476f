"""Passed checks are kept, and found again only where everything that decides them is the same."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from polybench.core.document.identity import Parity, TensorError
from polybench.core.job import Probe
from polybench.core.optimizers import Optimizer
from polybench.data.stream import StreamFile
from polybench.identity import kept_checks
from polybench.identity.check import Task
from polybench.identity.kept_checks import Circumstances, KeptCheck, KeptChecks
from polybench.identity.reference_cache import training_key
from polybench.wire.messages import Loaded
from tests import small

CIRCUMSTANCES = Circumstances("module:Engine", {"OMP_NUM_THREADS": "2"}, ("python", None), ("host", "cpu"))
TENSORS = [TensorError("timed", "conv1.weight", 1, "gradient", 3.1e-6, 5e-2)]
CHECK = KeptCheck(
    Loaded(Probe({"framework": "1.0"}, {"build": "x"}, ("cpu",)), "code"),
    Parity("pass", checked="2026-11-22T14:03:05+00:00", steps=3, batch_size=8, tensors=TENSORS),
)


@pytest.fixture
def task(tmp_path: Path) -> Task:
    files = small.files(tmp_path)
    return Task(small.job(), files.weights, files.epoch, 3, 60.0)


def test_a_passed_check_is_found_whole(task: Task, tmp_path: Path) -> None:
    kept = KeptChecks(tmp_path / "checks")
    key = kept.key(task, CIRCUMSTANCES)
    assert kept.find(key) is None
    kept.keep(key, CHECK)
    assert KeptChecks(tmp_path / "checks").find(key) == CHECK
    newer = msgspec.structs.replace(CHECK, loaded=msgspec.structs.replace(CHECK.loaded, code="other"))
    kept.keep(key, newer)
    assert kept.find(key) == newer


def test_what_is_dropped_is_not_found(tmp_path: Path) -> None:
    kept = KeptChecks(tmp_path / "checks")
    kept.keep("key", CHECK)
    kept.keep("other", CHECK)
    kept.drop("key")
    kept.drop("nothing")
    assert (kept.find("key"), kept.find("other")) == (None, CHECK)


@pytest.mark.parametrize("status", ["fail", "skipped"])
def test_only_passes_are_kept(status: Any, task: Task, tmp_path: Path) -> None:
    kept = KeptChecks(tmp_path / "checks")
    kept.keep("key", msgspec.structs.replace(CHECK, parity=Parity(status, "no")))
    assert kept.find("key") is None
    assert not (tmp_path / "checks").exists()


def other_content(path: str | Path) -> None:
    Path(path).write_bytes(Path(path).read_bytes()[::-1])


def with_workload(task: Task, **fields: Any) -> Task:
    workload = msgspec.structs.replace(task.job.workload, **fields)
    return task._replace(job=msgspec.structs.replace(task.job, workload=workload))


TASKS: dict[str, Callable[[Task], Task]] = {
    "rate": lambda task: with_workload(task, optimizer=Optimizer(learning_rate=0.02)),
    "batch size": lambda task: with_workload(task, batch_size=16),
    "precision": lambda task: with_workload(task, precision="bf16"),
    "threads": lambda task: with_workload(task, threads=2),
    "variants": lambda task: task._replace(job=msgspec.structs.replace(task.job, variants=("compile",))),
    "device": lambda task: task._replace(job=msgspec.structs.replace(task.job, device="cuda")),
    "seed": lambda task: task._replace(job=msgspec.structs.replace(task.job, seed=1)),
    "steps": lambda task: task._replace(steps=2),
}


@pytest.mark.parametrize("what", TASKS)
def test_another_task_is_another_check(what: str, task: Task, tmp_path: Path) -> None:
    kept = KeptChecks(tmp_path / "checks")
    assert kept.key(TASKS[what](task), CIRCUMSTANCES) != kept.key(task, CIRCUMSTANCES)


@pytest.mark.parametrize(
    "change",
    [
        {"factory": "module:Other"},
        {"environment": {"OMP_NUM_THREADS": "4"}},
        {"environment": {"OMP_NUM_THREADS": "2", "ONEDNN_MAX_CPU_ISA": "SSE41"}},
        {"python": ("/other/bin/python", "3.12.1")},
        {"machine": ("another", "cpu")},
        {"machine": ("host", "another")},
    ],
)
def test_other_circumstances_are_another_check(change: dict[str, Any], task: Task, tmp_path: Path) -> None:
    kept = KeptChecks(tmp_path / "checks")
    assert kept.key(task, CIRCUMSTANCES._replace(**change)) != kept.key(task, CIRCUMSTANCES)


def test_the_batches_count_and_not_what_they_are_called(task: Task, tmp_path: Path) -> None:
    kept = KeptChecks(tmp_path / "checks")
    before = kept.key(task, CIRCUMSTANCES)
    assert kept.key(with_workload(task, dataset="/somewhere/else"), CIRCUMSTANCES) == before
    other_content(task.epoch.images_path)
    assert kept.key(task, CIRCUMSTANCES) != before


def test_a_network_counts_and_not_what_it_is_called(task: Task, tmp_path: Path) -> None:
    kept = KeptChecks(tmp_path / "checks")
    model = msgspec.structs.replace(task.job.model, name="other", summary="said")
    workload = msgspec.structs.replace(task.job.workload, model="other")
    renamed = task._replace(job=msgspec.structs.replace(task.job, model=model, workload=workload))
    assert kept.key(renamed, CIRCUMSTANCES) == kept.key(task, CIRCUMSTANCES)
    assert training_key(renamed.job, 3, []) == training_key(task.job, 3, [])
    other = msgspec.structs.replace(model, initialization="he")
    changed = task._replace(job=msgspec.structs.replace(task.job, model=other))
    assert kept.key(changed, CIRCUMSTANCES) != kept.key(task, CIRCUMSTANCES)
    assert training_key(changed.job, 3, []) != training_key(task.job, 3, [])


def test_a_pipelines_order_and_workers_count(task: Task, tmp_path: Path) -> None:
    kept = KeptChecks(tmp_path / "checks")
    order = tmp_path / "order.npy"
    np.save(order, np.arange(8))
    stream = StreamFile("", "", str(order), None, workers=1, steps_in_epoch=4, bytes=100)
    keys = [kept.key(task, CIRCUMSTANCES)]
    for fields in ({}, {"workers": 2}, {"steps_in_epoch": 5}):
        piped = task._replace(stream=msgspec.structs.replace(stream, **fields))
        keys.append(kept.key(piped, CIRCUMSTANCES))
    other_content(order)
    keys.append(kept.key(task._replace(stream=stream), CIRCUMSTANCES))
    assert len(set(keys)) == 5


def test_polybenchs_own_programs_count(task: Task, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sources = kept_checks.own_programs()
    names = {path.name for path in sources}
    assert {"tensors.py", "training_step.py", "optimizers.jl", "lenet.py", "arrays.py"} <= names
    # An installed package has no tests, and is the same program as a checkout.
    assert "PolyBenchCUDAExt.jl" in names
    assert "runtests.jl" not in names
    own = tmp_path / "engine.py"
    own.write_text("rate = 1")
    monkeypatch.setattr(kept_checks, "own_programs", lambda: [*sources, own])
    before = KeptChecks(tmp_path / "checks").key(task, CIRCUMSTANCES)
    own.write_text("rate = 2")
    assert KeptChecks(tmp_path / "checks").key(task, CIRCUMSTANCES) != before


@pytest.mark.parametrize("content", [b"", b"{", b'{"note": {}, "checksums": {}}', b"\xff\x00", b"[" * 10_000])
def test_what_is_damaged_or_foreign_is_no_check(content: bytes, tmp_path: Path) -> None:
    kept = KeptChecks(tmp_path / "checks")
    kept.keep("key", CHECK)
    (manifest,) = (tmp_path / "checks").glob("*/manifest.json")
    manifest.write_bytes(content)
    assert kept.find("key") is None
    kept.keep("key", CHECK)
    assert kept.find("key") == CHECK


def test_a_folder_that_cannot_be_used_costs_time_only(tmp_path: Path) -> None:
    (tmp_path / "checks").write_text("a file")
    kept = KeptChecks(tmp_path / "checks")
    kept.keep("key", CHECK)
    assert kept.find("key") is None
