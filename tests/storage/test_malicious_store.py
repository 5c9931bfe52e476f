"""Tests that foreign files in the results folder are unreadable and never block polybench."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import msgspec
import pytest
from typer.testing import CliRunner

from polybench.cli import app
from polybench.data.disk import read_regular_file
from polybench.errors import BadInput
from polybench.schema.study import to_json
from polybench.storage.store import Store
from tests.commands import invoke, printed, printed_json, refused
from tests.factories import measured, study


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """Return a store with a study and files that could block, exhaust memory or crash a reader."""
    store = Store(tmp_path)
    store.save(study())
    os.mkfifo(tmp_path / "a-pipe.json")
    (tmp_path / "endless.json").symlink_to("/dev/zero")
    (tmp_path / "nowhere.json").symlink_to(tmp_path / "none")
    (tmp_path / "folder.json").mkdir()
    (tmp_path / "deep.json").write_text("[" * 1_000_000)
    (tmp_path / "deep_inside.json").write_text('{"schema": "polybench.study/3", "x": ' + '{"a":' * 1_000_000)
    (tmp_path / "infinite.json").write_text('{"schema": 1e999}')
    (tmp_path / "no_text.json").write_bytes(b'{"schema": "\xff\xfe"}')
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/z\xff.json")).write_text("{}")
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
    assert store.load("last") == study()
    assert list(store.studies()) == [study()]
    for name in ("a-pipe", "endless", "deep", "folder", os.fsdecode(b"z\xff")):
        with pytest.raises(BadInput, match="cannot read the study"):
            store.load(name)


def test_unreadable_folder_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(BadInput, match=r"cannot read the results folder .*file: Not a directory"):
        Store(tmp_path / "file").summaries()
    assert Store(tmp_path / "none").summaries() == []


@pytest.mark.parametrize(("field", "value"), [("created", "yesterday"), ("values", [[[0.0]]]), ("values", [[[-1.0]]])])
def test_invalid_numbers_and_times_are_unreadable(field: str, value: Any, tmp_path: Path) -> None:
    store = Store(tmp_path)
    document = msgspec.json.decode(to_json(study(measured("torch/cpu", 0.02))))
    step_times = document["results"][0]["step_times"]
    (step_times if field in step_times else document)[field] = value
    (tmp_path / "20250120-000000-dead.json").write_bytes(msgspec.json.encode(document))
    with pytest.raises(BadInput, match="cannot read the study"):
        store.load("20250120-000000-dead")
    assert list(store.studies()) == []


def _nested(depth: int) -> bytes:
    return b'{"a":' * depth + b"1" + b"}" * depth


DAMAGE: dict[str, tuple[tuple[str | int, ...], bytes]] = {
    "no step times": (("results", 0, "step_times", "values"), b"[]"),
    "a step time without step times": (("results", 0, "step_times"), b"null"),
    "an empty process": (("results", 0, "step_times", "values"), b"[[]]"),
    "an empty round": (("results", 0, "step_times", "values"), b"[[[]]]"),
    "5e-324": (("results", 0, "step_time", "median"), b"5e-324"),
    "1e308": (("results", 0, "step_times", "values"), b"[[[1e308]]]"),
    "no number of JSON": (("results", 0, "epoch_seconds"), b"1e999"),
    "a negative count": (("results", 0, "workload", "batch_size"), b"-1"),
    "no threads": (("settings", "threads"), b"0"),
    "another ID": (("id",), b'"../../x"'),
    "500,000 nested objects": (("results", 0, "versions"), _nested(500_000)),
    "nested objects in an unknown field": (("unknown",), _nested(500_000)),
    "a name of 10 MB": (("results", 0, "configuration"), b'"' + bytes(range(97, 107)) * 1_000_000 + b'"'),
    "an impossible optimizer": (("settings", "optimizer"), b'{"name":"adam","momentum":0.5}'),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_every_command_refuses_a_damaged_document(damage: str, tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.save(valid := study(measured("torch/cpu", 0.02), measured("tf/cpu", 0.01)))
    content: Any = msgspec.json.decode(to_json(msgspec.structs.replace(valid, id="damaged")))
    place, value = DAMAGE[damage]
    parent = content
    for key in place[:-1]:
        parent = parent[key]
    parent[place[-1]] = "DAMAGE"
    text = msgspec.json.encode(content).replace(b'"DAMAGE"', value)
    (tmp_path / "damaged.json").write_bytes(text)
    output = ("--output", tmp_path / "output.svg", "--results", tmp_path)
    assert "cannot read" in refused("show", tmp_path / "damaged.json", *output)
    for command in (["show"], ["explain"], ["report"], ["plot"], ["diff", valid.id], ["merge", valid.id]):
        assert "cannot read" in refused(*command, "damaged", *output)
    assert "cannot read" in refused("run", "damaged", "--dry-run", "--results", tmp_path)
    pages = invoke("report", "--all", "--output", tmp_path / "pages", "--results", tmp_path)
    assert (pages.exit_code, "warning: cannot read" in pages.stderr) == (0, True)
    assert {one.stem for one in (tmp_path / "pages" / "reports").iterdir()} == {valid.id}
    assert printed_json("list", "--results", tmp_path)[-1]["id"] in (valid.id, "damaged")
    assert "torch/cpu" in printed("history", "--results", tmp_path, "--format", "csv")
    assert not (tmp_path / "output.svg").exists()


def test_a_study_that_is_not_toml_is_refused_where_it_is_needed(tmp_path: Path) -> None:
    store, valid = Store(tmp_path), study(measured("torch/cpu", 0.02), measured("tf/cpu", 0.01))
    other = msgspec.structs.replace(valid.host, hostname="other")
    store.save(valid)
    store.save(msgspec.structs.replace(valid, id="damaged", study="engines = [", host=other))
    for command in (("merge", "damaged", valid.id), ("explain", "damaged"), ("run", "damaged", "--dry-run")):
        assert "not valid TOML" in refused(*command, "--results", tmp_path)
    assert "torch/cpu" in printed("show", "damaged", "--results", tmp_path)
    assert "torch/cpu" in printed("diff", valid.id, "damaged", "--same-machine", "--results", tmp_path)


def test_only_a_few_of_many_matches_are_named(tmp_path: Path) -> None:
    for number in range(100):
        (tmp_path / f"2026-{number:03}.json").touch()
    with pytest.raises(BadInput, match=r"100 studies begin with it: 2026-000, .*2026-004 and 95 more$"):
        Store(tmp_path).load("2026")


def test_names_that_are_not_utf8_can_be_saved(tmp_path: Path) -> None:
    document = study()
    document.argv = ["--data", os.fsdecode(b"/x\xff")]
    Store(tmp_path).save(document)
    assert Store(tmp_path).load("last").argv == ["--data", "/x\\udcff"]


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
