"""Tests of filters of saved studies."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest

from polybench.errors import BadInput
from polybench.log import Header, encode_line
from polybench.results.repetitions import _repetitions
from polybench.results.summaries import StudySummary, parse_time, summarize
from polybench.schema.documents import kind_of_id
from polybench.schema.parity import ParityCheck
from polybench.schema.study import to_json
from polybench.storage.filters import Filters, filters_from_text
from polybench.storage.log_summary import summarize_file
from polybench.storage.store import Store, load_document
from tests.factories import measured, study, unmeasured
from tests.gallery import GALLERY
from tests.log_of import events_of, save_document

STUDY = study(
    measured("torch+compile/cpu", 0.01, versions={"torch": "2.13.0+cpu", "build": {"MKL": "2024"}}),
    measured("flux/cuda:1", 0.02, versions={"Flux": "0.16.10", "julia": "1.10.8"}),
    unmeasured("tf/cpu", "unavailable", "not installed"),
)


def summary() -> StudySummary:
    return summarize(STUDY)


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


def test_unreadable_study_matches_only_without_filters(tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_bytes(b"{\n")
    os.utime(tmp_path / "x.jsonl", (3, 3))
    found = summarize_file(tmp_path / "x.jsonl")
    assert found.started_at == 3.0
    assert found.unreadable_reason
    assert Filters().matches(found)
    assert not Filters(since=0.0).matches(found)


@pytest.mark.parametrize("created", ["", "yesterday", "9999-12-31T23:59:59-23:59", "\x1b"])
def test_invalid_start_time_is_replaced_by_the_file_time(created: str, tmp_path: Path) -> None:
    header, *events = events_of(study(measured("torch/cpu", 0.01)))
    assert isinstance(header, Header)
    path = tmp_path / f"{header.id}.jsonl"
    path.write_bytes(b"".join(map(encode_line, [msgspec.structs.replace(header, created=created), *events])))
    os.utime(path, (7, 7))
    found = summarize_file(path)
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
    one, two = summarize(document).configurations
    assert (one.ended.processes, two.ended.processes) == (1, 2)
    assert [*_repetitions(summarize(document))] == ["tf/cpu"]


LOGS = [path for path in Store(GALLERY / "measured").logs() if kind_of_id(path.stem) == "study"]


@pytest.mark.parametrize("path", LOGS, ids=lambda path: path.stem)
def test_the_first_and_the_last_lines_of_a_log_say_the_same_as_its_report(path: Path) -> None:
    store = Store(path.parent)
    assert summarize_file(path) == summarize(store.load(path.stem))


def test_a_study_without_an_end_has_its_settings_and_no_step_times(tmp_path: Path) -> None:
    *events, end = events_of(STUDY)
    path = Store(tmp_path).log_path(STUDY.id)
    path.write_bytes(b"".join(map(encode_line, events)))
    found = summarize_file(path)
    assert (found.model, found.finished, found.is_resumable, found.fastest) == ("lenet", False, True, None)
    assert [one.configuration for one in found.configurations] == [one.configuration for one in STUDY.results]
    assert not any(one.is_measured for one in found.configurations)
    path.write_bytes(b"".join(map(encode_line, [*events, end])))
    assert not summarize_file(path).is_resumable
    path.write_bytes(encode_line(events[0]))  # killed before its settings were known
    found = summarize_file(path)
    assert (found.id, found.model, found.is_resumable) == (STUDY.id, "", True)


def test_fastest_configuration_is_ranked() -> None:
    document = study(
        measured("torch/cpu", 0.02),
        measured("tf/cpu", 0.01, status="failed"),
        measured("jax/cpu", 0.01, parity=ParityCheck("fail", "another loss")),
        measured("flux+gc_off/cpu", 0.01, caveat="step times leave out garbage collection"),
    )
    found = summarize(document)
    assert found.fastest is not None
    assert found.fastest.configuration == "torch/cpu"


def test_saved_changed_and_removed_studies_are_noticed(tmp_path: Path) -> None:
    store = Store(tmp_path / "results")
    assert store.summaries() == []
    for day, id in enumerate(("b", "a", "c"), start=1):
        save_document(store, msgspec.structs.replace(STUDY, id=id, created=f"2026-01-{day:02d}T00:00:00Z"))
    assert [one.id for one in store.summaries()] == ["b", "a", "c"]  # by start time
    store.log_path("a").unlink()
    text = store.log_path("c").read_text()
    store.log_path("c").write_text(text.replace('"model":"lenet"', '"model":"LENET"', 1))
    assert [(one.file, one.model) for one in store.summaries()] == [("b", "lenet"), ("c", "LENET")]


def test_names_that_are_not_utf8_and_dangling_links_are_listed(tmp_path: Path) -> None:
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff.jsonl")).write_text("{}")
    (tmp_path / "link.jsonl").symlink_to("nowhere")
    (tmp_path / "folder.jsonl").mkdir()
    found = {one.file: one.unreadable_reason for one in Store(tmp_path).summaries()}
    assert found["\\udcff"]
    assert "directory" in str(found["folder"])
    assert "No such file" in str(found["link"])


def test_hidden_files_and_other_documents_are_not_listed(tmp_path: Path) -> None:
    for name in (".settings.jsonl", "package.json", ".20250101-000000-abcd.json"):
        (tmp_path / name).write_text("{}")
    assert Store(tmp_path).summaries() == []


def test_studies_of_an_unreleased_version_are_listed_and_refused(tmp_path: Path) -> None:
    store, old = Store(tmp_path), tmp_path / "20250101-000000-abcd.json"
    old.write_bytes(to_json(STUDY))
    (summary,) = store.summaries()
    assert (summary.file, summary.unreadable_reason) == (old.stem, "an unreleased version wrote it; measure again")
    for name in (old.stem, "2025", "last", str(old)):
        with pytest.raises(BadInput, match=r"abcd\.json was written by an unreleased version; measure again"):
            store.load(name)
    save_document(store, STUDY)
    assert store.load(old.stem).id == STUDY.id  # its log
    report = tmp_path / "report.json"
    report.write_bytes(to_json(STUDY))
    for load in (store.load, lambda name: load_document(name, store)):
        with pytest.raises(BadInput, match=r"report\.json is a report: give the ID of its study, or the path of its"):
            load(str(report))
