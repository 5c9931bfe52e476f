from __future__ import annotations

import msgspec
import pytest

from polybench.core import units
from polybench.core.document.circumstances import Published
from polybench.core.document.study import from_json
from polybench.export import FORMATS
from polybench.export.rendering import rendered
from polybench.metrics.base import Metric
from tests.factories import typical_study

PUBLISHED = [
    Published("Flux_1", "allocations", 1407620.0, "", "GTX 1080", "a journal"),
    Published("Flux_1", "speed", (8.0, 9.5), "times", "GTX 1080", "a journal"),
    Published("torch", "time", 0.828756, "s", "", "a blog"),
]
STUDY = msgspec.structs.replace(typical_study(), published=PUBLISHED, title="A\nstudy")


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


def test_without_such_a_cell_the_block_has_the_authors_numbers_only(columns: list[Metric]) -> None:
    assert "ratio" not in rendered(STUDY, "markdown", columns, published=True)


def test_the_epoch_is_a_column_where_authors_timed_epochs() -> None:
    number = Published("theirs", "time an epoch", 1.0, "s", "K80", "a blog", "tf/cpu")
    document = msgspec.structs.replace(typical_study(), published=[number])
    assert "epoch time" in rendered(document, "markdown", published=True)
    assert "epoch time" not in rendered(document, "markdown")
