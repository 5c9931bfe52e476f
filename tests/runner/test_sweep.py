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
from polybench.log import Log, read_log
from polybench.planning.grid import SweepSpec
from polybench.results.sweep import points_of
from polybench.runner.checkpoint import ResumableRun, find_resumable, find_unfinished, select_sweep
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
    (id,) = unfinished_ids(Store(results))
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
    """Return the reports of the points of the only saved sweep by their IDs."""
    (log,) = results.glob("*.jsonl")
    return {str(document.id): document for _, document in points_of(read_log(log))}


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


def turns(stages: list[str]) -> list[list[str]]:
    """Return the points of each turn, in the order of their process runs."""
    started = [re.fullmatch(r"point (.) of 3 .*: process (.) of 2: starting .*", stage) for stage in stages]
    return [[found[1] for found in started if found and found[2] == turn] for turn in "12"]


@simulated
def test_points_are_measured_in_turns(tmp_path: Path) -> None:
    outcome = run_sweep(SPEC, listener := RecordingProgress(), store=None)
    assert [values["batch_size"] for values, _ in outcome.points] == [8, 16, 32]
    assert all(len(result.nested_step_times) == 2 for _, document in outcome.points for result in document.results)
    runs = [stage for stage in listener.stages if "starting" in stage]
    assert {phase.done for phase in listener.phases} == {None}  # that of a point is not that of the sweep
    first, second = turns(listener.stages)
    assert sorted(first) == sorted(second) == ["1", "2", "3"]
    assert [turns([stage])[0] != [] for stage in runs] == [True] * 3 + [False] * 3
    assert not any("another study is running" in text for text in listener.warnings)


@simulated
def test_a_sweep_is_resumed_with_the_rest_of_its_turn(tmp_path: Path) -> None:
    outcome = run_sweep(SPEC, interrupt_at(r"point 2 of .*process 1 of 2: starting"), store=Store(tmp_path))
    measured = [sum(map(len, document.results[0].nested_step_times)) for document in documents(tmp_path).values()]
    assert 0 < measured.count(0) < 3
    assert outcome.resumable_id is not None
    resume_sweep(outcome.resumable_id, listener := RecordingProgress(), store=Store(tmp_path))
    processes = re.findall(r"process (.) of 2: starting", "\n".join(listener.stages))
    assert processes == ["1"] * measured.count(0) + ["2"] * 3


@simulated
def test_a_killed_sweep_is_listed_and_resumed_to_completion(tmp_path: Path) -> None:
    id = kill(tmp_path)
    points = {number: f"{id}.{number}" for number in range(3)}
    before = documents(tmp_path)
    processes = {one: len(document.results[0].nested_step_times) for one, document in before.items()}
    assert id.startswith("sweep-")
    assert set(before) == set(points.values())
    assert processes[points[1]] == 1
    rows = {row["id"]: row for row in json.loads(invoke("list", "--results", str(tmp_path), "--format", "json").stdout)}
    assert rows[id]["axes"] == {"batch_size": [8, 16, 32]}
    assert (rows[id]["points"], rows[id]["planned"]) == (3, 3)
    assert {one: row["sweep"] for one, row in rows.items()} == {id: None} | dict.fromkeys(points.values(), id)
    assert points[1] not in invoke("list", "--results", str(tmp_path)).stdout
    assert points[1] in invoke("list", "--show-points", "--results", str(tmp_path)).stdout
    assert all(row["resumable"] for row in rows.values())
    for name in ("last", *points.values()):
        assert find_resumable(name, Store(tmp_path)) == ResumableRun(id, "sweep")
    shown = json.loads(invoke("show", points[1], "--results", str(tmp_path), "--format", "json").stdout)
    assert (shown["id"], shown["settings"]["batch_size"], shown["finished"]) == (points[1], 16, False)

    outcome = resume_sweep(id, listener := RecordingProgress(), store=Store(tmp_path))
    assert outcome.resumable_id is None
    assert [values["batch_size"] for values, _ in outcome.points] == [8, 16, 32]
    first, second = turns(listener.stages)
    assert first == []
    assert sorted(second) == [str(number + 1) for number, one in points.items() if processes[one] == 1]
    after = documents(tmp_path)
    assert {document.id for _, document in outcome.points} == set(after) == set(before)
    for one, document in after.items():
        assert document.argv == ["sweep", "original"]
        assert [resumed.processes for resumed in document.resumed] == [processes[one]]
        for result, earlier in zip(document.results, before[one].results, strict=True):
            assert result.status == "ok"
            assert result.nested_step_times[: processes[one]] == earlier.nested_step_times
            assert len(result.nested_step_times) == 2
    assert unfinished_ids(Store(tmp_path)) == []
    assert [path.name for path in tmp_path.iterdir()] == [f"{id}.jsonl"]
    rows = {row["id"]: row for row in json.loads(invoke("list", "--results", str(tmp_path), "--format", "json").stdout)}
    assert {(row["finished"], row["resumable"]) for row in rows.values()} == {(True, False)}


