"""Tests that the index of saved studies always agrees with the documents."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from unittest.mock import patch

import msgspec
import pytest

from polybench.schema.parity import ParityCheck
from polybench.schema.study import to_json
from polybench.storage import study_index
from polybench.storage.store import Store
from polybench.storage.study_index import StudyIndex
from polybench.storage.summaries import StudySummary, summarize_document
from tests.factories import measured, study


def save(folder: Path, *ids: str) -> None:
    for number, id in enumerate(ids):
        created = f"2026-01-{number + 1:02d}T00:00:00Z"
        Store(folder).save(msgspec.structs.replace(study(measured("torch/cpu", 0.01)), id=id, created=created))


def ids(index: StudyIndex) -> list[str]:
    return [one.id for one in index.summaries()]


def read_without_index(folder: Path) -> list[StudySummary]:
    """Return summaries without an index."""
    paths = sorted(folder.glob("*.json"))
    found = [summarize_document(path.stem, path.read_bytes(), path.stat().st_mtime) for path in paths]
    return sorted(found, key=lambda one: (one.started_at, one.file))


@pytest.fixture
def index(tmp_path: Path) -> StudyIndex:
    save(tmp_path / "results", "b", "a", "c")
    return StudyIndex(tmp_path / "results", tmp_path / "cache")


def test_saved_changed_and_removed_studies_are_noticed(index: StudyIndex, tmp_path: Path) -> None:
    assert ids(index) == ["b", "a", "c"]  # by start time
    folder = tmp_path / "results"
    (folder / "a.json").unlink()
    (folder / "d.json").write_text("{}")
    text = (folder / "c.json").read_text()
    (folder / "c.json").write_text(text.replace('"lenet"', '"LENET"'))
    assert index.summaries() == read_without_index(folder)
    assert [(one.file, one.model) for one in index.summaries()][:2] == [("b", "lenet"), ("c", "LENET")]


def test_only_changed_studies_are_read_again(index: StudyIndex, tmp_path: Path) -> None:
    index.summaries()
    save(tmp_path / "results", "e")
    with patch.object(study_index, "summarize_document", wraps=summarize_document) as summarize:
        index.summaries()
        index.summaries()
        assert [call.args[0] for call in summarize.call_args_list] == ["e"]
        save(tmp_path / "results", "e")
        index.summaries()
        index.summaries()
        assert [call.args[0] for call in summarize.call_args_list] == ["e", "e"]


def other_version(path: Path) -> None:
    with patch.object(study_index, "__version__", "1.0.0"):
        StudyIndex(path.parents[1] / "results", path.parent).summaries()


@pytest.mark.parametrize(
    "damage",
    [
        Path.unlink,
        other_version,
        lambda path: path.write_bytes(b""),
        lambda path: path.write_bytes(path.read_bytes()[:-50]),
        lambda path: path.write_bytes(path.read_bytes().replace(b"lenet", b"tenet", 1)),
    ],
    ids=["lost", "other version", "empty", "truncated", "one letter"],
)
def test_damaged_index_is_rebuilt(index: StudyIndex, damage: Callable[[Path], object]) -> None:
    expected = index.summaries()
    damage(index.path)
    assert index.summaries() == expected
    with patch.object(study_index, "summarize_document", wraps=summarize_document) as summarize:
        assert index.summaries() == expected
    assert not summarize.called  # the new index is used


def test_an_index_of_another_version_is_not_used(index: StudyIndex) -> None:
    index.summaries()
    other_version(index.path)
    with patch.object(study_index, "summarize_document", wraps=summarize_document) as summarize:
        index.summaries()
    assert summarize.call_count == 3


def test_documents_are_read_if_there_cannot_be_an_index(tmp_path: Path) -> None:
    save(tmp_path / "results", "a")
    (tmp_path / "cache").write_text("not a folder")
    index = StudyIndex(tmp_path / "results", tmp_path / "cache")
    assert ids(index) == ["a"]
    assert not index.path.exists()


def test_names_that_are_not_utf8_and_dangling_links_are_listed(index: StudyIndex) -> None:
    Path(os.fsdecode(os.fsencode(index._folder) + b"/\xff.json")).write_text("{}")
    (index._folder / "link.json").symlink_to("nowhere")
    (index._folder / "folder.json").mkdir()
    found = {one.file: one.unreadable_reason for one in index.summaries()}
    assert found["\\udcff"]
    assert "directory" in str(found["folder"])
    assert "No such file" in str(found["link"])


def test_hidden_files_are_not_listed(index: StudyIndex) -> None:
    before = ids(index)
    (index._folder / ".settings.json").write_text("{}")
    assert ids(index) == before


def test_concurrent_processes_see_all_studies(index: StudyIndex) -> None:
    program = "import sys; from pathlib import Path; from polybench.storage.study_index import StudyIndex\n"
    program += "index = StudyIndex(Path(sys.argv[1]), Path(sys.argv[2]))\n"
    program += "print({len(index.summaries()) for _ in range(30)})"
    command = [sys.executable, "-c", program, str(index._folder), str(index.path.parent)]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    assert [process.communicate()[0] for process in running] == ["{3}\n"] * 3


def test_fastest_configuration_is_ranked() -> None:
    document = study(
        measured("torch/cpu", 0.02),
        measured("tf/cpu", 0.01, status="failed"),
        measured("jax/cpu", 0.01, parity=ParityCheck("fail", "another loss")),
        measured("flux+gc_off/cpu", 0.01, caveat="step times leave out garbage collection"),
    )
    found = summarize_document(document.id, to_json(document), 0.0)
    assert found.fastest is not None
    assert found.fastest.configuration == "torch/cpu"
