"""The index of saved studies: always what the documents say, whatever happens to it."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from unittest.mock import patch

import msgspec
import pytest

from polybench.core.document.study import to_json
from polybench.report import study_index
from polybench.report.listed import Listed, listed
from polybench.report.saved_studies import Store
from polybench.report.study_index import StudyIndex
from tests.factories import measured, study

SAVE_FOR_EVER = """
import sys
from pathlib import Path
import msgspec
from polybench.report.saved_studies import Store
from tests.factories import measured, study
store = Store(Path(sys.argv[1]))
document = study(measured("torch/cpu", 0.01))
print("ready", flush=True)
for number in range(10_000):
    document.id = f"{number:06d}"
    store.save(document)
    store.listed()
"""


def save(folder: Path, *ids: str) -> None:
    for number, id in enumerate(ids):
        created = f"2026-01-{number + 1:02d}T00:00:00Z"
        Store(folder).save(
            msgspec.structs.replace(study(measured("torch/cpu", 0.01)), id=id, created=created)
        )


def ids(index: StudyIndex) -> list[str]:
    return [one.id for one in index.studies()]


def as_read(folder: Path) -> list[Listed]:
    """Without any index."""
    paths = sorted(folder.glob("*.json"))
    found = [listed(path.stem, path.read_bytes(), path.stat().st_mtime) for path in paths]
    return sorted(found, key=lambda one: (one.when, one.file))


@pytest.fixture
def index(tmp_path: Path) -> StudyIndex:
    save(tmp_path / "results", "b", "a", "c")
    return StudyIndex(tmp_path / "results", tmp_path / "cache")


def test_what_was_saved_changed_or_removed_is_seen(index: StudyIndex, tmp_path: Path) -> None:
    assert ids(index) == ["b", "a", "c"]  # by the time at which they began
    folder = tmp_path / "results"
    (folder / "a.json").unlink()
    (folder / "d.json").write_text("{}")
    text = (folder / "c.json").read_text()
    (folder / "c.json").write_text(text.replace('"lenet"', '"LENET"'))
    assert index.studies() == as_read(folder)
    assert [(one.file, one.model) for one in index.studies()][:2] == [("b", "lenet"), ("c", "LENET")]


def test_only_what_changed_is_read_again(index: StudyIndex, tmp_path: Path) -> None:
    index.studies()
    save(tmp_path / "results", "e")
    with patch.object(study_index, "listed", wraps=listed) as reading:
        index.studies()
        index.studies()
    assert [call.args[0] for call in reading.call_args_list] == ["e"]


def test_one_that_is_lost_is_made_anew(index: StudyIndex) -> None:
    known = index.studies()
    index.path.unlink()
    assert index.studies() == known
    assert index.path.exists()


@pytest.mark.parametrize("seed", range(12))
def test_one_that_is_damaged_is_made_anew(index: StudyIndex, seed: int) -> None:
    known = index.studies()
    with closing(sqlite3.connect(index.path)) as database, database:
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    draw = random.Random(seed)
    content = bytearray(index.path.read_bytes())
    start = draw.randrange(len(content)) if seed else 0
    for place in range(start, min(start + 4000, len(content))):
        content[place] = draw.randrange(256)
    index.path.write_bytes(content[: -draw.randrange(1, 5000)] if seed % 2 else content)
    assert index.studies() == known
    with patch.object(study_index, "listed", wraps=listed) as reading:
        assert index.studies() == known
    assert not reading.called  # the new one serves


def test_a_row_of_which_one_letter_changed_is_damage(index: StudyIndex) -> None:
    known = index.studies()
    with closing(sqlite3.connect(index.path)) as database, database:
        changed = "CAST(replace(CAST(listed AS TEXT), 'lenet', 'tenet') AS BLOB)"
        database.execute(f"UPDATE studies SET listed = {changed}")
    assert index.studies() == known


def test_that_of_another_version_is_made_anew(index: StudyIndex) -> None:
    known = index.studies()
    with closing(sqlite3.connect(index.path)) as database, database:
        database.execute("PRAGMA user_version=7")
        database.execute("DROP TABLE studies")
        database.execute("CREATE TABLE studies (other)")
    assert index.studies() == known


def test_without_a_place_for_it_the_documents_are_read(tmp_path: Path) -> None:
    save(tmp_path / "results", "a")
    (tmp_path / "cache").write_text("no folder")
    index = StudyIndex(tmp_path / "results", tmp_path / "cache")
    assert ids(index) == ["a"]
    assert not index.path.exists()


def test_where_another_process_writes_for_long_the_documents_are_read(
    index: StudyIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    index.studies()
    monkeypatch.setattr(study_index, "_PATIENCE", 0.01)
    save(index._folder, "d")
    other = sqlite3.connect(index.path)
    other.execute("BEGIN IMMEDIATE")
    assert "d" in ids(index)
    other.close()
    assert index.path.exists()


def test_names_that_are_no_text_and_links_to_nothing_are_listed(index: StudyIndex) -> None:
    Path(os.fsdecode(os.fsencode(index._folder) + b"/\xff.json")).write_text("{}")
    (index._folder / "link.json").symlink_to("nowhere")
    (index._folder / "folder.json").mkdir()
    found = {one.file: one.unreadable for one in index.studies()}
    assert found["\\udcff"]
    assert "directory" in str(found["folder"])
    assert "No such file" in str(found["link"])


def test_several_processes_at_once_see_all(index: StudyIndex) -> None:
    program = "import sys; from pathlib import Path; from polybench.report.study_index import StudyIndex\n"
    program += "index = StudyIndex(Path(sys.argv[1]), Path(sys.argv[2]))\n"
    program += "print({len(index.studies()) for _ in range(30)})"
    command = [sys.executable, "-c", program, str(index._folder), str(index.path.parent)]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    assert [process.communicate()[0] for process in running] == ["{3}\n"] * 3


def test_killed_at_any_moment_every_study_is_whole_and_listed(tmp_path: Path, own_folders: Path) -> None:
    folder = tmp_path / "results"
    for number in range(3):
        command = [sys.executable, "-c", SAVE_FOR_EVER, str(folder)]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            process.stdout.readline()
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(0.05 + 0.03 * number)
            process.send_signal(signal.SIGKILL)
        found = Store(folder).listed()
        assert found == as_read(folder)
        assert found
        assert [one.unreadable for one in found] == [None] * len(found)


def test_a_document_of_the_first_version_is_listed() -> None:
    text = (Path(__file__).parents[1] / "golden" / "first.json").read_bytes()
    found = listed("first", text, 0.0)
    assert (found.unreadable, found.finished, found.fastest and found.fastest.cell) == (
        None,
        None,
        "fake/cpu",
    )


def test_a_row_that_is_not_ranked_is_not_the_fastest() -> None:
    document = study(measured("torch/cpu", 0.02), measured("tf/cpu", 0.01, status="failed"))
    found = listed("x", to_json(document), 0.0)
    assert found.fastest is not None
    assert found.fastest.cell == "torch/cpu"
