"""Logs and checkpoints of other users: whatever they contain, resuming is refused without a traceback or a deletion."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from polybench.errors import BadInput
from polybench.log import AnyEvent, Log, StudyEnded, decode_lines, encode_line, read_log
from polybench.machine import host
from polybench.runner.checkpoint import CheckpointStore, ClusterCheckpoint, ClusterRun, MachineStudy
from polybench.runner.prepare import new_header
from polybench.runner.resume import unfinished_ids
from polybench.runner.scratch import exclusive_lock
from polybench.schema.options import MachineGroup, Study
from polybench.storage.store import Store
from tests.commands import invoke, printed, printed_json, refused
from tests.runner.studies import FAST, interrupt_at, run

Content = dict[str, Any]
Events = list[Content]
SECOND_STUDY = "20250101-000000-abcd"


@pytest.fixture(scope="module")
def measured(shared_folders: Path) -> Path:
    """Return a results folder with a study that stopped after one of two process runs."""
    fields = FAST | {"rounds_per_process": 2, "parity": False, "epochs": 2}
    store, listener = Store(shared_folders / "results"), interrupt_at("process 2 of 2: starting")
    run("fake", "fake+slow", listener=listener, store=store, **fields)
    return store.folder


@pytest.fixture
def results(measured: Path, tmp_path: Path) -> Path:
    """Return a copy, beside a folder that no command may touch."""
    (tmp_path / "victim").mkdir()
    (tmp_path / "victim" / "thesis.tex").write_text("all of it")
    shutil.copytree(measured, tmp_path / "results")
    return tmp_path / "results"


def only_id(results: Path) -> str:
    (id,) = unfinished_ids(Store(results))
    return id


def log_of(results: Path) -> Path:
    return results / f"{only_id(results)}.jsonl"


def forge(log: Path, change: Callable[[Events], object]) -> None:
    """Change the events of a log."""
    events = [json.loads(line) for line in log.read_text().splitlines()]
    change(events)
    log.write_text("".join(json.dumps(event) + "\n" for event in events))


def snapshot(folder: Path) -> dict[str, bytes | None]:
    """Return all files below a folder, apart from locks."""
    return {
        str(path): path.read_bytes() if path.is_file() else None
        for path in sorted(folder.rglob("*"))
        if path.name != "lock"
    }


@pytest.mark.parametrize("id", ["../../victim", "../..", "/", "..", "", "victim\n", "x" * 200, SECOND_STUDY])
def test_the_id_in_a_log_leads_nowhere(id: str, results: Path) -> None:
    """The name of the file selects a log; another ID inside would delete and write elsewhere."""
    own = only_id(results)
    forge(log_of(results), lambda events: events[0].update(id=id))
    before = snapshot(results.parent)
    assert "cannot read" in refused("resume", own, "--results", results)
    rows = printed_json("list", "--results", results)
    assert {row["id"] for row in rows} == {own}
    assert snapshot(results.parent) == before
    assert invoke("resume", own, "--discard", "--results", results).exit_code == 0
    assert (results.parent / "victim" / "thesis.tex").exists()
    assert (results / f"{own}.jsonl.damaged").exists() == (id != SECOND_STUDY)  # with this one it is intact


@pytest.mark.parametrize("linked", ["logs", "logs/ID", "ID.state"])
def test_links_out_of_the_results_folder_are_refused(linked: str, results: Path) -> None:
    id, outside = only_id(results), results.parent / "outside"
    shutil.rmtree(results / "logs", ignore_errors=True)
    outside.mkdir()
    (outside / "training-0-0-1.npz").touch()
    link = results / linked.replace("ID", id)
    link.parent.mkdir(exist_ok=True)
    shutil.rmtree(link, ignore_errors=True)
    link.symlink_to(outside)
    before = snapshot(outside)
    assert "delete the link" in refused("resume", id, "--results", results)
    assert invoke("resume", id, "--discard", "--results", results).exit_code == 0
    assert snapshot(outside) == before


def test_a_log_is_not_written_through_a_link(results: Path) -> None:
    id, log, victim = only_id(results), log_of(results), results.parent / "victim" / "log"
    log.rename(victim)
    log.symlink_to(victim)
    before = victim.read_bytes()
    assert "cannot write" in refused("resume", id, "--results", results)
    assert "cannot write" in refused("resume", id, "--discard", "--results", results)
    assert victim.read_bytes() == before


def test_locks_neither_follow_links_nor_empty_files(results: Path, own_folders: Path) -> None:
    victim, id = results.parent / "victim" / "thesis.tex", SECOND_STUDY
    checkpoints = CheckpointStore(results)
    checkpoint = cluster("a", "b")
    checkpoint.header = msgspec.structs.replace(checkpoint.header, id=id)
    checkpoints.write(checkpoint)
    lock = checkpoints.folder / id / "lock"
    lock.symlink_to(victim)
    assert "cannot lock" in refused("resume", id, "--results", results)
    lock.unlink()
    lock.hardlink_to(victim)
    with checkpoints.lock(id), pytest.raises(Exception, match="still running"):
        CheckpointStore(results).lock(id).__enter__()
    with exclusive_lock():
        pass
    machine_lock = own_folders / "xdg_cache_home" / "polybench" / f"measuring-{host.boot_id()}.lock"
    assert machine_lock.stat().st_mode & 0o777 == 0o600
    machine_lock.unlink()
    machine_lock.symlink_to(victim)
    assert "Too many levels of symbolic links" in refused("compare", "--engines", "fake", "--data", "synthetic")
    assert victim.read_text() == "all of it"


def of_kind(events: Events, kind: str) -> list[Content]:
    return [event for event in events if event["event"] == kind]


def first(events: Events, kind: str) -> Content:
    return of_kind(events, kind)[0]


def set_step(value: float) -> Callable[[Events], object]:
    return lambda events: first(events, "block")["step_seconds"].__setitem__(0, value)


def drop(kind: str, number: int = 0) -> Callable[[Events], object]:
    return lambda events: events.remove(of_kind(events, kind)[number])


@pytest.mark.parametrize(
    ("again", "problem"),
    [
        (lambda events: {"event": "process_start", "process": 7}, "process run 7 starts after 1 have ended"),
        (lambda events: first(events, "settings"), "second settings"),
        (lambda events: first(events, "block"), "fake[+a-z]*/cpu in process run 0 after 1 have ended"),
    ],
)
def test_the_events_before_a_contradiction_can_be_shown(
    again: Callable[[Events], Content], problem: str, results: Path
) -> None:
    id, log = only_id(results), log_of(results)
    whole = printed_json("show", id, "--results", results)
    count = len(read_log(log))
    forge(log, lambda events: events.append(dict(again(events))))
    message = f"line {count + 1}: {problem}; {count} lines before it are usable"
    assert re.search(message, refused("show", id, "--results", results))
    assert printed_json("show", id, "--salvage", "--results", results) == whole


EPOCH: Content = {"event": "epoch", "configuration": "fake/cpu", "seed": 0, "number": 5}
EPOCH["epoch"] = {"seconds": 1.0, "steps_per_second": [1.0], "loss": 1.0, "accuracy": None}

DAMAGE: dict[str, Callable[[Events], object]] = {
    "negative process runs": lambda events: first(events, "process_end").update(process=-1),
    "more process runs than measured": lambda events: events.append({"event": "process_end", "process": 1}),
    "a process run that was not": lambda events: events.append({"event": "process_end", "process": 1, "budgets": []}),
    "a process run twice": lambda events: events.append({"event": "process_start", "process": 0}),
    "no configurations": lambda events: first(events, "settings").update(configurations=[]),
    "unknown configuration": lambda events: first(events, "settings")["configurations"][0]["configuration"].update(
        engine="nobody"
    ),
    "swapped configurations": lambda events: first(events, "settings")["configurations"].reverse(),
    "no settings": drop("settings"),
    "second settings": lambda events: events.append(dict(first(events, "settings"))),
    "settings at the end": lambda events: events.append(events.pop(events.index(first(events, "settings")))),
    "a block of a process run that has ended": lambda events: events.insert(
        events.index(of_kind(events, "process_end")[0]) + 1, first(events, "block") | {"round": 2}
    ),
    "the start of a worker in another process run": lambda events: first(events, "startup").update(process=7),
    "a later epoch": lambda events: events.append(EPOCH),
    "a block of nobody": lambda events: first(events, "block").update(configuration="nobody/cpu"),
    "a block without a process run": drop("process_start"),
    "no step times": lambda events: first(events, "block").update(step_seconds=[]),
    "no blocks": lambda events: [events.remove(event) for event in of_kind(events, "block")],
    "a lost round": drop("block"),
    "a round twice": lambda events: events.insert(events.index(first(events, "block")), dict(first(events, "block"))),
    "a lost counter": lambda events: first(events, "block").pop("counters"),
    "zero": set_step(0.0),
    "negative time": set_step(-1.0),
    "NaN": set_step(float("nan")),
    "infinity": set_step(float("inf")),
    "5e-324": set_step(5e-324),
    "1e308": set_step(1e308),
    "negative steps per value": lambda events: first(events, "block").update(steps_per_value=-3),
    "no steps per value": lambda events: first(events, "block").update(steps_per_value=0),
    "negative memory": lambda events: first(events, "block").update(peak_rss_bytes=-1),
    "huge wall time": lambda events: first(events, "block")["counters"].update(wall_seconds=1e308),
    "wrong type": lambda events: first(events, "startup").update(losses={}),
    "no header": lambda events: events.pop(0),
    "two headers": lambda events: events.insert(1, events[0]),
    "another schema": lambda events: events[0].update(schema="polybench.log/9"),
    "an unknown event": lambda events: events.append({"event": "surprise"}),
    "not an event": lambda events: events.append(["event"]),
    "not a study": lambda events: events[0].update(study="engines = 3"),
    "no TOML": lambda events: events[0].update(study="]"),
    "nothing": lambda events: events.clear(),
    "deep": lambda events: first(events, "startup").update(losses=json.loads("[" * 900 + "]" * 900)),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_log_is_bad_input_and_remains(damage: str, results: Path) -> None:
    id, log = only_id(results), log_of(results)
    forge(log, DAMAGE[damage])
    before = snapshot(results)
    assert id in refused("resume", id, "--results", results)
    assert snapshot(results) == before
    assert invoke("list", "--results", results).exit_code == 0
    for command in (["show", id], ["show", id, "--salvage"], ["report", id, "-o", results / "report.html"]):
        shown = invoke(*command, "--results", results)
        assert shown.exit_code == 0 or isinstance(shown.exception, BadInput), shown.exception


def test_a_line_that_is_no_event_is_named(results: Path) -> None:
    id, log = only_id(results), log_of(results)
    lines = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(b"".join([*lines[:4], b'{"event": "blo', b"ck}\n", *lines[5:]]))
    message = refused("resume", id, "--results", results)
    assert re.search(rf"{log.name}: line 5: .*; 4 lines before it are usable: `polybench show ID --salvage`", message)
    assert message.endswith(f"start over with the same command without --resume, or give it up with `{give_up(id)}`")


def give_up(id: str) -> str:
    return f"polybench resume {id} --discard"


def test_the_lines_before_a_damage_can_be_shown(results: Path) -> None:
    id, log = only_id(results), log_of(results)
    whole = printed_json("show", id, "--results", results)
    events = read_log(log)
    with log.open("ab") as file:
        file.write(b"damage\n" + encode_line(events[-1]))
    assert f"line {len(events) + 1}: " in refused("show", id, "--results", results)
    assert printed_json("show", id, "--salvage", "--results", results) == whole


def test_a_last_line_that_was_cut_off_is_removed(results: Path) -> None:
    log = log_of(results)
    whole = log.read_bytes()
    log.write_bytes(whole + b'{"event":"block","configuration"')
    assert read_log(log) == read_log_of(whole)
    done = invoke("resume", log.stem, "--results", results)
    assert done.exit_code == 0, done.output
    assert log.read_bytes().startswith(whole + b'{"event":')
    assert type(read_log(log)[-1]) is StudyEnded


def read_log_of(text: bytes) -> list[AnyEvent]:
    return list(decode_lines(text.splitlines(keepends=True), "text"))


def cluster(*ids: str) -> ClusterCheckpoint:
    groups = [MachineGroup(label="a"), MachineGroup(label="b")]
    return ClusterCheckpoint(
        header=new_header(),
        study="engines = ['fake']\n",
        run=ClusterRun(study=Study(engines=("fake",)), groups=groups, on="local"),
        machine_studies=[MachineStudy(label=label, study_id=id) for label, id in zip("ab", ids, strict=False)],
    )


@pytest.mark.parametrize(
    "checkpoint",
    [cluster("../../victim", SECOND_STUDY), cluster(SECOND_STUDY), cluster(SECOND_STUDY, SECOND_STUDY)],
    ids=lambda checkpoint: str(checkpoint.study_ids),
)
def test_runs_of_several_studies_name_only_their_own(checkpoint: ClusterCheckpoint, results: Path) -> None:
    id = checkpoint.header.id
    CheckpointStore(results).write(checkpoint)
    before = snapshot(results.parent)
    assert "cannot read checkpoint" in refused("resume", id, "--results", results)
    assert snapshot(results.parent) == before
    assert invoke("resume", id, "--discard", "--results", results).exit_code == 0
    assert (results.parent / "victim" / "thesis.tex").exists()
    assert len(unfinished_ids(Store(results))) == 1


SWEEP = "sweep-20250101-000000-abcd"
SWEPT: Content = {"id": SWEEP, "axes": {"threads": [1, 2]}, "command": "sweep", "usable_threads": 2}
POINT: Content = {"event": "point", "point": 0, "parameters": {"threads": 1}}


def forge_sweep(results: Path, header: Content, point: Content, event: Content) -> Path:
    """Make the study the first point of a sweep, with these fields of its header, of the point, and of its events."""
    log = log_of(results)
    first, *others = [json.loads(line) for line in log.read_text().splitlines()]
    own = [first | SWEPT | header, POINT | {"study": first["study"]} | point]
    path = log.rename(results / f"{SWEEP}.jsonl")
    path.write_text("".join(f"{json.dumps(one)}\n" for one in [*own, *(one | {"point": 0} | event for one in others)]))
    return path


@pytest.mark.parametrize(
    ("header", "point", "event"),
    [
        ({"id": "../../victim"}, {}, {}),
        ({"id": SECOND_STUDY}, {}, {}),
        ({"id": "overhead-20250101-000000-abcd"}, {}, {}),
        ({"command": None}, {}, {}),
        ({"axes": {}}, {}, {}),
        ({"axes": {"threads": [-1]}}, {}, {}),
        ({"axes": {"threads": [2]}}, {}, {}),
        ({"axes": {"color": [1, 2]}}, {}, {}),
        ({"axes": {name: [*range(1, 100)] for name in "abcdefgh"}}, {}, {}),
        ({}, {"point": -1}, {}),
        ({}, {"point": 7}, {}),
        ({}, {"point": None}, {}),
        ({}, {"parameters": {"color": 1}}, {}),
        ({}, {"study": "engines = ["}, {}),
        ({}, {}, {"point": 1}),
        ({}, {}, {"point": -1}),
        ({}, {}, {"event": "point", "parameters": {}, "study": ""}),
    ],
)
def test_a_forged_sweep_is_bad_input_and_remains(
    header: Content, point: Content, event: Content, results: Path
) -> None:
    forge_sweep(results, header, point, event)
    before = snapshot(results.parent)
    assert refused("resume", SWEEP, "--results", results)
    for arguments in ([SWEEP], [SWEEP, "--salvage"], [f"{SWEEP}.0"], [f"{SWEEP}.0", "--salvage"]):
        shown = invoke("show", *arguments, "--results", results)
        assert shown.exit_code == 0 or isinstance(shown.exception, BadInput)
    assert SWEEP in [row["id"] for row in printed_json("list", "--results", results)]
    assert snapshot(results.parent) == before


def test_a_study_that_became_the_point_of_a_sweep_is_shown(results: Path) -> None:
    study = printed_json("show", only_id(results), "--results", results)
    forge_sweep(results, {}, {}, {})
    point = printed_json("show", f"{SWEEP}.0", "--results", results)
    assert [one["step_time"] for one in point["results"]] == [one["step_time"] for one in study["results"]]
    assert [one["id"] for one in printed_json("show", SWEEP, "--results", results)["points"]] == [f"{SWEEP}.0"]


def test_discarding_a_cluster_run_spares_a_study_that_runs(results: Path) -> None:
    running = only_id(results)
    CheckpointStore(results).write(foreign := cluster(running, SECOND_STUDY))
    with Log.resume(log_of(results)):
        assert "still running" in refused("resume", foreign.header.id, "--discard", "--results", results)
    assert only_id(results) == running


def test_every_unfinished_run_is_listed_once_under_the_name_of_its_file(results: Path) -> None:
    id, log = only_id(results), log_of(results)
    CheckpointStore(results).write(cluster(id, SECOND_STUDY))  # its studies are listed
    copies = ["20250101-000000-aaaa", "20250101-000000-bbbb", "_"]
    for copy in copies:
        shutil.copy(log, results / f"{copy}.jsonl")
    (results / f"{id}.json").write_text(printed("show", id, "--format", "json", "--results", results))
    (results / "copy.json").write_bytes((results / f"{id}.json").read_bytes())
    listed = [row["id"] for row in printed_json("list", "--results", results)]
    assert sorted(listed) == sorted([id, *copies])  # reports are no studies


def test_a_training_is_not_saved_through_a_link(results: Path) -> None:
    """The worker writes the state of a training, and would follow a link beside the log."""
    id = only_id(results)
    victim = results.parent / "victim" / "thesis.tex"
    folder = results / f"{id}.state"
    folder.mkdir(exist_ok=True)
    for seed in range(2):
        (folder / f"training-0-{seed}-1.npz").symlink_to(victim)
    done = invoke("resume", id, "--results", results)
    assert done.exit_code == 0, done.output
    assert victim.read_text() == "all of it"
