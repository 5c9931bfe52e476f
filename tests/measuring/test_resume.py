"""Going on with a study that was stopped: nothing is lost, and nothing measured twice."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

from polybench.cli import app
from polybench.core.document.study import StudyDocument, from_json
from polybench.core.errors import BadInput, StrictlyUnavailable
from polybench.core.spec import Study
from polybench.engines import ENGINES, EngineRow
from polybench.machine import host
from polybench.measuring.checkpoint import Checkpoint, Unfinished
from polybench.measuring.resumable import find, find_study
from polybench.measuring.resume import check_here, resume_study
from polybench.planning.estimate import Estimate
from polybench.report.anonymous import UNKNOWN_HOST
from polybench.report.document import study_toml
from polybench.report.saved_studies import Store
from tests.environments import environment, plant, site_packages
from tests.measuring.test_faults import When, saved
from tests.measuring.test_study import FAST, Listener, run, small_data

__all__ = ["small_data"]

FIELDS = FAST | {"processes": 2, "rounds": 2, "parity": False, "epochs": 1}
STUDY = Study(engines=("fake", "fake+slow"), **FIELDS)

KILLED_AT = """
import os, signal, sys
import msgspec
from pathlib import Path
from polybench.core.spec import Study
from polybench.data import synthetic
from polybench.measuring.progress import Silent
from polybench.measuring.study import run_study
from polybench.report.saved_studies import Store

class Killed(Silent):
    def stage(self, text):
        if sys.argv[3] in text:
            os.kill(os.getpid(), signal.SIGKILL)

