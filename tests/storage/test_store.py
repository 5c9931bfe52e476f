"""Tests that studies are saved atomically and found by ID, prefix or `last`."""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path

import msgspec
import pytest

from polybench.data.disk import atomic_write
from polybench.errors import BadInput
from polybench.log import read_log, read_outline
from polybench.machine import host
from polybench.results.document import derive
from polybench.runner.scratch import exclusive_lock
from polybench.schema.encoding import encode
from polybench.storage.filters import Filters
from polybench.storage.store import Store, load_document, results_folder, write_file_atomically
from tests.factories import layers, measured, points_over_threads, study
from tests.golden.logs import FOLDER
from tests.log_of import events_of, save_document, save_sweep


def test_saved_study_can_be_loaded_and_replaced(tmp_path: Path) -> None:
    store = Store(tmp_path)
    document = study()
    path = save_document(store, document)
    assert path.name == f"{document.id}.jsonl"
    assert store.load(document.id) == derive(events_of(document))
    assert store.load(document.id[:6]).id == store.load("last").id == store.load(str(path)).id == document.id
    document.warnings.append("later")
    save_document(store, document)
    assert store.load("last").warnings[-1] == "later"
    assert len(list(tmp_path.iterdir())) == 1  # no temporary file remains


def test_failed_write_preserves_the_old_document(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.json"
    write_file_atomically(path, b"old")

    def no_space(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", no_space)
    with pytest.raises(OSError, match="No space"):
        write_file_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_only_hidden_files_of_killed_writers_are_removed(tmp_path: Path) -> None:
    study = "20261122-101010-ab12.json"
    with contextlib.suppress(SystemExit), atomic_write(tmp_path / study):
        (temporary,) = tmp_path.iterdir()
        shutil.copy(temporary, tmp_path / "copy")
        raise SystemExit
    (tmp_path / "copy").rename(temporary)
    foreign = [".notes.json.swp", ".package.json.bak", f".{study}.swp", f".{study}.bak", f".x.json{temporary.suffix}"]
    for name in foreign:
        (tmp_path / name).touch()
    for path in tmp_path.iterdir():
        os.utime(path, (1, 1))
    Store(tmp_path).ensure_writable()
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(foreign)


def test_unwritable_folder_is_bad_input_before_measuring(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(BadInput, match="--no-save"):
        Store(tmp_path / "file" / "results").ensure_writable()


def test_names_that_match_no_study_or_several_are_bad_input(tmp_path: Path) -> None:
    for name in ("20260101-a", "20260101-b"):
        (tmp_path / f"{name}.jsonl").write_text("{}\n")
    store = Store(tmp_path)
    with pytest.raises(BadInput, match="ambiguous ID '20260101': 2 studies begin with it"):
        store.load("20260101")
    with pytest.raises(BadInput, match="no study 'x'"):
        store.load("x")
    with pytest.raises(BadInput, match=r"cannot read .*jsonl: line 1"):
        store.load("last")


def test_layers_are_saved_beside_the_studies(tmp_path: Path) -> None:
    store, document = Store(tmp_path), study(measured("torch/cpu", 0.01))
    save_document(store, document)
    old = layers(document, {"torch/cpu": 0.01}, {"torch/cpu": {("dense3", "forward"): 0.002}})
    new = msgspec.structs.replace(old, id="layers-20250104-000000-abcd")
    for one in (new, old):
        save_document(store, one)
    (tmp_path / "layers-20250105-broken.jsonl").write_text('{"schema": ')
    assert [one.id for one in store.others("layers")] == [new.id, old.id]
    assert list(store.studies()) == [derive(events_of(document))]
    assert store.load("last") == derive(events_of(document))
    (row,) = load_document("layers-20250103", store).configurations[0].rows
    assert (row.layer, row.operation, row.seconds_per_step) == ("dense3", "forward", pytest.approx(0.002))
    with pytest.raises(BadInput, match="is a layers document, not a study"):
        store.load(old.id)


def test_documents_of_the_old_form_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "layers.json"
    path.write_bytes(encode(msgspec.structs.replace(layers(study(), {}, {}), id="20250104-000000-abcd")))
    for load in (Store(tmp_path).load, lambda name: load_document(name, Store(tmp_path))):
        with pytest.raises(BadInput, match=r"layers.json was written by an unreleased version; measure again"):
            load(str(path))


def test_results_folder_comes_from_argument_environment_or_user(
    tmp_path: Path, own_folders: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert results_folder(tmp_path) == tmp_path
    assert results_folder() == own_folders / "results"
    monkeypatch.delenv("POLYBENCH_RESULTS")
    assert results_folder().name == "results"


def test_concurrent_studies_are_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    with exclusive_lock() as first:
        assert first
        with exclusive_lock() as second:
            assert not second
        with monkeypatch.context() as patched:
            patched.setattr(host, "boot_id", lambda: "another")  # a machine with the same home folder
            with exclusive_lock() as alone:
                assert alone
    with exclusive_lock() as third:
        assert third


def test_last_is_the_study_that_started_last(tmp_path: Path) -> None:
    store = Store(tmp_path)
    start_times = {"b": "2026-01-03T00:00:00+02:00", "z": "2026-01-01", "a": "2026-01-02T23:00:00Z"}
    for name, created in start_times.items():
        save_document(store, msgspec.structs.replace(study(), id=name, created=created))
    assert store.load("last").id == "a"
    assert [one.id for one in store.studies()] == ["a", "b", "z"]


def test_only_matching_studies_are_read(tmp_path: Path) -> None:
    store = Store(tmp_path)
    save_document(store, study(measured("torch/cpu", 0.01)))
    save_document(store, msgspec.structs.replace(study(measured("tf/cpu", 0.01)), id="other"))
    assert [one.id for one in store.studies(Filters(engine="tf"))] == ["other"]


def test_an_id_may_begin_another_one(tmp_path: Path) -> None:
    store = Store(tmp_path)
    for name in ("20260101-a", "20260101-ab"):
        save_document(store, msgspec.structs.replace(study(), id=name))
    assert store.load("20260101-a").id == "20260101-a"


def test_the_last_sweep_is_the_newest(tmp_path: Path) -> None:
    store = Store(tmp_path)
    for name in ("sweep-20260102-a", "sweep-20260103-a", "sweep-20260101-a", "overhead-20260104-a"):
        axis = "threads" if name.startswith("sweep") else "batch_size"
        save_sweep(store, name, [({axis: values["threads"]}, one) for values, one in points_over_threads()])
    assert store.load_other("sweep-last", "sweep").id == "sweep-20260103-a"
    assert store.load_other("overhead-last", "overhead").id == "overhead-20260104-a"
    assert [one.id for one in store.others("sweep")] == ["sweep-20260103-a", "sweep-20260102-a", "sweep-20260101-a"]
    assert [path.stem for path in store.logs()][-1] == "overhead-20260104-a"


def test_the_log_of_a_sweep_has_the_studies_of_its_points(tmp_path: Path) -> None:
    store, id = Store(tmp_path), "sweep-20260102-000000-abcd"
    path = save_sweep(store, id, points_over_threads(), title="Threads", tags=["ci"])
    sweep = store.load_other(id, "sweep")
    assert (sweep.id, sweep.title, sweep.tags, sweep.axes) == (id, "Threads", ["ci"], {"threads": [1, 2, 4]})
    assert [(point.id, point.parameters, point.oversubscribed) for point in sweep.points] == [
        (f"{id}.0", {"threads": 1}, False), (f"{id}.1", {"threads": 2}, False), (f"{id}.2", {"threads": 4}, True),
    ]  # fmt: skip
    assert [one.items_per_second for point in sweep.points for one in point.configurations] == pytest.approx(
        [100, 180, 190], rel=1e-3
    )
    study = store.load(f"{id}.1")
    assert (study.id, study.title, study.tags, study.settings.threads) == (f"{id}.1", None, ["ci"], 2)
    assert study == store.load("sweep-20260102.1")
    assert [one.id for one in store.summaries()] == [f"{id}.0", f"{id}.1", f"{id}.2"]
    for name, message in {
        id: "is a sweep, not a study; use polybench show, report or plot",
        str(path): "is a sweep, not a study",
        f"{id}.3": "no point 3 in .*: the points that have started are 0, 1, 2",
        "sweep-20270101.0": "is a sweep, not a study|no study",
    }.items():
        with pytest.raises(BadInput, match=message):
            store.load(name)
    with pytest.raises(BadInput, match="is the log of a sweep"):
        store.load_other(str(path), "overhead")
    (tmp_path / "elsewhere").mkdir()
    copy = tmp_path / "elsewhere" / "copy.jsonl"
    copy.write_bytes(store.log_of(f"{id}.1"))
    assert store.load(str(copy)) == study
    copy.write_bytes(store.log_of(id, "sweep"))
    assert load_document(str(copy), store) == sweep


def test_an_event_of_no_point_is_refused_with_its_line(tmp_path: Path) -> None:
    store, id = Store(tmp_path), "sweep-20260102-000000-abcd"
    path = save_sweep(store, id, points_over_threads())
    text, whole = path.read_bytes(), store.load_other(id, "sweep")
    for wrong in (b'"point":3', b'"point":99999999999', b'"other":1'):
        path.write_bytes(text.replace(b'"point":2', wrong))
        with pytest.raises(BadInput, match=r": line \d+: "):
            store.load_other(id, "sweep")
    path.write_bytes(text.replace(f'"id":"{id}"'.encode(), b'"id":"20260102-000000-abcd"', 1))
    with pytest.raises(BadInput, match=r"line 1: .*the ID of this sweep is '20260102-000000-abcd'"):
        store.load_other(id, "sweep")
    path.write_bytes(text + b"{}\n")
    with pytest.raises(BadInput, match=r": line \d+: "):
        store.load_other(id, "sweep")
    assert store.load_other(id, "sweep", salvage=True) == whole


@pytest.fixture
def logged(tmp_path: Path) -> Store:
    """Return a store with the recorded log of a study."""
    id = read_outline(FOLDER / "bursts.jsonl").header.id
    shutil.copy(FOLDER / "bursts.jsonl", tmp_path / f"{id}.jsonl")
    return Store(tmp_path)


def test_a_log_is_loaded_listed_and_found_like_a_document(logged: Store) -> None:
    (summary,) = logged.summaries()
    log = logged.folder / f"{summary.file}.jsonl"
    document = logged.load("last")
    assert (summary.id, summary.finished, summary.unreadable_reason) == (document.id, True, None)
    assert [one.configuration for one in summary.configurations] == ["torch/cpu", "tf/cpu"]
    assert document == derive(read_log(log)) == logged.load(str(log)) == logged.load(summary.file[:12])
    assert [one.id for one in logged.studies()] == [document.id]
    with pytest.raises(BadInput, match="it is the log of a study"):
        logged.load_other(str(log), "sweep")


def test_a_damaged_log_is_refused_with_the_line(logged: Store) -> None:
    (log,) = logged.logs()
    whole, text = logged.load("last"), log.read_bytes()
    log.write_bytes(text + b"{}\n")
    (summary,) = logged.summaries()
    assert (summary.unreadable_reason, summary.finished) == (None, False)  # the end is not the last line
    assert list(logged.studies()) == []
    with pytest.raises(BadInput, match=": line "):
        logged.load("last")
    assert logged.load("last", salvage=True) == whole
    log.write_bytes(text.replace(b'"event":"settings"', b'"event":"sittings"'))
    (summary,) = logged.summaries()
    assert ": line 3: " in str(summary.unreadable_reason)
    other = log.rename(log.with_name("20990101-000000-abcd.jsonl"))
    other.write_bytes(text)
    with pytest.raises(BadInput, match="expected the name of its file"):
        logged.load(other.stem)
