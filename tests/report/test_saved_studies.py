"""Saved studies: whole or not at all, found by ID, prefix or `last`."""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path

import msgspec
import pytest

from polybench.core.errors import BadInput
from polybench.data.disk import replacing
from polybench.machine import host
from polybench.measuring.scratch import only_study_here
from polybench.report.listed import Filters
from polybench.report.saved_studies import Store, results_folder, write_atomically
from tests.factories import layers, measured, study


def test_what_is_saved_can_be_loaded(tmp_path: Path) -> None:
    store = Store(tmp_path)
    document = study()
    path = store.save(document)
    assert path.name == f"{document.id}.json"
    assert store.load(document.id) == document
    assert store.load(document.id[:6]).id == store.load("last").id == store.load(str(path)).id == document.id


def test_saving_again_replaces_the_whole_document(tmp_path: Path) -> None:
    store = Store(tmp_path)
    document = study()
    store.save(document)
    document.warnings.append("later")
    store.save(document)
    assert store.load("last").warnings[-1] == "later"
    assert len(list(tmp_path.iterdir())) == 1  # no temporary file is left


def test_a_failed_write_leaves_the_old_document(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.json"
    write_atomically(path, b"old")

    def no_space(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", no_space)
    with pytest.raises(OSError, match="No space"):
        write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_of_old_hidden_files_only_those_of_killed_writers_go(tmp_path: Path) -> None:
    study = "20261122-101010-ab12.json"
    with contextlib.suppress(SystemExit), replacing(tmp_path / study):
        (left,) = tmp_path.iterdir()
        shutil.copy(left, tmp_path / "left")
        raise SystemExit
    (tmp_path / "left").rename(left)
    kept = [".notes.json.swp", ".package.json.bak", f".{study}.swp", f".{study}.bak", f".x.json{left.suffix}"]
    for name in kept:
        (tmp_path / name).touch()
    for path in tmp_path.iterdir():
        os.utime(path, (1, 1))
    Store(tmp_path).ensure_writable()
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(kept)


def test_an_unwritable_folder_is_bad_input_before_measuring(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(BadInput, match="--no-save"):
        Store(tmp_path / "file" / "results").ensure_writable()


def test_names_that_match_none_or_several_are_bad_input(tmp_path: Path) -> None:
    for name in ("20260101-a", "20260101-b"):
        (tmp_path / f"{name}.json").write_text("{}")
    store = Store(tmp_path)
    with pytest.raises(BadInput, match="beginning of 2 studies"):
        store.load("20260101")
    with pytest.raises(BadInput, match="no study 'x'"):
        store.load("x")
    with pytest.raises(BadInput, match="cannot read the study"):
        store.load("last")


def test_times_of_layers_are_kept_beside_the_studies(tmp_path: Path) -> None:
    store, document = Store(tmp_path), study()
    store.save(document)
    old = layers(document, {}, {})
    new = msgspec.structs.replace(old, id="20250104-000000-abcd")
    for one in (new, old):
        store.save(one)
    (tmp_path / "layers" / "20250105-broken.json").write_text('{"schema": ')
    assert [one.id for one in store.layers()] == [new.id, old.id]
    assert list(store.studies()) == [document]
    assert store.load("last") == document
    with pytest.raises(BadInput, match="are times of layers, not a study"):
        store.load(old.id)


def test_a_document_of_another_kind_is_named(tmp_path: Path) -> None:
    path = Store(tmp_path).save(layers(study(), {}, {}))
    with pytest.raises(BadInput, match=r"schema is 'polybench.layers/1', this version reads"):
        Store(tmp_path).load(str(path))


def test_where_studies_are_kept(tmp_path: Path, own_folders: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert results_folder(tmp_path) == tmp_path
    assert results_folder() == own_folders / "results"
    monkeypatch.delenv("POLYBENCH_RESULTS")
    assert results_folder().name == "results"


def test_two_studies_at_once_are_noticed() -> None:
    with only_study_here() as first:
        assert first
        with only_study_here() as second:
            assert not second
    with only_study_here() as third:
        assert third


def test_a_study_on_another_machine_that_has_the_same_folder_disturbs_nobody(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with only_study_here():
        monkeypatch.setattr(host, "boot_id", lambda: "another")
        with only_study_here() as alone:
            assert alone


def test_the_last_is_the_one_that_began_last_whatever_its_name(tmp_path: Path) -> None:
    store = Store(tmp_path)
    began = {"b": "2026-01-03T00:00:00+02:00", "z": "2026-01-01", "a": "2026-01-02T23:00:00Z"}
    for name, created in began.items():
        store.save(msgspec.structs.replace(study(), id=name, created=created))
    assert store.load("last").id == "a"
    assert [one.id for one in store.studies()] == ["a", "b", "z"]


def test_a_newer_schema_is_refused_with_what_to_do(tmp_path: Path) -> None:
    path = Store(tmp_path).save(study())
    path.write_text(path.read_text().replace("polybench.study/1", "polybench.study/2"))
    with pytest.raises(BadInput, match=r"'polybench.study/2', this .* pip install --upgrade polybench"):
        Store(tmp_path).load("last")
    assert "a newer polybench wrote it" in str(Store(tmp_path).listed()[0].unreadable)


def test_documents_of_the_first_version_are_read(tmp_path: Path) -> None:
    (tmp_path / "old.json").write_bytes((Path(__file__).parents[1] / "golden" / "first.json").read_bytes())
    document = Store(tmp_path).load("old")
    assert (document.finished, document.settings.heap, document.settings.pinned) == (None, "system", [])
    assert document.results[0].ranked


def test_only_wanted_studies_are_read(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.save(study(measured("torch/cpu", 0.01)))
    store.save(msgspec.structs.replace(study(measured("tf/cpu", 0.01)), id="other"))
    assert [one.id for one in store.studies(Filters(engine="tf"))] == ["other"]
