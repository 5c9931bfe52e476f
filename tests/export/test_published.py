from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from polybench.core import units
from polybench.core.document.circumstances import Compared, Published
from polybench.core.document.result import Result
from polybench.core.document.study import from_json
from polybench.core.document.sweep import SweepPoint, SweptCell
from polybench.core.document.times import DeviceSpeedup
from polybench.core.document.training import TrainedEpoch, Training
from polybench.export import FORMATS, published
from polybench.export.rendering import rendered
from polybench.metrics import METRICS
from polybench.metrics.base import Metric
from tests.factories import WORKLOAD, measured, typical_study

PUBLISHED = [
    Published("Flux_1", "allocations", 1407620.0, "", "GTX 1080", "a journal"),
    Published("Flux_1", "speed", (8.0, 9.5), "times", "GTX 1080", "a journal"),
    Published("torch", "time", 0.828756, "s", "", "a blog"),
]
STUDY = msgspec.structs.replace(typical_study(), published=PUBLISHED, title="A\nstudy")


CUDA = measured("tf/cuda", 0.01, device_speedup=DeviceSpeedup("tf/cpu", 12.5, None))


def of_cuda(**fields: Any) -> Published:
    """A time of an epoch of that cell, but for `fields`."""
    whole: dict[str, Any] = {
        "label": "theirs",
        "quantity": "it",
        "value": 1.0,
        "unit": "s",
        "hardware": "K80",
        "source": "a blog",
        "cell": "tf/cuda",
    }
    return Published(**(whole | fields))


FOR_PEOPLE = [name for name, row in FORMATS.items() if row.audience == "people"]
FOR_PROGRAMS = [name for name, row in FORMATS.items() if row.audience == "programs"]


@pytest.mark.parametrize("name", FOR_PEOPLE)
def test_the_block_comes_last_and_only_when_asked_for(name: str, columns: list[Metric]) -> None:
    without = rendered(STUDY, name, columns)
    assert "published" not in without
    assert 0 <= without.index("A study") < without.index("lenet")
    text = rendered(STUDY, name, columns, published=True)
    block = text[text.index("published (not measured here)") :]
    for value in ("1,407,620", "8 to 9.5 times", "0.828756 s", "source: a journal", "source: a blog"):
        assert block.count(value) == 1
    for cell in ("torch/cpu", "tf/cpu"):
        assert text.index(cell) < text.index("published")


@pytest.mark.parametrize("name", FOR_PROGRAMS)
def test_programs_get_the_same_whether_asked_for_or_not(name: str, columns: list[Metric]) -> None:
    assert rendered(STUDY, name, columns) == rendered(STUDY, name, columns, published=True)


def test_csv_is_of_what_was_measured(columns: list[Metric]) -> None:
    assert rendered(STUDY, "csv", columns, published=True) == rendered(typical_study(), "csv", columns)


def test_json_always_has_them(columns: list[Metric]) -> None:
    assert from_json(rendered(STUDY, "json", columns).encode()) == STUDY


@pytest.mark.parametrize("name", FOR_PEOPLE)
def test_a_time_of_epochs_stands_beside_that_of_the_cell_that_repeats_it(name: str) -> None:
    ours = typical_study().result("tf/cpu").epoch_seconds
    assert ours is not None
    numbers = [
        Published("theirs", "time of 10 epochs", 20 * ours, "s", "K80", "a blog", "tf/cpu", 10),
        Published("theirs", "time an epoch", (ours, 3 * ours), "s", "P100", "a blog", "tf/cpu"),
        Published("theirs", "time an epoch", 1.5, "s", "V100", "a blog", "tf/cuda"),  # failed here
        Published("theirs", "speedup", 3.0, "times", "V100", "a blog"),
    ]
    text = rendered(msgspec.structs.replace(typical_study(), published=numbers), name, published=True)
    k80, p100, v100, other = (line for line in text.splitlines() if "theirs" in line)
    assert f"tf/cpu {units.seconds(10 * ours)}" in k80
    assert "2.00 times" in k80
    assert "1.00 to 3.00 times" in p100
    assert "tf/cuda" not in v100
    assert other.count("times") == 1


@pytest.mark.parametrize(
    ("metric", "fields", "show", "times"),
    [
        ("step_time", {"unit": "s"}, units.seconds, "times as long"),
        ("step_time", {"unit": "s", "steps": 153}, units.seconds, "times as long"),
        ("epoch_time", {"unit": "s", "epochs": 10}, units.seconds, "times as long"),
        ("throughput", {"unit": ""}, units.count, "times as many"),
        ("steps_per_second", {"unit": ""}, units.count, "times as many"),
        ("device_speedup", {"unit": "times"}, units.number, "times"),
    ],
)
def test_a_number_stands_beside_the_same_metric(
    metric: Compared, fields: dict[str, Any], show: Callable[[float], str], times: str
) -> None:
    ours = METRICS[metric].value(CUDA)
    assert isinstance(ours, float)
    amount = ours * fields.get("steps", 1) * fields.get("epochs", 1)
    number = of_cuda(metric=metric, value=3 * amount, **fields)
    assert published.header([number], published.of_study([CUDA])) == [*published.HEADER, "here", "ratio"]
    (row,) = published.rows([number], published.of_study([CUDA]))
    assert row[4:] == [f"tf/cuda {show(amount)}", f"3.00 {times}"]


