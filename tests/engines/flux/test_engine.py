from __future__ import annotations

import re
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest

from polybench.core.errors import Unavailable
from polybench.engines.flux.engine import FluxEngine
from polybench.engines.flux.julia import own_project
from polybench.engines.flux.julia.finding import EXECUTABLE, FOUND_BY, PROJECT, Julia
from polybench.engines.flux.julia.starting import start_julia
from tests.engines import pipeline_checks
from tests.engines.lab import Check, Lab, RunCheck, in_process_of


@in_process_of("flux")
def test_the_batches_are_the_mapped_file_itself(lab: Lab) -> None:
    import juliacall

    lab.build()
    address = juliacall.Main.seval("batch -> Int(pointer(batch.images))")
    assert address(lab.engine._batches[0]) == lab.images.ctypes.data
    assert address(lab.engine._batches[1]) == lab.images.ctypes.data + lab.images[0].nbytes


def anonymous_bytes() -> int:
    return 1024 * int(re.search(r"RssAnon:\s+(\d+)", Path("/proc/self/status").read_text())[1])


@in_process_of("flux")
def test_loading_takes_no_memory(lab: Lab) -> None:
    lab.build()
    with tempfile.TemporaryFile() as file:
        shape = (100, 128, 3, 32, 32)
        file.truncate(4 * int(np.prod(shape)))
        many = np.memmap(file, np.float32, "r", shape=shape)
        labels = np.zeros(shape[:2], np.int64)
        before = anonymous_bytes()
        lab.engine.load(many, labels)
        lab.engine.load(many, labels)
        grown = anonymous_bytes() - before
    assert grown < 0.1 * many.nbytes, (grown, many.nbytes)


@in_process_of("flux")
def test_threads_are_those_of_the_study(lab: Lab) -> None:
    lab.build()
    facts = lab.engine.probe().build
    assert (facts["julia_threads"], facts["blas_threads"]) == ("2", "1"), facts
    lab.build(variants=("blas2",))
    facts = lab.engine.probe().build
    assert (facts["julia_threads"], facts["blas_threads"]) == ("2", "2"), facts
    lab.build()


@in_process_of("flux")
def test_the_probe_names_versions_and_build(lab: Lab) -> None:
    probe = lab.engine.probe()
    assert {"julia", "flux", "nnlib", "zygote", "optimisers"} == set(probe.versions), probe.versions
    assert probe.versions["flux"].startswith("0.16."), probe.versions
    assert {"blas", "executable", "project", "found_by", "garbage_collection"} <= set(probe.build), (
        probe.build
    )
    assert probe.devices == ("cpu",)


@in_process_of("flux")
def test_the_max_pool_rule_is_declared(lab: Lab) -> None:
    lab.build()
    conventions = lab.engine.conventions()
    assert abs(conventions.max_pool_within / 2**-11.5 - 1) < 1e-7
    assert "pooling_direct.jl" in conventions.sources["max_pool_within"]


@in_process_of("flux")
def test_a_missing_gpu_is_unavailable_with_a_remedy(lab: Lab) -> None:
    with pytest.raises(Unavailable) as missing:
        lab.build(device="cuda:99")
    assert missing.value.reason
    assert missing.value.remedy


@in_process_of("flux")
def test_bf16_is_unavailable(lab: Lab) -> None:
    with pytest.raises(Unavailable, match="bf16 is not written for Julia yet") as missing:
        lab.build(precision="bf16")
    assert missing.value.remedy == "use --precision fp32"


