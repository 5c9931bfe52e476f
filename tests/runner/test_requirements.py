"""Requirements of engines and variants, with frameworks and libraries that come and go."""

from __future__ import annotations

import ctypes.util
import importlib.util
import shutil

import pytest

from polybench.engines import ALLOCATOR_VARIANTS, ENGINES, EngineSpec
from polybench.machine import host
from polybench.runner import doctor
from polybench.runner.doctor import RequirementStatus, engine_requirement, variant_requirements


@pytest.fixture(autouse=True)
def empty_cache() -> None:
    doctor._has_library.cache_clear()


def without_modules(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util,
        "find_spec",
        lambda name: None if name in names else object() if name in PRESENT else find_spec(name),
    )
    monkeypatch.setattr(doctor.metadata, "version", missing_distribution)


def missing_distribution(name: str) -> str:
    raise doctor.metadata.PackageNotFoundError(name)


PRESENT = ("torch", "tensorflow", "jax", "optax", "keras")
"""Modules that these tests pretend are installed."""


def test_every_requirement_has_a_name_and_a_command() -> None:
    for spec in ENGINES.values():
        for name, status in variant_requirements(spec).items():
            variant = (spec.variants | ALLOCATOR_VARIANTS)[name]
            if variant.requires is not None:
                assert status.requires == variant.requires.name
                assert status.install == variant.requires.install
            assert (status.hint is None) == status.installed, name
    needs_package = {name for name, variant in ENGINES["flux"].variants.items() if variant.needs_extra_package}
    assert needs_package == {name for name, variant in ENGINES["flux"].variants.items() if variant.requires}


def test_an_engine_without_its_framework_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    without_modules(monkeypatch, "optax")
    status = engine_requirement(ENGINES["jax"])
    install = "pip install 'polybench-dl[jax]'"
    assert status == RequirementStatus("jax, optax", install, installed=False, hint=install)
    assert engine_requirement(ENGINES["torch"]).installed
    assert engine_requirement(ENGINES["fake"]) == RequirementStatus(None, None, installed=True)


def test_keras_needs_the_framework_of_each_backend(monkeypatch: pytest.MonkeyPatch) -> None:
    without_modules(monkeypatch, "jax")
    keras = ENGINES["keras"]
    assert engine_requirement(keras).installed
    statuses = variant_requirements(keras)
    install = "pip install 'polybench-dl[jax]'"
    assert statuses["jax"] == RequirementStatus("JAX", install, installed=False, hint=install)
    assert statuses["torch"].installed
    without_modules(monkeypatch, "tensorflow")
    assert engine_requirement(keras).hint == "pip install 'polybench-dl[tf]'"


def test_torch_compile_needs_a_compiler_and_cudagraph_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    without_modules(monkeypatch)
    monkeypatch.setattr(host, "gpu_names", list)
    monkeypatch.setattr(shutil, "which", lambda name: None)
    torch = ENGINES["torch"]
    statuses = variant_requirements(torch)
    assert (statuses["compile"].installed, statuses["compile"].hint) == (False, "apt-get install g++")
    assert (statuses["cudagraph"].requires, statuses["cudagraph"].installed) == ("a CUDA device", False)
    assert statuses["foreach"] == RequirementStatus(None, None, installed=True)
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr(host, "gpu_names", lambda: ["H100"])
    statuses = variant_requirements(torch)
    assert statuses["compile"].installed
    assert statuses["cudagraph"].installed


def test_an_allocator_needs_its_library(monkeypatch: pytest.MonkeyPatch) -> None:
    found = {"tcmalloc": "libtcmalloc.so.4"}
    monkeypatch.setattr(ctypes.util, "find_library", found.get)
    statuses = variant_requirements(ENGINES["fake"])
    assert statuses["tcmalloc"].installed
    assert statuses["jemalloc"].hint == "apt-get install libjemalloc2"


def test_a_plugin_is_found_by_the_name_of_its_distribution(monkeypatch: pytest.MonkeyPatch) -> None:
    plugin = EngineSpec("their_engine:Engine", "their engine", packages=("their-distribution",))
    missing = engine_requirement(plugin)
    assert (missing.installed, missing.hint) == (False, "pip install their-distribution")
    monkeypatch.setattr(doctor.metadata, "version", lambda name: "1.0")
    assert engine_requirement(plugin).installed
