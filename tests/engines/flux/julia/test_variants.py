"""Variants of Flux: their packages, and the jobs that they do not support."""

from __future__ import annotations

import tomllib

import pytest

from polybench.engines import ENGINES
from polybench.engines.flux.julia.discovery import (
    CUDA_PACKAGES,
    EXECUTABLE,
    OPTIONAL_PACKAGES,
    PACKAGE_BY_VARIANT,
    PROJECT,
    bounds,
    package_folder,
)
from polybench.engines.flux.validation import STEP_MODES, validate
from polybench.engines.job import Job
from polybench.errors import EngineUnavailable
from polybench.networks import find_model
from polybench.runner.doctor import engine_requirement, variant_requirements
from polybench.schema.options import Precision, Workload
from tests.engines.flux.julia.conftest import COMPLETE, Make


def test_every_package_is_a_weak_dependency_with_a_version_bound() -> None:
    package = tomllib.loads((package_folder() / "Project.toml").read_text("utf-8"))
    for name in PACKAGE_BY_VARIANT.values():
        assert name in package["weakdeps"], name
        assert name in bounds(), name
    assert set(OPTIONAL_PACKAGES) == {*CUDA_PACKAGES, *PACKAGE_BY_VARIANT.values()}
    # MKL only replaces a library when it is loaded, and the program itself calls Enzyme and Mooncake.
    without = {"MKL", "Enzyme", "Mooncake"}
    alone = {name for name, needs in package["extensions"].items() if isinstance(needs, str)}
    assert alone == {f"PolyBench{name}Ext" for name in PACKAGE_BY_VARIANT.values() if name not in without}
    assert {file.stem for file in (package_folder() / "ext").glob("*.jl")} == {*alone, "PolyBenchCUDAExt"}


def test_variant_names_agree_with_the_engine_table() -> None:
    assert {*PACKAGE_BY_VARIANT, *STEP_MODES} - {"lux"} <= set(ENGINES["flux"].variants)
    assert "lux" in ENGINES


def test_variant_without_its_julia_package_is_reported_as_missing(
    executable: Make, project: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(EXECUTABLE, executable())
    monkeypatch.setenv(PROJECT, project(COMPLETE | {"Mooncake": "0.5.45"}))
    assert engine_requirement(ENGINES["flux"]).installed
    variants = variant_requirements(ENGINES["flux"])
    missing = {name for name in ENGINES["flux"].variants if not variants[name].installed}
    assert missing == {"enzyme", "mkl", "reactant"}
    assert variants["enzyme"].requires == "Enzyme.jl"
    assert (variants["enzyme"].hint or "").endswith("--add-package Enzyme")
    lux_status = engine_requirement(ENGINES["lux"])
    assert (lux_status.installed, lux_status.requires) == (False, "juliacall, Lux.jl")


def test_every_variant_of_flux_is_missing_without_julia() -> None:
    variants = variant_requirements(ENGINES["flux"])
    assert not any(variants[name].installed for name in ENGINES["flux"].variants)
    assert variants["enzyme"].hint == "polybench setup flux --add-package Enzyme"


def job(model: str, *variants: str, device: str = "cpu", precision: Precision = "fp32") -> Job:
    network = find_model(model)
    workload = Workload(model, "noise", 8, network.optimizer, precision, 2)
    return Job(network, workload, device, "float32", variants)


@pytest.mark.parametrize(
    ("rejected", "reason"),
    [
        (job("lenet", "train", "mooncake"), "exclude each other"),
        (job("resnet32", "mooncake"), "batch norm"),
        (job("lenet", "reactant", device="cuda"), "CPU only"),
        (job("catdog-3", "reactant"), "dropout"),
        (job("resnet32", "reactant"), "schedule"),
        (job("lenet", precision="bf16"), r"Flux\.bf16 makes the network's own weights bfloat16"),
    ],
)
def test_unsupported_job_of_a_variant_is_rejected_with_a_reason(rejected: Job, reason: str) -> None:
    with pytest.raises(EngineUnavailable, match=reason):
        validate(rejected)
