"""What polybench says about studies of simulated machines stays the same, in every number and sentence."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any

import pytest

from tests.golden.reports import FILE, SCENARIOS, report

SAVED = json.loads(FILE.read_text("utf-8"))


def test_each_scenario_has_a_report() -> None:
    assert list(SAVED) == list(SCENARIOS)


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_report_has_not_changed(name: str) -> None:
    found, saved = dict(leaves(report(name))), dict(leaves(SAVED[name]))
    moved = {
        place: (saved.get(place), found.get(place))
        for place in saved | found
        if not is_same(saved.get(place), found.get(place))
    }
    assert not moved, "if on purpose: python -m tests.golden"


def leaves(value: Any, place: str = "") -> Iterator[tuple[str, Any]]:
    """Iterate over the places of a report with their values."""
    if isinstance(value, dict | list):
        for key, part in value.items() if isinstance(value, dict) else enumerate(value):
            yield from leaves(part, f"{place}/{key}")
    else:
        yield place, value


def is_same(saved: Any, found: Any) -> bool:
    """Compare values; processors round the last digits differently."""
    if isinstance(saved, float) and isinstance(found, float):
        return math.isclose(saved, found, rel_tol=1e-7)
    return bool(saved == found)
