"""The identity check: right engines pass, every planted bug fails, declared conventions are followed."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from polybench.core.document.identity import Parity
from polybench.core.errors import CellFailed
from polybench.core.job import Job
from polybench.core.model import Model
from polybench.core.optimizers import OPTIMIZERS, Optimizer
from polybench.data import Dataset
from polybench.data.augmentation import decision_stream
from polybench.data.batches import epoch_order
from polybench.data.epoch import write_epoch
from polybench.data.stream import write_images, write_stream
from polybench.identity.check import Checker, ReferenceFailed, Task
from polybench.identity.tensors import ALGORITHM, ALGORITHM_WITH_BATCH_NORM
from polybench.models.lenet import LENET
from polybench.wire.messages import Advance, Prepare, Request
from tests import small
from tests.networks import BIASED, EVERYTHING, FEATURES, SEQUENCES
from tests.sessions import A, InProcess

STEPS = 3
REFERENCE = "polybench.engines.reference.engine:ReferenceEngine"


def check(
    engine: str,
    folder: Path,
    data: Dataset | None = None,
    model: Model = LENET,
    cache: Path | None = None,
    bugs: str = "tests.planted",
    **workload: Any,
) -> Parity:
    files = small.files(folder, data, model=model)
    task = Task(small.job(model, **workload), files.weights, files.epoch, STEPS, 60.0)
    scratch = folder / "scratch"
    scratch.mkdir()
    checker = Checker(InProcess(REFERENCE), scratch, cache or folder / "cache")
    return checker.check(InProcess(f"{bugs}:{engine}"), task)


Checked = Callable[[str], Parity]


@pytest.mark.parametrize(
    ("bug", "model"),
    [
        ("SwappedGates", SEQUENCES),
        ("OneBiasMissing", FEATURES),
        ("ReversedDirection", SEQUENCES),
        ("WrongFinalState", SEQUENCES),
    ],
)
def test_a_wrong_lstm_fails(bug: str, model: Model, tmp_path: Path) -> None:
    parity = check(bug, tmp_path, model=model, bugs="tests.planted_sequences")
    assert parity.status == "fail"
    assert parity.algorithm is not None
    worst = parity.algorithm.max_weight_error, parity.algorithm.max_gradient_error
    assert max(error for error in worst if error is not None) > 1e-3
    assert parity.algorithm.tolerance["gradient"] == 1e-9


def test_a_right_lstm_passes(tmp_path: Path) -> None:
    for model in (SEQUENCES, FEATURES):
        (folder := tmp_path / model.name).mkdir()
        assert check("Correct", folder, model=model).status == "pass"


ADAPTIVE = [{"name": "adam", "learning_rate": 0.001}, {"name": "rmsprop", "learning_rate": 0.001}]


@pytest.mark.parametrize("optimizer", [*ADAPTIVE, {"name": "momentum"}])
def test_rounding_of_a_gradient_that_is_zero_passes_whatever_the_optimizer_makes_of_it(
    optimizer: dict[str, Any], tmp_path: Path
) -> None:
    parity = check("OtherRounding", tmp_path, model=BIASED, bugs="tests.planted_biases", **optimizer)
    assert parity.status == "pass", parity.reason


@pytest.mark.parametrize("bug", ["Leaking", "Restless"])
@pytest.mark.parametrize("optimizer", ADAPTIVE)
def test_a_bias_before_batch_norm_that_is_wrong_fails_both_parts(
    bug: str, optimizer: dict[str, Any], tmp_path: Path
) -> None:
    parity = check(bug, tmp_path, model=BIASED, bugs="tests.planted_biases", **optimizer)
    failed = {(t.part, t.name) for t in parity.tensors if not t.passed}
    assert {("algorithm", "conv.bias"), ("timed", "conv.bias")} <= failed


def test_a_wrong_formula_fails_both_parts_by_the_other_tensors(tmp_path: Path) -> None:
    parity = check("EpsilonBeforeCorrection", tmp_path, model=BIASED, **ADAPTIVE[0])
    failed = {(t.part, t.name) for t in parity.tensors if not t.passed}
    assert {("algorithm", "norm1.bias"), ("timed", "norm1.bias")} <= failed
    assert not {"conv.bias", "dense1.bias"} & {name for _, name in failed}


class Recorded(InProcess):
    """Notes what it is asked to prepare."""

    def __init__(self, engine: str) -> None:
        self.jobs: list[Job] = []
        super().__init__(engine)

    def ask(self, request: Request, kind: type[A], timeout: float = 60.0) -> A:
        if isinstance(request, Prepare):
            self.jobs.append(request.job)
        return super().ask(request, kind, timeout)


def test_engines_are_told_the_size_of_the_batches_that_are_checked(tmp_path: Path) -> None:
    files = small.files(tmp_path, batch_size=4)
    task = Task(small.job(batch_size=32), files.weights, files.epoch, 1, 60.0)
    engine, reference = Recorded(REFERENCE), Recorded(REFERENCE)
    (scratch := tmp_path / "scratch").mkdir()
    assert Checker(reference, scratch, tmp_path / "cache").check(engine, task).status == "pass"
    assert {job.workload.batch_size for job in (*engine.jobs, *reference.jobs)} == {4}


@pytest.fixture(scope="module")
def checked(tmp_path_factory: pytest.TempPathFactory) -> Checked:
    """`checked(engine)` on lenet, once for all tests that look at it; the reference trains once for all."""
    cache = tmp_path_factory.mktemp("cache")
    return functools.cache(lambda engine: check(engine, tmp_path_factory.mktemp(engine), cache=cache))


def test_the_right_arithmetic_passes(checked: Checked) -> None:
    parity = checked("Correct")
    assert parity.status == "pass"
    assert parity.reason is None
    assert parity.algorithm is not None
    assert parity.algorithm.max_gradient_error == 0
    assert parity.steps == STEPS
    assert parity.batch_size == 8


def test_every_tensor_is_compared_at_steps_0_1_and_last(checked: Checked) -> None:
    parity = checked("Correct")
    algorithm = {(t.step, t.kind, t.name) for t in parity.tensors if t.part == "algorithm"}
    assert {step for step, _, _ in algorithm} == {0, 1, STEPS}
    assert len(algorithm) == 3 * (1 + 10 + 10)  # the loss, 10 gradients, 10 weights
    timed = [t for t in parity.tensors if t.part == "timed"]
    assert len([t for t in timed if t.kind == "gradient"]) == 10 * (STEPS + 1)
    assert len([t for t in timed if t.kind == "weight"]) == 10 * STEPS


def test_tensors_are_in_the_models_order_whatever_the_engines_is(tmp_path: Path) -> None:
    parity = check("OwnOrder", tmp_path, model=EVERYTHING)
    assert parity.status == "pass"
    trained, all_tensors = list(EVERYTHING.weight_shapes()), list(EVERYTHING.tensor_shapes())
    assert trained != sorted(trained)
    for part, kind, expected in (
        ("algorithm", "gradient", trained),
        ("algorithm", "weight", all_tensors),
        ("timed", "gradient", trained),
        ("timed", "weight", trained),
    ):
        assert [t.name for t in parity.tensors if (t.part, t.kind, t.step) == (part, kind, 1)] == expected


@pytest.mark.parametrize(
    "bug",
    [
        "UnflippedKernel",
        "MissingPermutation",
        "WrongMomentum",
        "NesterovMomentum",
        "DoubleSoftmax",
        "DroppedBias",
        "OffByOneBatch",
        "NotFinite",
    ],
)
def test_planted_bugs_fail_the_algorithm(bug: str, checked: Checked) -> None:
    parity = checked(bug)
    assert parity.status == "fail"
    assert parity.reason is not None
    assert any(not tensor.passed for tensor in parity.tensors if tensor.part == "algorithm")


OPTIMIZER_BUGS = [
    ("RateInVelocity", {"schedule": ((1, 0.001),)}),
    ("RateInVelocity", {"schedule": ((2, 0.02),)}),
    ("LateChange", {"schedule": ((1, 0.001),)}),
    ("EpsilonInsideRoot", {"name": "rmsprop"}),
    ("EpsilonBeforeCorrection", {"name": "adam"}),
    ("DecoupledDecay", {"weight_decay": 1e-4}),
    ("DecoupledDecay", {"name": "adam", "learning_rate": 0.001, "weight_decay": 1e-4}),
]


@pytest.mark.parametrize(("bug", "optimizer"), OPTIMIZER_BUGS)
def test_a_wrong_formula_fails_both_parts(bug: str, optimizer: dict[str, Any], tmp_path: Path) -> None:
    parity = check(bug, tmp_path, **optimizer)
    assert parity.status == "fail"
    assert {t.part for t in parity.tensors if not t.passed} == {"algorithm", "timed"}
    # In the timed part the reference takes the engine's weights, so that only the update can be wrong.
    assert {t.kind for t in parity.tensors if t.part == "timed" and not t.passed} == {"weight"}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_the_right_formula_passes(name: str, tmp_path: Path) -> None:
    parity = check("Correct", tmp_path, name=name, weight_decay=1e-4, schedule=((1, 0.001),))
    assert parity.status == "pass"
    assert parity.timed is not None
    assert parity.timed.max_weight_error == 0


@pytest.mark.parametrize("bug", ["WrongMomentum", "NesterovMomentum"])
def test_a_wrong_update_fails_the_timed_part_too(bug: str, checked: Checked) -> None:
    # Loss and gradient are right at every step there, since the reference takes the engine's weights.
    failing = {t.kind for t in checked(bug).tensors if t.part == "timed" and not t.passed}
    assert failing == {"weight"}


def test_what_is_not_finite_is_null_and_fails(checked: Checked) -> None:
    parity = checked("NotFinite")
    errors = {t.relative_error for t in parity.tensors if t.name == "conv1.bias" and t.kind == "gradient"}
    assert errors == {None}
    assert parity.timed is not None
    assert parity.timed.max_gradient_error is None
    assert "not finite" in (parity.reason or "")


def test_a_tensor_of_another_shape_is_no_snapshot(tmp_path: Path) -> None:
    with pytest.raises(CellFailed, match=r"conv1.weight should have shape \(16, 3, 5, 5\)"):
        check("WrongShape", tmp_path)


def test_a_training_that_diverges_is_not_called_identical(tmp_path: Path) -> None:
    with np.errstate(all="ignore"):
        parity = check("Correct", tmp_path, learning_rate=1e200)
    assert parity.status == "fail"
    assert "not finite" in (parity.reason or "")


def near_ties() -> Dataset:
    """Smooth images, where neighbouring values differ by less than NNlib's tolerance."""
    data = small.dataset()
    ramp = np.linspace(100, 101.5, 32 * 32 * 3).reshape(3, 32, 32)
    noise = (data.images > 250).astype(np.uint8)
    return data._replace(images=ramp.astype(np.uint8) + noise)


