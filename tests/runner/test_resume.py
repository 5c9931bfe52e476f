"""Resuming unfinished studies: finished measurements are restored and not repeated."""

from __future__ import annotations

import json
import os
import py_compile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from typer.testing import CliRunner

import polybench.log
from polybench.cli import app
from polybench.engines import ENGINES, EngineSpec
from polybench.errors import BadInput, RequiredEngineMissing
from polybench.log import AnyEvent, Failed, Log, read_log
from polybench.results.document import study_toml
from polybench.results.measured import measured_study
from polybench.run import resume_study, run_study
from polybench.runner import checkpoint
from polybench.runner.checkpoint import (
    CheckpointStore,
    ClusterCheckpoint,
    ClusterRun,
    MachineStudy,
    find_resumable,
    find_unfinished,
)
from polybench.runner.prepare import new_header, new_log
from polybench.runner.resume import unfinished_ids, unfinished_log
from polybench.schema.metadata import UNKNOWN_HOST
from polybench.schema.options import MachineGroup, Study
from polybench.schema.study import StudyDocument, from_json
from polybench.storage.store import Store
from tests import small_datasets
from tests.environments import make_environment, site_packages, write_engine
from tests.runner.studies import FAST, CallbackOnStage, RecordingProgress, interrupt_at, kill_at, run, saved
from tests.simulated_machine import Machine, Script, study_of

FIELDS = FAST | {"processes": 2, "rounds_per_process": 2, "parity": False, "epochs": 1}
STUDY = Study(engines=("fake", "fake+slow"), **FIELDS)


def killed_at(stage: str, results: Path, study: Study = STUDY) -> Path:
    """Run the study in another process, which is killed at this stage; return its log."""
    kill_at(stage, run_study, study, store=Store(results))
    (log,) = results.glob("*.jsonl")
    return log


def unfinished_id(results: Path) -> str:
    (id,) = unfinished_ids(Store(results))
    return id


def stop_at(stage: str, results: Path) -> StudyDocument:
    """Run the study in this process, and interrupt it at this stage."""
    return run(*STUDY.engines, listener=interrupt_at(stage), store=Store(results), **FIELDS)


def test_a_study_is_locked_while_it_runs(tmp_path: Path) -> None:
    tried: list[str] = []
    scripts = {"torch": Script()}

    def try_to_lock() -> None:
        id = unfinished_id(tmp_path)
        with pytest.raises(BadInput, match="is still running"), Log.resume(tmp_path / f"{id}.jsonl"):
            pass
        tried.append(id)

    progress = CallbackOnStage("process 2 of 2: starting", try_to_lock)
    with Machine().simulate(scripts):
        document = run_study(study_of(scripts, processes=2, rounds_per_process=1), progress, store=Store(tmp_path))
    assert tried == [document.id]


@pytest.mark.parametrize(("started", "resumed"), [(False, False), (True, False), (True, True)])
def test_a_study_stays_as_it_has_started(started: bool, resumed: bool, tmp_path: Path) -> None:
    store, scripts = Store(tmp_path), {"torch": Script()}
    study, header = study_of(scripts, processes=2, rounds_per_process=1), new_header(anonymous=started)
    with Machine().simulate(scripts):
        run_study(study, interrupt_at("process 2 of 2: starting"), store=store, header=header)
        document = resume_study(header.id, RecordingProgress(), store=store, anonymous=resumed)
    assert (document.host.hostname == UNKNOWN_HOST) == started
    assert document == store.load(header.id)
    assert [len(result.nested_step_times) for result in document.results] == [2]


def test_what_is_added_to_an_anonymous_study_names_nobody(tmp_path: Path) -> None:
    header, store = new_header(anonymous=True), Store(tmp_path)
    with Machine().simulate({"torch": Script()}):
        study = study_of({"torch": Script()}, processes=2, rounds_per_process=1)
        run_study(study, interrupt_at("process 2 of 2: starting"), store=store, header=header)
    with unfinished_log(header.id, store) as (log, _):
        log.release()
        log.add(Failed(configuration="torch/cpu", status="failed", reason="no file /home/mary/net.py", hint=None))
    text = (tmp_path / f"{header.id}.jsonl").read_text("utf-8")
    assert text.splitlines()[-1].startswith('{"event":"failure"')
    assert "mary" not in text


