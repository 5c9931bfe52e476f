"""Sweeps that were stopped: finished points are kept, and the rest is measured."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from typer.testing import CliRunner, Result

from polybench.cli import app
from polybench.core.document.study import StudyDocument, from_json, to_json
from polybench.core.errors import BadInput
from polybench.core.spec import Study
from polybench.measuring.checkpoint import Unfinished
from polybench.measuring.resumable import Found, find, find_sweep
from polybench.measuring.sweep import resume_sweep, run_sweep
from polybench.measuring.sweep_checkpoint import Series, SweepCheckpoint, UnfinishedSweeps
from polybench.report.saved_studies import Store
from tests.measuring.test_study import FAST, Listener, small_data

__all__ = ["small_data"]

FIELDS = FAST | {"processes": 2, "rounds": 1, "parity": False, "metrics": False}
SERIES = Series(Study(engines=("fake", "fake+slow"), **FIELDS), {"batch_size": [8, 16, 32]})
COMMAND = [
    *("sweep", "--engines", "fake,fake+slow", "--batch-size", "8,16,32", "--data", "synthetic"),
    *("--processes", "2", "--rounds", "1", "--steps", "5", "--budget", "20s", "--timeout", "60s"),
    *("--no-parity", "--no-metrics", "--quiet"),
]

KILLED = """
import os, signal, sys
from pathlib import Path
from polybench.data import synthetic
from polybench.measuring.progress import Silent
from polybench.measuring.sweep import run_sweep
from polybench.report.saved_studies import Store
from tests.measuring.test_sweep import SERIES

class Killed(Silent):
    def stage(self, text):
        if sys.argv[2] in text and "process 2" in text:
            os.kill(os.getpid(), signal.SIGKILL)

