"""Estimates of a study's duration; these tests measure no time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from polybench.data import expected_images
from polybench.engines import ENGINES
from polybench.machine import host
from polybench.networks.lenet import LENET
from polybench.planning.estimate import CPU_RATE, STEP_OVERHEAD, WEIGHT_SECONDS, Estimate, estimate
from polybench.planning.plan import resolve
from polybench.schema.options import Study

THREADS = 2
PRODUCTS = 128 * LENET.training_macs() / CPU_RATE / THREADS
STEP = STEP_OVERHEAD + PRODUCTS + WEIGHT_SECONDS * LENET.parameters()
STEPS_IN_EPOCH = 50_000 // 128


@pytest.fixture(autouse=True)
def enough_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "available_memory", lambda: 64 << 30)


def of(*engines: str, quick: bool = False, **fields: Any) -> Estimate:
    plain: dict[str, Any] = {"devices": ("cpu",), "threads": THREADS, "data": "synthetic"}
    study = Study(engines=engines or ("torch", "tf"), **(plain | fields))
    return estimate(resolve(study.quick() if quick else study))


@pytest.mark.parametrize(
    ("engines", "quick", "seconds"),
    [
        (("flux", "torch", "tf"), False, 190),
        (("flux", "torch", "tf"), True, 63),
        (("torch", "tf"), False, 111),
        (("torch", "tf"), True, 28.7),
    ],
)
def test_the_estimate_is_close_to_measurements_on_2_cores(
    engines: tuple[str, ...], quick: bool, seconds: float
) -> None:
    assert 1 / 2 < of(*engines, quick=quick).total / seconds < 2


def test_training_time_is_epochs_times_processes_times_configurations() -> None:
    assert of().trainings == 0
    one, three = (of(processes=4, epochs=epochs).trainings for epochs in (1, 3))
    assert three - one == pytest.approx(2 * 4 * 2 * STEPS_IN_EPOCH * STEP)
    test_images = 10_000 * LENET.forward_macs() / CPU_RATE / THREADS
    assert of(processes=4, accuracy=True).trainings - one == pytest.approx(4 * 2 * test_images)
    assert of(target_accuracy=0.6).trainings == of(epochs=20, accuracy=True).trainings


def test_explicit_rounds_include_untimed_steps() -> None:
    found = of(processes=3, rounds_per_process=4, steps_per_round=10, budget=1e6)
    assert found.rounds == pytest.approx(3 * 4 * 2 * (10 + 2) * STEP)


@pytest.mark.parametrize("model", ["lenet", "keras-cnn"])
def test_rounds_stay_within_the_budget(model: str) -> None:
    for budget in (20.0, 60.0):
        assert budget / 3 < of(model=model, budget=budget).rounds <= budget


def test_a_network_too_large_for_the_budget_has_one_round_per_process() -> None:
    found = of("torch", model="resnet32", budget=1.0)
    model = resolve(Study(model="resnet32")).model
    step = STEP_OVERHEAD + 128 * model.training_macs() / 20e9 + WEIGHT_SECONDS * model.parameters()
    assert found.rounds == pytest.approx(5 * (5 + 2) * step)


def test_the_parity_check_costs_a_start_and_the_reference() -> None:
    assert of(parity=False).parity == 0
    assert of().parity > ENGINES["tf"].startup_seconds
    assert of(parity_steps=6).parity > of(parity_steps=3).parity > of("torch").parity
    assert of("torch", "torch").parity == of("torch").parity  # a repeat is not checked again
    assert of("fake").parity == ENGINES["fake"].startup_seconds


def test_groups_of_workers_start_in_turn_if_memory_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    side_by_side = of().process_starts
    monkeypatch.setattr(host, "available_memory", lambda: 1 << 20)
    # Workers of the first process run always start alone.
    assert of().process_starts == pytest.approx(side_by_side + 4 * ENGINES["torch"].startup_seconds)


def test_phases_that_are_off_take_no_time() -> None:
    assert of(metrics=False).allocation_count == 0
    assert of(input="pipeline").allocation_count > of().allocation_count > 0


def test_native_counting_costs_steps_of_computing_configurations() -> None:
    once = of("torch").native_trace
    assert 0 < once < ENGINES["torch"].startup_seconds
    assert of("torch", "torch").native_trace == once  # a repeat is not counted
    assert of("torch", processes=1, input="pipeline").native_trace > ENGINES["torch"].startup_seconds
    assert of("torch", "torch").allocation_count - of("torch").allocation_count == pytest.approx(2 * (5 + 2) * STEP)
    assert of("fake").native_trace == 0


def test_weights_take_time_without_multiplications() -> None:
    """The parity check of imdb-fasttext took 278 s with three engines."""
    fasttext, bilstm = (of("flux", "torch", "tf", model=f"imdb-{name}") for name in ("fasttext", "bilstm"))
    assert 1 / 2 < fasttext.parity / 278 < 2
    assert fasttext.process_starts > bilstm.process_starts + 3 * 3 * 10 * 0.1


def test_a_gpu_is_estimated_to_be_faster() -> None:
    assert of(devices=("cuda",), epochs=1).trainings < of(epochs=1).trainings


def test_images_of_a_folder_are_counted(tmp_path: Path) -> None:
    for label in ("cat", "dog"):
        (tmp_path / "train" / label).mkdir(parents=True)
        (tmp_path / "train" / label / "1.png").touch()
        (tmp_path / "train" / label / "2.png").touch()
    assert expected_images(str(tmp_path), "train", (3, 64, 64)) == 4
    assert expected_images("auto", "train", (3, 64, 64)) == 12_500
    assert expected_images("cifar10", "test") == 10_000


def test_sequences_of_a_text_are_counted(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("ab" * 500)
    assert expected_images(str(tmp_path / "text.txt"), "train", (64,)) == 900 // 64
    assert expected_images(str(tmp_path / "text.txt"), "test", (64,)) == 100 // 64