@in_process_of("flux")
def test_allocations_grow_with_the_batch_but_for_what_does_not(lab: Lab) -> None:
    lab.build()
    per_step = {}
    for size in (8, 16, 32):
        lab.engine.load(np.repeat(lab.images[:1], size // 8, axis=1), np.zeros((1, size), np.int64))
        lab.engine.run_steps(0, 2)
        per_step[size] = lab.engine.count_allocations(0, 3).host
        assert per_step[size].count_per_step > 100
        # The first convolution's output and its gradient, 28 x 28 x 16 float32, are the least there must be.
        assert per_step[size].bytes_per_step > 2 * 4 * 28 * 28 * 16 * size
    growth = [per_step[2 * size].bytes_per_step - per_step[size].bytes_per_step for size in (8, 16)]
    # Weight gradients do not grow with the batch. The rest is rounding to size classes, and tasks.
    assert abs(growth[1] / (2 * growth[0]) - 1) < 1e-3, (growth, per_step)


@in_process_of("flux")
def test_a_step_allocates_the_same_with_and_without_others(lab: Lab) -> None:
    lab.build()
    engine = lab.engine
    engine.run_steps(0, 2)
    one, four = (engine.count_allocations(0, n).host for n in (1, 4))
    assert abs(one.bytes_per_step / four.bytes_per_step - 1) < 0.01, (one, four)
    assert (one.source, engine.count_allocations(0, 1).device) == ("Base.gc_num()", None)
    assert engine.device_peak_bytes() is None


@in_process_of("flux")
def test_counting_trains(lab: Lab) -> None:
    lab.build()
    lab.engine.reset()
    lab.engine.run_steps(0, 3)
    loss = lab.engine.loss()
    lab.engine.reset()
    lab.engine.count_allocations(0, 3)
    assert lab.engine.loss() == loss


@in_process_of("flux")
def test_what_the_collector_did_is_told(lab: Lab) -> None:
    import juliacall

    lab.build()
    before = lab.engine.collected()
    lab.engine.run_steps(0, 1)
    assert (lab.engine.collected() - before).seconds >= 0
    juliacall.Main.seval("GC.gc()")
    done = lab.engine.collected() - before
    assert done.seconds > 0
    assert done.full_sweeps >= 1


@in_process_of("flux")
def test_the_startup_is_told_in_parts(lab: Lab) -> None:
    detail = lab.engine.startup_detail()
    assert detail["julia_seconds"] > 0
    assert detail["packages_seconds"] > 0
    assert detail["cached_code"] == 1


@pytest.mark.parametrize("check", pipeline_checks.CHECKS)
def test_the_pipeline(run_check: RunCheck, check: Check) -> None:
    run_check("flux", check)


def test_flux_is_unavailable_with_a_reason_and_a_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(EXECUTABLE, "/nowhere/julia")
    monkeypatch.setenv(PROJECT, "/nowhere")
    monkeypatch.delenv(FOUND_BY, raising=False)
    with pytest.raises(Unavailable, match="there is no Julia at /nowhere/julia") as caught:
        FluxEngine().load_framework()
    assert caught.value.remedy == f"correct {EXECUTABLE} and {PROJECT}, or unset both"


def test_a_package_that_does_not_load_is_unavailable() -> None:
    class Main:
        def seval(self, code: str) -> None:
            raise RuntimeError("\nERROR: LoadError: UndefVarError: `gpu` not defined\nStacktrace: long")

    engine = FluxEngine()
    engine._julia = Julia("/some/julia", "/some project", "a test")
    with pytest.raises(Unavailable) as caught:
        engine._evaluate(Main(), "() -> nothing")
    assert caught.value.reason == (
        "a Julia package does not load: ERROR: LoadError: UndefVarError: `gpu` not defined"
    )
    assert caught.value.remedy == "polybench setup flux --julia /some/julia --project '/some project'"


def test_a_julia_that_does_not_start_is_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (EXECUTABLE, PROJECT):  # which it sets for juliacall
        monkeypatch.setenv(name, "/some")
    monkeypatch.setitem(sys.modules, "juliacall", None)
    monkeypatch.setattr(own_project, "belongs_to_another", lambda julia: False)
    with pytest.raises(Unavailable, match=r"Julia \(/some/julia, from a test\) does not start: "):
        start_julia(Julia("/some/julia", "/some", "a test"))
