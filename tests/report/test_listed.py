"""Filters: each wants what it says."""

from __future__ import annotations

import pytest

from polybench.core.document.study import to_json
from polybench.report.listed import Filters, Listed, listed, seconds_of
from tests.factories import absent, measured, study

STUDY = study(
    measured("torch+compile/cpu", 0.01, versions={"torch": "2.13.0+cpu", "build": {"MKL": "2024"}}),
    measured("flux/cuda:1", 0.02, versions={"Flux": "0.16.10", "julia": "1.10.8"}),
    absent("tf/cpu", "unavailable", "not installed"),
)


def made() -> Listed:
    return listed("x", to_json(STUDY), 0.0)


@pytest.mark.parametrize(
    "wanted",
    [
        Filters(),
        Filters(engine="torch"),
        Filters(engine="torch+compile"),
        Filters(engine="t*", device="cpu"),
        Filters(engine="flux", device="cuda*"),
        Filters(model="lenet", host="host"),
        Filters(since=seconds_of("2025-01-01"), until=seconds_of("2025-01-01T00:00:01")),
        Filters(versions=[("torch", "2.13")]),
        Filters(versions=[("torch", "2")]),
        Filters(versions=[("Torch", "2.13.0")]),
        Filters(versions=[("torch", "2.13.0+cpu")]),
        Filters(versions=[("flux", "0.16.10"), ("julia", "1.10")]),
    ],
)
def test_it_is_wanted(wanted: Filters) -> None:
    assert wanted.has(made())


@pytest.mark.parametrize(
    "other",
    [
        Filters(engine="jax"),
        Filters(engine="torch+channels_last"),
        Filters(engine="flux", device="cpu"),  # there is one of each, and no cell is both
        Filters(model="lene"),
        Filters(host="elsewhere"),
        Filters(since=seconds_of("2025-01-01T00:00:01")),
        Filters(until=seconds_of("2025-01-01T00:00:00")),
        Filters(versions=[("torch", "2.1")]),
        Filters(versions=[("MKL", "2024")]),
        Filters(versions=[("torch", "2.13"), ("julia", "1.10")]),
    ],
)
def test_it_is_not_wanted(other: Filters) -> None:
    assert not other.has(made())


def test_one_that_cannot_be_read_is_wanted_by_who_wants_all() -> None:
    found = listed("x", b"{", 3.0)
    assert found.when == 3.0
    assert found.unreadable
    assert Filters().has(found)
    assert not Filters(since=0.0).has(found)


@pytest.mark.parametrize("created", ["", "yesterday", "9999-12-31T23:59:59-23:59", "\x1b"])
def test_a_time_that_is_none_is_that_of_the_file(created: str) -> None:
    document = study(measured("torch/cpu", 0.01))
    document.created = created
    found = listed("x", to_json(document), 7.0)
    assert found.created == created
    assert found.when == 7.0 or created.startswith("9999")