@simulated
@pytest.mark.parametrize("command", [lambda _: [*COMMAND, "--resume"], lambda _: ["resume", "last", "--quiet"]])
def test_a_sweep_is_resumed_by_its_command_or_its_id(command: Callable[[str], list[str]], tmp_path: Path) -> None:
    id = stop(tmp_path)
    done = invoke(*command(id), "--results", str(tmp_path), "--format", "json")
    assert done.exit_code == 0, done.output
    document = json.loads(done.stdout)
    assert (document["schema"], document["id"]) == ("polybench.sweep/2", id)
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
    (id,) = unfinished_ids(Store(tmp_path))
    assert done.exit_code == 130
    assert f"polybench show {id}\n" in done.stderr
    assert f"resume with: polybench resume {id}" in done.stderr
    assert invoke("show", id, "--results", str(tmp_path)).stdout == done.stdout
    listed = json.loads(invoke("list", "--results", str(tmp_path), "--format", "json").stdout)
    assert [row["id"] for row in listed if row["kind"] == "sweep"] == [id]


@simulated
def test_a_sweep_that_is_interrupted_before_its_first_point_is_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(spec: SweepSpec, _: Any, **arguments: Any) -> Any:
        return run_sweep(spec, interrupt_at("point 1 of 3 .*: preparing data"), **arguments)

    with monkeypatch.context() as patched:
        patched.setattr("polybench.experiments.sweep.run_sweep", interrupted)
        done = invoke(*COMMAND, "--results", str(tmp_path))
    (id,) = unfinished_ids(Store(tmp_path))
    assert (done.exit_code, done.stdout) == (130, "")
    assert f"interrupted; resume with: polybench resume {id}" in done.stderr
    rows = {row["id"]: row for row in json.loads(invoke("list", "--results", str(tmp_path), "--format", "json").stdout)}
    assert {one: (row["resumable"], row["points"]) for one, row in rows.items()} == {
        id: (True, 1),
        f"{id}.0": (True, None),
    }
    error = invoke("show", id, "--results", str(tmp_path)).exception
    assert str(error) == f"{id} ended before anything was measured"
    outcome = resume_sweep(id, RecordingProgress(), store=Store(tmp_path))
    assert (len(outcome.points), outcome.resumable_id) == (3, None)


@simulated
def test_nothing_is_written_if_resuming_is_interrupted_before_all_points_are_open(tmp_path: Path) -> None:
    id = stop(tmp_path)
    before = (tmp_path / f"{id}.jsonl").read_bytes()
    outcome = resume_sweep(id, interrupt_at("point 3 of 3 .*: preparing data"), store=Store(tmp_path))
    assert (len(outcome.points), outcome.resumable_id) == (3, id)
    assert (tmp_path / f"{id}.jsonl").read_bytes() == before
    assert resume_sweep(id, RecordingProgress(), store=Store(tmp_path)).resumable_id is None


@simulated
def test_an_overhead_sweep_is_resumed_as_such(tmp_path: Path) -> None:
    stop(tmp_path, SweepSpec(SPEC.study, {"batch_size": [1, 16]}, "overhead"))
    done = invoke("resume", "last", "--results", str(tmp_path), "--format", "json", "--quiet")
    assert json.loads(done.stdout)["schema"] == "polybench.overhead/2"
    assert json.loads(done.stdout)["id"].startswith("overhead-")


