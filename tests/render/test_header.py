from __future__ import annotations

import pytest

from polybench.render.header import header_lines
from polybench.schema.result import StepTimes
from tests.factories import measured, study, unmeasured


def test_header_describes_workload_extent_and_machine() -> None:
    assert header_lines(study(measured("torch/cpu", 0.0165))) == [
        "lenet (62,006 parameters) on synthetic data, batch 128, fp32, 2 threads, malloc retain, seed 0",
        "3 processes x 2 rounds x 3 steps; baseline torch/cpu",
        "Some CPU @ 2.00GHz, 2 cores",
    ]


@pytest.mark.parametrize(("cpus", "text"), [([1], "CPU 1"), ([2, 5], "CPUs 2,5")])
def test_pinned_cpus_are_listed(cpus: list[int], text: str) -> None:
    document = study(measured("torch/cpu", 0.0165))
    document.settings.pinned_cpus = cpus
    assert f", 2 threads pinned to {text}, malloc retain, " in header_lines(document)[0]


def test_data_set_is_named() -> None:
    assert " on CIFAR-10, " in header_lines(study(dataset="CIFAR-10"))[0]


def test_extent_counts_what_ran() -> None:
    complete = measured("torch/cpu", 0.0165)
    shortened = measured("tf/cuda", 0.01, step_times=StepTimes("block", 20, [[[0.01]]]))
    assert header_lines(study(complete, shortened))[1].startswith("1 to 3 processes x 1 to 2 rounds x 3 to 20 steps")


def test_study_without_measurements() -> None:
    assert header_lines(study(unmeasured("tf/cpu", "failed", "crashed")))[1] == "nothing measured; baseline torch/cpu"


def test_input_pipeline_is_described() -> None:
    document = study(measured("torch/cpu", 0.0165))
    document.settings.input, document.settings.loader_workers, document.settings.augment = "pipeline", 1, True
    assert header_lines(document)[0].endswith("seed 0, pipeline with 1 loader worker, augmented")
