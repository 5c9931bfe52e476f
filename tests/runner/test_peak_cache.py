"""Cached peaks, and the fraction of the peak that training steps reach."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from polybench.engines.job import EngineInfo
from polybench.log import PlannedConfiguration
from polybench.networks.lenet import LENET
from polybench.results.comparisons import compare_with_peak
from polybench.results.peak import KernelTiming, comparable_peaks
from polybench.runner.configuration_run import ConfigurationRun
from polybench.runner.peak_cache import PeakCache
from polybench.schema.options import Configuration
from polybench.schema.parity import ParityCheck
from polybench.schema.result import Result, library_versions
from polybench.schema.study import StudyDocument
from polybench.stats.statistics import summarize_step_times
from tests.factories import measured, study, unmeasured
from tests.results.test_peak import TORCH, gemm, peak_document

WORKLOAD = measured("torch/cpu", 0.01).workload


@pytest.fixture
def cache(tmp_path: Path) -> PeakCache:
    """A cache with a peak of 100 GFLOP/s on the host of `factories.study`."""
    cache = PeakCache(tmp_path / "peaks")
    cache.save(peak_document(gemm("numpy", 1e11)))
    return cache


def add_peak_comparison(document: StudyDocument, cache: PeakCache) -> None:
    """Compare each result with the peaks that the log of its study would have."""
    for result in document.results:
        peaks = cache.peaks_of(document.host, document.settings.malloc, run_of(result))
        result.peak = compare_with_peak(result, LENET, peaks or [])


def run_of(result: Result) -> ConfigurationRun:
    configuration = Configuration(result.engine, (), result.device, environment=result.environment)
    planned = PlannedConfiguration(configuration=configuration, workload=result.workload)
    return ConfigurationRun(planned, engine_info=EngineInfo(library_versions(result.versions), {}, ()))


def study_with(*results: Any, **settings: Any) -> StudyDocument:
    document = study(*results)
    return msgspec.structs.replace(document, settings=msgspec.structs.replace(document.settings, **settings))


def test_a_step_has_its_fraction_of_the_peak(cache: PeakCache) -> None:
    step_time = summarize_step_times([[[0.01, 0.01, 0.04]]], "step")  # a mean of 0.02
    measured_torch = measured("torch/cpu", 0.01, versions=TORCH, step_time=step_time)
    document = study_with(measured_torch, unmeasured("tf/cpu", "failed", "crashed"))
    add_peak_comparison(document, cache)
    torch, tf = document.results
    assert torch.peak is not None
    assert torch.peak.flops_per_second == pytest.approx(1e11)
    assert torch.step_time is not None
    flops_per_second = 2 * LENET.training_macs() * 128 / torch.step_time.mean
    assert torch.peak.fraction == pytest.approx(flops_per_second / 1e11)
    assert torch.peak.source == "100x100x100, forward, numpy on cpu in fp32; polybench peak, 2025-01-01"
    assert tf.peak is None


@pytest.mark.parametrize(("configuration", "has_peak"), [("torch/cuda", False), ("torch/cpu", True)])
def test_only_replicas_that_share_a_device_have_a_fraction_of_its_peak(configuration: str, has_peak: bool) -> None:
    two = measured(configuration, 0.01, versions=TORCH, workload=msgspec.structs.replace(WORKLOAD, replicas=2))
    peaks = comparable_peaks(peak_document(gemm("numpy", 1e11)), two.engine, library_versions(TORCH), two.workload)
    found = compare_with_peak(two, LENET, peaks)
    assert (found is not None) == has_peak


def test_the_comparison_includes_bandwidth_and_convolutions_of_the_same_workload(tmp_path: Path) -> None:
    cache = PeakCache(tmp_path)
    convolution = KernelTiming("convolution", "tf", "conv1, forward", 500, [1e-8] * 6)
    cache.save(
        peak_document(
            gemm("numpy", 1e11), convolution, KernelTiming("memory_bandwidth", "numpy", "3 arrays", 300, [1e-8] * 6)
        )
    )
    same = study_with(measured("torch/cpu", 0.01, versions=TORCH))
    other = study_with(
        measured("torch/cpu", 0.01, versions=TORCH, workload=msgspec.structs.replace(WORKLOAD, batch_size=64))
    )
    for document in (same, other):
        add_peak_comparison(document, cache)
    (with_same,), (with_other,) = ([result.peak for result in document.results] for document in (same, other))
    assert with_same is not None
    assert with_other is not None
    assert (with_same.convolution_flops_per_second, with_same.bytes_per_second) == pytest.approx((5e10, 3e10))
    assert (with_other.convolution_flops_per_second, with_other.bytes_per_second) == (None, with_same.bytes_per_second)


@pytest.mark.parametrize(
    "change",
    [
        {"versions": {"torch": "2.14.0"}},
        {"device": "cuda"},
        {"parity": ParityCheck("fail")},
        {"workload": msgspec.structs.replace(WORKLOAD, threads=4)},
        {"workload": msgspec.structs.replace(WORKLOAD, precision="bf16")},
    ],
)
def test_a_peak_under_other_conditions_does_not_count(cache: PeakCache, change: dict[str, Any]) -> None:
    document = study_with(measured("torch/cpu", 0.01, **({"versions": TORCH} | change)))
    add_peak_comparison(document, cache)
    assert document.results[0].peak is None


def test_a_peak_measured_in_several_environments_counts_for_each_of_them(tmp_path: Path) -> None:
    old = {"torch": "2.12.0"}
    both = study_with(
        measured("torch/cpu", 0.01, versions=TORCH), measured("torch@old/cpu", 0.01, versions=old),
        measured("torch@new/cpu", 0.01, versions={"torch": "2.14.0"}),
    )  # fmt: skip
    cache = PeakCache(tmp_path / "both")
    document = peak_document(gemm("numpy", 1e11))
    current = document.configurations[0]
    configurations = [current, msgspec.structs.replace(current, versions=old)]
    cache.save(msgspec.structs.replace(document, configurations=configurations))
    add_peak_comparison(both, cache)
    assert [result.peak is not None for result in both.results] == [True, True, False]


def test_a_peak_of_another_machine_or_malloc_policy_does_not_count(cache: PeakCache) -> None:
    other_machine = study_with(measured("torch/cpu", 0.01, versions=TORCH))
    other_machine.host.cpu = "Another CPU"
    other_malloc = study_with(measured("torch/cpu", 0.01, versions=TORCH), malloc="system")
    for document in (other_machine, other_malloc):
        add_peak_comparison(document, cache)
        assert document.results[0].peak is None


def test_a_peak_of_another_gpu_does_not_count(tmp_path: Path) -> None:
    cache, gpus = PeakCache(tmp_path), [msgspec.structs.replace(study().host, gpus=[name]) for name in "AB"]
    document = peak_document(gemm("torch", 1e13), host=gpus[0])
    cache.save(msgspec.structs.replace(document, peaks=[msgspec.structs.replace(document.peaks[0], device="cuda")]))
    found = [cache.find(host, "retain", ["torch"], "cuda", WORKLOAD) for host in gpus]
    assert [one is not None for one in found] == [True, False]


def test_the_peak_of_a_simulated_engine_counts_only_for_simulated_engines(cache: PeakCache) -> None:
    """`fake` is simulated: its 20 TFLOP/s are not those of this machine, and do not replace cached peaks."""
    simulated = msgspec.structs.replace(
        peak_document(gemm("fake", 2e13)).configurations[0], configuration="fake/cpu", engine="fake"
    )
    cache.save(msgspec.structs.replace(peak_document(gemm("fake", 2e13)), configurations=[simulated]))
    document = study_with(
        measured("torch/cpu", 0.01, versions=TORCH), measured("fake/cpu", 0.01, versions=simulated.versions)
    )
    add_peak_comparison(document, cache)
    torch, fake = document.results
    assert torch.peak is not None
    assert fake.peak is not None
    assert (torch.peak.flops_per_second, fake.peak.flops_per_second) == pytest.approx((1e11, 2e13))


def test_an_unreadable_cache_file_is_ignored(cache: PeakCache, tmp_path: Path) -> None:
    (file,) = (tmp_path / "peaks").iterdir()
    file.write_text("{")
    document = study_with(measured("torch/cpu", 0.01, versions=TORCH))
    add_peak_comparison(document, cache)
    assert document.results[0].peak is None
