"""Fleets on this machine: real node programs, real workers of the engine `fake`."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest
from typer.testing import CliRunner

from polybench.cli import app
from polybench.core.document.study import StudyDocument, from_json
from polybench.core.errors import BadInput, StrictlyUnavailable
from polybench.fleet import driver
from polybench.fleet.driver import FleetMeasured
from polybench.fleet.messages import Program
from polybench.fleet.run import resume_fleet, run_fleet
from polybench.measuring.checkpoint import Unfinished
from polybench.measuring.fleet_checkpoint import Fleet, UnfinishedFleets
from polybench.measuring.resumable import Found, discard, find, find_fleet
from polybench.measuring.study import run_study
from polybench.report.saved_studies import Store
from tests.fleet.fleets import At, fleet, study
from tests.measuring.test_study import Listener


def node_programs() -> list[psutil.Process]:
    """Of this process."""
    return [
        child for child in psutil.Process().children() if "polybench.fleet.node" in " ".join(child.cmdline())
    ]


def kill_the_node() -> None:
    for child in node_programs():
        os.kill(child.pid, signal.SIGKILL)


def only(measured: FleetMeasured) -> StudyDocument:
    (machine,) = measured.machines
    assert machine.document is not None
    return machine.document


def run(asked: Fleet, folder: Path, listener: Listener | None = None) -> FleetMeasured:
    return run_fleet(asked, listener or Listener(), store=Store(folder))


def test_one_machine_gives_the_document_of_the_plain_way(tmp_path: Path) -> None:
    asked = fleet(tmp_path)
    there = only(run(asked, tmp_path / "there", listener := Listener()))
    here = run_study(asked.study, plain := Listener(), store=Store(tmp_path / "here"))
    assert listener.stages == ["looking at the machines of local", *plain.stages]
    assert listener.warnings == there.warnings
    assert there.warnings[0] == here.warnings[0]  # others say how busy the machine was
    for one, other in zip(there.results, here.results, strict=True):
        assert (one.cell, one.status, one.workload) == (other.cell, other.status, other.workload)
        assert [list(map(len, process)) for process in one.steps] == [[2], [2]]
        assert one.versions == other.versions
    alike = ("study", "settings", "machine", "finished", "title", "polybench")
    assert [getattr(there, name) for name in alike] == [getattr(here, name) for name in alike]
    assert from_json((tmp_path / "there" / f"{there.id}.json").read_bytes()) == there
    assert [path.name for path in (tmp_path / "there").iterdir()] == [f"{there.id}.json"]
    assert node_programs() == []


def test_several_machines_are_studies_of_their_own_and_one_table(tmp_path: Path) -> None:
    file = tmp_path / "study.toml"
    write = study(tmp_path)
    file.write_text(
        f'engines = ["fake"]\ndata = "{write.data}"\nbatch_size = 16\nprocesses = 1\nrounds = 1\nsteps = 2\n'
        'parity = false\nmetrics = false\nbaseline = "b:fake/cpu"\nprices = {cpu = 1.0}\n'
        '[[machines]]\nlabel = "a"\n[[machines]]\nlabel = "b"\nprice = 2.0\n'
    )
    command = ["run", str(file), "--results", str(tmp_path / "r"), "--quiet"]
    table = CliRunner().invoke(app, [*command, "--on", "local", "--format", "json"])
    assert table.exit_code == 0, table.output
    document = msgspec.json.decode(table.stdout)
    assert document["baseline"] == "b:fake/cpu"
    assert [(one["name"], one["prices"]) for one in document["machines"]] == [
        ("a", {"cpu": 1.0}),
        ("b", {"cpu": 2.0}),
    ]
    assert [row["status"] for row in document["rows"]] == ["ok", "ok"]
    costs = [row["relative_cost"] for row in document["rows"]]
    assert costs[1] == 1
    seconds = [row["seconds_per_step"] for row in document["rows"]]
    assert costs[0] == pytest.approx(0.5 * seconds[0] / seconds[1])
    saved = [from_json(path.read_bytes()) for path in sorted((tmp_path / "r").glob("*.json"))]
    assert sorted((one.machine or "", one.settings.prices["cpu"]) for one in saved) == [
        ("a", 1.0),
        ("b", 2.0),
    ]
    refused = CliRunner().invoke(app, command)
    assert "for the machines a, b; say where they are" in str(refused.exception)


def test_a_baseline_that_was_not_measured_costs_nobody_the_table(tmp_path: Path) -> None:
    file, images = tmp_path / "study.toml", study(tmp_path).data
    file.write_text(
        f'engines = ["fake", "fake+unavailable"]\ndata = "{images}"\nbatch_size = 16\nprocesses = 1\n'
        'rounds = 1\nsteps = 2\nparity = false\nmetrics = false\nbaseline = "b:fake+unavailable/cpu"\n'
        '[[machines]]\nlabel = "a"\n[[machines]]\nlabel = "b"\n'
    )
    command = ["run", str(file), "--results", str(tmp_path / "r"), "--on", "local", "--format", "json"]
    table = CliRunner().invoke(app, command)
    assert table.exit_code == 0, table.output
    assert msgspec.json.decode(table.stdout)["baseline"] == "a:fake/cpu"
    assert "the baseline b:fake+unavailable/cpu was not measured; another row" in table.stderr


def test_a_node_that_is_killed_is_taken_over_by_another(tmp_path: Path) -> None:
    listener = At("process 2 of 2: starting", kill_the_node)
    document = only(run(fleet(tmp_path), tmp_path / "r", listener))
    assert any("SIGKILL; another machine takes over" in text for text in listener.warnings)
    assert [result.status for result in document.results] == ["ok"]
    assert [len(result.steps) for result in document.results] == [2]
    # The first replicate had come: it was not measured again.
    assert sum("process 1 of 2: starting" in text for text in listener.stages) == 1
    assert [one.processes for one in document.resumed] == [1]
    (note,) = [text for text in document.warnings if "was lost" in text]
    assert "was lost, after 1 replicate (" in note
    assert "the rest was measured by another one" in note
    assert not (tmp_path / "r" / "unfinished").exists()


def test_an_anonymous_fleet_tells_no_name_and_no_path(tmp_path: Path) -> None:
    asked = msgspec.structs.replace(fleet(tmp_path, engines=("fake", "fake+crash")), anonymous=True)
    folder = tmp_path / "r"
    document = only(run(asked, folder))
    saved = (folder / f"{document.id}.json").read_text()
    assert str(tmp_path) not in saved
    assert document.host.hostname == "<host>"
    (log,) = (folder / "logs" / document.id).iterdir()
    assert [one.log for one in document.results] == [None, f"<folder>/{log.name}"]


def test_a_fleet_that_was_begun_with_names_can_go_on_without(tmp_path: Path) -> None:
    store = Store(tmp_path / "r")

    def end() -> None:
        raise RuntimeError

    with pytest.raises(RuntimeError):
        run(fleet(tmp_path, "a", "b"), store.folder, At("b: process 1 of 2: starting", end))
    (id,) = UnfinishedFleets(store.folder).ids()
    resume_fleet(id, Listener(), store=store, anonymous=True)
    saved = [path.read_text() for path in store.folder.glob("*.json")]
    assert len(saved) == 2
    assert not any(str(tmp_path) in text for text in saved)


def test_a_driver_that_ends_leaves_what_resume_needs(tmp_path: Path) -> None:
    class Ended(Exception):
        pass

    def end() -> None:
        raise Ended

    store, asked = Store(tmp_path / "r"), fleet(tmp_path, "a", "b")
    with pytest.raises(Ended):
        run(asked, store.folder, At("b: process 2 of 2: starting", end))
    assert node_programs() == []
    (id,) = UnfinishedFleets(store.folder).ids()
    (begun,) = Unfinished(store.folder).ids()
    assert find("last", store) == find(begun, store) == find(id, store) == Found(id, "fleet")
    assert find_fleet(asked, store) == id
    with pytest.raises(BadInput, match=r"machines is \['a'\] now, and was \['a', 'b'\]"):
        find_fleet(fleet(tmp_path, "a"), store)

    measured = resume_fleet(id, listener := Listener(), store=store)
    # The machine that was finished is not asked again, nor is the replicate that had come.
    assert not any(text.startswith("a: ") for text in listener.stages)
    assert not any("process 1 of 2: starting" in text for text in listener.stages)
    documents = {one.label: one.document for one in measured.machines}
    for document in documents.values():
        assert document is not None
        assert [(one.status, len(one.steps)) for one in document.results] == [("ok", 2)]
    assert documents["b"] is not None
    assert [one.processes for one in documents["b"].resumed] == [1]
    assert measured.unfinished is None
    assert not (store.folder / "unfinished").exists()


def test_nothing_is_resumed_with_other_versions(tmp_path: Path) -> None:
    def end() -> None:
        raise RuntimeError

    store = Store(tmp_path / "r")
    with pytest.raises(RuntimeError):
        run(fleet(tmp_path), store.folder, At("process 2 of 2: starting", end))
    (id,) = UnfinishedFleets(store.folder).ids()
    unfinished = Unfinished(store.folder)
    (begun,) = unfinished.ids()
    checkpoint = unfinished.read(begun)
    checkpoint.context.host.cpu = "another one"
    unfinished.write(begun, checkpoint)
    with pytest.raises(BadInput, match=r"cannot go on with .*cpu is .* now, and was another one"):
        resume_fleet(id, Listener(), store=store)
    assert UnfinishedFleets(store.folder).ids() == [id]
    discard(Found(id, "fleet"), store)
    assert UnfinishedFleets(store.folder).ids() == unfinished.ids() == []


def test_ctrl_c_ends_every_worker_and_keeps_what_is_finished(tmp_path: Path) -> None:
    workers: list[psutil.Process] = []
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # as in the background of a shell

    def interrupt() -> None:
        until = time.monotonic() + 60
        while not workers and time.monotonic() < until:  # the stage is told before they are started
            workers.extend(child for node in node_programs() for child in node.children())
        raise KeyboardInterrupt

    store, asked = Store(tmp_path / "r"), fleet(tmp_path, "a", "b", processes=4)
    try:
        measured = run(asked, store.folder, At("a: process 2 of 4: starting", interrupt))
    finally:
        signal.signal(signal.SIGINT, before)
    a, b = measured.machines
    assert a.document is not None
    assert [one.status for one in a.document.results] == ["interrupted"]
    assert 1 <= len(a.document.results[0].steps) < 4
    assert {one.remedy for one in a.document.results} == {f"polybench resume {measured.unfinished}"}
    assert (b.document, b.failure, measured.interrupted) == (None, "interrupted", True)
    assert len(workers) == 1
    psutil.wait_procs(workers, timeout=5)
    assert not any(worker.is_running() for worker in workers)
    assert node_programs() == []


def test_a_node_whose_driver_is_gone_ends_with_its_workers(tmp_path: Path) -> None:
    seen: list[psutil.Process] = []

    def look() -> None:
        for node in node_programs():
            seen.extend([node, *node.children()])
        raise RuntimeError

    with pytest.raises(RuntimeError):
        run(fleet(tmp_path), tmp_path / "r", At("round 1", look))
    assert len(seen) == 2
    psutil.wait_procs(seen, timeout=5)
    assert not any(process.is_running() for process in seen)


@pytest.mark.parametrize(
    ("program", "says"),
    [
        (
            {"version": "0.0.1"},
            r"it has polybench .*, the driver 0\.0\.1; there: pip install polybench==0\.0\.1",
        ),
        ({"python": "3.1"}, r"it has Python 3\..*, the driver 3\.1; give both the same"),
        ({"sources": "other"}, "the same version, and other programs"),
    ],
)
def test_a_node_with_another_polybench_is_refused(
    program: dict[str, str], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    this = driver.this_program()
    fields: dict[str, Any] = msgspec.structs.asdict(this) | program
    monkeypatch.setattr(driver, "this_program", lambda: Program(**fields))
    with pytest.raises(BadInput, match=says):
        run(fleet(tmp_path), tmp_path / "r")
    assert not (tmp_path / "r" / "unfinished").exists()


def test_what_no_machine_can_run_is_refused_and_nothing_kept(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="nowhere"):
        run(fleet(tmp_path, data=str(tmp_path / "nowhere")), tmp_path / "r")
    strict = msgspec.structs.replace(fleet(tmp_path, engines=("fake", "fake+unavailable")), strict=True)
    with pytest.raises(StrictlyUnavailable, match=r"fake\+unavailable/cpu is unavailable"):
        run(strict, tmp_path / "r")
    assert not (tmp_path / "r" / "unfinished").exists()
    with pytest.raises(BadInput, match="no machine is called 'c'; a, b are"):
        run(fleet(tmp_path, "a", "b", baseline="c:fake/cpu"), tmp_path / "r")
