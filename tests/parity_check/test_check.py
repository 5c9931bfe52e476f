"""Tests of the parity check: correct engines pass, injected bugs fail, declared conventions are followed."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from polybench.data import Dataset
from polybench.data.batch_files import write_epoch, write_images, write_pipeline_files
from polybench.data.batches import augmentation_stream, epoch_order
from polybench.engines.job import Job
from polybench.errors import ConfigurationFailed
from polybench.networks.layers import Conv, Dense, Flatten, MaxPool, ReLU
from polybench.networks.lenet import LENET
from polybench.networks.model import Model
from polybench.networks.optimizers import OPTIMIZERS, Optimizer
from polybench.parity_check.check import CheckRequest, ParityChecker, ReferenceFailed
from polybench.parity_check.comparison import FLOAT64_TOLERANCE, FLOAT64_TOLERANCE_WITH_NORM
from polybench.protocol import calls
from polybench.protocol.calls import AnswerT, Request
from polybench.schema.parity import ParityCheck
from tests import small_datasets
from tests.example_networks import BIASED, EVERYTHING, FEATURES, PATCHED, SEQUENCES, TEXT
from tests.worker_sessions import InProcess

STEPS = 3
REFERENCE = "polybench.engines.reference.engine:ReferenceEngine"


Check = Callable[..., ParityCheck]

# A kernel, matrices and biases, as in lenet, which takes three times as long.
SMALL = msgspec.structs.replace(
    LENET, name="small", input_shape=(3, 12, 12),
    layers=(
        *(Conv("conv1", 3, 8, 3), ReLU(), MaxPool(2, 2), Flatten()),
        *(Dense("dense1", 200, 16), ReLU(), Dense("dense2", 16, 10)),
    ),
)  # fmt: skip


@pytest.fixture(scope="module")
def check(tmp_path_factory: pytest.TempPathFactory) -> Check:
    """`check(engine, ...)`: check an engine with an injected bug; the reference trains once for the same workload."""
    cache = tmp_path_factory.mktemp("cache")

    def check(engine: str, data: Dataset | None = None, model: Model = SMALL, **workload: Any) -> ParityCheck:
        folder = tmp_path_factory.mktemp(engine)
        files = small_datasets.files(folder, data, model=model)
        request = CheckRequest(small_datasets.job(model, **workload), files.weights, files.epoch, STEPS, 60.0)
        return make_checker(folder, cache).check(InProcess(f"tests.bug_injection:{engine}"), request)

    return check


def make_checker(folder: Path, cache: Path | None = None, reference: type[InProcess] = InProcess) -> ParityChecker:
    (folder / "scratch").mkdir(exist_ok=True)
    return ParityChecker(reference(REFERENCE), folder / "scratch", cache or folder / "cache")


def small_request(folder: Path) -> CheckRequest:
    files = small_datasets.files(folder, model=SMALL)
    return CheckRequest(small_datasets.job(SMALL), files.weights, files.epoch, STEPS, 60.0)


@pytest.mark.parametrize(
    ("bug", "model"),
    [
        ("SwappedGates", SEQUENCES),
        ("OneBiasMissing", FEATURES),
        ("ReversedDirection", SEQUENCES),
        ("WrongFinalState", SEQUENCES),
    ],
)
def test_incorrect_lstm_fails(bug: str, model: Model, check: Check) -> None:
    parity = check(bug, model=model)
    assert parity.status == "fail"
    assert parity.float64 is not None
    largest = parity.float64.max_weight_error, parity.float64.max_gradient_error
    assert max(error for error in largest if error is not None) > 1e-3
    assert parity.float64.tolerance["gradient"] == 1e-9


@pytest.mark.parametrize("model", [SEQUENCES, FEATURES])
def test_correct_lstm_passes(model: Model, check: Check) -> None:
    assert check("Correct", model=model).status == "pass"


ADAPTIVE = [{"name": "adam", "learning_rate": 0.001}, {"name": "rmsprop", "learning_rate": 0.001}]


@pytest.mark.parametrize("optimizer", [*ADAPTIVE, {"name": "momentum"}])
def test_rounding_errors_of_zero_gradients_pass_with_every_optimizer(optimizer: dict[str, Any], check: Check) -> None:
    parity = check("OtherRounding", model=BIASED, **optimizer)
    assert parity.status == "pass", parity.reason


@pytest.mark.parametrize("bug", ["Leaking", "Restless"])
@pytest.mark.parametrize("optimizer", ADAPTIVE)
def test_incorrect_bias_before_batch_norm_fails_both_parts(bug: str, optimizer: dict[str, Any], check: Check) -> None:
    parity = check(bug, model=BIASED, **optimizer)
    failed = {(t.part, t.name) for t in parity.tensors if not t.passed}
    assert {("float64", "conv.bias"), ("timed", "conv.bias")} <= failed


def test_incorrect_formula_fails_in_tensors_with_nonzero_gradients(check: Check) -> None:
    parity = check("EpsilonBeforeCorrection", model=BIASED, **ADAPTIVE[0])
    failed = {(t.part, t.name) for t in parity.tensors if not t.passed}
    assert ("float64", "norm1.bias") in failed
    assert not {"conv.bias", "dense1.bias"} & {name for _, name in failed}


class JobRecorder(InProcess):
    """Records the jobs of its Prepare requests."""

    def __init__(self, engine: str) -> None:
        self.jobs: list[Job] = []
        super().__init__(engine)

    def request(self, request: Request[AnswerT], timeout: float = 60.0) -> AnswerT:
        if request.call is calls.prepare:
            self.jobs.append(request.arguments.job)
        return super().request(request, timeout)


def test_the_timed_part_has_the_timed_batch_size(tmp_path: Path) -> None:
    files = small_datasets.files(tmp_path, batch_size=4, model=SMALL)
    request = CheckRequest(small_datasets.job(SMALL, batch_size=32), files.weights, files.epoch, 1, 60.0)
    engine, reference = JobRecorder(REFERENCE), JobRecorder(REFERENCE)
    parity = ParityChecker(reference, tmp_path, tmp_path / "cache").check(engine, request)
    assert (parity.status, parity.batch_size, parity.timed_batch_size) == ("pass", 4, 32)
    assert [(job.dtype, job.workload.batch_size) for job in engine.jobs] == [("float64", 4), ("float32", 32)]
    assert {job.workload.batch_size for job in reference.jobs} == {4, 32}


@pytest.fixture(scope="module")
def checked(check: Check) -> Check:
    """Check an engine once for all tests."""
    return functools.cache(check)


def test_correct_computation_passes(checked: Check) -> None:
    parity = checked("Correct")
    assert parity.status == "pass"
    assert parity.reason is None
    assert parity.float64 is not None
    assert parity.float64.max_gradient_error == 0
    assert parity.steps == STEPS
    assert parity.batch_size == 8


def test_every_tensor_is_compared_at_steps_0_1_and_last(checked: Check) -> None:
    parity = checked("Correct")
    float64 = {(t.step, t.kind, t.name) for t in parity.tensors if t.part == "float64"}
    assert {step for step, _, _ in float64} == {0, 1, STEPS}
    assert len(float64) == 3 * (1 + 6 + 6)  # the loss, 6 gradients, 6 weights
    timed = [(t.step, t.kind) for t in parity.tensors if t.part == "timed"]
    for step, kind in ((0, "gradient"), (STEPS - 1, "gradient"), (1, "weight"), (STEPS, "weight")):
        assert timed.count((step, kind)) == 6


def test_tensors_are_in_the_models_order_for_every_engine_order(check: Check) -> None:
    parity = check("OwnOrder", model=EVERYTHING)
    assert parity.status == "pass"
    trained, all_tensors = list(EVERYTHING.weight_shapes()), list(EVERYTHING.tensor_shapes())
    assert trained != sorted(trained)
    for part, kind, step, expected in (
        ("float64", "gradient", 1, trained),
        ("float64", "weight", 1, all_tensors),
        ("timed", "gradient", 0, trained),
        ("timed", "weight", 1, trained),
    ):
        assert [t.name for t in parity.tensors if (t.part, t.kind, t.step) == (part, kind, step)] == expected


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
def test_injected_bugs_fail_the_float64_part(bug: str, checked: Check) -> None:
    parity = checked(bug)
    assert parity.status == "fail"
    assert parity.reason is not None
    assert any(not tensor.passed for tensor in parity.tensors if tensor.part == "float64")


@pytest.mark.parametrize(
    ("bug", "model"),
    [
        *(
            (bug, TEXT)
            for bug in (
                *("ShiftedMask", "MissingScale", "SoftmaxOverQueries"),
                *("OtherNormEpsilon", "TanhGELU", "UnaddedGradients"),
            )
        ),
        *((bug, PATCHED) for bug in ("MissingScale", "OtherNormEpsilon", "FrozenClassToken", "UnsmoothedLabels")),
    ],
)
def test_injected_bugs_of_transformers_fail_both_parts(bug: str, model: Model, check: Check) -> None:
    parity = check(bug, small_datasets.dataset(model=model), model)
    assert parity.status == "fail"
    assert {t.part for t in parity.tensors if not t.passed} >= {"float64"}


@pytest.mark.parametrize("model", [TEXT, PATCHED], ids=lambda model: model.name)
def test_transformers_without_a_bug_pass(model: Model, check: Check) -> None:
    parity = check("Correct", small_datasets.dataset(model=model), model)
    assert parity.status == "pass", parity.reason
    assert parity.float64 is not None
    assert parity.float64.tolerance["gradient"] == 1e-7


ADAMW = {"name": "adamw", "learning_rate": 0.001, "weight_decay": 0.1}
OPTIMIZER_BUGS = [
    ("CoupledDecay", ADAMW),
    ("UnclippedGradients", {"gradient_clip": 0.01}),
    ("ClippedOneByOne", {"gradient_clip": 0.01}),
    ("LateWarmup", {"warmup_steps": 5}),
    ("LateWarmup", {"cosine_steps": 9, "min_learning_rate": 0.001}),
    ("RateInVelocity", {"lr_schedule": ((1, 0.001),)}),
    ("RateInVelocity", {"lr_schedule": ((2, 0.02),)}),
    ("LateChange", {"lr_schedule": ((1, 0.001),)}),
    ("EpsilonInsideRoot", {"name": "rmsprop"}),
    ("EpsilonBeforeCorrection", {"name": "adam"}),
    ("DecoupledDecay", {"weight_decay": 1e-3}),
    ("DecoupledDecay", {"name": "adam", "learning_rate": 0.001, "weight_decay": 1e-4}),
]


@pytest.mark.parametrize(("bug", "optimizer"), OPTIMIZER_BUGS)
def test_incorrect_formula_fails_both_parts(bug: str, optimizer: dict[str, Any], check: Check) -> None:
    parity = check(bug, **optimizer)
    assert parity.status == "fail"
    assert {t.part for t in parity.tensors if not t.passed} == {"float64", "timed"}
    # In the timed part, the reference takes over the engine's weights, so only the update can be wrong.
    assert {t.kind for t in parity.tensors if t.part == "timed" and not t.passed} <= {"weight", "schedule"}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_correct_formula_passes(name: str, check: Check) -> None:
    parity = check("Correct", name=name, weight_decay=1e-4, lr_schedule=((1, 0.001),))
    assert parity.status == "pass"
    assert parity.timed is not None
    assert parity.timed.max_weight_error == 0


def test_decay_on_tensors_with_one_axis_fails(check: Check) -> None:
    parity = check("DecayOnBiases", small_datasets.dataset(model=TEXT), TEXT, **ADAMW)
    first = [t for t in parity.tensors if (t.part, t.step, t.kind) == ("float64", 1, "weight")]
    failed = {t.name for t in first if not t.passed}
    assert failed == {"norm1.weight", "norm2.weight", "norm3.weight"}  # biases are 0 before the first step


def test_a_moving_rate_is_checked_where_it_changes(check: Check) -> None:
    parity = check("Correct", **ADAMW, warmup_steps=10, cosine_steps=30, min_learning_rate=1e-4)
    assert parity.status == "pass", parity.reason
    assert {t.step for t in parity.tensors if t.kind == "schedule"} == {31}


def test_a_rate_that_changes_right_after_the_first_steps_is_checked(check: Check) -> None:
    tensors = check("Correct", lr_schedule=((STEPS, 0.001),)).tensors
    assert {t.step for t in tensors if (t.part, t.kind) == ("float64", "schedule")} == {STEPS + 1}


def test_the_timed_part_ends_with_the_last_change_of_the_rate(check: Check) -> None:
    timed = [t for t in check("Correct", lr_schedule=((1, 0.001), (6, 0.002))).tensors if t.part == "timed"]
    assert {t.step for t in timed if t.kind == "gradient"} == {0, 6}


@pytest.mark.parametrize("bug", ["WrongMomentum", "NesterovMomentum"])
def test_incorrect_update_fails_the_timed_part(bug: str, checked: Check) -> None:
    # Loss and gradient are correct at every step, because the reference takes over the engine's weights.
    failing = {t.kind for t in checked(bug).tensors if t.part == "timed" and not t.passed}
    assert failing == {"weight"}


def test_values_that_are_not_finite_are_null_and_fail(checked: Check) -> None:
    parity = checked("NotFinite")
    errors = {t.relative_error for t in parity.tensors if t.name == "conv1.bias" and t.kind == "gradient"}
    assert errors == {None}
    assert parity.timed is not None
    assert parity.timed.max_gradient_error is None
    assert "not finite" in (parity.reason or "")


def test_tensor_of_the_wrong_shape_is_rejected(check: Check) -> None:
    with pytest.raises(ConfigurationFailed, match=r"expected conv1.weight of shape \(8, 3, 3, 3\)"):
        check("WrongShape")


def test_diverging_training_fails(check: Check) -> None:
    with np.errstate(all="ignore"):
        parity = check("Correct", model=LENET, learning_rate=1e30)
    assert parity.status == "fail"
    assert "not finite" in (parity.reason or "")


def near_ties() -> Dataset:
    """Return smooth images whose neighbouring values differ by less than NNlib's tolerance."""
    data = small_datasets.dataset(model=SMALL)
    ramp = np.linspace(100, 101.5, 12 * 12 * 3).reshape(SMALL.input_shape)
    noise = (data.images > 250).astype(np.uint8)
    return data._replace(images=ramp.astype(np.uint8) + noise)


