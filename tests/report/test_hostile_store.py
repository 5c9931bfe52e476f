"""Whatever lies in the results folder: what is no study is unreadable, and nothing waits for it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import msgspec
import pytest
from typer.testing import CliRunner

from polybench.cli import app
from polybench.core.document.study import to_json
from polybench.core.errors import BadInput
from polybench.data.disk import regular_bytes
from polybench.report.saved_studies import Store
from tests.factories import measured, study


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """A study, and beside it what hangs, fills the memory, or breaks those who read it."""
    store = Store(tmp_path)
    store.save(study())
    os.mkfifo(tmp_path / "a-pipe.json")
    (tmp_path / "endless.json").symlink_to("/dev/zero")
    (tmp_path / "nowhere.json").symlink_to(tmp_path / "none")
    (tmp_path / "folder.json").mkdir()
    (tmp_path / "deep.json").write_text("[" * 1_000_000)
    (tmp_path / "deep_inside.json").write_text('{"schema": "polybench.study/1", "x": ' + '{"a":' * 1_000_000)
    (tmp_path / "infinite.json").write_text('{"schema": 1e999}')
    (tmp_path / "no_text.json").write_bytes(b'{"schema": "\xff\xfe"}')
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/z\xff.json")).write_text("{}")
    return store


def test_all_of_it_is_listed(store: Store) -> None:
    for format in ("table", "json"):
        result = CliRunner().invoke(app, ["list", "--results", str(store.folder), "--format", format])
        assert result.exit_code == 0, result.output
    rows = {row["id"]: row.get("unreadable") for row in json.loads(result.stdout)}
    assert rows.pop(study().id) is None
    assert len(rows) == 9
    assert all(rows.values())
    assert rows["a-pipe"] == rows["endless"] == "it is no regular file"
    assert "z\\udcff" in rows


def test_the_study_is_found_among_it(store: Store) -> None:
    assert store.load("last") == study()
    assert list(store.studies()) == [study()]
    for name in ("a-pipe", "endless", "deep", "folder", os.fsdecode(b"z\xff")):
        with pytest.raises(BadInput, match="cannot read the study"):
            store.load(name)


def test_a_folder_that_cannot_be_read_is_not_an_empty_one(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(BadInput, match=r"cannot read the results folder .*file: Not a directory"):
        Store(tmp_path / "file").listed()
    assert Store(tmp_path / "none").listed() == []


@pytest.mark.parametrize(
    ("field", "value"), [("created", "yesterday"), ("step_seconds", [[[0.0]]]), ("step_seconds", [[[-1.0]]])]
)
def test_numbers_and_times_that_cannot_be_are_unreadable(field: str, value: Any, tmp_path: Path) -> None:
    store = Store(tmp_path)
    document = msgspec.json.decode(to_json(study(measured("torch/cpu", 0.02))))
    samples = document["results"][0]["samples"]
    (samples if field in samples else document)[field] = value
    (tmp_path / "20250120-000000-dead.json").write_bytes(msgspec.json.encode(document))
    with pytest.raises(BadInput, match="cannot read the study"):
        store.load("20250120-000000-dead")
    assert list(store.studies()) == []


def test_of_many_matches_a_few_are_named(tmp_path: Path) -> None:
    for number in range(100):
        (tmp_path / f"2026-{number:03}.json").touch()
    with pytest.raises(BadInput, match=r"100 studies: 2026-000, .*2026-004 and 95 more$"):
        Store(tmp_path).load("2026")


def test_names_that_are_no_text_can_be_saved(tmp_path: Path) -> None:
    document = study()
    document.argv = ["--data", os.fsdecode(b"/x\xff")]
    Store(tmp_path).save(document)
    assert Store(tmp_path).load("last").argv == ["--data", "/x\\udcff"]


def test_a_file_is_read_up_to_a_limit(tmp_path: Path) -> None:
    (tmp_path / "large").write_bytes(bytes(2 << 20))
    with pytest.raises(OSError, match="it has 2 MiB"):
        regular_bytes(tmp_path / "large", 1 << 20)
    assert regular_bytes(tmp_path / "large") == bytes(2 << 20)


def test_what_killed_processes_have_left_is_removed(tmp_path: Path) -> None:
    old, new = (tmp_path / f".20250101-000000-abcd.json.{random}" for random in ("a1b2c3d4", "e5f6g7h8"))
    for file in (old, new):
        file.touch()
    os.utime(old, (0, 0))
    Store(tmp_path).ensure_writable()
    assert [*tmp_path.iterdir()] == [new]
