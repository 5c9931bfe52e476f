"""Points of a sweep are measured in turns; unfinished sweeps are resumed within a turn."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from polybench.cli import app
from polybench.errors import BadInput
from polybench.experiments.sweep import resume_sweep, run_sweep
from polybench.log import read_log
from polybench.results.document import derive
from polybench.runner.checkpoint import (
    CheckpointStore,
    ResumableRun,
    SweepCheckpoint,
    SweepSpec,
    find_resumable,
    find_unfinished,
    select_sweep,
)
from polybench.runner.resume import unfinished_ids
from polybench.schema.options import Study
from polybench.schema.study import StudyDocument
from polybench.storage.store import Store
from tests.runner.studies import FAST, RecordingProgress, interrupt_at, kill_at
from tests.simulated_machine import Machine, Script

FIELDS = FAST | {"processes": 2, "rounds_per_process": 1, "parity": False, "metrics": False}
SPEC = SweepSpec(Study(engines=("fake", "fake+slow"), **FIELDS), {"batch_size": [8, 16, 32]})
COMMAND = [
    *("sweep", "--engines", "fake,fake+slow", "--batch-size", "8,16,32", "--data", "synthetic"),
    *("--processes", "2", "--rounds-per-process", "1", "--steps-per-round", "5", "--budget", "99s", "--timeout", "60s"),
    *("--no-parity", "--no-metrics", "--quiet", "--wait-idle", "0"),
]


SCRIPTS = {"fake": Script(0.002), "fake+slow": Script(0.008)}


@pytest.fixture
def simulated_machine() -> Iterator[None]:
    with Machine().simulate(SCRIPTS):
        yield


simulated = pytest.mark.usefixtures("simulated_machine")
STAGE = "point 2 of .*process 2 of 2: starting"


def kill(results: Path) -> str:
    """Run the sweep in another process, which is killed when the second process run of its second point starts."""
    kill_at(STAGE, run_simulated, SPEC, store=Store(results), argv=["sweep", "original"])
    (id,) = CheckpointStore(results).ids(SweepCheckpoint)
    return id


def run_simulated(*arguments: Any, **options: Any) -> None:
    with Machine().simulate(SCRIPTS):
        run_sweep(*arguments, **options)


def stop(results: Path, spec: SweepSpec = SPEC, **fields: Any) -> str:
    """Run the sweep in this process, interrupt it there, and return its ID."""
    arguments = {"argv": ["sweep", "original"]} | fields
    outcome = run_sweep(spec, interrupt_at(STAGE), store=Store(results), **arguments)
    assert outcome.resumable_id is not None
    return outcome.resumable_id


def documents(results: Path) -> dict[str, StudyDocument]:
    return {path.stem: derive(read_log(path)) for path in results.glob("*.jsonl")}


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


def turns(stages: list[str]) -> list[list[str]]:
    """Return the points of each turn, in the order of their process runs."""
    started = [re.fullmatch(r"point (.) of 3 .*: process (.) of 2: starting .*", stage) for stage in stages]
    return [[found[1] for found in started if found and found[2] == turn] for turn in "12"]


@simulated
def test_points_are_measured_in_turns(tmp_path: Path) -> None:
    outcome = run_sweep(SPEC, listener := RecordingProgress(), store=None)
    assert [one.point.values["batch_size"] for one in outcome.finished] == [8, 16, 32]
    assert all(len(result.nested_step_times) == 2 for one in outcome.finished for result in one.document.results)
    runs = [stage for stage in listener.stages if "starting" in stage]
    first, second = turns(listener.stages)
    assert sorted(first) == sorted(second) == ["1", "2", "3"]
    assert [turns([stage])[0] != [] for stage in runs] == [True] * 3 + [False] * 3
    assert not any("another study is running" in text for text in listener.warnings)


@simulated
def test_a_killed_sweep_is_listed_and_resumed_to_completion(tmp_path: Path) -> None:
    id = kill(tmp_path)
    points = CheckpointStore(tmp_path).read(id, SweepCheckpoint).started
    before = documents(tmp_path)
    processes = {one: len(document.results[0].nested_step_times) for one, document in before.items()}
    assert set(before) == set(points.values()) == set(unfinished_ids(Store(tmp_path)))
    assert processes[points[1]] == 1
    rows = {row["id"]: row for row in json.loads(invoke("list", "--results", str(tmp_path), "--format", "json").stdout)}
    assert rows[id]["axes"] == {"batch_size": [8, 16, 32]}
    assert (rows[id]["points"], rows[id]["planned"]) == (3, 3)
    assert {one: row["sweep"] for one, row in rows.items()} == {id: None} | dict.fromkeys(points.values(), id)
    assert points[1] not in invoke("list", "--results", str(tmp_path)).stdout
    assert points[1] in invoke("list", "--show-points", "--results", str(tmp_path)).stdout
    assert all(row["resumable"] for row in rows.values())
    for name in ("last", *points.values()):
        assert find_resumable(name, Store(tmp_path)) == ResumableRun(id, SweepCheckpoint)

    outcome = resume_sweep(id, listener := RecordingProgress(), store=Store(tmp_path))
    assert outcome.resumable_id is None
    assert [one.point.values["batch_size"] for one in outcome.finished] == [8, 16, 32]
    first, second = turns(listener.stages)
    assert first == []
    assert sorted(second) == [str(number + 1) for number, one in points.items() if processes[one] == 1]
    after = documents(tmp_path)
    assert {one.document.id for one in outcome.finished} == set(after) == set(before)
    for one, document in after.items():
        assert document.argv == ["sweep", "original"]
        assert [resumed.processes for resumed in document.resumed] == [processes[one]]
        for result, earlier in zip(document.results, before[one].results, strict=True):
            assert result.status == "ok"
            assert result.nested_step_times[: processes[one]] == earlier.nested_step_times
            assert len(result.nested_step_times) == 2
    assert CheckpointStore(tmp_path).ids(SweepCheckpoint) == unfinished_ids(Store(tmp_path)) == []


@simulated
@pytest.mark.parametrize("command", [lambda _: [*COMMAND, "--resume"], lambda _: ["resume", "last", "--quiet"]])
def test_a_sweep_is_resumed_by_its_command_or_its_id(command: Callable[[str], list[str]], tmp_path: Path) -> None:
    id = stop(tmp_path)
    done = invoke(*command(id), "--results", str(tmp_path), "--format", "json")
    assert done.exit_code == 0, done.output
    document = json.loads(done.stdout)
    assert document["schema"] == "polybench.sweep/2"
    assert document["argv"] == ["sweep", "original"]  # not the command that resumed it
    assert [point["parameters"]["batch_size"] for point in document["points"]] == [8, 16, 32]
    assert {point["id"] for point in document["points"]} == set(documents(tmp_path))
    with pytest.raises(BadInput, match="cannot resume 'last'"):
        find_resumable("last", Store(tmp_path))


@simulated
def test_an_interrupted_sweep_prints_how_to_resume_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(spec: SweepSpec, _: Any, **arguments: Any) -> Any:
        return run_sweep(spec, interrupt_at(STAGE), **arguments)

    monkeypatch.setattr("polybench.experiments.sweep.run_sweep", interrupted)
    done = invoke(*(word for word in COMMAND if word != "--quiet"), "--results", str(tmp_path))
    (id,) = CheckpointStore(tmp_path).ids(SweepCheckpoint)
    assert done.exit_code == 130
    assert f"resume with: polybench resume {id}" in done.stderr
    assert list(tmp_path.glob("sweeps/*.json"))  # the finished points are saved
    listed = json.loads(invoke("list", "--results", str(tmp_path), "--format", "json").stdout)
    assert [row["id"] for row in listed if row["kind"] == "sweep"] == [id]


@simulated
def test_an_overhead_sweep_is_resumed_as_such(tmp_path: Path) -> None:
    stop(tmp_path, SweepSpec(SPEC.study, {"batch_size": [1, 16]}, "overhead"))
    done = invoke("resume", "last", "--results", str(tmp_path), "--format", "json", "--quiet")
    assert json.loads(done.stdout)["schema"] == "polybench.overhead/2"


@simulated
def test_a_sweep_is_not_resumed_with_other_versions_than_those_of_its_points(tmp_path: Path) -> None:
    id = stop(tmp_path, argv=["sweep", "--batch-size", "8,16,32"])
    sweeps, store = CheckpointStore(tmp_path), Store(tmp_path)
    point = tmp_path / f"{sweeps.read(id, SweepCheckpoint).started[2]}.jsonl"
    original, before = point.read_bytes(), documents(tmp_path)[point.stem].settings.data_sha256
    assert f'"data_sha256":"{before}"'.encode() in original
    point.write_bytes(original.replace(f'"data_sha256":"{before}"'.encode(), b'"data_sha256":"' + b"9" * 64 + b'"'))
    message = (
        rf"cannot resume {id}: data_sha256 was 9\S*, now {before}: start over with `polybench sweep --batch-size 8"
    )
    with pytest.raises(BadInput, match=message):
        resume_sweep(id, listener := RecordingProgress(), store=store)
    assert turns(listener.stages) == [[], []]
    point.write_bytes(original)
    with sweeps.lock(id), pytest.raises(BadInput, match="is still running"):
        resume_sweep(id, RecordingProgress(), store=store)
    other = SPEC._replace(axes={"batch_size": [8, 64]})
    with pytest.raises(BadInput, match=r"swept values was .*8, 16, 32.*, now .*8, 64.*resume " + id):
        find_unfinished(other.study, store, SweepCheckpoint, select_sweep(other.axes, other.command))
    assert sweeps.ids(SweepCheckpoint) == [id]
    assert resume_sweep(id, RecordingProgress(), store=store).resumable_id is None


@simulated
def test_the_points_of_a_discarded_sweep_cannot_be_resumed(tmp_path: Path) -> None:
    id = stop(tmp_path)
    assert invoke("resume", id, "--discard", "--results", str(tmp_path)).exit_code == 0
    assert CheckpointStore(tmp_path).ids(SweepCheckpoint) == unfinished_ids(Store(tmp_path)) == []
    assert len(documents(tmp_path)) == 3


@simulated
def test_a_point_without_a_log_is_measured_again(tmp_path: Path) -> None:
    id = stop(tmp_path)
    lost = CheckpointStore(tmp_path).read(id, SweepCheckpoint).started[1]
    (tmp_path / f"{lost}.jsonl").unlink()
    outcome = resume_sweep(id, RecordingProgress(), store=Store(tmp_path))
    assert len(outcome.finished) == len(documents(tmp_path)) == 3
    assert all(len(result.nested_step_times) == 2 for one in outcome.finished for result in one.document.results)


@simulated
def test_a_corrupt_sweep_is_reported_if_it_is_the_last_run(tmp_path: Path) -> None:
    folder = CheckpointStore(tmp_path).folder / "20990101-000000-abcd"
    folder.mkdir(parents=True)
    (folder / "sweep").write_bytes(b"\xde\xad")
    assert find_resumable("last", Store(tmp_path)) == ResumableRun(folder.name, SweepCheckpoint)
    error = invoke("resume", "last", "--results", str(tmp_path), "--quiet").exception
    assert isinstance(error, BadInput)
    assert "start over with the same command without --resume" in str(error)
    id = stop(tmp_path)
    assert find_resumable("last", Store(tmp_path)) == ResumableRun(id, SweepCheckpoint)


@simulated
def test_a_point_with_a_damaged_log_starts_over(tmp_path: Path) -> None:
    id = stop(tmp_path)
    checkpoints = CheckpointStore(tmp_path)
    stopped = checkpoints.read(id, SweepCheckpoint).started[1]
    (tmp_path / f"{stopped}.jsonl").write_bytes(b"\xde\xad\n")
    outcome = resume_sweep(id, listener := RecordingProgress(), store=Store(tmp_path))
    assert any(stopped in text and "starts over" in text for text in listener.warnings)
    assert outcome.resumable_id is None
    ids = {one.document.id for one in outcome.finished}
    assert (len(ids), stopped in ids) == (3, False)
    assert turns(listener.stages)[0] == ["2"]
    assert (tmp_path / f"{stopped}.jsonl.damaged").exists()
    assert unfinished_ids(Store(tmp_path)) == []


def test_an_anonymous_sweep_stays_anonymous(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "marys-laptop")
    stop(tmp_path, argv=["sweep", "--results", str(tmp_path)], anonymous=True)
    done = invoke("resume", "last", "--results", str(tmp_path), "--format", "json", "--quiet")
    assert json.loads(done.stdout)["host"]["hostname"] == "<host>"
    for text in (done.stdout, *(path.read_text() for path in tmp_path.glob("*.jsonl"))):
        assert "marys-laptop" not in text
        assert str(tmp_path) not in text
