from __future__ import annotations

import sys

import pytest

from polybench.core.errors import Unavailable
from polybench.engines.flux.engine import FluxEngine, _start_julia
from polybench.engines.flux.julia.finding import EXECUTABLE, FOUND_BY, PROJECT, Julia
from tests.engines import pipeline_checks
from tests.engines.conftest import RunChecks

CHECKS = {
    "the batches are the mapped file itself": """
import juliacall
build()
address = juliacall.Main.seval("batch -> Int(pointer(batch.images))")
assert address(engine._batches[0]) == images.ctypes.data
assert address(engine._batches[1]) == images.ctypes.data + images[0].nbytes
""",
    "loading takes no memory": """
import re, tempfile
import numpy as np
from pathlib import Path
build()

def anonymous_bytes():
    return 1024 * int(re.search(r"RssAnon:\\s+(\\d+)", Path("/proc/self/status").read_text())[1])

with tempfile.TemporaryFile() as file:
    shape = (100, 128, 3, 32, 32)
    file.truncate(4 * int(np.prod(shape)))
    many = np.memmap(file, np.float32, "r", shape=shape)
    labels = np.zeros(shape[:2], np.int64)
    before = anonymous_bytes()
    engine.load(many, labels)
    engine.load(many, labels)
    grown = anonymous_bytes() - before
assert grown < 0.1 * many.nbytes, (grown, many.nbytes)
""",
    "threads are those of the study": """
build()
facts = engine.probe().build
assert (facts["julia_threads"], facts["blas_threads"]) == ("2", "1"), facts
""",
    "the probe names versions and build": """
probe = engine.probe()
assert {"julia", "flux", "nnlib", "zygote", "optimisers"} == set(probe.versions), probe.versions
assert probe.versions["flux"].startswith("0.16."), probe.versions
assert {"blas", "executable", "project", "found_by", "garbage_collection"} <= set(probe.build), probe.build
assert probe.devices == ("cpu",)
""",
    "the max-pool rule is declared": """
build()
assert abs(engine.conventions().max_pool_within / 2**-11.5 - 1) < 1e-7
assert "pooling_direct.jl" in engine.conventions().sources["max_pool_within"]
""",
    "a missing GPU is unavailable with a remedy": """
try:
    build(device="cuda:99")
except Unavailable as missing:
    assert missing.reason and missing.remedy
else:
    raise AssertionError("built")
""",
    "bf16 is unavailable": """
try:
    build(precision="bf16")
except Unavailable as missing:
    assert "no mixed precision" in missing.reason
    assert missing.remedy == "use --precision fp32"
else:
    raise AssertionError("built")
""",
    "allocations grow with the batch, but for what does not": """
import numpy as np
build()
per_step = {}
for size in (8, 16, 32):
    engine.load(np.repeat(images[:1], size // 8, axis=1), np.zeros((1, size), np.int64))
    engine.run_steps(0, 2)
    per_step[size] = engine.count_allocations(0, 3).host
    assert per_step[size].count_per_step > 100
    # The first convolution's output and its gradient, 28 x 28 x 16 float32, are the least that there must be.
    assert per_step[size].bytes_per_step > 2 * 4 * 28 * 28 * 16 * size
growth = [per_step[2 * size].bytes_per_step - per_step[size].bytes_per_step for size in (8, 16)]
# Weight gradients do not grow with the batch. The rest is rounding to size classes, and tasks.
assert abs(growth[1] / (2 * growth[0]) - 1) < 1e-3, (growth, per_step)
""",
    "a step allocates the same with and without others": """
build()
engine.run_steps(0, 2)
one, four = (engine.count_allocations(0, n).host for n in (1, 4))
assert abs(one.bytes_per_step / four.bytes_per_step - 1) < 0.01, (one, four)
assert (one.source, engine.count_allocations(0, 1).device) == ("Base.gc_num()", None)
assert engine.device_peak_bytes() is None
""",
    "counting trains": """
build()
engine.reset()
engine.run_steps(0, 3)
loss = engine.loss()
engine.reset()
engine.count_allocations(0, 3)
assert engine.loss() == loss
""",
    "what the collector did is told": """
import juliacall
build()
before = engine.collected()
engine.run_steps(0, 1)
assert (engine.collected() - before).seconds >= 0
juliacall.Main.seval("GC.gc()")
done = engine.collected() - before
assert done.seconds > 0
assert done.full_sweeps >= 1
""",
    "the startup is told in parts": """
detail = engine.startup_detail()
assert detail["julia_seconds"] > 0 and detail["packages_seconds"] > 0
assert detail["cached_code"] == 1
""",
}


CHECKS |= pipeline_checks.CHECKS


@pytest.mark.parametrize("name", CHECKS)
def test_flux(run_checks: RunChecks, name: str) -> None:
    assert not (failure := run_checks("flux", CHECKS)[name]), failure


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
    monkeypatch.setitem(sys.modules, "juliacall", None)
    with pytest.raises(Unavailable, match=r"Julia \(/some/julia, from a test\) does not start: "):
        _start_julia(Julia("/some/julia", "/some", "a test"))
