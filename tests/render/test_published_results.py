from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from polybench.render import FORMATS, published_results, render
from polybench.render.table import Table
from polybench.schema import units
from polybench.schema.measurements import PointResult, SweepPoint
from polybench.schema.metadata import PublishedMetric, PublishedResult
from polybench.schema.metrics import METRICS, Metric
from polybench.schema.result import Comparison, Result, TrainedEpoch, Training
from tests.factories import WORKLOAD, measured, typical_study

PUBLISHED = [
    PublishedResult("Flux_1", "allocations", 1407620.0, "", "GTX 1080", "a journal"),
    PublishedResult("Flux_1", "speed", (8.0, 9.5), "times", "GTX 1080", "a journal"),
    PublishedResult("torch", "time", 0.828756, "s", "", "a blog"),
]
STUDY = msgspec.structs.replace(typical_study(), published=PUBLISHED, title="A\nstudy")


CUDA = measured("tf/cuda", 0.01, gpu_speedup=Comparison("tf/cpu", 12.5, None))


def published_cuda(**fields: Any) -> PublishedResult:
    """Create a published epoch time of that configuration, changed by `fields`."""
    fields_of_cuda: dict[str, Any] = {
        "label": "theirs",
        "quantity": "time",
        "value": 1.0,
        "unit": "s",
        "hardware": "K80",
        "source": "a blog",
        "configuration": "tf/cuda",
        "items_per_epoch": 390 * 128,
    }
    return PublishedResult(**(fields_of_cuda | fields))


def block(published: list[PublishedResult], results: list[Result]) -> Table:
    """Build the block of published results below these measured ones."""
    found = published_results.table(published, published_results.from_study(results))
    assert found is not None
    return found


HUMAN_FORMATS = [name for name, row in FORMATS.items() if row.for_humans]
MACHINE_FORMATS = [name for name, row in FORMATS.items() if not row.for_humans]


@pytest.mark.parametrize("name", HUMAN_FORMATS)
def test_published_block_comes_last_and_only_on_request(name: str, columns: list[Metric]) -> None:
    text_without = render(STUDY, name, columns=columns)
    assert "published" not in text_without
    assert 0 <= text_without.index("A study") < text_without.index("lenet")
    text = render(STUDY, name, columns=columns, published=True)
    assert "published (not measured here)" in text, f"--format {name}: render the last table of Table.tables"
    block = text[text.index("published (not measured here)") :]
    for value in ("1,407,620", "8 to 9.5 times", "0.828756 s", "source: a journal", "source: a blog"):
        assert block.count(value) == 1
    for configuration in ("torch/cpu", "tf/cpu"):
        assert text.index(configuration) < text.index("published")


@pytest.mark.parametrize("name", MACHINE_FORMATS)
def test_machine_formats_ignore_the_request(name: str, columns: list[Metric]) -> None:
    assert render(STUDY, name, columns=columns) == render(STUDY, name, columns=columns, published=True)


@pytest.mark.parametrize("name", HUMAN_FORMATS)
def test_published_epoch_time_is_compared_with_the_same_configuration(name: str) -> None:
    own_value = typical_study().result("tf/cpu").epoch_seconds
    assert own_value is not None
    items = 390 * 128
    published_numbers = [
        PublishedResult("theirs", "time of 10 epochs", 20 * own_value, "s", "K80", "a blog", "tf/cpu", 10, items),
        PublishedResult(
            "theirs", "time per epoch", (own_value, 3 * own_value), "s", "P100", "a blog", "tf/cpu", 1, items
        ),
        PublishedResult("theirs", "time per epoch", 1.5, "s", "V100", "a blog", "tf/cuda"),  # failed in this study
        PublishedResult("theirs", "speedup", 3.0, "times", "V100", "a blog"),
    ]
    text = render(msgspec.structs.replace(typical_study(), published=published_numbers), name, published=True)
    k80, p100, v100, other = (line for line in text.splitlines() if "theirs" in line)
    assert f"tf/cpu {units.format_seconds(10 * own_value)}" in k80
    assert "2.00 times" in k80
    assert "1.00 to 3.00 times" in p100
    assert "tf/cuda" not in v100
    assert other.count("times") == 1


@pytest.mark.parametrize(
    ("metric", "fields", "format_own", "times"),
    [
        ("step_time", {"unit": "s"}, units.format_seconds, "times as long"),
        ("step_time", {"unit": "s", "steps": 153}, units.format_seconds, "times as long"),
        ("epoch_time", {"unit": "s", "epochs": 10}, units.format_seconds, "times as long"),
        ("throughput", {"unit": ""}, units.format_count, "times as many"),
        ("steps_per_second", {"unit": ""}, units.format_count, "times as many"),
        ("gpu_speedup", {"unit": "times"}, units.format_number, "times"),
    ],
)
def test_published_value_is_compared_with_the_same_metric(
    metric: PublishedMetric, fields: dict[str, Any], format_own: Callable[[float], str], times: str
) -> None:
    own_value = METRICS[metric].value(CUDA)  # an epoch here has as many items as the published one
    assert isinstance(own_value, float)
    amount = own_value * fields.get("steps", 1) * fields.get("epochs", 1)
    published = published_cuda(metric=metric, value=3 * amount, **fields)
    found = block([published], [CUDA])
    assert [column.title for column in found.columns[4:]] == ["measured here", "ratio"]
    assert found.rows[0][4:] == [f"tf/cuda {format_own(amount)}", f"3.00 {times}"]