synthetic.IMAGES["train"] = 2000
study = msgspec.convert(msgspec.json.decode(sys.argv[1]), Study)
run_study(study, Killed(), store=Store(Path(sys.argv[2])))
"""


def kill_at(stage: str, results: Path, study: Study = STUDY) -> Unfinished:
    """The study in a program of its own, which is killed when it comes to this stage."""
    written = msgspec.json.encode(study).decode()
    done = subprocess.run([sys.executable, "-c", KILLED_AT, written, str(results), stage], check=False)
    assert done.returncode == -signal.SIGKILL
    return Unfinished(results)


def stop_at(stage: str, results: Path) -> StudyDocument:
    """The same in this process, as Ctrl-C ends it."""

    def stop() -> None:
        raise KeyboardInterrupt

    return run(*STUDY.engines, listener=When(stage, stop), store=Store(results), **FIELDS)


@pytest.mark.parametrize(
    ("stage", "replicates", "trainings"),
    [("process 1 of 2: round 2", 0, 0), ("process 2 of 2: round 1", 1, 0), ("fake+slow/cpu, seed 1", 2, 2)],
)
def test_a_killed_study_is_completed(stage: str, replicates: int, trainings: int, tmp_path: Path) -> None:
    unfinished = kill_at(stage, tmp_path)
    (id,) = unfinished.ids()
    before = unfinished.read(id)
    assert before.done.replicates == replicates
    kept = {record.cell.name: record for record in before.records}
    trained = sum(len(record.trainings) for record in before.records)
    assert abs(trained - trainings) <= 1  # seeds are trained in random order of cells
    document = resume_study(id, listener := Listener(), store=Store(tmp_path))

    stages = " ".join(listener.stages)
    for number in range(2):
        assert (f"process {number + 1} of 2: starting" in stages) == (number >= replicates)
    assert sum("training" in text for text in listener.stages) == 4 - trained
    for result in document.results:
        record = kept[result.cell]
        assert result.status == "ok"
        assert [len(process) for process in result.steps] == [2, 2]
        assert result.steps[:replicates] == record.samples[:replicates]
        assert [len(process) for process in result.disturbance.blocks] == [2, 2]
        assert sorted(training.seed for training in result.trainings) == [0, 1]
        assert all(training in result.trainings for training in record.trainings)
    assert len(document.host.noise) == 4
    assert document == saved(tmp_path)
    assert document.finished
    assert [(one.processes, one.trainings) for one in document.resumed] == [(replicates, trained)]
    assert any("resumed after" in text for text in document.warnings)
    assert unfinished.ids() == []
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"{id}.json", "logs"]


def test_a_killed_training_goes_on_after_its_last_epoch(tmp_path: Path) -> None:
    study = msgspec.structs.replace(STUDY, engines=("fake",), processes=1, epochs=3, accuracy=True)
    unfinished = kill_at("epoch 3", tmp_path, study)
    (id,) = unfinished.ids()
    (before,) = unfinished.read(id).records[0].trainings
    assert len(before.epochs) == 2
    listener = Listener()
    document = resume_study(id, listener, store=Store(tmp_path))

    assert [text for text in listener.stages if "epoch" in text] == ["training fake/cpu, seed 0, epoch 3"]
    (training,) = document.results[0].trainings
    assert training.complete
    assert training.epochs[:2] == before.epochs
    # The engine counts its steps: those of the other process, too.
    accuracies = [epoch.accuracy or 0 for epoch in training.epochs]
    assert accuracies == sorted(set(accuracies))
    (warning,) = document.results[0].warnings
    assert warning == "the training of seed 0 went on in another process after 2 epochs"
    assert unfinished.ids() == []


def test_a_training_whose_last_epoch_found_no_room_goes_on_after_the_one_before(tmp_path: Path) -> None:
    study = msgspec.structs.replace(STUDY, engines=("fake",), processes=1, epochs=4)
    unfinished = kill_at("epoch 4", tmp_path, study)
    (id,) = unfinished.ids()
    one, other = sorted((unfinished.folder / id).glob("training-*.npz"))
    other.unlink()
    document = resume_study(id, listener := Listener(), store=Store(tmp_path))
    assert one.name.endswith("-2.npz")
    assert [text[-7:] for text in listener.stages if "epoch" in text] == ["epoch 3", "epoch 4"]
    (training,) = document.results[0].trainings
    assert len(training.epochs) == 4


def test_a_training_of_which_nothing_usable_is_kept_begins_again(tmp_path: Path) -> None:
    study = msgspec.structs.replace(STUDY, engines=("fake",), processes=1, epochs=3)
    unfinished = kill_at("epoch 3", tmp_path, study)
    (id,) = unfinished.ids()
    max((unfinished.folder / id).glob("training-*.npz")).write_bytes(b"no archive")
    document = resume_study(id, listener := Listener(), store=Store(tmp_path))
    assert sum("epoch" in text for text in listener.stages) == 3
    (training,) = document.results[0].trainings
    assert training.complete
    (warning,) = document.results[0].warnings
    assert warning == "the training of seed 0 began again: what was kept of it cannot be taken up"


def test_an_interrupted_study_is_found_listed_and_resumed_by_its_settings(tmp_path: Path) -> None:
    stopped = stop_at("process 2 of 2: round 2", tmp_path)
    assert [result.remedy for result in stopped.results] == [f"polybench resume {stopped.id}"] * 2
    listed = CliRunner().invoke(app, ["list", "--results", str(tmp_path)]).stdout
    assert f"{stopped.id} (to resume)" in listed
    assert find_study(STUDY, Store(tmp_path)) == stopped.id
    other = msgspec.structs.replace(STUDY, processes=4)
    with pytest.raises(BadInput, match="processes is 4 now, and was 2; `polybench resume"):
        find_study(other, Store(tmp_path))
    result = CliRunner().invoke(app, ["resume", "last", "--results", str(tmp_path), "--format", "json"])
    assert result.exit_code == 0, result.output
    document = from_json(result.stdout.encode())
    assert document.id == stopped.id
    assert {one.status for one in document.results} == {"ok"}
    assert "(to resume)" not in CliRunner().invoke(app, ["list", "--results", str(tmp_path)]).stdout
    with pytest.raises(BadInput, match="nothing to resume of 'last'"):
        find("last", Store(tmp_path))


def test_it_goes_on_in_several_environments_where_each_is_what_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = EngineRow("planted:Engine", "", start_seconds=1.0, copies_data=False, does_arithmetic=False)
    monkeypatch.setitem(ENGINES, "planted", row)
    env = {name: str(environment(tmp_path / name)) for name in ("old", "new")}
    versions = {"old": "1.0", "new": "2.0"}
    for name, version in versions.items():
        plant(site_packages(Path(env[name])), version)

    def stop() -> None:
        raise KeyboardInterrupt

    results, listener = tmp_path / "results", When("process 2 of 2: starting", stop)
    run("planted@old", "planted@new", env=env, store=Store(results), listener=listener, **FIELDS)
    (id,) = Unfinished(results).ids()
    for name, version in versions.items():
        plant(site_packages(Path(env[name])), "3.0.0")
        with pytest.raises(BadInput, match=f"{id}: planted is 3.0.0 now, and was {version};"):
            resume_study(id, Listener(), store=Store(results))
        plant(site_packages(Path(env[name])), version)
    python = Path(env["new"]) / "bin/python"
    python.rename(python.with_name("moved"))
    python.write_text("#!/bin/sh\nexit 3\n")
    python.chmod(0o755)
    with pytest.raises(BadInput, match=f"{id}: planted@new/cpu is unavailable: .* ended with code 3"):
        resume_study(id, Listener(), store=Store(results))
    python.with_name("moved").replace(python)

    document = resume_study(id, Listener(), store=Store(results))
    assert [result.status for result in document.results] == ["ok", "ok"]
    assert [len(result.steps) for result in document.results] == [2, 2]
    assert [result.versions["planted"] for result in document.results] == ["1.0", "2.0"]


def _machine(kept: Checkpoint) -> None:
    kept.context.host.cpu = "another"


def _version(kept: Checkpoint) -> None:
    for record in kept.records:
        assert record.probe is not None
        record.probe = msgspec.structs.replace(record.probe, versions={"fake": "0"})


def _data(kept: Checkpoint) -> None:
    kept.settings.data_sha256 = "0" * 64


def _threads(kept: Checkpoint) -> None:
    kept.records[0].environment["OMP_NUM_THREADS"] = "99"


def test_on_another_machine_or_with_other_versions_it_does_not_go_on(tmp_path: Path) -> None:
    id = stop_at("process 2 of 2: starting", tmp_path).id
    before, unfinished = saved(tmp_path), Unfinished(tmp_path)
    changes: dict[str, Callable[[Checkpoint], None]] = {
        r"cpu is .* now, and was another": _machine,
        r"fake is 1 now, and was 0": _version,
        r"data_sha256 is .* now, and was 000": _data,
        r"OMP_NUM_THREADS is .* now, and was 99": _threads,
    }
    whole = unfinished.read(id)
    for reason, change in changes.items():
        change(kept := unfinished.read(id))
        unfinished.write(id, kept)
        with pytest.raises(BadInput, match=f"cannot go on with {id}: {reason}"):
            resume_study(id, Listener(), store=Store(tmp_path))
        unfinished.write(id, whole)
    assert saved(tmp_path) == before
    with unfinished.claimed(id), pytest.raises(BadInput, match="runs still"):
        resume_study(id, Listener(), store=Store(tmp_path))
    (unfinished.folder / id / "state").write_bytes(b"\xde\xad")
    with pytest.raises(BadInput, match="cannot read"):
        resume_study(id, Listener(), store=Store(tmp_path))


def _grow_old(folder: Path) -> None:
    long_ago = time.time() - 3600
    os.utime(folder, (long_ago, long_ago))


def test_the_claim_of_a_running_study_stays_however_long_its_files_take(tmp_path: Path) -> None:
    unfinished = Unfinished(tmp_path)
    killed = unfinished.folder / "killed"
    killed.mkdir(parents=True)
    (killed / "lock").touch()
    with unfinished.claimed("running"):
        _grow_old(unfinished.folder / "running")
        _grow_old(killed)
        with unfinished.claimed("another"):
            assert {path.name for path in unfinished.folder.iterdir()} == {"running", "another"}
            with pytest.raises(BadInput, match="runs still"), unfinished.claimed("running"):
                pass


def test_what_was_kept_is_read_by_who_has_claimed_it_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    id = stop_at("process 2 of 2: starting", tmp_path).id
    whole, read = Unfinished(tmp_path), Unfinished.read

    def claimed_too(self: Unfinished, name: str) -> Checkpoint:
        with pytest.raises(BadInput, match="runs still"), whole.claimed(name):
            pass
        return read(self, name)

    monkeypatch.setattr(Unfinished, "read", claimed_too)
    assert resume_study(id, Listener(), store=Store(tmp_path)).finished


class Telling(Listener):
    """Knows what was told of the time that is left."""

    def __init__(self) -> None:
        super().__init__()
        self.left: list[float] = []

    def remaining(self, seconds: float) -> None:
        self.left.append(seconds)


def test_the_time_left_is_that_of_the_rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Estimate(1.0, 10.0, 20.0, 40.0, 2.0, 8.0, 100.0)
    monkeypatch.setattr("polybench.measuring.study.expected", lambda *_, **__: whole)
    id = stop_at("process 2 of 2: starting", tmp_path).id
    resume_study(id, listener := Telling(), store=Store(tmp_path))
    assert listener.left[1] == 20.0 / 2 + 40.0 / 2 + 8.0 + 100.0  # the first of all is of the data


def test_a_study_that_was_killed_before_its_first_document_is_listed(tmp_path: Path) -> None:
    unfinished = kill_at("process 1 of 2: round 1", tmp_path)
    (id,) = unfinished.ids()
    assert not list(tmp_path.glob("*.json"))
    command = ["list", "--results", str(tmp_path)]
    (row,) = json.loads(CliRunner().invoke(app, [*command, "--format", "json"]).stdout)
    assert (row["id"], row["finished"], row["resumable"], row["measured"]) == (id, False, True, 0)
    assert (row["model"], row["dataset"]) == ("lenet", "synthetic")
    assert row["cells"] == ["fake/cpu", "fake+slow/cpu"]
    assert f"{id} (to resume)" in CliRunner().invoke(app, command).stdout
    assert CliRunner().invoke(app, [*command, "--engine", "flux"]).stdout.startswith("none of 1 saved")
    (unfinished.folder / id / "state").write_bytes(b"\xde\xad")
    assert "unreadable: cannot read" in CliRunner().invoke(app, command).stdout
    (row,) = json.loads(CliRunner().invoke(app, [*command, "--format", "json"]).stdout)
    # Without a document nothing knows what `run ID` would repeat.
    assert "the same command without --resume measures all again" in row["unreadable"]
    assert f"`polybench resume {id} --discard` removes it" in row["unreadable"]


def test_what_is_given_up_is_gone_and_what_was_saved_stays(tmp_path: Path) -> None:
    id = stop_at("process 2 of 2: starting", tmp_path).id
    unfinished, before = Unfinished(tmp_path), saved(tmp_path)
    (unfinished.folder / id / "state").write_bytes(b"\xde\xad")
    command = ["resume", "last", "--results", str(tmp_path)]
    refused = CliRunner().invoke(app, command).exception
    assert isinstance(refused, BadInput)
    assert f"`polybench run {id}` measures all again; `polybench resume {id} --discard`" in str(refused)
    with unfinished.claimed(id):
        assert "runs still" in str(CliRunner().invoke(app, [*command, "--discard"]).exception)
        assert unfinished.ids() == [id]
    done = CliRunner().invoke(app, [*command, "--discard"])
    assert (done.exit_code, done.stdout) == (0, f"{id} is given up: it cannot be resumed any more\n")
    assert unfinished.ids() == []
    assert saved(tmp_path) == before
    assert not unfinished.folder.exists()


def test_a_damaged_one_is_no_reason_not_to_find_another(tmp_path: Path) -> None:
    id = stop_at("process 2 of 2: starting", tmp_path).id
    unfinished = Unfinished(tmp_path)
    damaged = unfinished.folder / "99999999-damaged"
    damaged.mkdir()
    (damaged / "state").write_bytes(b"\xde\xad")
    assert find_study(STUDY, Store(tmp_path)) == id
    other = msgspec.structs.replace(STUDY, processes=4)
    with pytest.raises(BadInput, match=rf"processes is 4 now.* resume {id}` .*; cannot read .*99999999-dam"):
        find_study(other, Store(tmp_path))
    unfinished.drop(id)
    with pytest.raises(BadInput, match=r"nothing to resume in .*; cannot read .*99999999-damaged"):
        find_study(STUDY, Store(tmp_path))


def test_a_study_file_goes_on_as_strict_and_as_anonymous_as_it_is_asked_to(tmp_path: Path) -> None:
    results, engines = tmp_path / "results", ("fake", "fake+unavailable")

    def stop() -> None:
        raise KeyboardInterrupt

    listener = When("process 2 of 2: starting", stop)
    run(*engines, listener=listener, store=Store(results), **FIELDS)
    (id,) = Unfinished(results).ids()
    file = tmp_path / "study.toml"
    file.write_text(study_toml(msgspec.structs.replace(STUDY, engines=engines)))
    command = ["run", str(file), "--resume", "--results", str(results), "--quiet", "--format", "json"]
    planned = CliRunner().invoke(app, [*command, "--dry-run"])
    assert (planned.exit_code, planned.stderr.splitlines()[0]) == (0, f"--resume goes on with {id}")
    refused = CliRunner().invoke(app, [*command, "--strict"]).exception
    assert isinstance(refused, StrictlyUnavailable)
    assert "fake+unavailable/cpu is unavailable" in str(refused)
    assert Unfinished(results).ids() == [id]  # what was measured is not lost

    done = CliRunner().invoke(app, [*command, "--anonymous"])
    assert done.exit_code == 0, done.output
    document = from_json(done.stdout.encode())
    assert (document.id, document.host.hostname) == (id, UNKNOWN_HOST)
    assert str(tmp_path) not in done.stdout + (results / f"{id}.json").read_text()
    planned = CliRunner().invoke(app, [*command, "--dry-run"])
    assert "there is nothing to resume" in str(planned.exception)


def test_a_dry_run_says_that_another_machine_cannot_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop() -> None:
        raise KeyboardInterrupt

    run("fake", listener=When("process 2 of 2: starting", stop), store=Store(tmp_path), **FIELDS)
    (id,) = Unfinished(tmp_path).ids()
    check_here(id, Store(tmp_path))
    elsewhere = msgspec.structs.replace(host.this_host(), hostname="elsewhere")
    monkeypatch.setattr(host, "this_host", lambda: elsewhere)
    with pytest.raises(BadInput, match=rf"cannot go on with {id}: hostname is elsewhere now"):
        check_here(id, Store(tmp_path))
