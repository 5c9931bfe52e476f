from __future__ import annotations

import msgspec
import pytest

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