def test_an_undeclared_convention_fails(tmp_path: Path) -> None:
    parity = check("UndeclaredPooling", tmp_path, near_ties())
    assert parity.status == "fail"
    assert parity.deviations == []


def test_a_declared_convention_passes_and_its_deviation_is_reported(tmp_path: Path) -> None:
    parity = check("DeclaredPooling", tmp_path, near_ties())
    assert parity.status == "pass"
    assert parity.algorithm is not None
    assert (parity.algorithm.max_gradient_error or 0) <= ALGORITHM["gradient"]
    by_tensor = {deviation.tensor: deviation for deviation in parity.deviations}
    assert len(by_tensor) == 10
    assert by_tensor["conv1.weight"].error > 1e-6
    assert by_tensor["dense3.weight"].error == 0  # behind the pooling: not touched by its gradient
    assert "0.00034" in by_tensor["conv1.weight"].what or "0.00035" in by_tensor["conv1.weight"].what
    assert by_tensor["conv1.weight"].source == "a test"


def test_reduced_precision_compares_the_whole_gradient_by_cosine(tmp_path: Path) -> None:
    parity = check("Correct", tmp_path, precision="bf16")
    timed = [t for t in parity.tensors if t.part == "timed" and t.kind == "gradient"]
    assert {t.name for t in timed} == {"whole gradient"}
    assert parity.status == "pass"
    assert check_bf16_fails(tmp_path / "again")