def test_undeclared_convention_fails(check: Check) -> None:
    parity = check("UndeclaredPooling", near_ties())
    assert parity.status == "fail"
    assert parity.known_deviations == []


def test_declared_convention_passes_and_its_deviation_is_reported(check: Check) -> None:
    parity = check("DeclaredPooling", near_ties())
    assert parity.status == "pass"
    assert parity.float64 is not None
    assert (parity.float64.max_gradient_error or 0) <= FLOAT64_TOLERANCE["gradient"]
    by_tensor = {deviation.tensor: deviation for deviation in parity.known_deviations}
    assert len(by_tensor) == 6
    assert by_tensor["conv1.weight"].error > 1e-6
    assert by_tensor["dense2.weight"].error == 0  # after the pooling, so its gradient does not change
    assert "0.00034" in by_tensor["conv1.weight"].rule or "0.00035" in by_tensor["conv1.weight"].rule
    assert by_tensor["conv1.weight"].source == "a test"


def test_reduced_precision_compares_the_whole_gradient_by_cosine(check: Check) -> None:
    parity = check("Correct", precision="bf16")
    timed = [t for t in parity.tensors if t.part == "timed" and t.kind == "gradient"]
    assert {t.name for t in timed} == {"whole gradient"}
    assert parity.status == "pass"
    assert check("DoubleSoftmax", precision="bf16").status == "fail"


