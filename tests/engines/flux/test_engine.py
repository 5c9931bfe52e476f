from __future__ import annotations

import re
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest

from polybench.engines.flux.engine import FluxEngine
from polybench.engines.flux.julia import discovery, environment
from polybench.engines.flux.julia.discovery import EXECUTABLE, FOUND_BY, PROJECT, Julia
from polybench.engines.flux.julia.environment import start_julia
from polybench.errors import EngineUnavailable
from tests.engines.engine_fixtures import EngineFixture, in_process_of


@in_process_of("flux")
def test_batches_use_the_mapped_file_in_place(fixture: EngineFixture) -> None:
    import juliacall

    fixture.build()
    address = juliacall.Main.seval("batch -> Int(pointer(batch.images))")
    assert address(fixture.engine._batches[0]) == fixture.images.ctypes.data
    assert address(fixture.engine._batches[1]) == fixture.images.ctypes.data + fixture.images[0].nbytes


def anonymous_bytes() -> int:
    return 1024 * int(re.search(r"RssAnon:\s+(\d+)", Path("/proc/self/status").read_text())[1])


@in_process_of("flux")
def test_loading_batches_copies_nothing(fixture: EngineFixture) -> None:
    fixture.build()
    with tempfile.TemporaryFile() as file:
        shape = (100, 128, 3, 32, 32)
        file.truncate(4 * int(np.prod(shape)))
        images = np.memmap(file, np.float32, "r", shape=shape)
        labels = np.zeros(shape[:2], np.int64)
        before = anonymous_bytes()
        fixture.engine.load(images, labels)
        fixture.engine.load(images, labels)
        growth_bytes = anonymous_bytes() - before
    assert growth_bytes < 0.1 * images.nbytes, (growth_bytes, images.nbytes)


@in_process_of("flux")
def test_thread_pools_follow_the_study(fixture: EngineFixture) -> None:
    fixture.build()
    build = fixture.engine.probe().build
    assert (build["julia_threads"], build["blas_threads"]) == ("2", "1"), build
    fixture.build(variants=("blas2",))
    build = fixture.engine.probe().build
    assert (build["julia_threads"], build["blas_threads"]) == ("2", "2"), build
    fixture.build()


@in_process_of("flux")
def test_probe_reports_versions_and_build(fixture: EngineFixture) -> None:
    probe = fixture.engine.probe()
    assert {"julia", "flux", "nnlib", "zygote", "optimisers"} == set(probe.versions), probe.versions
    assert probe.versions["flux"].startswith("0.16."), probe.versions
    assert {"blas", "executable", "project", "found_by", "garbage_collection"} <= set(probe.build), probe.build
    assert probe.devices == ("cpu",)


@in_process_of("flux")
def test_max_pool_rule_is_declared(fixture: EngineFixture) -> None:
    fixture.build()
    conventions = fixture.engine.conventions()
    assert abs(conventions.max_pool_within / 2**-11.5 - 1) < 1e-7
    assert "pooling_direct.jl" in conventions.sources["max_pool_within"]


@in_process_of("flux")
def test_allocations_grow_linearly_with_the_batch(fixture: EngineFixture) -> None:
    fixture.build()
    per_step = {}
    for size in (8, 16, 32):
        fixture.engine.load(np.repeat(fixture.images[:1], size // 8, axis=1), np.zeros((1, size), np.int64))
        fixture.engine.run_steps(0, 2)
        per_step[size] = fixture.engine.count_allocations(0, 3).host
        assert per_step[size].count_per_step > 100
        # At least the first convolution's output and its gradient, 28 x 28 x 16 float32.
        assert per_step[size].bytes_per_step > 2 * 4 * 28 * 28 * 16 * size
    growth = [per_step[2 * size].bytes_per_step - per_step[size].bytes_per_step for size in (8, 16)]
    # Weight gradients do not grow with the batch. The tolerance covers size classes and tasks.
    assert abs(growth[1] / (2 * growth[0]) - 1) < 1e-2, (growth, per_step)


@in_process_of("flux")
def test_allocations_per_step_do_not_depend_on_the_number_of_steps(fixture: EngineFixture) -> None:
    fixture.build()
    engine = fixture.engine
    engine.run_steps(0, 2)
    one, four = (engine.count_allocations(0, n).host for n in (1, 4))
    assert abs(one.bytes_per_step / four.bytes_per_step - 1) < 0.01, (one, four)
    assert (one.source, engine.count_allocations(0, 1).device) == ("Base.gc_num()", None)
    assert engine.device_peak_bytes() is None


@in_process_of("flux")
def test_garbage_collections_are_reported(fixture: EngineFixture) -> None:
    import juliacall

    fixture.build()
    before = fixture.engine.gc_stats()
    fixture.engine.run_steps(0, 1)
    assert (fixture.engine.gc_stats() - before).seconds >= 0
    juliacall.Main.seval("GC.gc()")
    stats = fixture.engine.gc_stats() - before
    assert stats.seconds > 0
    assert stats.full_collections >= 1


@in_process_of("flux")
def test_startup_is_reported_by_phase(fixture: EngineFixture) -> None:
    detail = fixture.engine.startup_detail()
    assert detail["julia_seconds"] > 0
    assert detail["packages_seconds"] > 0
    assert detail["cached_code"] == 1


def test_missing_julia_is_unavailable_with_reason_and_hint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(EXECUTABLE, "/nowhere/julia")
    monkeypatch.setenv(PROJECT, "/nowhere")
    monkeypatch.delenv(FOUND_BY, raising=False)
    with pytest.raises(EngineUnavailable, match="no Julia at /nowhere/julia") as caught:
        FluxEngine()
    assert caught.value.hint == f"correct {EXECUTABLE} and {PROJECT}, or unset both"


def test_package_that_does_not_load_is_unavailable() -> None:
    class Main:
        def seval(self, code: str) -> None:
            raise RuntimeError("\nERROR: LoadError: UndefVarError: `gpu` not defined\nStacktrace: long")

    engine = FluxEngine.__new__(FluxEngine)
    engine._julia = Julia("/some/julia", "/some project", "a test")
    with pytest.raises(EngineUnavailable) as caught:
        engine._evaluate(Main(), "() -> nothing")
    assert caught.value.reason == ("a Julia package does not load: ERROR: LoadError: UndefVarError: `gpu` not defined")
    assert caught.value.hint == "polybench setup flux --julia /some/julia --project '/some project'"


def test_julia_that_does_not_start_is_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (EXECUTABLE, PROJECT):  # start_julia sets them for juliacall
        monkeypatch.setenv(name, "/some")
    monkeypatch.setitem(sys.modules, "juliacall", None)
    monkeypatch.setattr(environment, "own_environment", lambda julia: julia)
    with pytest.raises(EngineUnavailable, match=r"Julia \(/some/julia, from a test\) does not start: "):
        start_julia(Julia("/some/julia", "/some", "a test"))
    monkeypatch.setattr(discovery, "absent_packages", lambda julia: ["Flux", "Zygote"])
    with pytest.raises(EngineUnavailable, match=r"does not start: its depots lack Flux, Zygote$") as caught:
        start_julia(Julia("/some/julia", "/some", "a test"))
    assert caught.value.hint.startswith("set JULIA_DEPOT_PATH to the depot that has them, then: polybench setup flux")
