"""`PolyBench.record`: a training in Flux writes the trace that `trace diff` compares with PyTorch's."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from polybench.engines.flux.julia.discovery import Julia, package_folder
from polybench.trace.diff import diff
from polybench.trace.file import Trace
from tests.configured_julia import configured_julia
from tests.lazy import Lazy
from tests.trace.planted import batches, initial_weights, network

torch_program: Any = Lazy("tests.trace.torch_program", "torch")

PROGRAM = Path(__file__).with_name("flux_program.jl")


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with traces of PyTorch, of Flux, and of Flux with a momentum of 0.8 (`other.trace`).

    They average in place of the network's max-pool, except for `max_pool.trace` and `torch_max_pool.trace`.
    """
    julia, folder = configured_julia(), tmp_path_factory.mktemp("traces")
    for name, weight in initial_weights(()).items():
        (folder / name).write_bytes(weight.tobytes())
    for step, (images, labels) in enumerate(batches(())):
        (folder / f"images{step}").write_bytes(images.tobytes())
        (folder / f"labels{step}").write_bytes(labels.tobytes())
    torch_program.train(folder / "torch.trace", ("pooling",))
    torch_program.train(folder / "torch_max_pool.trace", ())
    train(julia, folder, "flux")
    return folder


def train(julia: Julia, folder: Path, framework: str) -> None:
    command = [julia.executable, f"--project={julia.project}", "--startup-file=no", "-O0", str(PROGRAM), str(folder)]
    own = {"JULIA_LOAD_PATH": f"@:{package_folder()}:@stdlib"}
    run = subprocess.run(
        [*command, framework], env=os.environ | own, capture_output=True, text=True, timeout=580, check=False
    )
    assert run.returncode == 0, run.stderr


@pytest.mark.timeout(600)  # the first run compiles the package
def test_equal_trainings_in_torch_and_flux_have_no_difference(traces: Path) -> None:
    document = diff(traces / "torch.trace", traces / "flux.trace")
    assert document.first_difference is None, document.verdict
    assert ("conv1.weight", "layers.1.weight", "flipped") in document.pairs
    assert len(document.pairs) == 10
    for step in document.steps:
        errors = (step.weight, step.batch, step.loss, step.gradient, step.statistic, step.update)
        assert all(error is not None and error < 1e-5 for error in errors), step


@pytest.mark.wide  # compiles the network again
@pytest.mark.timeout(1200)
def test_equal_trainings_in_flux_and_lux_have_no_difference(traces: Path) -> None:
    train(configured_julia("Lux"), traces, "lux")
    document = diff(traces / "flux.trace", traces / "lux.trace")
    assert document.first_difference is None, document.verdict
    assert {pair[1] for pair in document.pairs} >= {"layer_1.weight", "layer_2.scale", "layer_8.bias"}
    assert len(document.pairs) == 10
    with Trace(traces / "lux.trace") as trace:
        assert trace.header.framework == "lux"
        assert trace.header.optimizer == {"lr": 0.05, "momentum": 0.9, "weight_decay": 0.01}
        assert trace.names(1, "statistic") == ["layer_2.running_mean", "layer_2.running_var"]


@pytest.mark.timeout(600)
def test_another_momentum_in_flux_is_named(traces: Path) -> None:
    document = diff(traces / "torch.trace", traces / "other.trace")
    assert document.first_difference
    assert (document.first_difference.step, document.first_difference.kind) == (1, "update")
    assert "the momentum is 0.8 in B" in document.causes[0].cause


@pytest.mark.timeout(600)
def test_the_rule_of_nnlib_for_max_pools_is_named(traces: Path) -> None:
    document = diff(traces / "torch_max_pool.trace", traces / "max_pool.trace", model=network())
    assert document.first_difference
    assert (document.first_difference.step, document.first_difference.kind) == (0, "gradient")
    assert "first value near the maximum, as NNlib does" in document.causes[0].cause
    assert document.causes[0].is_convention


@pytest.mark.timeout(600)
def test_the_header_and_long_names_are_read(traces: Path) -> None:
    with Trace(traces / "flux.trace") as trace:
        assert (trace.header.framework, trace.header.optimizer_name) == ("flux", "Momentum")
        assert trace.header.optimizer == {"lr": 0.05, "momentum": 0.9, "weight_decay": 0.01}
        assert trace.names(1, "statistic") == ["layers.2.μ", "layers.2.σ²"]
        assert [step for step in range(12) if trace.names(step, "weight")] == [0, 1, 2, 3, 10, 11]
    with Trace(traces / "deep.trace") as trace:
        assert max(map(len, trace.names(0, "weight"))) > 100
        assert list(trace.steps) == [1]
    assert not [*traces.glob("*.partial"), *traces.glob("complex*")]