def test_a_resumed_study_can_require_its_engines(tmp_path: Path) -> None:
    engines = ("fake", "faulty+unavailable")
    run(*engines, listener=interrupt_at("process 2 of 2: starting"), store=Store(tmp_path), **FIELDS)
    id = unfinished_id(tmp_path)
    with pytest.raises(RequiredEngineMissing, match=r"faulty\+unavailable/cpu is unavailable"):
        resume_study(id, RecordingProgress(), store=Store(tmp_path), strict=True)
    assert unfinished_id(tmp_path) == id
    assert next(iter(resume_study(id, RecordingProgress(), store=Store(tmp_path)).results)).is_measured


def test_a_study_with_names_does_not_become_anonymous(tmp_path: Path) -> None:
    id = stop_at("process 2 of 2: starting", tmp_path).id
    before = (tmp_path / f"{id}.jsonl").read_bytes()
    with pytest.raises(BadInput, match=f"{id} has started with names: .* `polybench show {id} --anonymous`"):
        resume_study(id, RecordingProgress(), store=Store(tmp_path), anonymous=True)
    assert (tmp_path / f"{id}.jsonl").read_bytes() == before


def test_an_anonymous_study_of_a_folder_is_not_resumed(tmp_path: Path) -> None:
    images = small_datasets.cifar_folder(tmp_path, 300)
    study = msgspec.structs.replace(STUDY, data=str(images), batch_size=16)
    header = new_header(anonymous=True)
    run_study(study, interrupt_at("process 2 of 2: starting"), store=Store(tmp_path / "results"), header=header)
    with pytest.raises(BadInput, match="an anonymous log lacks the paths of data and environments"):
        resume_study(header.id, RecordingProgress(), store=Store(tmp_path / "results"))


@pytest.mark.parametrize(
    ("stage", "process_runs", "trainings"),
    [
        pytest.param("process 1 of 2: round 2", 0, 0, marks=pytest.mark.wide),
        ("process 2 of 2: round 1", 1, 0),
        (r"fake\+slow/cpu, seed 1", 2, 2),
    ],
)
def test_a_killed_study_is_resumed_to_completion(stage: str, process_runs: int, trainings: int, tmp_path: Path) -> None:
    log = killed_at(stage, tmp_path)
    id, before = log.stem, measured_study(read_log(log))
    assert before.process_runs == process_runs
    runs = {run.configuration.name: run for run in before.runs}
    trained = sum(len(run.trainings) for run in before.runs)
    assert abs(trained - trainings) <= 1  # each seed trains configurations in random order
    document = resume_study(id, listener := RecordingProgress(), store=Store(tmp_path))

    stages = " ".join(listener.stages)
    for number in range(2):
        assert (f"process {number + 1} of 2: starting" in stages) == (number >= process_runs)
    assert sum("training" in text for text in listener.stages) == 4 - trained
    for result in document.results:
        before_run = runs[result.configuration]
        assert result.status == "ok"
        assert [len(process) for process in result.nested_step_times] == [2, 2]
        assert result.nested_step_times[:process_runs] == before_run.step_times[:process_runs]
        assert [len(process) for process in result.interference.blocks] == [2, 2]
        assert sorted(training.seed for training in result.trainings) == [0, 1]
        assert all(training in result.trainings for training in before_run.trainings)
    assert len(document.interference) == 4
    assert document == saved(tmp_path)
    assert document.finished
    assert [(one.processes, one.trainings) for one in document.resumed] == [(process_runs, trained)]
    assert any("resumed after" in text for text in document.warnings)
    assert unfinished_ids(Store(tmp_path)) == []
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"{id}.jsonl", "logs"]


def test_a_killed_training_is_resumed_after_its_last_epoch(tmp_path: Path) -> None:
    study = msgspec.structs.replace(STUDY, engines=("fake",), processes=1, epochs=3, accuracy=True)
    log = killed_at("epoch 3", tmp_path, study)
    id = log.stem
    (before,) = measured_study(read_log(log)).runs[0].trainings
    assert len(before.epochs) == 2
    listener = RecordingProgress()
    document = resume_study(id, listener, store=Store(tmp_path))

    assert [text for text in listener.stages if "epoch" in text] == ["training fake/cpu, seed 0, epoch 3"]
    (training,) = document.results[0].trainings
    assert training.complete
    assert training.epochs[:2] == before.epochs
    # The engine's accuracy depends on the steps of both processes.
    accuracies = [epoch.accuracy or 0 for epoch in training.epochs]
    assert accuracies == sorted(set(accuracies))
    (warning,) = document.results[0].warnings
    assert warning == "the training of seed 0 was resumed in another process after 2 epochs"
    assert unfinished_ids(Store(tmp_path)) == []
    assert not list(tmp_path.glob("*.state"))


