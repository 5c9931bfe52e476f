"""Environment variables of workers."""

from __future__ import annotations

import ctypes.util
import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from polybench.engines import ALLOCATOR_VARIANTS, ENGINES, EngineSpec
from polybench.engines.job import PINNED, RANKS
from polybench.errors import EngineUnavailable
from polybench.protocol.environment import (
    PRELOADED_ALLOCATORS,
    TUNABLES,
    inherited_env_vars,
    malloc_env_vars,
    overridden_env_vars,
    recorded_env_vars,
    unrecorded_env_hash,
    worker_environment,
)
from polybench.schema.options import Malloc, Precision

FAULTS = """
import ctypes, mmap, resource
libc = ctypes.CDLL(None)
libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
libc.free.argtypes = [ctypes.c_void_p]
size, blocks = 8 << 20, 6
def steps(n):
    for _ in range(n):
        allocated = [libc.malloc(size) for _ in range(blocks)]
        for block in allocated: ctypes.memset(block, 1, size)
        for block in reversed(allocated): libc.free(block)
steps(2)
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
steps(10)
pages = blocks * size / mmap.PAGESIZE
print((resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before) / 10 / pages)
"""
"""Prints the fraction of a step's pages that fault again after the step has freed them."""


def test_environment_sets_every_thread_pool_and_hides_gpus_from_cpu_workers() -> None:
    environment = worker_environment(ENGINES["tf"], "cpu", 3)
    pools = ("OMP", "MKL", "OPENBLAS", "NUMEXPR", "JULIA")
    assert [environment[f"{name}_NUM_THREADS"] for name in pools] == ["3"] * len(pools)
    assert environment["VECLIB_MAXIMUM_THREADS"] == "3"
    assert environment["CUDA_VISIBLE_DEVICES"] == ""
    assert "CUDA_VISIBLE_DEVICES" not in worker_environment(ENGINES["tf"], "cuda", 3)
    assert ENGINES["tf"].environment.items() <= environment.items()


def test_the_pools_of_a_program_have_their_sizes_before_it_is_imported() -> None:
    environment = worker_environment(ENGINES.find("./mine.py"), "cpu", 3)
    names = ("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS", "NPROC", "PJRT_NPROC")
    assert {environment[name] for name in names} == {"3"}


def test_flux_workers_on_a_gpu_disable_tf32_in_nvidia_libraries_unless_it_is_requested() -> None:
    def override(device: str, precision: Precision) -> str | None:
        variables = worker_environment(ENGINES["flux"], device, 3, project="/nowhere", precision=precision)
        return variables.get("NVIDIA_TF32_OVERRIDE")

    assert [override("cuda:1", precision) for precision in ("fp32", "tf32")] == ["0", None]
    assert override("cpu", "fp32") is None


def test_a_variable_of_an_engine_may_contain_the_number_of_threads() -> None:
    flags = {"FLAGS": "--threads={threads} {other}"}
    environment = worker_environment(EngineSpec("m:E", "", environment=flags), "cpu", 3)
    assert environment["FLAGS"] == "--threads=3 {other}"


@pytest.mark.parametrize(("malloc", "faults"), [("retain", False), ("system", True)])
def test_steps_have_no_page_faults_if_malloc_retains_memory(malloc: Malloc, faults: bool) -> None:
    environment = inherited_env_vars(os.environ) | malloc_env_vars(malloc)
    output = subprocess.run(
        [sys.executable, "-c", FAULTS], env=environment, capture_output=True, text=True, check=True
    ).stdout
    assert (float(output) > 0.5) == faults


def test_the_study_sets_the_malloc_policy_and_keeps_other_tunables_of_the_user() -> None:
    user = {TUNABLES: "glibc.cpu.x86_ibt=on:glibc.malloc.trim_threshold=1"}
    assert malloc_env_vars("system", user)[TUNABLES] == "glibc.cpu.x86_ibt=on"
    tunables = malloc_env_vars("retain", user)[TUNABLES].split(":")
    assert tunables[0] == "glibc.cpu.x86_ibt=on"
    assert "glibc.malloc.trim_threshold=1" not in tunables
    assert inherited_env_vars({"MALLOC_ARENA_MAX": "1", "PATH": "/bin"}) == {"PATH": "/bin"}