@pytest.mark.parametrize("precision", ["fp32", "tf32", "bf16"])
def test_a_gradient_of_the_wrong_size_fails_in_every_precision(precision: str, check: Check) -> None:
    parity = check("DoubledTensor", precision=precision)
    failed = {(t.part, t.kind, t.name) for t in parity.tensors if not t.passed}
    assert ("timed", "size", "conv1.bias") in failed
    assert {name for _, _, name in failed} <= {"conv1.bias", "whole gradient"}


def check_pipeline(engine: str, folder: Path) -> ParityCheck:
    """Check an engine like `check` does, with augmented images that the engine prepares itself."""
    data, order = small_datasets.dataset(model=SMALL), epoch_order(64, 8, seed=0, epoch=0)[: STEPS + 1]
    augmentations = augmentation_stream(STEPS + 1, 8, seed=0, steps=STEPS + 1)
    files = small_datasets.files(folder, data, model=SMALL)._replace(
        epoch=write_epoch(data, order, folder, augmentations=augmentations)
    )
    write_images(data, folder)
    stream = write_pipeline_files(folder, order, augmentations, folder, loader_workers=0, steps_per_epoch=STEPS + 1)
    # In the timed part, the pipeline repeats images, and continues at a change of the learning rate.
    job = small_datasets.job(SMALL, batch_size=20, lr_schedule=((1000, 0.001),))
    request = CheckRequest(job, files.weights, files.epoch, STEPS, 60.0, stream)
    return make_checker(folder).check(InProcess(f"tests.bug_injection:{engine}"), request)


