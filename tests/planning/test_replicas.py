"""Studies with replicas: validation, shared files and workers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from polybench.data import synthetic
from polybench.errors import BadInput
from polybench.planning import shared_files
from polybench.planning.plan import Plan, estimated_bytes, resolve
from polybench.schema.options import Study


def plan(**fields: Any) -> Plan:
    settings = {"engines": ("fake", "tf"), "devices": ("cpu",), "data": "synthetic", "threads": 4}
    return resolve(Study(**(settings | fields)))


def test_jobs_have_the_seed_and_the_threads_of_the_study() -> None:
    found = plan(seed=7, threads=3, oversubscribe=True)
    jobs = [found.job(configuration) for configuration in found.configurations]
    assert [(job.seed, job.workload.threads) for job in jobs] == [(7, 3)] * 2


def test_jobs_have_the_precisions_of_their_configurations() -> None:
    found = plan(engines=("torch",), precision=("fp32", "bf16"))
    jobs = [found.job(configuration).workload for configuration in found.configurations]
    assert [job.precision for job in jobs] == ["fp32", "bf16"]


def test_each_configuration_has_its_replicas_and_the_whole_batch() -> None:
    found = plan(replicas=(1, 4), batch_size=64)
    jobs = [found.job(configuration).workload for configuration in found.configurations]
    assert [(one.replicas, one.batch_size, one.threads) for one in jobs] == [(1, 64, 4), (4, 64, 4)] * 2


@pytest.mark.parametrize(
    ("replicas", "batch_size", "message"),
    [
        (3, 64, r"--replicas 3 does not divide the batch of 64.*--batch-size 63"),
        (4, 2, r"--batch-size 4$"),
        (3, 48, r"--replicas 3 does not divide 4 threads evenly.*--threads 3,"),
        (8, 128, r"--replicas 8 does not divide 4 threads.*--threads 8"),
    ],
)
def test_replicas_divide_the_batch_and_the_threads(replicas: int, batch_size: int, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        plan(replicas=replicas, batch_size=batch_size)


def test_replicas_on_gpus_need_not_divide_the_threads() -> None:
    assert plan(replicas=8, devices=("cuda",)).configurations


def test_only_process_replicas_multiply_framework_memory() -> None:
    found = plan(replicas=(1, 2))
    of = {configuration.name: estimated_bytes(found, configuration, 0) for configuration in found.configurations}
    assert of["fake/cpu/2x"] - of["fake/cpu"] > 60 << 20
    assert of["tf/cpu/2x"] - of["tf/cpu"] < 10 << 20


@pytest.mark.parametrize(
    ("batch_size", "replicas", "checked"), [(20, 1, 16), (42, (3, 7), 21), (24, (3, 4), 12), (12, (1, 6), 12)]
)
def test_replicas_divide_the_parity_batch(
    batch_size: int, replicas: Any, checked: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(synthetic.IMAGES, "train", 640)
    found = plan(engines=("fake",), batch_size=batch_size, replicas=replicas, threads=84, oversubscribe=True)
    found = found._replace(model=msgspec.structs.replace(found.model, parity_batch_size=16))
    assert shared_files.write(found, tmp_path).parity.batch_size == checked