@pytest.mark.parametrize(
    ("other", "reason"),
    [
        ({"model": "small-vgg"}, []),
        ({"batch_size": 64}, ["no ratio for tf/cuda: batch size 128 here, 64 in the publication"]),
        ({"augment": True}, ["no ratio for tf/cuda: images not augmented here, augmented in the publication"]),
    ],
)
def test_different_work_is_not_compared(other: dict[str, Any], reason: list[str]) -> None:
    same = {name: getattr(CUDA.workload, name) for name in other}
    assert len(block([published_cuda(**same)], [CUDA]).columns) == 6
    assert len(block([published_cuda(**other)], [CUDA]).columns) == 4
    assert block([published_cuda(**other), published_cuda()], [CUDA]).rows[0][4:] == ["", ""]
    assert block([published_cuda(**other)] * 2, [CUDA]).notes == ["source: a blog", *reason]
    scaled = "measured here: the time of 49,920 items, by the mean step"
    assert block([published_cuda(**same)], [CUDA]).notes == ["source: a blog", scaled]


def test_epochs_of_different_sizes_are_compared_per_item() -> None:
    small = measured("tf/cuda", 0.02, epoch_seconds=8 * 0.02)  # of 1,024 images
    published = published_cuda(value=39.0625, items_per_epoch=50_000)
    assert block([published], [small]).rows[0][4:] == ["tf/cuda 7.81 s", "5.00 times as long"]
    unknown = block([published_cuda(items_per_epoch=None)], [small])
    assert len(unknown.columns) == 4
    assert "no ratio for tf/cuda: the publication's items per epoch are unknown" in unknown.notes[1]


def trained(configuration: str, *accuracies: float, complete: bool = True) -> Result:
    """Create a configuration with one training that reached these accuracies."""
    epochs = [TrainedEpoch(1.0, [1.0], 0.5, accuracy) for accuracy in accuracies]
    accuracy = accuracies[-1] if complete else None
    return measured(configuration, 0.01, accuracy=accuracy, trainings=[Training(0, epochs, complete)])


def test_published_accuracy_is_compared_with_all_configurations_after_equal_epochs() -> None:
    published = published_cuda(metric="accuracy", value=0.77, unit="", configuration=None, epochs=2)
    results = [trained("tf/cuda", 0.5, 0.7), trained("torch/cpu", 0.5, 0.8)]
    assert block([published], results).rows[0][4:] == ["2 configurations 0.700 to 0.800", "0.963 to 1.10 times as high"]
    one_epoch = block([published], [trained("tf/cuda", 0.5), trained("torch/cpu", 0.5, 0.8)])
    assert one_epoch.rows[0][4] == "1 configuration 0.800"
    reason = "no ratio for tf/cuda: accuracy after 1 epoch here, after 2 in the publication"
    assert one_epoch.notes == ["source: a blog", reason]
    with_configuration = msgspec.structs.replace(published, configuration="tf/cuda")
    assert block([with_configuration], results).rows[0][4:] == ["tf/cuda 0.700", "1.10 times as high"]
    assert block([published, with_configuration], results).notes == ["source: a blog"]


@pytest.mark.parametrize(
    ("own_value", "reason"),
    [
        (trained("tf/cuda", 0.5), "no ratio for tf/cuda: accuracy after 1 epoch here, after 2 in the publication"),
        (trained("tf/cuda", 0.5, 0.7, complete=False), None),
        (CUDA, None),
    ],
)
def test_accuracy_after_different_epochs_has_no_ratio(own_value: Result, reason: str | None) -> None:
    published = published_cuda(metric="accuracy", value=0.77, unit="", configuration=None, epochs=2)
    found = block([published], [own_value])
    assert len(found.columns) == 4
    assert found.notes == ["source: a blog", *([reason] if reason else [])]


def test_published_value_is_compared_with_the_fastest_matching_point_of_a_sweep() -> None:
    def point(batch_size: int, seconds: float, **changes: Any) -> SweepPoint:
        workload = msgspec.structs.replace(WORKLOAD, batch_size=batch_size, **changes)
        configuration = PointResult("tf/cuda", "ok", None, seconds, batch_size / seconds, 1.0)
        return SweepPoint({"batch_size": batch_size}, "x", False, [configuration], workload)

    points = [point(64, 0.1), point(128, 0.2), point(128, 0.1), point(128, 0.01, model="resnet32")]
    published = published_cuda(metric="throughput", value=2560.0, unit="", model="lenet", batch_size=128)

    def sweep_block(published: PublishedResult, *points: SweepPoint) -> Table:
        found = published_results.table([published], published_results.from_sweep(points))
        assert found is not None
        return found

    assert sweep_block(published, *points).rows[0][4:] == ["tf/cuda 1,280", "2.00 times as many"]
    configuration = msgspec.structs.replace(points[2].configurations[0], step_seconds=40 / 390)
    epochs = published_cuda(metric="epoch_time", value=80.0, unit="s", model="lenet", batch_size=128)
    found = sweep_block(epochs, msgspec.structs.replace(points[2], configurations=[configuration]))
    assert found.rows[0][4] == "tf/cuda 40.0 s"
    failed = msgspec.structs.replace(points[2], configurations=[PointResult("tf/cuda", "failed")])
    without_workload = [msgspec.structs.replace(one, workload=None) for one in points]
    for others in ([failed], without_workload):
        assert len(sweep_block(published, *others).columns) == 4


@pytest.mark.parametrize(("metric", "title"), [("steps_per_second", "steps/s"), ("epoch_time", "epoch time")])
def test_compared_metric_is_a_column(metric: PublishedMetric, title: str) -> None:
    published = published_cuda(configuration="tf/cpu", metric=metric)
    document = msgspec.structs.replace(typical_study(), published=[published])
    assert title in render(document, "markdown", published=True)
    assert title not in render(document, "markdown")