def test_the_study_sets_the_cpu_affinity() -> None:
    user = {"GOMP_CPU_AFFINITY": "0", "OMP_PROC_BIND": "close", PINNED: "0", "OMP_WAIT_POLICY": "passive"}
    assert inherited_env_vars(user) == {"OMP_WAIT_POLICY": "passive"}
    assert worker_environment(ENGINES["torch"], "cpu", 2, cpus=(1, 3))[PINNED] == "1,3"
    assert PINNED not in worker_environment(ENGINES["torch"], "cpu", 2)


def test_a_variant_may_use_the_system_malloc_policy() -> None:
    variant = worker_environment(ENGINES["torch"], "cpu", 2, ("system_malloc",), "retain")
    assert variant == worker_environment(ENGINES["torch"], "cpu", 2, (), "system")
    assert variant != worker_environment(ENGINES["torch"], "cpu", 2, (), "retain")


READ = re.compile(
    r"""(?:environ(?:\.get|\.pop|\.setdefault)?\s*[\[(]\s*|getenv\(\s*|env_name_\w+=)["']([A-Z][A-Z0-9_]{3,})["']"""
)
READ_IN_JAX = re.compile(r"""_(?:flag|state)\(\s*(?:name=)?["'](jax_\w+)["']""")
NOT_OF_A_SINGLE_MACHINE = re.compile(
    r"BENCHMARK|COMPILE_STROBELIGHT|CONDA|CPLUS_INCLUDE_PATH|CUDACXX|DCP|DISABLE_CUPTI|DUMP_AOTI|"
    r"ENABLE_PYTORCH|ENABLE_RUNTIME|BAZEL|FAKE_ALLOW_META|FR_TRACE|GCE|GRPC|HALIDE|HDF5|HIP|HOME|"
    r"HOSTNAME|IS_FBCODE|JOB|LEVEL_ZERO|LIBTPU|LOCAL|LOG|MASTER|MAST|MAX_JOBS|MOSAIC|NVSHMEM|"
    r"NVTOOLSEXT|ONEAPI|PATH|PIP|PROGRAMFILES|PT2_COMPILE_ID|RANK|ROC|ROLE_RANK|SKIP|SYSTEMROOT|"
    r"TEARDOWN|TENSORSTORE|TEST|TF_CLUSTER|TF_CONFIG|TF_COORDINATOR|TF_NP|TF_PS|TPU|TVM|"
    r"UNSAFE_SKIP_FSDP|USE_LIBUV|USER|VIRTUAL_ENV|WHEEL|WINDOWS|WORLD|XDG|ZE"
)
"""Variables of clusters, other processors, builds, tests, logs and folders."""


@pytest.mark.parametrize(
    ("name", "value", "used"),
    [
        ("OMP_NUM_THREADS", "8", "3"),
        ("MKL_NUM_THREADS", "1", "3"),
        ("KERAS_BACKEND", "jax", "tensorflow"),
        ("MALLOC_ARENA_MAX", "1", None),
        ("OMP_PROC_BIND", "close", None),
        (TUNABLES, "glibc.malloc.check=3", malloc_env_vars("retain", {})[TUNABLES]),
    ],
)
def test_a_variable_that_a_worker_gets_with_another_value_is_named(name: str, value: str, used: str | None) -> None:
    worker = worker_environment(ENGINES["tf"], "cpu", 3)
    inherited = {"TF_ENABLE_ONEDNN_OPTS": "0", "JULIA_NUM_THREADS": "3", "CUDA_VISIBLE_DEVICES": "1", "HOME": "/"}
    assert overridden_env_vars(inherited | {name: value}, worker) == {name: (value, used)}


def test_an_overridden_variable_that_no_document_records_is_not_named() -> None:
    assert overridden_env_vars({"MALLOC_TOKEN": "abc", "CUDA_PWD": "abc"}, {"CUDA_PWD": "x"}) == {}


