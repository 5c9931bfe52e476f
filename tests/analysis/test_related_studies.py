"""Tests that only documents with equal settings, machine and versions are related to a study."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from polybench.analysis.related_studies import find_layers, find_variations
from polybench.networks.optimizers import Optimizer
from polybench.schema.measurements import LayersDocument
from polybench.schema.result import Pipeline
from polybench.schema.study import StudyDocument
from tests.factories import layers, measured, saved_again, study

VERSIONS = {"torch": "2.13.0", "build": {"blas": "mkl"}, "environment": {"OMP_NUM_THREADS": "2"}}
CONFIGURATIONS = ["tf/cpu", "torch/cpu"]


def compared(**changes: Any) -> StudyDocument:
    return study(measured("tf/cpu", 0.02, versions=VERSIONS, **changes), measured("torch/cpu", 0.01))


def timed(of: StudyDocument) -> LayersDocument:
    parts = {configuration: {("conv1", "forward"): 0.001} for configuration in CONFIGURATIONS}
    return layers(of, {"tf/cpu": 0.02, "torch/cpu": 0.01}, parts)  # type: ignore[arg-type]


def test_newest_related_layers_are_found() -> None:
    old, new = timed(compared()), msgspec.structs.replace(timed(compared()), id="20250104-000000-abcd")
    assert find_layers(compared(), [new, old], CONFIGURATIONS) is new
    assert find_layers(compared(), [], CONFIGURATIONS) is None
    assert find_layers(compared(), [old], [*CONFIGURATIONS, "torch+compile/cpu"][:1]) is old


@pytest.mark.parametrize(
    "settings",
    [
        {"model": "dlframeworks-cnn"},
        {"batch_size": 64},
        {"threads": 1},
        {"malloc": "system"},
        {"pinned_cpus": [0, 1]},
        {"data_sha256": "f" * 64},
        {"optimizer": Optimizer("adam")},
        {"precision": "tf32,fp32"},
    ],
)
def test_documents_with_other_settings_are_not_related(settings: dict[str, Any]) -> None:
    document = timed(compared())
    document.settings = msgspec.structs.replace(document.settings, **settings)
    assert find_layers(compared(), [document], CONFIGURATIONS) is None


def test_documents_of_another_machine_or_version_or_without_layers_are_not_related() -> None:
    other_machine = timed(compared())
    other_machine.host = msgspec.structs.replace(other_machine.host, hostname="another")
    assert find_layers(compared(), [other_machine], CONFIGURATIONS) is None
    newer = timed(compared())
    newer.configurations[0].versions = VERSIONS | {"torch": "2.14.0"}
    assert find_layers(compared(), [newer], CONFIGURATIONS) is None
    other_environment = timed(compared())
    other_environment.configurations[0].versions = VERSIONS | {"environment": {}}
    assert find_layers(compared(), [other_environment], CONFIGURATIONS) is other_environment
    without = timed(compared())
    without.configurations[0].rows = []
    assert find_layers(compared(), [without], CONFIGURATIONS) is None


def test_layers_of_a_step_of_another_speed_are_not_related() -> None:
    slower = timed(compared())
    slower.configurations[0].step_seconds = 0.0239
    assert find_layers(compared(), [slower], CONFIGURATIONS) is slower
    slower.configurations[0].step_seconds = 0.0241
    assert find_layers(compared(), [slower], CONFIGURATIONS) is None


def test_layers_are_related_for_any_input_of_the_study() -> None:
    piped = compared()
    piped.settings = msgspec.structs.replace(piped.settings, input="pipeline", loader_workers=2)
    assert find_layers(piped, [timed(compared())], CONFIGURATIONS) is not None


def test_a_step_of_layers_does_not_wait_for_data() -> None:
    waits = compared(pipeline=Pipeline(data_wait_seconds_per_step=0.01))
    timed_at = timed(waits)
    for seconds, found in ((0.0100, True), (0.0200, False)):
        timed_at.configurations[0].step_seconds = seconds
        assert (find_layers(waits, [timed_at], CONFIGURATIONS) is not None) == found


def test_studies_that_differ_in_one_setting_are_found() -> None:
    one = compared()
    another_machine = saved_again(one, "20250102-f", threads=16)
    another_machine.host = msgspec.structs.replace(another_machine.host, hostname="another")
    four, newer = saved_again(one, "20250102-b", threads=4), saved_again(one, "20250103-c", threads=4)
    others = [
        newer,
        four,
        saved_again(one, "20250102-d", threads=8, batch_size=64),  # differs in two settings
        saved_again(one, "20250102-e", threads=8, input="pipeline"),
        another_machine,
        one,
    ]
    assert [(row.value, row.study.id) for (row,) in find_variations(one, ["tf/cpu"], "threads", others)] == [
        (4, "20250103-c")
    ]
    assert find_variations(one, ["tf/cpu"], "batch_size", others) == []
    ((tf, torch),) = find_variations(one, CONFIGURATIONS, "threads", others)
    assert (tf.result.configuration, torch.result.configuration) == ("tf/cpu", "torch/cpu")
    assert find_variations(one, [*CONFIGURATIONS, "flux/cpu"], "threads", others) == []