def test_correct_pipeline_passes_and_each_batch_is_compared(tmp_path: Path) -> None:
    parity = check_pipeline("Piped", tmp_path)
    assert parity.status == "pass", parity.reason
    compared = [(t.step, t.name) for t in parity.tensors if t.kind == "batch"]
    steps = (*range(STEPS), 1000)
    assert compared == [(step, name) for step in steps for name in ("images", "labels")]


@pytest.mark.parametrize("bug", ["WrongFlipAxis", "WrongShift"])
def test_injected_pipeline_bugs_fail_in_their_images(bug: str, tmp_path: Path) -> None:
    parity = check_pipeline(bug, tmp_path)
    assert parity.status == "fail"
    failed = {(t.kind, t.name) for t in parity.tensors if not t.passed}
    assert ("batch", "images") in failed
    assert ("batch", "labels") not in failed
    assert any(t.part == "float64" and not t.passed for t in parity.tensors)
    assert "batch error of images" in (parity.reason or "")


class RequestCounter(InProcess):
    count = 0

    def request(self, request: Request[AnswerT], timeout: float = 60.0) -> AnswerT:
        type(self).count += 1
        return super().request(request, timeout)


def test_reference_trains_once_for_the_same_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    request = small_request(tmp_path)

    def request_count(request: CheckRequest) -> int:
        RequestCounter.count = 0
        checker = make_checker(tmp_path, reference=RequestCounter)
        assert checker.check(InProcess(REFERENCE), request).status == "pass"
        return RequestCounter.count

    def with_workload(**fields: object) -> CheckRequest:
        workload = msgspec.structs.replace(request.job.workload, **fields)
        return request._replace(job=msgspec.structs.replace(request.job, workload=workload))

    first, second = request_count(request), request_count(request)
    assert second < first
    assert request_count(with_workload(threads=2)) == second
    assert request_count(with_workload(optimizer=Optimizer(learning_rate=0.02))) == first
    assert list((tmp_path / "scratch").iterdir()) == []
    monkeypatch.setattr(np, "__version__", "1.0")
    assert request_count(request) == first


