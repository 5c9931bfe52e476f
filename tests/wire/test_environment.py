"""What a worker's environment is made of."""

from __future__ import annotations

import ctypes.util
import os
import subprocess
import sys

import pytest

from polybench.core.errors import Unavailable
from polybench.core.job import PINNED, RANKS
from polybench.core.spec import Heap, Precision
from polybench.engines import ALLOCATORS, ENGINES, EngineRow
from polybench.wire.environment import (
    PRELOADED,
    TUNABLES,
    heap_environment,
    inherited,
    worker_environment,
)

FAULTS = """
import ctypes, mmap, resource
libc = ctypes.CDLL(None)
libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
libc.free.argtypes = [ctypes.c_void_p]
size, blocks = 8 << 20, 6
def steps(n):
    for _ in range(n):
        taken = [libc.malloc(size) for _ in range(blocks)]
        for block in taken: ctypes.memset(block, 1, size)
        for block in reversed(taken): libc.free(block)
steps(2)
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
steps(10)
pages = blocks * size / mmap.PAGESIZE
print((resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before) / 10 / pages)
"""
"""The share of a step's pages that it has to ask the kernel for again, where it frees what it took."""


def test_environment_sets_every_pool_and_hides_gpus_from_the_cpu() -> None:
    environment = worker_environment(ENGINES["tf"], "cpu", 3)
    assert environment["OMP_NUM_THREADS"] == environment["JULIA_NUM_THREADS"] == "3"
    assert environment["CUDA_VISIBLE_DEVICES"] == ""
    assert "CUDA_VISIBLE_DEVICES" not in worker_environment(ENGINES["tf"], "cuda", 3)
    assert ENGINES["tf"].environment.items() <= environment.items()


def test_tf32_is_forbidden_to_nvidias_libraries_before_flux_starts_and_where_it_is_not_asked_for() -> None:
    def found(device: str, precision: Precision) -> str | None:
        given = worker_environment(ENGINES["flux"], device, 3, project="/nowhere", precision=precision)
        return given.get("NVIDIA_TF32_OVERRIDE")

    assert [found("cuda:1", precision) for precision in ("fp32", "tf32")] == ["0", None]
    assert found("cpu", "fp32") is None


def test_a_variable_of_an_engines_own_may_have_the_studys_threads() -> None:
    flags = {"FLAGS": "--threads={threads} {other}"}
    environment = worker_environment(EngineRow("m:E", "", environment=flags), "cpu", 3)
    assert environment["FLAGS"] == "--threads=3 {other}"


@pytest.mark.parametrize(("heap", "again"), [("keep", False), ("system", True)])
def test_a_kept_heap_has_no_page_faults_in_a_step(heap: Heap, again: bool) -> None:
    environment = inherited(os.environ) | heap_environment(heap)
    output = subprocess.run(
        [sys.executable, "-c", FAULTS], env=environment, capture_output=True, text=True, check=True
    ).stdout
    assert (float(output) > 0.5) == again


def test_the_heap_is_the_studys_and_other_tunables_are_the_users() -> None:
    user = {TUNABLES: "glibc.cpu.x86_ibt=on:glibc.malloc.trim_threshold=1"}
    assert heap_environment("system", user)[TUNABLES] == "glibc.cpu.x86_ibt=on"
    kept = heap_environment("keep", user)[TUNABLES].split(":")
    assert kept[0] == "glibc.cpu.x86_ibt=on"
    assert "glibc.malloc.trim_threshold=1" not in kept
    assert inherited({"MALLOC_ARENA_MAX": "1", "PATH": "/bin"}) == {"PATH": "/bin"}


def test_where_threads_run_is_the_studys() -> None:
    user = {"GOMP_CPU_AFFINITY": "0", "OMP_PROC_BIND": "close", PINNED: "0", "OMP_WAIT_POLICY": "passive"}
    assert inherited(user) == {"OMP_WAIT_POLICY": "passive"}
    assert worker_environment(ENGINES["torch"], "cpu", 2, cpus=(1, 3))[PINNED] == "1,3"
    assert PINNED not in worker_environment(ENGINES["torch"], "cpu", 2)


def test_a_cell_may_have_the_systems_heap_beside_others() -> None:
    variant = worker_environment(ENGINES["torch"], "cpu", 2, ("systemheap",), "keep")
    assert variant == worker_environment(ENGINES["torch"], "cpu", 2, (), "system")
    assert variant != worker_environment(ENGINES["torch"], "cpu", 2, (), "keep")


@pytest.mark.parametrize("variant", PRELOADED)
def test_another_allocator_is_preloaded_or_unavailable(variant: str) -> None:
    assert variant in ALLOCATORS
    names, remedy = PRELOADED[variant]
    if any(map(ctypes.util.find_library, names)):
        environment = worker_environment(ENGINES["torch"], "cpu", 2, (variant,))
        maps = subprocess.run(
            [sys.executable, "-c", "print(open('/proc/self/maps').read())"],
            env=os.environ | environment, capture_output=True, text=True, check=True,
        )  # fmt: skip
        assert environment["LD_PRELOAD"] in maps.stdout
        assert maps.stderr == ""
    else:
        with pytest.raises(Unavailable, match=f"{variant} is not installed") as missing:
            worker_environment(ENGINES["torch"], "cpu", 2, (variant,))
        assert missing.value.remedy == remedy


def test_replicas_that_are_processes_share_threads_and_cpus() -> None:
    environment = worker_environment(ENGINES["torch"], "cpu", 4, cpus=(1, 3, 5, 7), replicas=2)
    assert environment["OMP_NUM_THREADS"] == "2"
    shares = environment[RANKS].split(";")
    assert environment[PINNED] == shares[0]
    assert sorted(",".join(shares).split(",")) == ["1", "3", "5", "7"]
    assert RANKS not in worker_environment(ENGINES["torch"], "cpu", 4)


def test_replicas_of_one_process_have_all_threads() -> None:
    environment = worker_environment(ENGINES["jax"], "cpu", 4, replicas=2)
    assert environment["NPROC"] == "4"
    assert environment["JAX_NUM_CPU_DEVICES"] == "2"
    assert "JAX_NUM_CPU_DEVICES" not in worker_environment(ENGINES["jax"], "cpu", 4)
    assert not {RANKS, PINNED} & set(environment)


def test_an_engine_without_replicas_says_why() -> None:
    with pytest.raises(Unavailable, match=r"MPI\.jl") as missing:
        worker_environment(ENGINES["flux"], "cpu", 2, replicas=2)
    assert missing.value.remedy == "leave --replicas out, or take an engine that has them: torch, tf, jax"
