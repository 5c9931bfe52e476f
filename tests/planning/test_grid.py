"""The points of a sweep."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from polybench.errors import BadInput
from polybench.networks import find_model
from polybench.networks.optimizers import Optimizer
from polybench.planning.grid import points
from polybench.planning.plan import resolve
from polybench.schema.options import Study

STUDY = Study(engines=("fake",), devices=("cpu",), data="synthetic", budget=60.0)


def test_every_combination_is_a_study_with_its_share_of_the_budget() -> None:
    made = points(STUDY, {"batch_size": [8, 16], "threads": [1, 2, 3]})
    assert [tuple(point.values.values()) for point in made] == [(8, 1), (8, 2), (8, 3), (16, 1), (16, 2), (16, 3)]
    assert [(p.study.batch_size, p.study.threads) for p in made[:2]] == [(8, 1), (8, 2)]
    assert {point.study.budget for point in made} == {10.0}


def test_parity_is_checked_once_per_model() -> None:
    made = points(Study(engines=("fake",), model="catdog"), {"depth": [2, 3], "batch_size": [4, 8]})
    assert [point.study.model for point in made] == ["catdog-2", "catdog-2", "catdog-3", "catdog-3"]
    assert [point.study.parity for point in made] == [True, False, True, False]


def test_depth_and_resolution_are_part_of_the_model_name() -> None:
    made = points(Study(engines=("fake",), model="catdog-2@96"), {"depth": [3], "resolution": [32, 64]})
    assert [point.study.model for point in made] == ["catdog-3@32", "catdog-3@64"]
    (made,) = points(Study(engines=("fake",), model="catdog-2@96"), {"depth": [3]})
    assert made.study.model == "catdog-3@96"


def test_length_is_part_of_the_model_name() -> None:
    made = points(Study(engines=("fake",), model="char-gpt"), {"length": [64, 128]})
    assert [point.study.model for point in made] == ["char-gpt@64", "char-gpt@128"]
    longer = find_model("char-gpt@128")
    assert (longer.input_shape, longer.label_shape) == ((128,), (128,))
    assert longer.weight_shapes()["positions.weight"] == (128, 128)


def test_augmentation_is_off_or_on() -> None:
    study = Study(engines=("fake",), input="pipeline", augment=True)
    assert [point.study.augment for point in points(study, {"augment": [0, 1]})] == [False, True]


@pytest.mark.parametrize(
    ("study", "axes", "message"),
    [
        (STUDY, {}, "nothing is varied: give several values to one of --batch-size"),
        (STUDY, {"threads": [1, 2, 1]}, "--threads repeats a value: 1,2,1"),
        (STUDY, {"depth": [2, 3]}, "lenet-2"),
        (Study(engines=("fake",), model="imdb-bilstm"), {"depth": [2, 3]}, "imdb-bilstm-2"),
        (Study(engines=("fake",), model="catdog"), {"depth": [2, 1]}, "catdog-1"),
        (STUDY, {"batch_size": [8, 0]}, "batch"),
        (STUDY, {"loader_workers": [0, 1]}, "--input pipeline"),
        (STUDY, {"augment": [0, 1]}, "--input pipeline"),
        (STUDY, {"augment": [1, 2]}, "--augment 2: expected 0 or 1"),
        (STUDY, {"threads": []}, "--threads has no value"),
        (STUDY, {"threads": [1, 10**23]}, "--threads 1000.*: Expected `int` <= 100000"),
        (STUDY, {"batch_size": [1, 10**18]}, "--batch-size 1000.*: Expected `int` <= 1000000000"),
        (STUDY, {"loader_workers": [-1]}, "--loader-workers -1: Expected `int` >= 0"),
        (STUDY, {"threads": range(1, 2001), "batch_size": range(1, 1501)}, "3,000,000 points: expected at most 10,000"),
        (STUDY, {"thread": [1, 2]}, "did you mean 'threads'"),
        (STUDY, {"resolution": [32, 64]}, "lenet supports only images of 32 x 32"),
        (STUDY, {"resolution": [32, 64], "length": [8]}, "expected one of them"),
    ],
)
def test_invalid_sweeps_are_rejected_before_measuring(study: Study, axes: dict[str, list[int]], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        points(study, axes)


@pytest.mark.parametrize("rate", [{"learning_rate": 0.5}, {"lr_schedule": ((3, 0.5),)}])
def test_another_rate_or_schedule_drops_the_whole_schedule_of_the_network(rate: dict[str, Any]) -> None:
    schedule = Optimizer(learning_rate=0.1, warmup_steps=5, cosine_steps=10, min_learning_rate=0.01)
    model = msgspec.structs.replace(find_model("lenet"), optimizer=schedule)
    found = resolve(Study(engines=("fake",), data="synthetic", model=model, **rate)).workload.optimizer
    assert found == msgspec.structs.replace(Optimizer(learning_rate=0.1), **rate)