def test_corrupt_cache_does_not_fail_an_engine(tmp_path: Path) -> None:
    def checked() -> ParityCheck:
        return make_checker(tmp_path).check(InProcess(REFERENCE), small_request(tmp_path))

    assert checked().status == "pass"
    (gradients,) = (tmp_path / "cache").glob("*/1.gradients.npz")
    with np.load(gradients) as file:
        doubled: dict[str, Any] = {name: 2 * file[name] for name in file.files}
    np.savez(gradients, **doubled)
    assert checked().status == "pass"


def test_failing_reference_leaves_no_files(tmp_path: Path) -> None:
    class Failing(InProcess):
        def request(self, request: Request[AnswerT], timeout: float = 60.0) -> AnswerT:
            if request.call is calls.run_steps:
                raise ConfigurationFailed("killed")
            return super().request(request, timeout)

    checker = make_checker(tmp_path, reference=Failing)
    with pytest.raises(ReferenceFailed, match="killed"):
        checker.check(InProcess(REFERENCE), small_request(tmp_path))
    remaining = [path for folder in ("scratch", "cache") for path in (tmp_path / folder).glob("*")]
    assert remaining == []


@pytest.mark.parametrize(
    "bug", ["KerasMomentum", "OtherEpsilon", "StaleStatistics", "OtherMasks", "UndeclaredVariance"]
)
def test_injected_batch_norm_and_dropout_bugs_fail(bug: str, check: Check) -> None:
    assert check(bug, model=EVERYTHING).status == "fail"


def test_batch_norm_has_its_own_tolerance_and_running_statistics_are_weights(check: Check) -> None:
    parity = check("Correct", model=EVERYTHING)
    assert parity.status == "pass"
    assert parity.float64 is not None
    assert parity.float64.tolerance == FLOAT64_TOLERANCE_WITH_NORM
    compared = {t.name for t in parity.tensors if t.part == "float64" and t.kind == "weight"}
    assert compared == set(EVERYTHING.tensor_shapes())


def test_declared_running_variance_passes_and_its_deviation_is_reported(check: Check) -> None:
    parity = check("DeclaredVariance", model=EVERYTHING)
    assert parity.status == "pass"
    assert {deviation.tensor for deviation in parity.known_deviations} == {
        "norm1.running_variance",
        "block.norm1.running_variance",
        "norm2.running_variance",
    }
    # With 8 features, the batch's variance differs by 1/8 and enters the running variance with weight 0.1.
    largest = max(parity.known_deviations, key=lambda deviation: deviation.error)
    assert largest.tensor == "norm2.running_variance"
    assert 1e-4 < largest.error < 0.125


def test_states_of_large_networks_are_cached_for_one_study_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("polybench.parity_check.check._MAX_CACHED_PARAMETERS", 1000)
    assert make_checker(tmp_path).check(InProcess(REFERENCE), small_request(tmp_path)).status == "pass"
    assert not (tmp_path / "cache").exists()
    assert len(list((tmp_path / "scratch" / "reference").iterdir())) == 2  # the float64 part and the timed part
