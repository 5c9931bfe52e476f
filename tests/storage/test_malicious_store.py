"""Tests that foreign files in the results folder are unreadable and never block polybench."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from typer.testing import CliRunner

from polybench.cli import app
from polybench.data.disk import read_regular_file
from polybench.errors import BadInput
from polybench.log import Header, encode_line
from polybench.results.document import derive
from polybench.storage.store import Store
from tests.commands import invoke, printed, printed_json, refused
from tests.factories import measured, study
from tests.log_of import events_of, log_of, save_document


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """Return a store with a study and files that could block, exhaust memory or crash a reader."""
    store = Store(tmp_path)
    save_document(store, study())
    os.mkfifo(tmp_path / "a-pipe.jsonl")
    (tmp_path / "endless.jsonl").symlink_to("/dev/zero")
    (tmp_path / "nowhere.jsonl").symlink_to(tmp_path / "none")
    (tmp_path / "folder.jsonl").mkdir()
    (tmp_path / "deep.jsonl").write_text("[" * 1_000_000 + "\n")
    (tmp_path / "deep_inside.jsonl").write_text('{"schema": "polybench.study/3", "x": ' + '{"a":' * 1_000_000 + "\n")
    (tmp_path / "infinite.jsonl").write_text('{"schema": 1e999}\n')
    (tmp_path / "no_text.jsonl").write_bytes(b'{"schema": "\xff\xfe"}\n')
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/z\xff.jsonl")).write_text("{}")
    return store


def test_all_files_are_listed(store: Store) -> None:
    for format in ("table", "json"):
        result = CliRunner().invoke(app, ["list", "--results", str(store.folder), "--format", format])
        assert result.exit_code == 0, result.output
    rows = {row["id"]: row.get("unreadable") for row in json.loads(result.stdout)}
    assert rows.pop(study().id) is None
    assert len(rows) == 9
    assert all(rows.values())
    assert rows["a-pipe"] == rows["endless"] == "it is not a regular file"
    assert "z\\udcff" in rows


def test_study_is_found_among_foreign_files(store: Store) -> None:
    assert store.load("last") == derive(events_of(study()))
    assert list(store.studies()) == [derive(events_of(study()))]
    for name in ("a-pipe", "endless", "deep", "folder", os.fsdecode(b"z\xff")):
        with pytest.raises(BadInput, match="cannot read"):
            store.load(name)


def test_unreadable_folder_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(BadInput, match=r"cannot read the results folder .*file: Not a directory"):
        Store(tmp_path / "file").summaries()
    assert Store(tmp_path / "none").summaries() == []


def damaged_log(id: str, kind: str, place: Sequence[str | int], value: bytes) -> bytes:
    """Return a log with another value at a place in the first event of a kind."""
    valid = study(measured("torch/cpu", 0.02), measured("tf/cpu", 0.01))
    lines = log_of(msgspec.structs.replace(valid, id=id)).splitlines(keepends=True)
    number = next(number for number, line in enumerate(lines) if line.startswith(b'{"event":"%s"' % kind.encode()))
    event: Any = msgspec.json.decode(lines[number])
    parent = event
    for key in place[:-1]:
        parent = parent[key]
    parent[place[-1]] = "DAMAGE"
    lines[number] = msgspec.json.encode(event).replace(b'"DAMAGE"', value) + b"\n"
    return b"".join(lines)


@pytest.mark.parametrize(
    ("kind", "field", "value"),
    [("header", "created", b'"yesterday"'), ("block", "step_seconds", b"[0.0]"), ("block", "step_seconds", b"[-1.0]")],
)
def test_invalid_numbers_and_times_are_unreadable(kind: str, field: str, value: bytes, tmp_path: Path) -> None:
    store, id = Store(tmp_path), "20250120-000000-dead"
    store.log_path(id).write_bytes(damaged_log(id, kind, [field], value))
    with pytest.raises(BadInput, match="cannot read the log of" if kind == "header" else "cannot read .*line"):
        store.load(id)
    assert list(store.studies()) == []


def _nested(depth: int) -> bytes:
    return b'{"a":' * depth + b"1" + b"}" * depth


DAMAGE: dict[str, tuple[str, tuple[str | int, ...], bytes]] = {
    "no step times": ("block", ("step_seconds",), b"[]"),
    "an unknown configuration": ("block", ("configuration",), b'"jax/cpu"'),
    "a process run that has not started": ("block", ("process",), b"2"),
    "a round that follows no other one": ("block", ("round",), b"5"),
    "5e-324": ("block", ("step_seconds", 0), b"5e-324"),
    "1e308": ("block", ("step_seconds",), b"[1e308]"),
    "no number of JSON": ("block", ("counters", "wall_seconds"), b"1e999"),
    "a negative count": ("settings", ("configurations", 0, "workload", "batch_size"), b"-1"),
    "no threads": ("settings", ("settings", "threads"), b"0"),
    "another ID": ("header", ("id",), b'"../../x"'),
    "500,000 nested objects": ("parity", ("parity",), _nested(500_000)),
    "500,000 nested objects at the end": ("end", ("results", "torch/cpu", "versions"), _nested(500_000)),
    "nested objects in an unknown field": ("block", ("unknown",), _nested(500_000)),
    "a name of 10 MB": (
        "settings", ("configurations", 0, "configuration", "engine"), b'"' + bytes(range(97, 107)) * 1_000_000 + b'"',
    ),
    "an impossible optimizer": (
        "settings", ("configurations", 0, "workload", "optimizer"), b'{"name":"adam","momentum":0.5}',
    ),
}  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGE)
def test_every_command_refuses_a_damaged_log(damage: str, tmp_path: Path) -> None:
    store = Store(tmp_path)
    save_document(store, valid := study(measured("torch/cpu", 0.02), measured("tf/cpu", 0.01)))
    (tmp_path / "damaged.jsonl").write_bytes(damaged_log("damaged", *DAMAGE[damage]))
    output = ("--output", tmp_path / "output.svg", "--results", tmp_path)
    assert "cannot read" in refused("show", tmp_path / "damaged.jsonl", *output)
    for command in (["show"], ["explain"], ["report"], ["plot"], ["diff", valid.id], ["merge", valid.id]):
        assert "cannot read" in refused(*command, "damaged", *output)
    assert "cannot read" in refused("run", "damaged", "--dry-run", "--results", tmp_path)
    pages = invoke("report", "--all", "--output", tmp_path / "pages", "--results", tmp_path)
    assert (pages.exit_code, "warning: cannot read" in pages.stderr) == (0, True)
    assert {one.stem for one in (tmp_path / "pages" / "reports").iterdir()} == {valid.id}
    assert printed_json("list", "--results", tmp_path)[-1]["id"] in (valid.id, "damaged")
    assert "torch/cpu" in printed("history", "--results", tmp_path, "--format", "csv")
    assert not (tmp_path / "output.svg").exists()


def test_a_study_that_is_not_toml_is_refused(tmp_path: Path) -> None:
    store, valid = Store(tmp_path), study(measured("torch/cpu", 0.02), measured("tf/cpu", 0.01))
    other = msgspec.structs.replace(valid.host, hostname="other")
    save_document(store, valid)
    header, *events = events_of(msgspec.structs.replace(valid, id="damaged", host=other))
    assert isinstance(header, Header)
    damaged = [msgspec.structs.replace(header, study="engines = ["), *events]
    store.log_path("damaged").write_bytes(b"".join(map(encode_line, damaged)))
    for command in (["show"], ["explain"], ["run", "--dry-run"], ["merge", valid.id], ["diff", valid.id]):
        assert "not valid TOML" in refused(*command, "damaged", "--results", tmp_path)


def test_only_a_few_of_many_matches_are_named(tmp_path: Path) -> None:
    for number in range(100):
        (tmp_path / f"2026-{number:03}.jsonl").touch()
    with pytest.raises(BadInput, match=r"100 studies begin with it: 2026-000, .*2026-004 and 95 more$"):
        Store(tmp_path).load("2026")


def test_files_are_read_up_to_a_limit(tmp_path: Path) -> None:
    (tmp_path / "large").write_bytes(bytes(2 << 20))
    with pytest.raises(OSError, match="it has 2 MiB"):
        read_regular_file(tmp_path / "large", 1 << 20)
    assert read_regular_file(tmp_path / "large") == bytes(2 << 20)


def test_files_of_killed_processes_are_removed(tmp_path: Path) -> None:
    old, new = (tmp_path / f".20250101-000000-abcd.json.{random}" for random in ("a1b2c3d4", "e5f6g7h8"))
    for file in (old, new):
        file.touch()
    os.utime(old, (0, 0))
    Store(tmp_path).ensure_writable()
    assert [*tmp_path.iterdir()] == [new]
