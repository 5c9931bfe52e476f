"""Tests of filters of saved studies."""

from __future__ import annotations

import msgspec
import pytest

from polybench.schema.study import to_json
from polybench.storage.summaries import Filters, StudySummary, filters_from_text, parse_time, summarize_document
from tests.factories import measured, study, unmeasured

STUDY = study(
    measured("torch+compile/cpu", 0.01, versions={"torch": "2.13.0+cpu", "build": {"MKL": "2024"}}),
    measured("flux/cuda:1", 0.02, versions={"Flux": "0.16.10", "julia": "1.10.8"}),
    unmeasured("tf/cpu", "unavailable", "not installed"),
)


def summary() -> StudySummary:
    return summarize_document(STUDY.id, to_json(STUDY), 0.0)


@pytest.mark.parametrize(
    "filters",
    [
        Filters(),
        Filters(engine="torch"),
        Filters(engine="torch+compile"),
        Filters(engine="t*", device="cpu"),
        Filters(engine="flux", device="cuda*"),
        Filters(model="lenet", host="host"),
        Filters(since=parse_time("2025-01-01"), until=parse_time("2025-01-01T00:00:01")),
        Filters(versions=[("torch", "2.13")]),
        Filters(versions=[("torch", "2")]),
        Filters(versions=[("Torch", "2.13.0")]),
        Filters(versions=[("torch", "2.13.0+cpu")]),
        Filters(versions=[("flux", "0.16.10"), ("julia", "1.10")]),
    ],
)
def test_matching_filters(filters: Filters) -> None:
    assert filters.matches(summary())


@pytest.mark.parametrize(
    "filters",
    [
        Filters(engine="jax"),
        Filters(engine="torch+channels_last"),
        Filters(engine="flux", device="cpu"),  # each matches a configuration, but no configuration matches both
        Filters(model="lene"),
        Filters(host="elsewhere"),
        Filters(since=parse_time("2025-01-01T00:00:01")),
        Filters(until=parse_time("2025-01-01T00:00:00")),
        Filters(versions=[("torch", "2.1")]),
        Filters(versions=[("MKL", "2024")]),
        Filters(versions=[("torch", "2.13"), ("julia", "1.10")]),
    ],
)
def test_filters_that_do_not_match(filters: Filters) -> None:
    assert not filters.matches(summary())


def test_unreadable_study_matches_only_without_filters() -> None:
    found = summarize_document("x", b"{", 3.0)
    assert found.started_at == 3.0
    assert found.unreadable_reason
    assert Filters().matches(found)
    assert not Filters(since=0.0).matches(found)


@pytest.mark.parametrize("created", ["", "yesterday", "9999-12-31T23:59:59-23:59", "\x1b"])
def test_invalid_start_time_is_replaced_by_the_file_time(created: str) -> None:
    document = study(measured("torch/cpu", 0.01))
    document.created = created
    found = summarize_document(document.id, to_json(document), 7.0)
    assert found.created == created
    assert found.started_at == 7.0 or created.startswith("9999")


def test_all_given_tags_must_match() -> None:
    tagged = msgspec.structs.replace(summary(), tags=["ci", "lr=0.1"])
    assert Filters(tags=["ci", "lr=*"]).matches(tagged)
    assert not Filters(tags=["ci", "nightly"]).matches(tagged)


def test_the_last_date_is_inclusive() -> None:
    day, time = (filters_from_text({"until": text}, (), ()) for text in ("2025-01-01", "2025-01-01T00:00:00"))
    assert day.matches(summary())
    assert not time.matches(summary())


def test_one_process_is_no_repetition() -> None:
    document = study(measured("torch/cpu", 0.01, processes=1), measured("tf/cpu", 0.01, processes=2))
    one, two = summarize_document(document.id, to_json(document), 0.0).configurations
    assert one.step is None
    assert two.step is not None
    assert two.step.processes == 2