@simulated
def test_a_sweep_is_not_resumed_with_other_versions_than_those_of_its_points(tmp_path: Path) -> None:
    id = stop(tmp_path, argv=["sweep", "--batch-size", "8,16,32"])
    store, log = Store(tmp_path), tmp_path / f"{id}.jsonl"
    original, before = log.read_bytes(), documents(tmp_path)[f"{id}.2"].settings.data_sha256
    start, settings, end = original.rpartition(f'"data_sha256":"{before}"'.encode())
    assert settings
    log.write_bytes(changed := start + b'"data_sha256":"' + b"9" * 64 + b'"' + end)
    message = rf"cannot resume {id}: data_sha256 was 9\S*, now {before}: start over with `polybench run {id}`"
    with pytest.raises(BadInput, match=message):
        resume_sweep(id, listener := RecordingProgress(), store=store)
    assert turns(listener.stages) == [[], []]
    assert log.read_bytes() == changed  # the points before it were opened, and nothing is written
    log.write_bytes(original)
    with Log.resume(log), pytest.raises(BadInput, match="is still running"):
        resume_sweep(id, RecordingProgress(), store=store)
    other = SPEC._replace(axes={"batch_size": [8, 64]})
    with pytest.raises(BadInput, match=r"swept values was .*8, 16, 32.*, now .*8, 64.*resume " + id):
        find_unfinished(other.study, store, "sweep", select_sweep(other.axes))
    assert unfinished_ids(store) == [id]
    assert resume_sweep(id, RecordingProgress(), store=store).resumable_id is None


@simulated
def test_the_points_of_a_discarded_sweep_cannot_be_resumed(tmp_path: Path) -> None:
    id = stop(tmp_path)
    assert invoke("resume", id, "--discard", "--results", str(tmp_path)).exit_code == 0
    assert unfinished_ids(Store(tmp_path)) == []
    assert len(documents(tmp_path)) == 3
    rows = json.loads(invoke("list", "--results", str(tmp_path), "--format", "json").stdout)
    assert [row["id"] for row in rows] == [id, *(f"{id}.{number}" for number in range(3))]
    assert not any(row["resumable"] for row in rows)
    for name in (id, f"{id}.1", "last"):
        with pytest.raises(BadInput, match="cannot resume"):
            find_resumable(name, Store(tmp_path))


@simulated
def test_a_point_that_has_not_started_is_measured_when_the_sweep_is_resumed(tmp_path: Path) -> None:
    id = stop(tmp_path)
    log = tmp_path / f"{id}.jsonl"
    lines = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(b"".join(lines[: next(n for n, line in enumerate(lines) if b'"point":1' in line)]))
    assert set(documents(tmp_path)) == {f"{id}.0"}
    outcome = resume_sweep(id, RecordingProgress(), store=Store(tmp_path))
    assert len(outcome.points) == len(documents(tmp_path)) == 3
    assert all(len(result.nested_step_times) == 2 for _, document in outcome.points for result in document.results)


@simulated
def test_a_damaged_sweep_is_refused_until_it_is_discarded(tmp_path: Path) -> None:
    id = stop(tmp_path)
    log = tmp_path / f"{id}.jsonl"
    log.write_bytes(damaged := log.read_bytes() + b"\xde\xad\n")
    error = invoke("resume", "last", "--results", str(tmp_path), "--quiet").exception
    assert isinstance(error, BadInput)
    assert "start over with the same command without --resume" in str(error)
    assert f"polybench resume {id} --discard" in str(error)
    assert log.read_bytes() == damaged
    salvaged = json.loads(invoke("show", id, "--salvage", "--results", str(tmp_path), "--format", "json").stdout)
    assert [point["id"] for point in salvaged["points"]] == [f"{id}.{number}" for number in range(3)]
    assert invoke("resume", id, "--discard", "--results", str(tmp_path)).exit_code == 0
    assert (tmp_path / f"{id}.jsonl.damaged").exists()
    assert unfinished_ids(Store(tmp_path)) == []


def test_an_anonymous_sweep_stays_anonymous(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "marys-laptop")
    stop(tmp_path, argv=["sweep", "--results", str(tmp_path)], anonymous=True)
    done = invoke("resume", "last", "--results", str(tmp_path), "--format", "json", "--quiet")
    assert json.loads(done.stdout)["host"]["hostname"] == "<host>"
    for text in (done.stdout, *(path.read_text() for path in tmp_path.glob("*.jsonl"))):
        assert "marys-laptop" not in text
        assert str(tmp_path) not in text