def test_a_training_whose_last_epoch_was_not_saved_is_resumed_after_the_one_before(tmp_path: Path) -> None:
    study = msgspec.structs.replace(STUDY, engines=("fake",), processes=1, epochs=4)
    log = killed_at("epoch 4", tmp_path, study)
    id = log.stem
    older, newer = sorted(log.with_suffix(".state").glob("training-*.npz"))
    newer.unlink()
    document = resume_study(id, listener := RecordingProgress(), store=Store(tmp_path))
    assert older.name.endswith("-2.npz")
    assert [text[-7:] for text in listener.stages if "epoch" in text] == ["epoch 3", "epoch 4"]
    (training,) = document.results[0].trainings
    assert len(training.epochs) == 4


def test_a_training_with_a_corrupt_state_restarts(tmp_path: Path) -> None:
    study = msgspec.structs.replace(STUDY, engines=("fake",), processes=1, epochs=3)
    log = killed_at("epoch 3", tmp_path, study)
    id = log.stem
    max(log.with_suffix(".state").glob("training-*.npz")).write_bytes(b"no archive")
    document = resume_study(id, listener := RecordingProgress(), store=Store(tmp_path))
    assert sum("epoch" in text for text in listener.stages) == 3
    (training,) = document.results[0].trainings
    assert training.complete
    (warning,) = document.results[0].warnings
    assert warning == "the training of seed 0 restarted: its saved state cannot be restored"


def test_an_interrupted_study_is_listed_found_by_its_settings_and_resumed(tmp_path: Path) -> None:
    stopped = stop_at("process 2 of 2: round 2", tmp_path)
    assert [result.hint for result in stopped.results] == [f"polybench resume {stopped.id}"] * 2
    listed = CliRunner().invoke(app, ["list", "--results", str(tmp_path)]).stdout
    assert f"{stopped.id} (to resume)" in listed
    assert find_unfinished(STUDY, Store(tmp_path)) == stopped.id
    other = msgspec.structs.replace(STUDY, processes=4)
    with pytest.raises(BadInput, match="processes was 2, now 4: `polybench resume"):
        find_unfinished(other, Store(tmp_path))
    result = CliRunner().invoke(app, ["resume", "last", "--results", str(tmp_path), "--format", "json"])
    assert result.exit_code == 0, result.output
    document = from_json(result.stdout.encode())
    assert document.id == stopped.id
    assert {one.status for one in document.results} == {"ok"}
    assert "(to resume)" not in CliRunner().invoke(app, ["list", "--results", str(tmp_path)]).stdout
    with pytest.raises(BadInput, match="cannot resume 'last'"):
        find_resumable("last", Store(tmp_path))


def test_a_study_with_several_environments_is_resumed_if_each_is_unchanged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = EngineSpec("demo_engine:Engine", "", startup_seconds=1.0, copies_data=False, computes=False)
    monkeypatch.setitem(ENGINES, "demo_engine", spec)
    env = {name: str(make_environment(tmp_path / name)) for name in ("old", "new")}
    versions = {"old": "1.0", "new": "2.0"}

    def install(version: str, name: str) -> None:
        """Link to the version's file: a file that is written again is other code."""
        if not (source := tmp_path / version).exists():
            source.mkdir()
            write_engine(source, version)
        (link := site_packages(Path(env[name])) / "demo_engine.py").unlink(missing_ok=True)
        link.symlink_to(source / "demo_engine.py")

    for name, version in versions.items():
        install(version, name)

    results, listener = tmp_path / "results", interrupt_at("process 2 of 2: starting")
    run("demo_engine@old", "demo_engine@new", env=env, store=Store(results), listener=listener, **FIELDS)
    id = unfinished_id(results)
    for name, version in versions.items():
        install("3.0.0", name)
        with pytest.raises(BadInput, match=f"{id}: demo_engine was {version}, now 3.0.0: "):
            resume_study(id, RecordingProgress(), store=Store(results))
        install(version, name)
    python = Path(env["new"]) / "bin/python"
    python.rename(python.with_name("moved"))
    python.write_text("#!/bin/sh\nexit 3\n")
    python.chmod(0o755)
    with pytest.raises(BadInput, match=f"{id}: demo_engine@new/cpu is unavailable: .* exited with code 3"):
        resume_study(id, RecordingProgress(), store=Store(results))
    python.with_name("moved").replace(python)

    document = resume_study(id, RecordingProgress(), store=Store(results))
    assert [result.status for result in document.results] == ["ok", "ok"]
    assert [len(result.nested_step_times) for result in document.results] == [2, 2]
    assert [result.versions["demo_engine"] for result in document.results] == ["1.0", "2.0"]