def check_bf16_fails(folder: Path) -> bool:
    folder.mkdir()
    return check("DoubleSoftmax", folder, precision="bf16").status == "fail"


def check_pipeline(engine: str, folder: Path) -> Parity:
    """As `check`, with varied images, which the engine prepares by itself."""
    data, order = small.dataset(), epoch_order(64, 8, seed=0, epoch=0)[: STEPS + 1]
    decisions = decision_stream(STEPS + 1, 8, seed=0, steps=STEPS + 1)
    files = small.files(folder, data)._replace(epoch=write_epoch(data, order, folder, decisions=decisions))
    images = write_images(data, folder)
    stream = write_stream(images, order, decisions, folder, workers=0, steps_in_epoch=STEPS + 1)
    (folder / "scratch").mkdir()
    checker = Checker(InProcess(REFERENCE), folder / "scratch", folder / "cache")
    task = Task(small.job(), files.weights, files.epoch, STEPS, 60.0, stream)
    return checker.check(InProcess(f"tests.planted:{engine}"), task)


def test_a_right_pipeline_passes_and_each_of_its_batches_is_compared(tmp_path: Path) -> None:
    parity = check_pipeline("Piped", tmp_path)
    assert parity.status == "pass", parity.reason
    compared = [(t.step, t.name) for t in parity.tensors if t.kind == "batch"]
    assert compared == [(step, name) for step in range(STEPS + 1) for name in ("images", "labels")]


@pytest.mark.parametrize("bug", ["WrongFlipAxis", "WrongShift"])
def test_planted_bugs_in_a_pipeline_fail_by_their_images(bug: str, tmp_path: Path) -> None:
    parity = check_pipeline(bug, tmp_path)
    assert parity.status == "fail"
    failed = {(t.kind, t.name) for t in parity.tensors if not t.passed}
    assert ("batch", "images") in failed
    assert ("batch", "labels") not in failed
    assert any(t.part == "algorithm" and not t.passed for t in parity.tensors)
    assert "batch error of images" in (parity.reason or "")


