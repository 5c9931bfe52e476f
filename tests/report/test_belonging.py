"""Which saved documents belong to a study: only what was measured alike."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from polybench.core.document.layers import LayersDocument
from polybench.core.document.study import StudyDocument
from polybench.core.optimizers import Optimizer
from polybench.report.belonging import layers_of, varied
from tests.factories import layers, measured, saved, study

VERSIONS = {"torch": "2.13.0", "build": {"blas": "mkl"}, "environment": {"OMP_NUM_THREADS": "2"}}
CELLS = ["tf/cpu", "torch/cpu"]


def compared(**changes: Any) -> StudyDocument:
    return study(measured("tf/cpu", 0.02, versions=VERSIONS, **changes), measured("torch/cpu", 0.01))


def timed(of: StudyDocument) -> LayersDocument:
    parts = {cell: {("conv1", "forward"): 0.001} for cell in CELLS}
    return layers(of, dict.fromkeys(CELLS, 0.02), parts)  # type: ignore[arg-type]


def test_the_newest_layers_that_belong_are_found() -> None:
    old, new = timed(compared()), msgspec.structs.replace(timed(compared()), id="20250104-000000-abcd")
    assert layers_of(compared(), [new, old], CELLS) is new
    assert layers_of(compared(), [], CELLS) is None
    assert layers_of(compared(), [old], [*CELLS, "torch+compile/cpu"][:1]) is old


@pytest.mark.parametrize(
    "settings",
    [
        {"model": "rosetta"},
        {"batch_size": 64},
        {"threads": 1},
        {"heap": "system"},
        {"pinned": [0, 1]},
        {"data_sha256": "f" * 64},
        {"optimizer": Optimizer("adam")},
        {"precision": "tf32,fp32"},
    ],
)
def test_what_was_measured_otherwise_does_not_belong(settings: dict[str, Any]) -> None:
    document = timed(compared())
    document.settings = msgspec.structs.replace(document.settings, **settings)
    assert layers_of(compared(), [document], CELLS) is None


def test_nor_does_another_machine_or_version_or_a_cell_without_layers() -> None:
    elsewhere = timed(compared())
    elsewhere.host = msgspec.structs.replace(elsewhere.host, hostname="another")
    assert layers_of(compared(), [elsewhere], CELLS) is None
    newer = timed(compared())
    newer.engines[0].versions = VERSIONS | {"torch": "2.14.0"}
    assert layers_of(compared(), [newer], CELLS) is None
    otherwise_started = timed(compared())
    otherwise_started.engines[0].versions = VERSIONS | {"environment": {}}
    assert layers_of(compared(), [otherwise_started], CELLS) is otherwise_started
    without = timed(compared())
    without.engines[0].rows = []
    assert layers_of(compared(), [without], CELLS) is None


def test_the_input_pipeline_of_a_study_does_not_matter_to_its_layers() -> None:
    piped = compared()
    piped.settings = msgspec.structs.replace(piped.settings, input="pipeline", workers=2)
    assert layers_of(piped, [timed(compared())], CELLS) is not None


def test_studies_that_differ_in_one_thing_are_found_by_it() -> None:
    one = compared()
    four, newer = saved(one, "20250102-b", threads=4), saved(one, "20250103-c", threads=4)
    others = [
        newer,
        four,
        saved(one, "20250102-d", threads=8, batch_size=64),  # in two things
        saved(one, "20250102-e", threads=8, input="pipeline"),
        one,
    ]
    assert [(row.value, row.study.id) for (row,) in varied(one, ["tf/cpu"], "threads", others)] == [
        (4, "20250103-c")
    ]
    assert varied(one, ["tf/cpu"], "batch_size", others) == []
    ((tf, torch),) = varied(one, CELLS, "threads", others)
    assert (tf.result.cell, torch.result.cell) == ("tf/cpu", "torch/cpu")
    assert varied(one, [*CELLS, "flux/cpu"], "threads", others) == []