CHANGES: dict[str, tuple[str, Callable[[dict[str, Any]], object]]] = {
    r"cpu was another, now ": ("header", lambda event: event["host"].update(cpu="another")),
    r"fake was 0, now 1": ("engine", lambda event: event.update(versions={"fake": "0"})),
    r"data_sha256 was 000\S*, now ": ("settings", lambda event: event["settings"].update(data_sha256="0" * 64)),
    r"OMP_NUM_THREADS was 99, now ": (
        "settings",
        lambda event: event["configurations"][0]["env_vars"].update(OMP_NUM_THREADS="99"),
    ),
    r"an environment variable .* another value": (
        "settings",
        lambda event: event["configurations"][0].update(unrecorded_env_hash="0"),
    ),
}


def change(log: Path, kind: str, edit: Callable[[dict[str, Any]], object]) -> None:
    """Change all events of a kind in a log."""
    events = [json.loads(line) for line in log.read_text().splitlines()]
    for event in events:
        if event["event"] == kind:
            edit(event)
    log.write_text("".join(json.dumps(event) + "\n" for event in events))


def test_a_study_is_not_resumed_on_another_machine_or_with_other_versions(tmp_path: Path) -> None:
    id = stop_at("process 2 of 2: starting", tmp_path).id
    log, before = tmp_path / f"{id}.jsonl", saved(tmp_path)
    original = log.read_bytes()
    for reason, (kind, edit) in CHANGES.items():
        change(log, kind, edit)
        changed = log.read_bytes()
        with pytest.raises(BadInput, match=f"cannot resume {id}: {reason}"):
            resume_study(id, RecordingProgress(), store=Store(tmp_path))
        assert log.read_bytes() == changed  # nothing was appended
        log.write_bytes(original)
    assert saved(tmp_path) == before
    with Log.resume(log), pytest.raises(BadInput, match="is still running"):
        resume_study(id, RecordingProgress(), store=Store(tmp_path))
    log.write_bytes(b"\xde\xad\n")
    with pytest.raises(BadInput, match="cannot read"):
        resume_study(id, RecordingProgress(), store=Store(tmp_path))


def test_a_study_is_not_resumed_if_a_file_that_was_loaded_late_has_changed(tmp_path: Path) -> None:
    stopped = interrupt_at("process 2 of 2: starting")
    id = run(*STUDY.engines, listener=stopped, store=Store(tmp_path), **(FIELDS | {"parity": True})).id
    log, library = tmp_path / f"{id}.jsonl", tmp_path / "library.so"
    with Log.resume(log) as resumed:
        resumed.save_content("0" * 64, {str(library): "0 0"})
    change(log, "parity", lambda event: event.update(later_code_sha256="0" * 64))
    library.touch()
    with pytest.raises(BadInput, match=f"cannot resume {id}: the loaded code changed: {library}: start over"):
        resume_study(str(id), RecordingProgress(), store=Store(tmp_path))
    library.unlink()  # it may have been temporary
    assert resume_study(str(id), RecordingProgress(), store=Store(tmp_path)).finished


@pytest.mark.usefixtures("started_processes")
def test_a_study_is_not_resumed_if_python_runs_other_code_at_its_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    results = tmp_path / "results"
    before = stop_at("process 2 of 2: starting", results)
    source = tmp_path / "source"
    source.write_text("import time; time.sleep = lambda seconds: None\n")
    for startup in (tmp_path / "sitecustomize.py", tmp_path / "sitecustomize.pyc"):
        if startup.suffix == ".py":
            startup.write_text(source.read_text())
        else:
            py_compile.compile(str(source), str(startup), doraise=True)
        reason = f"cannot resume {before.id}: the loaded code changed: {startup}: start over"
        with pytest.raises(BadInput, match=reason):
            resume_study(str(before.id), RecordingProgress(), store=Store(results))
        startup.unlink()
    document = resume_study(str(before.id), RecordingProgress(), store=Store(results))
    assert [result.code_fingerprint for result in document.results] == [
        result.code_fingerprint for result in before.results
    ]
    assert len(document.results[0].code_fingerprint or "") == 64


