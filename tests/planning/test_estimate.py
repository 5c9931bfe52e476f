"""What is expected of a study before it is run; no time is taken here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from polybench.core.arithmetic import forward_multiply_adds, training_multiply_adds
from polybench.core.spec import Study
from polybench.data import expected_images
from polybench.engines import ENGINES
from polybench.machine import host
from polybench.models.lenet import LENET
from polybench.planning.estimate import CPU_RATE, STEP_OVERHEAD, WEIGHT_SECONDS, Estimate, estimate
from polybench.planning.plan import resolve

THREADS = 2
PRODUCTS = 128 * training_multiply_adds(LENET) / CPU_RATE / THREADS
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
def test_it_is_near_what_a_machine_of_2_cores_took(
    engines: tuple[str, ...], quick: bool, seconds: float
) -> None:
    assert 1 / 2 < of(*engines, quick=quick).total / seconds < 2


def test_whole_trainings_are_epochs_times_processes_times_cells() -> None:
    assert of().trainings == 0
    one, three = (of(processes=4, epochs=epochs).trainings for epochs in (1, 3))
    assert three - one == pytest.approx(2 * 4 * 2 * STEPS_IN_EPOCH * STEP)
    test_images = 10_000 * forward_multiply_adds(LENET) / CPU_RATE / THREADS
    assert of(processes=4, accuracy=True).trainings - one == pytest.approx(4 * 2 * test_images)
    assert of(until={"accuracy": 0.6}).trainings == of(epochs=20, accuracy=True).trainings


def test_rounds_asked_for_are_counted_with_their_untimed_steps() -> None:
    found = of(processes=3, rounds=4, steps=10, budget=1e6)
    assert found.rounds == pytest.approx(3 * 4 * 2 * (10 + 2) * STEP)


@pytest.mark.parametrize("model", ["lenet", "keras-cnn"])
def test_rounds_stay_within_the_budget(model: str) -> None:
    for budget in (20.0, 60.0):
        assert budget / 3 < of(model=model, budget=budget).rounds <= budget


def test_a_network_too_large_for_the_budget_has_one_round_in_each_process() -> None:
    found = of("torch", model="resnet32", budget=1.0)
    model = resolve(Study(model="resnet32")).model
    step = STEP_OVERHEAD + 128 * training_multiply_adds(model) / 20e9 + WEIGHT_SECONDS * model.parameters()
    assert found.rounds == pytest.approx(5 * (5 + 2) * step)


def test_the_identity_check_costs_a_start_and_what_the_reference_computes() -> None:
    assert of(parity=False).parity == 0
    assert of().parity > ENGINES["tf"].start_seconds
    assert of(parity_steps=6).parity > of(parity_steps=3).parity > of("torch").parity
    assert of("torch", "torch").parity == of("torch").parity  # a repeat is not checked again
    assert of("fake").parity == ENGINES["fake"].start_seconds


def test_workers_that_memory_does_not_hold_start_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    side_by_side = of().starts
    monkeypatch.setattr(host, "available_memory", lambda: 1 << 20)
    assert of().starts == pytest.approx(side_by_side + 5 * ENGINES["torch"].start_seconds)


def test_what_is_not_asked_for_is_not_counted() -> None:
    assert of(metrics=False).counting == 0
    assert of(input="pipeline").counting > of().counting > 0


def test_counting_natively_costs_steps_of_cells_that_compute_and_seldom_a_start() -> None:
    once = of("torch").native
    assert 0 < once < ENGINES["torch"].start_seconds
    assert of("torch", "torch").native == once  # a repeat is not counted
    assert of("torch", processes=1, input="pipeline").native > ENGINES["torch"].start_seconds
    assert of("torch", "torch").counting - of("torch").counting == pytest.approx(2 * (5 + 2) * STEP)
    assert of("fake").native == 0


def test_weights_take_time_though_nothing_multiplies_them() -> None:
    """imdb-fasttext's check took 278 s, with three engines."""
    fasttext, bilstm = (of("flux", "torch", "tf", model=f"imdb-{name}") for name in ("fasttext", "bilstm"))
    assert 1 / 2 < fasttext.parity / 278 < 2
    assert fasttext.starts > bilstm.starts + 3 * 3 * 10 * 0.1


def test_a_gpu_is_faster() -> None:
    assert of(devices=("cuda",), epochs=1).trainings < of(epochs=1).trainings


def test_the_images_of_a_folder_are_counted(tmp_path: Path) -> None:
    for label in ("cat", "dog"):
        (tmp_path / "train" / label).mkdir(parents=True)
        (tmp_path / "train" / label / "1.png").touch()
        (tmp_path / "train" / label / "2.png").touch()
    assert expected_images(str(tmp_path), "train", (3, 64, 64)) == 4
    assert expected_images("auto", "train", (3, 64, 64)) == 12_500
    assert expected_images("cifar10", "test") == 10_000