@pytest.mark.parametrize("framework", ["jax", "keras", "tensorflow", "torch"])
def test_a_change_of_a_variable_that_frameworks_read_is_noticed(framework: str) -> None:
    found = importlib.util.find_spec(framework)
    if found is None or found.origin is None:
        pytest.skip(f"{framework} is not installed")
    files = [
        path for path in Path(found.origin).parent.rglob("*.py") if "test" not in str(path.relative_to(path.anchor))
    ]
    texts = [path.read_text("utf-8", "replace") for path in files]
    names = {name for text in texts for name in READ.findall(text)}
    names |= {name.upper() for text in texts if framework == "jax" for name in READ_IN_JAX.findall(text)}
    assert names
    values = {name: "1" for name in names if not NOT_OF_A_SINGLE_MACHINE.match(name)}
    others = {name for name in values if len({unrecorded_env_hash({name: value}, {}) for value in "01"}) == 2}
    assert recorded_env_vars(values, {}).keys() | others == inherited_env_vars(values).keys()
    assert not recorded_env_vars(values, {}).keys() & others


def test_the_hash_of_unrecorded_variables_is_of_those_that_engines_read() -> None:
    others = {"HOME": "/", "OMP_NUM_THREADS": "1", "MALLOC_X": "1"}
    assert unrecorded_env_hash(others, {}) == unrecorded_env_hash({"XLA_A": "1"}, {"XLA_A": "2"}) == ""
    one = unrecorded_env_hash({"XLA_A": "1", "XLA_B": "2"}, {})
    assert one == unrecorded_env_hash({"XLA_B": "2", "XLA_A": "1"} | others, {})
    assert one not in {unrecorded_env_hash({"XLA_A": "1", "XLA_B": value}, {}) for value in ("", "1", "3")}


@pytest.mark.parametrize("variant", PRELOADED_ALLOCATORS)
def test_the_allocator_of_a_variant_is_preloaded_or_the_variant_is_unavailable(variant: str) -> None:
    assert variant in ALLOCATOR_VARIANTS
    names, hint = PRELOADED_ALLOCATORS[variant]
    if any(map(ctypes.util.find_library, names)):
        environment = worker_environment(ENGINES["torch"], "cpu", 2, (variant,))
        maps = subprocess.run(
            [sys.executable, "-c", "print(open('/proc/self/maps').read())"],
            env=os.environ | environment, capture_output=True, text=True, check=True,
        )  # fmt: skip
        assert environment["LD_PRELOAD"] in maps.stdout
        assert maps.stderr == ""
    else:
        with pytest.raises(EngineUnavailable, match=f"{variant} is not installed") as error:
            worker_environment(ENGINES["torch"], "cpu", 2, (variant,))
        assert error.value.hint == hint


def test_replicas_in_separate_processes_divide_threads_and_cpus() -> None:
    environment = worker_environment(ENGINES["torch"], "cpu", 4, cpus=(1, 3, 5, 7), replicas=2)
    assert environment["OMP_NUM_THREADS"] == "2"
    shares = environment[RANKS].split(";")
    assert environment[PINNED] == shares[0]
    assert sorted(",".join(shares).split(",")) == ["1", "3", "5", "7"]
    assert RANKS not in worker_environment(ENGINES["torch"], "cpu", 4)


def test_replicas_in_one_process_use_all_threads() -> None:
    environment = worker_environment(ENGINES["jax"], "cpu", 4, replicas=2)
    assert environment["NPROC"] == "4"
    assert environment["JAX_NUM_CPU_DEVICES"] == "2"
    assert "JAX_NUM_CPU_DEVICES" not in worker_environment(ENGINES["jax"], "cpu", 4)
    assert not {RANKS, PINNED} & set(environment)


def test_an_engine_without_replicas_reports_the_reason() -> None:
    with pytest.raises(EngineUnavailable, match=r"MPI\.jl") as error:
        worker_environment(ENGINES["flux"], "cpu", 2, replicas=2)
    assert error.value.hint == "remove --replicas, or use an engine that supports it: torch, tf, jax"