class Counting(InProcess):
    asked = 0

    def ask(self, request: Request, kind: type[A], timeout: float = 60.0) -> A:
        type(self).asked += 1
        return super().ask(request, kind, timeout)


def test_the_reference_trains_once_for_the_same_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = small.files(tmp_path)
    task = Task(small.job(), files.weights, files.epoch, STEPS, 60.0)
    (tmp_path / "scratch").mkdir()

    def asked(task: Task) -> int:
        Counting.asked = 0
        checker = Checker(Counting(REFERENCE), tmp_path / "scratch", tmp_path / "cache")
        assert checker.check(InProcess(REFERENCE), task).status == "pass"
        return Counting.asked

    def with_workload(**fields: object) -> Task:
        workload = msgspec.structs.replace(task.job.workload, **fields)
        return task._replace(job=msgspec.structs.replace(task.job, workload=workload))

    first, second = asked(task), asked(task)
    assert second < first
    assert asked(with_workload(threads=2)) == second
    assert asked(with_workload(optimizer=Optimizer(learning_rate=0.02))) == first
    assert list((tmp_path / "scratch").iterdir()) == []
    monkeypatch.setattr(np, "__version__", "1.0")
    assert asked(task) == first


def test_wrong_values_in_the_cache_are_not_the_engines_fault(tmp_path: Path) -> None:
    def checked(name: str) -> Parity:
        (tmp_path / name).mkdir()
        return check("Correct", tmp_path / name, cache=tmp_path / "cache")

    assert checked("first").status == "pass"
    (gradients,) = (tmp_path / "cache").glob("*/1.gradients.npz")
    with np.load(gradients) as file:
        doubled: dict[str, Any] = {name: 2 * file[name] for name in file.files}
    np.savez(gradients, **doubled)
    assert checked("second").status == "pass"


def test_a_reference_that_fails_leaves_nothing_behind(tmp_path: Path) -> None:
    class Failing(InProcess):
        def ask(self, request: Request, kind: type[A], timeout: float = 60.0) -> A:
            if isinstance(request, Advance):
                raise CellFailed("killed")
            return super().ask(request, kind, timeout)

    files = small.files(tmp_path)
    (tmp_path / "scratch").mkdir()
    checker = Checker(Failing(REFERENCE), tmp_path / "scratch", tmp_path / "cache")
    with pytest.raises(ReferenceFailed, match="killed"):
        checker.check(InProcess(REFERENCE), Task(small.job(), files.weights, files.epoch, STEPS, 60.0))
    left = [path for folder in ("scratch", "cache") for path in (tmp_path / folder).glob("*")]
    assert left == []


@pytest.mark.parametrize(
    "bug", ["KerasMomentum", "OtherEpsilon", "StaleStatistics", "OtherMasks", "UndeclaredVariance"]
)
def test_planted_bugs_of_batch_norm_and_dropout_fail(bug: str, tmp_path: Path) -> None:
    assert check(bug, tmp_path, model=EVERYTHING).status == "fail"


def test_batch_norm_has_its_own_tolerance_and_running_statistics_are_weights(tmp_path: Path) -> None:
    parity = check("Correct", tmp_path, model=EVERYTHING)
    assert parity.status == "pass"
    assert parity.algorithm is not None
    assert parity.algorithm.tolerance == ALGORITHM_WITH_BATCH_NORM
    compared = {t.name for t in parity.tensors if t.part == "algorithm" and t.kind == "weight"}
    assert compared == set(EVERYTHING.tensor_shapes())


def test_a_declared_running_variance_passes_and_its_deviation_is_reported(tmp_path: Path) -> None:
    parity = check("DeclaredVariance", tmp_path, model=EVERYTHING)
    assert parity.status == "pass"
    assert {deviation.tensor for deviation in parity.deviations} == {
        "norm1.running_variance",
        "block.norm1.running_variance",
        "norm2.running_variance",
    }
    # Of 8 features the batch's variance differs by 1/8, and it is a tenth of the running one.
    worst = max(parity.deviations, key=lambda deviation: deviation.error)
    assert worst.tensor == "norm2.running_variance"
    assert 1e-4 < worst.error < 0.125


def test_states_of_large_networks_are_not_kept_beyond_the_study(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("polybench.identity.check._LARGEST_CACHED", 1000)
    assert check("Correct", tmp_path).status == "pass"
    assert not (tmp_path / "cache").exists()
    assert len(list((tmp_path / "scratch" / "reference").iterdir())) == 1