@pytest.mark.usefixtures("started_processes")
def test_code_that_changes_between_two_processes_of_a_study_is_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    startup = tmp_path / "sitecustomize.py"
    listener = CallbackOnStage("process 2 of 2: starting", lambda: startup.write_text("import time\n"))
    fields = FIELDS | {"epochs": None}
    (result,) = run("fake", listener=listener, store=Store(tmp_path / "results"), **fields).results
    assert result.warnings == [f"between two processes of this study, the loaded code changed: {startup}"]


def _make_old(folder: Path) -> None:
    an_hour_ago = time.time() - 3600
    os.utime(folder, (an_hour_ago, an_hour_ago))


def test_the_lock_of_a_running_study_does_not_expire(tmp_path: Path) -> None:
    checkpoints = CheckpointStore(tmp_path)
    killed = checkpoints.folder / "killed"
    killed.mkdir(parents=True)
    (killed / "lock").touch()
    (checkpoints.folder / "empty").mkdir()
    with checkpoints.lock("running"):
        _make_old(checkpoints.folder / "running")
        _make_old(killed)
        _make_old(checkpoints.folder / "empty")
        with checkpoints.lock("another"):
            assert {path.name for path in checkpoints.folder.iterdir()} == {"running", "another"}
            with pytest.raises(BadInput, match="is still running"), checkpoints.lock("running"):
                pass


def test_no_folder_is_left_if_an_open_file_is_deleted_when_it_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def remove_as_nfs(folder: Path, root: Path) -> None:
        (folder / "lock").unlink()  # NFS renames it, so that the folder cannot be removed yet

    monkeypatch.setattr(checkpoint, "remove_folder", remove_as_nfs)
    with (checkpoints := CheckpointStore(tmp_path)).lock("finished"):
        pass
    assert not checkpoints.folder.exists()


IDS = [f"2025010{day}-000000-abcd" for day in (2, 3, 1)]
"""IDs of runs, in an order that is not that of their starts."""


def test_the_newest_unfinished_study_is_resumed(tmp_path: Path) -> None:
    for id in IDS:
        with new_log(STUDY, msgspec.structs.replace(new_header(), id=id), Store(tmp_path)):
            pass
    assert unfinished_ids(Store(tmp_path)) == sorted(IDS, reverse=True)
    assert find_unfinished(STUDY, Store(tmp_path)) == IDS[1]
    assert find_resumable("last", Store(tmp_path)).id == IDS[1]
    with pytest.raises(BadInput, match=f"in {IDS[1]}, seed was 0, now 1"):
        find_unfinished(msgspec.structs.replace(STUDY, seed=1), Store(tmp_path))


def test_the_newest_unfinished_cluster_run_is_resumed(tmp_path: Path) -> None:
    run = ClusterRun(study=STUDY, groups=[MachineGroup()], on="local")
    for id in IDS:
        header = msgspec.structs.replace(new_header(), id=id)
        studies = [MachineStudy(label="local", study_id=f"{id[:-1]}e")]
        CheckpointStore(tmp_path).write(
            ClusterCheckpoint(header=header, study=study_toml(STUDY), run=run, machine_studies=studies)
        )
    selection = checkpoint.select_machines(run.groups)
    assert [one.header.id for one in CheckpointStore(tmp_path).read_all()] == sorted(IDS, reverse=True)
    assert find_unfinished(STUDY, Store(tmp_path), "cluster", selection) == IDS[1]
    assert find_resumable("last", Store(tmp_path)) == (IDS[1], "cluster")
    with pytest.raises(BadInput, match=f"in {IDS[1]}, seed was 0, now 1"):
        find_unfinished(msgspec.structs.replace(STUDY, seed=1), Store(tmp_path), "cluster", selection)


def test_a_log_is_read_only_while_locked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    id, read = stop_at("process 2 of 2: starting", tmp_path).id, polybench.log.read_log

    def check_lock_and_read(path: Path) -> list[AnyEvent]:
        with pytest.raises(BadInput, match="is still running"), Log.resume(path):
            pass
        return read(path)

    monkeypatch.setattr(polybench.log, "read_log", check_lock_and_read)
    assert resume_study(id, RecordingProgress(), store=Store(tmp_path)).finished


