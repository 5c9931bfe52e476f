"""Tests that passed checks are cached, and found only if everything that determines them is equal."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from polybench.data.batch_files import PipelineFiles
from polybench.engines.job import EngineInfo
from polybench.networks.optimizers import Optimizer
from polybench.parity_check import cache
from polybench.parity_check.cache import CachedCheck, CheckCache, CheckContext
from polybench.parity_check.check import CheckRequest, training_key
from polybench.protocol.calls import Loaded
from polybench.schema.parity import ParityCheck, TensorComparison
from tests import small_datasets

CONTEXT = CheckContext("module:Engine", {"OMP_NUM_THREADS": "2"}, ("python", None), ("host", "cpu"))
TENSORS = [TensorComparison("timed", "conv1.weight", 1, "gradient", 3.1e-6, 5e-2)]
CHECK = CachedCheck(
    Loaded(EngineInfo({"framework": "1.0"}, {"build": "x"}, ("cpu",)), {"file": "stamp"}),
    ParityCheck("pass", checked_at="2026-11-22T14:03:05+00:00", steps=3, batch_size=8, tensors=TENSORS),
)


@pytest.fixture
def check_request(tmp_path: Path) -> CheckRequest:
    files = small_datasets.files(tmp_path)
    return CheckRequest(small_datasets.job(), files.weights, files.epoch, 3, 60.0)


def test_passed_check_is_found(check_request: CheckRequest, tmp_path: Path) -> None:
    cache = CheckCache(tmp_path / "checks")
    key = cache.key(check_request, CONTEXT)
    assert cache.find(key) is None
    cache.save(key, CHECK)
    assert CheckCache(tmp_path / "checks").find(key) == CHECK
    newer = msgspec.structs.replace(
        CHECK, worker_info=msgspec.structs.replace(CHECK.worker_info, code={"file": "other"})
    )
    cache.save(key, newer)
    assert cache.find(key) == newer


def test_deleted_check_is_not_found(tmp_path: Path) -> None:
    cache = CheckCache(tmp_path / "checks")
    cache.save("key", CHECK)
    cache.save("other", CHECK)
    cache.delete("key")
    cache.delete("nothing")
    assert (cache.find("key"), cache.find("other")) == (None, CHECK)


def test_a_check_is_not_found_after_a_file_changed_that_the_engine_loaded_later(tmp_path: Path) -> None:
    cache, file = CheckCache(tmp_path / "checks"), tmp_path / "later.py"
    file.write_text("x = 1\n")
    cache.save("key", msgspec.structs.replace(CHECK, later_code={str(file): "another stamp"}))
    assert cache.find("key") is None
    file.unlink()  # it may have been temporary
    assert cache.find("key") is not None


@pytest.mark.parametrize("status", ["fail", "skipped"])
def test_only_passed_checks_are_cached(status: Any, check_request: CheckRequest, tmp_path: Path) -> None:
    cache = CheckCache(tmp_path / "checks")
    cache.save("key", msgspec.structs.replace(CHECK, parity=ParityCheck(status, "no")))
    assert cache.find("key") is None
    assert not (tmp_path / "checks").exists()


def reverse_content(path: str | Path) -> None:
    Path(path).write_bytes(Path(path).read_bytes()[::-1])


def with_workload(check_request: CheckRequest, **fields: Any) -> CheckRequest:
    workload = msgspec.structs.replace(check_request.job.workload, **fields)
    return check_request._replace(job=msgspec.structs.replace(check_request.job, workload=workload))


CHANGED_REQUESTS: dict[str, Callable[[CheckRequest], CheckRequest]] = {
    "rate": lambda check_request: with_workload(check_request, optimizer=Optimizer(learning_rate=0.02)),
    "batch size": lambda check_request: with_workload(check_request, batch_size=16),
    "precision": lambda check_request: with_workload(check_request, precision="bf16"),
    "threads": lambda check_request: with_workload(check_request, threads=1),
    "variants": lambda check_request: check_request._replace(
        job=msgspec.structs.replace(check_request.job, variants=("compile",))
    ),
    "device": lambda check_request: check_request._replace(
        job=msgspec.structs.replace(check_request.job, device="cuda")
    ),
    "seed": lambda check_request: check_request._replace(job=msgspec.structs.replace(check_request.job, seed=1)),
    "steps": lambda check_request: check_request._replace(steps=2),
}


@pytest.mark.parametrize("what", CHANGED_REQUESTS)
def test_changed_request_has_another_key(what: str, check_request: CheckRequest, tmp_path: Path) -> None:
    cache = CheckCache(tmp_path / "checks")
    assert cache.key(CHANGED_REQUESTS[what](check_request), CONTEXT) != cache.key(check_request, CONTEXT)


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
def test_changed_context_has_another_key(change: dict[str, Any], check_request: CheckRequest, tmp_path: Path) -> None:
    cache = CheckCache(tmp_path / "checks")
    assert cache.key(check_request, CONTEXT._replace(**change)) != cache.key(check_request, CONTEXT)


def test_key_depends_on_the_content_of_batches_and_not_on_their_name(
    check_request: CheckRequest, tmp_path: Path
) -> None:
    cache = CheckCache(tmp_path / "checks")
    before = cache.key(check_request, CONTEXT)
    assert cache.key(with_workload(check_request, dataset="/somewhere/else"), CONTEXT) == before
    reverse_content(check_request.epoch.images_path)
    assert cache.key(check_request, CONTEXT) != before


def test_key_depends_on_the_network_and_not_on_its_name(check_request: CheckRequest, tmp_path: Path) -> None:
    cache = CheckCache(tmp_path / "checks")
    model = msgspec.structs.replace(check_request.job.model, name="other", summary="text")
    workload = msgspec.structs.replace(check_request.job.workload, model="other")
    renamed = check_request._replace(job=msgspec.structs.replace(check_request.job, model=model, workload=workload))
    assert cache.key(renamed, CONTEXT) == cache.key(check_request, CONTEXT)
    assert training_key(renamed.job, 3, "") == training_key(check_request.job, 3, "")
    other = msgspec.structs.replace(model, initialization="he")
    changed = check_request._replace(job=msgspec.structs.replace(check_request.job, model=other))
    assert cache.key(changed, CONTEXT) != cache.key(check_request, CONTEXT)
    assert training_key(changed.job, 3, "") != training_key(check_request.job, 3, "")


def test_key_depends_on_order_augmentations_and_workers_of_the_pipeline(
    check_request: CheckRequest, tmp_path: Path
) -> None:
    cache = CheckCache(tmp_path / "checks")
    order, augmentations = tmp_path / "order.npy", tmp_path / "augmentations.npy"
    np.save(order, np.arange(8))
    np.save(augmentations, np.arange(24))
    stream = PipelineFiles("", "", str(order), None, loader_workers=1, steps_per_epoch=4, bytes=100)
    keys = [cache.key(check_request, CONTEXT)]
    augmented = {"augmentations_path": str(augmentations)}
    for fields in ({}, {"loader_workers": 2}, {"steps_per_epoch": 5}, augmented):
        piped = check_request._replace(pipeline_files=msgspec.structs.replace(stream, **fields))
        keys.append(cache.key(piped, CONTEXT))
    reverse_content(order)
    keys.append(cache.key(check_request._replace(pipeline_files=stream), CONTEXT))
    reverse_content(augmentations)
    keys.append(cache.key(piped, CONTEXT))
    assert len(set(keys)) == 7


def test_key_depends_on_polybench_source_files(
    check_request: CheckRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sources = cache.source_files()
    names = {path.name for path in sources}
    assert {"comparison.py", "training.py", "optimizers.jl", "lenet.py", "batches.py"} <= names
    # Tests are not part of the key, because an installed package has none.
    assert "PolyBenchCUDAExt.jl" in names
    assert "runtests.jl" not in names
    extra_file = tmp_path / "engine.py"
    extra_file.write_text("rate = 1")
    monkeypatch.setattr(cache, "source_files", lambda: [*sources, extra_file])
    before = CheckCache(tmp_path / "checks").key(check_request, CONTEXT)
    extra_file.write_text("rate = 2")
    assert CheckCache(tmp_path / "checks").key(check_request, CONTEXT) != before


@pytest.mark.parametrize("content", [b"", b"{", b'{"note": {}, "checksums": {}}', b"\xff\x00", b"[" * 10_000])
def test_corrupt_entry_is_ignored(content: bytes, tmp_path: Path) -> None:
    cache = CheckCache(tmp_path / "checks")
    cache.save("key", CHECK)
    (manifest,) = (tmp_path / "checks").glob("*/manifest.json")
    manifest.write_bytes(content)
    assert cache.find("key") is None
    cache.save("key", CHECK)
    assert cache.find("key") == CHECK


def test_unusable_folder_is_ignored(tmp_path: Path) -> None:
    (tmp_path / "checks").write_text("a file")
    cache = CheckCache(tmp_path / "checks")
    cache.save("key", CHECK)
    assert cache.find("key") is None