synthetic.IMAGES["train"] = 2000
run_sweep(SERIES, Killed(), store=Store(Path(sys.argv[1])), argv=["sweep", "of mine"])
"""


def kill(results: Path) -> str:
    """The sweep in a program of its own, which is killed in the second process of its second point."""
    command = [sys.executable, "-c", KILLED, str(results), "point 2 of 3"]
    assert subprocess.run(command, check=False).returncode == -signal.SIGKILL
    (id,) = UnfinishedSweeps(results).ids()
    return id


class Stopped(Listener):
    """Ctrl-C in the second process of the second point."""

    def stage(self, text: str) -> None:
        super().stage(text)
        if "point 2 of " in text and "process 2 of 2: starting" in text:
            raise KeyboardInterrupt


def stop(results: Path, series: Series = SERIES, **more: Any) -> str:
    """The sweep in this process, until it is stopped there."""
    told = {"argv": ["sweep", "of mine"]} | more
    swept = run_sweep(series, Stopped(), store=Store(results), **told)
    assert swept.unfinished is not None
    return swept.unfinished


def documents(results: Path) -> dict[str, StudyDocument]:
    found = (from_json(path.read_bytes()) for path in results.glob("*.json"))
    return {document.id: document for document in found}


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


def test_a_killed_sweep_is_listed_and_completed(tmp_path: Path) -> None:
    id = kill(tmp_path)
    before, points = documents(tmp_path), UnfinishedSweeps(tmp_path).read(id).begun
    (stopped,) = Unfinished(tmp_path).ids()
    (finished,) = set(points.values()) - {stopped}
    rows = {
        row["id"]: row
        for row in json.loads(invoke("list", "--results", str(tmp_path), "--format", "json").stdout)
    }
    assert rows[id]["axes"] == {"batch_size": [8, 16, 32]}
    assert (rows[id]["points"], rows[id]["planned"]) == (2, 3)
    assert {one: row["sweep"] for one, row in rows.items()} == {id: None, stopped: id, finished: id}
    assert finished not in invoke("list", "--results", str(tmp_path)).stdout
    assert finished in invoke("list", "--points", "--results", str(tmp_path)).stdout
    assert [rows[one]["resumable"] for one in (id, stopped, finished)] == [True, True, False]
    assert find("last", Store(tmp_path)) == Found(id, "sweep")
    assert find(stopped, Store(tmp_path)) == Found(stopped)

    swept = resume_sweep(id, listener := Listener(), store=Store(tmp_path))
    assert swept.unfinished is None
    assert [one.point.values["batch_size"] for one in swept.finished] == [8, 16, 32]
    after = documents(tmp_path)
    assert {one.document.id for one in swept.finished} == set(after) >= set(points.values())
    assert after[finished] == before[finished]
    assert not any("point 1 of 3" in text for text in listener.stages)
    assert [one.processes for one in after[stopped].resumed] == [1]
    assert {tuple(document.argv) for document in after.values()} == {("sweep", "of mine")}
    assert all(result.status == "ok" for document in after.values() for result in document.results)
    assert UnfinishedSweeps(tmp_path).ids() == Unfinished(tmp_path).ids() == []


@pytest.mark.parametrize("ask", [lambda _: [*COMMAND, "--resume"], lambda _: ["resume", "last", "--quiet"]])
def test_it_goes_on_by_its_command_or_its_id(ask: Callable[[str], list[str]], tmp_path: Path) -> None:
    id = stop(tmp_path)
    done = invoke(*ask(id), "--results", str(tmp_path), "--format", "json")
    assert done.exit_code == 0, done.output
    document = json.loads(done.stdout)
    assert document["schema"] == "polybench.sweep/1"
    assert document["argv"] == ["sweep", "of mine"]  # what repeats it, not what went on with it
    assert [point["values"]["batch_size"] for point in document["points"]] == [8, 16, 32]
    assert {point["id"] for point in document["points"]} == set(documents(tmp_path))
    with pytest.raises(BadInput, match="nothing to resume of 'last'"):
        find("last", Store(tmp_path))


def test_who_interrupts_it_is_told_how_it_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(series: Series, _: Any, **more: Any) -> Any:
        return run_sweep(series, Stopped(), **more)

    monkeypatch.setattr("polybench.measuring.sweep.run_sweep", interrupted)
    done = invoke(*(word for word in COMMAND if word != "--quiet"), "--results", str(tmp_path))
    (id,) = UnfinishedSweeps(tmp_path).ids()
    assert done.exit_code == 130
    assert f"go on with: polybench resume {id}" in done.stderr
    assert list(tmp_path.glob("sweeps/*.json"))  # what there is of it is saved, too
    listed = json.loads(invoke("list", "--results", str(tmp_path), "--format", "json").stdout)
    assert [row["id"] for row in listed if row["kind"] == "sweep"] == [id]


def test_fixed_costs_are_resumed_as_such(tmp_path: Path) -> None:
    stop(tmp_path, Series(SERIES.study, {"batch_size": [1, 16]}, "overhead"))
    done = invoke("resume", "last", "--results", str(tmp_path), "--format", "json", "--quiet")
    assert json.loads(done.stdout)["schema"] == "polybench.overhead/1"


def _machine(kept: SweepCheckpoint, _: StudyDocument) -> None:
    kept.host.cpu = "another"


def _polybench(kept: SweepCheckpoint, _: StudyDocument) -> None:
    kept.tool = msgspec.structs.replace(kept.tool, version="0.0.1")


def _version(_: SweepCheckpoint, document: StudyDocument) -> None:
    for result in document.results:
        result.versions["fake"] = "0"


def _variable(_: SweepCheckpoint, document: StudyDocument) -> None:
    for result in document.results:
        result.versions["environment"]["OMP_NUM_THREADS"] = "99"


def _data(_: SweepCheckpoint, document: StudyDocument) -> None:
    document.settings.data_sha256 = "0" * 64


def test_on_another_machine_or_with_other_versions_it_does_not_go_on(tmp_path: Path) -> None:
    id = stop(tmp_path, argv=["sweep", "--batch-size", "8,16,32"])
    sweeps, store = UnfinishedSweeps(tmp_path), Store(tmp_path)
    (finished,) = set(sweeps.read(id).begun.values()) - set(Unfinished(tmp_path).ids())
    path = tmp_path / f"{finished}.json"
    whole, document = sweeps.read(id), path.read_bytes()
    again = "; `polybench sweep --batch-size 8,16,32` measures all of it again"
    for reason, change in {
        r"cpu is .* now, and was another": _machine,
        r"polybench's version is .* now, and was 0.0.1": _polybench,
        r"fake is 1 now, and was 0": _version,
        r"OMP_NUM_THREADS is .* now, and was 99": _variable,
        r"data_sha256 is .* now, and was 000": _data,
    }.items():
        change(kept := sweeps.read(id), changed := from_json(document))
        sweeps.write(id, kept)
        path.write_bytes(to_json(changed))
        with pytest.raises(BadInput, match=f"cannot go on with {id}: {reason}.*{again}"):
            resume_sweep(id, Listener(), store=store)
        sweeps.write(id, whole)
    path.write_bytes(document)
    with sweeps.claimed(id), pytest.raises(BadInput, match="runs still"):
        resume_sweep(id, Listener(), store=store)
    other = SERIES._replace(axes={"batch_size": [8, 64]})
    with pytest.raises(BadInput, match=r"what is varied is .*8, 64.* now, and was .*8, 16, 32.*resume " + id):
        find_sweep(other, store)
    assert sweeps.ids() == [id]
    assert resume_sweep(id, Listener(), store=store).unfinished is None


def test_a_point_whose_document_is_gone_is_measured_again(tmp_path: Path) -> None:
    id = stop(tmp_path)
    for path in tmp_path.glob("*.json"):
        path.unlink()
    swept = resume_sweep(id, Listener(), store=Store(tmp_path))
    assert len(swept.finished) == len(documents(tmp_path)) == 3


def test_a_damaged_sweep_is_said_to_be_where_it_is_the_last(tmp_path: Path) -> None:
    folder = UnfinishedSweeps(tmp_path).folder / "20990101-000000-abcd"
    folder.mkdir(parents=True)
    (folder / "sweep").write_bytes(b"\xde\xad")
    assert find("last", Store(tmp_path)) == Found(folder.name, "sweep")
    refused = invoke("resume", "last", "--results", str(tmp_path), "--quiet").exception
    assert isinstance(refused, BadInput)
    assert "the same command without --resume measures all again" in str(refused)
    id = stop(tmp_path)
    assert find("last", Store(tmp_path)) == Found(id, "sweep")


def test_a_point_whose_state_is_damaged_is_measured_again(tmp_path: Path) -> None:
    id = stop(tmp_path)
    unfinished = Unfinished(tmp_path)
    (stopped,) = unfinished.ids()
    (finished,) = set(UnfinishedSweeps(tmp_path).read(id).begun.values()) - {stopped}
    (unfinished.folder / stopped / "state").write_bytes(b"\xde\xad")
    begun = documents(tmp_path)[stopped]

    swept = resume_sweep(id, listener := Listener(), store=Store(tmp_path))
    assert any(stopped in text and "measured again" in text for text in listener.warnings)
    assert swept.unfinished is None
    ids = {one.document.id for one in swept.finished}
    assert (len(ids), finished in ids, stopped in ids) == (3, True, False)
    assert documents(tmp_path)[stopped] == begun  # what it had measured is there to be read
    assert unfinished.ids() == []


def test_an_anonymous_sweep_stays_anonymous(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "marys-laptop")
    stop(tmp_path, argv=["sweep", "--results", str(tmp_path)], anonymous=True)
    done = invoke("resume", "last", "--results", str(tmp_path), "--format", "json", "--quiet")
    assert json.loads(done.stdout)["host"]["hostname"] == "<host>"
    for text in (done.stdout, *(path.read_text() for path in tmp_path.glob("*.json"))):
        assert "marys-laptop" not in text
        assert str(tmp_path) not in text