def test_a_study_that_was_killed_before_its_first_save_is_listed(tmp_path: Path) -> None:
    log = killed_at("process 1 of 2: round 1", tmp_path)
    id = log.stem
    assert not list(tmp_path.glob("*.json"))
    command = ["list", "--results", str(tmp_path)]
    (row,) = json.loads(CliRunner().invoke(app, [*command, "--format", "json"]).stdout)
    assert (row["id"], row["finished"], row["resumable"], row["measured"]) == (id, False, True, 0)
    assert (row["model"], row["dataset"]) == ("lenet", "synthetic")
    assert row["configurations"] == ["fake/cpu", "fake+slow/cpu"]
    assert f"{id} (to resume)" in CliRunner().invoke(app, command).stdout
    assert (
        CliRunner().invoke(app, [*command, "--engine", "flux"]).stdout.startswith("no saved study matches (1 searched)")
    )
    log.write_bytes(b"\xde\xad\n")
    assert "unreadable: cannot read" in CliRunner().invoke(app, command).stdout
    (row,) = json.loads(CliRunner().invoke(app, [*command, "--format", "json"]).stdout)
    assert "line 1: " in row["unreadable"]


@pytest.mark.parametrize("damaged", [False, True])
def test_a_discarded_study_cannot_be_resumed_and_keeps_its_measurements(damaged: bool, tmp_path: Path) -> None:
    id = stop_at("process 2 of 2: starting", tmp_path).id
    log, before = tmp_path / f"{id}.jsonl", saved(tmp_path)
    events = read_log(log)
    command = ["resume", "last", "--results", str(tmp_path)]
    if damaged:
        log.write_bytes(b"\xde\xad\n")
        error = CliRunner().invoke(app, command).exception
        assert isinstance(error, BadInput)
        fix = f"start over with the same command without --resume, or give it up with `polybench resume {id} --discard`"
        assert fix in str(error)
    else:
        with Log.resume(log):
            assert "is still running" in str(CliRunner().invoke(app, [*command, "--discard"]).exception)
    assert unfinished_id(tmp_path) == id
    done = CliRunner().invoke(app, [*command, "--discard"])
    assert (done.exit_code, done.stdout) == (0, f"{id} can no longer be resumed; its measurements remain\n")
    assert unfinished_ids(Store(tmp_path)) == []
    if damaged:
        assert Path(f"{log}.damaged").read_bytes() == b"\xde\xad\n"
    else:
        assert saved(tmp_path) == before
        assert read_log(log)[:-1] == events


def test_a_damaged_log_does_not_hide_others(tmp_path: Path) -> None:
    id = stop_at("process 2 of 2: starting", tmp_path).id
    (tmp_path / "99999999-corrupt.jsonl").write_bytes(b"\xde\xad\n")
    assert find_unfinished(STUDY, Store(tmp_path)) == id
    other = msgspec.structs.replace(STUDY, processes=4)
    with pytest.raises(BadInput, match=rf"processes was 2, now 4: .* resume {id}` .*; cannot read .*99999999-corrupt"):
        find_unfinished(other, Store(tmp_path))
    (tmp_path / f"{id}.jsonl").unlink()
    with pytest.raises(BadInput, match=r"no unfinished study in .*; cannot read .*99999999-corrupt"):
        find_unfinished(STUDY, Store(tmp_path))


def test_resuming_a_study_file_respects_strict_and_anonymous(tmp_path: Path) -> None:
    results, engines = tmp_path / "results", ("fake", "faulty+unavailable")
    run(*engines, listener=interrupt_at("process 2 of 2: starting"), store=Store(results), **FIELDS)
    id = unfinished_id(results)
    file = tmp_path / "study.toml"
    file.write_text(study_toml(msgspec.structs.replace(STUDY, engines=engines)))
    command = ["run", str(file), "--resume", "--results", str(results), "--quiet", "--format", "json"]
    planned = CliRunner().invoke(app, [*command, "--dry-run"])
    assert (planned.exit_code, planned.stderr.splitlines()[0]) == (0, f"--resume would resume {id}")
    error = CliRunner().invoke(app, [*command, "--strict"]).exception
    assert isinstance(error, RequiredEngineMissing)
    assert "faulty+unavailable/cpu is unavailable" in str(error)
    assert unfinished_id(results) == id  # the measurements remain

    refused = CliRunner().invoke(app, [*command, "--anonymous"]).exception
    assert "has started with names" in str(refused)
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.output
    assert from_json(done.stdout.encode()).id == id
    planned = CliRunner().invoke(app, [*command, "--dry-run"])
    assert "no unfinished study in" in str(planned.exception)
