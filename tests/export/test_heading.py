from __future__ import annotations

import pytest

from polybench.core.document.times import Samples
from polybench.export.heading import heading
from tests.factories import absent, measured, study


def test_says_what_all_cells_share() -> None:
    assert heading(study(measured("torch/cpu", 0.0165))) == [
        "lenet (62,006 parameters) on synthetic data, batch 128, fp32, 2 threads, heap keep, seed 0",
        "3 processes x 2 rounds x 3 steps; baseline torch/cpu",
        "Some CPU @ 2.00GHz, 2 cores",
    ]


@pytest.mark.parametrize(("cpus", "text"), [([1], "CPU 1"), ([2, 5], "CPUs 2,5")])
def test_says_where_the_threads_were_pinned(cpus: list[int], text: str) -> None:
    document = study(measured("torch/cpu", 0.0165))
    document.settings.pinned = cpus
    assert f", 2 threads pinned to {text}, heap keep, " in heading(document)[0]


def test_names_real_data() -> None:
    assert " on CIFAR-10, " in heading(study(dataset="CIFAR-10"))[0]


def test_says_what_was_measured_not_what_was_asked_for() -> None:
    whole = measured("torch/cpu", 0.0165)
    cut = measured("tf/cuda", 0.01, samples=Samples("block", 20, [[[0.01]]]))
    assert heading(study(whole, cut))[1].startswith("1 to 3 processes x 1 to 2 rounds x 3 to 20 steps")


def test_nothing_measured() -> None:
    assert heading(study(absent("tf/cpu", "failed", "crashed")))[1] == "nothing measured; baseline torch/cpu"


def test_says_how_data_came_if_not_preloaded() -> None:
    document = study(measured("torch/cpu", 0.0165))
    document.settings.input, document.settings.workers, document.settings.augment = "pipeline", 1, True
    assert heading(document)[0].endswith("seed 0, pipeline with 1 worker, augmented")