@pytest.mark.parametrize(
    ("other", "why"),
    [
        ({"model": "smallvgg"}, []),
        ({"batch_size": 64}, ["no ratio for tf/cuda: batch size 128, the author's is 64"]),
        ({"augment": True}, ["no ratio for tf/cuda: images not augmented, the author's otherwise"]),
    ],
)
def test_what_was_measured_with_something_else_is_not_compared(other: dict[str, Any], why: list[str]) -> None:
    here = published.of_study([CUDA])
    same = {name: getattr(CUDA.workload, name) for name in other}
    assert published.header([of_cuda(**same)], here) != published.HEADER
    assert published.header([of_cuda(**other)], here) == published.HEADER
    assert published.rows([of_cuda(**other), of_cuda()], here)[0][4:] == ["", ""]
    assert published.notes([of_cuda(**other)] * 2, here) == ["source: a blog", *why]
    assert published.notes([of_cuda(**same)], here) == ["source: a blog"]


def trained(cell: str, *accuracies: float, complete: bool = True) -> Result:
    """A cell with one training that had these accuracies."""
    epochs = [TrainedEpoch(1.0, [1.0], 0.5, accuracy) for accuracy in accuracies]
    accuracy = accuracies[-1] if complete else None
    return measured(cell, 0.01, accuracy=accuracy, trainings=[Training(0, epochs, complete)])


def test_an_accuracy_stands_beside_those_of_all_cells_after_as_many_epochs() -> None:
    number = of_cuda(metric="accuracy", value=0.77, unit="", cell=None, epochs=2)
    here = published.of_study([trained("tf/cuda", 0.5, 0.7), trained("torch/cpu", 0.5, 0.8)])
    (row,) = published.rows([number], here)
    assert row[4:] == ["2 cells 0.700 to 0.800", "0.963 to 1.10 times as high"]
    sooner = published.of_study([trained("tf/cuda", 0.5), trained("torch/cpu", 0.5, 0.8)])
    assert published.rows([number], sooner)[0][4] == "1 cell 0.800"
    why = "no ratio for tf/cuda: accuracy after 1 epoch, the author's after 2"
    assert published.notes([number], sooner) == ["source: a blog", why]
    named = msgspec.structs.replace(number, cell="tf/cuda")
    assert published.rows([named], here)[0][4:] == ["tf/cuda 0.700", "1.10 times as high"]
    assert published.notes([number, named], here) == ["source: a blog"]


@pytest.mark.parametrize(
    ("ours", "why"),
    [
        (trained("tf/cuda", 0.5), "no ratio for tf/cuda: accuracy after 1 epoch, the author's after 2"),
        (trained("tf/cuda", 0.5, 0.7, complete=False), None),
        (CUDA, None),
    ],
)
def test_an_accuracy_after_other_epochs_or_of_none_has_no_ratio(ours: Result, why: str | None) -> None:
    number = of_cuda(metric="accuracy", value=0.77, unit="", cell=None, epochs=2)
    here = published.of_study([ours])
    assert published.header([number], here) == published.HEADER
    assert published.notes([number], here) == ["source: a blog", *([why] if why else [])]


def test_a_number_stands_beside_the_fastest_point_of_a_sweep_that_does_the_same() -> None:
    def point(batch_size: int, seconds: float, **changes: Any) -> SweepPoint:
        workload = msgspec.structs.replace(WORKLOAD, batch_size=batch_size, **changes)
        cell = SweptCell("tf/cuda", "ok", None, seconds, batch_size / seconds, 1.0)
        return SweepPoint({"batch_size": batch_size}, "x", False, [cell], workload)

    points = [point(64, 0.1), point(128, 0.2), point(128, 0.1), point(128, 0.01, model="resnet32")]
    number = of_cuda(metric="throughput", value=2560.0, unit="", model="lenet", batch_size=128)
    (row,) = published.rows([number], published.of_sweep(points))
    assert row[4:] == ["tf/cuda 1,280", "2.00 times as many"]
    cell = msgspec.structs.replace(points[2].cells[0], epoch_seconds=40.0)
    epochs = of_cuda(metric="epoch_time", value=80.0, unit="s", model="lenet", batch_size=128)
    (row,) = published.rows([epochs], published.of_sweep([msgspec.structs.replace(points[2], cells=[cell])]))
    assert row[4] == "tf/cuda 40.0 s"
    failed = msgspec.structs.replace(points[2], cells=[SweptCell("tf/cuda", "failed")])
    assert published.header([number], published.of_sweep([failed])) == published.HEADER
    saved_before = [msgspec.structs.replace(one, workload=None) for one in points]
    assert published.header([number], published.of_sweep(saved_before)) == published.HEADER


def test_without_such_a_cell_the_block_has_the_authors_numbers_only(columns: list[Metric]) -> None:
    assert "ratio" not in rendered(STUDY, "markdown", columns, published=True)


def test_what_is_compared_is_a_column() -> None:
    number = Published(
        "theirs", "steps a second", 1.0, "", "K80", "a blog", "tf/cpu", metric="steps_per_second"
    )
    document = msgspec.structs.replace(typical_study(), published=[number])
    assert "steps per s" in rendered(document, "markdown", published=True)
    assert "steps per s" not in rendered(document, "markdown")


def test_the_epoch_is_a_column_where_authors_timed_epochs() -> None:
    number = Published("theirs", "time an epoch", 1.0, "s", "K80", "a blog", "tf/cpu")
    document = msgspec.structs.replace(typical_study(), published=[number])
    assert "epoch time" in rendered(document, "markdown", published=True)
    assert "epoch time" not in rendered(document, "markdown")
