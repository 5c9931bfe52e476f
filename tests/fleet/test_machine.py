"""What is known of one machine, and what its documents say."""

from __future__ import annotations

from pathlib import Path

import pytest

from polybench.core.document.result import Status
from polybench.core.document.study import from_json, to_json
from polybench.core.machines import MachineGroup
from polybench.fleet.executor import Lost
from polybench.fleet.machine import Machine
from polybench.fleet.messages import Hello, Saved, Task
from polybench.fleet.program import this_program
from polybench.measuring.checkpoint import Unfinished
from polybench.measuring.fleet_checkpoint import Member
from polybench.report.anonymous import anonymous
from polybench.report.saved_studies import Store
from tests.factories import measured, study
from tests.fleet.fleets import fleet
from tests.fleet.test_driver import document


@pytest.mark.parametrize(
    ("status", "finished", "ended"), [("ok", True, True), ("interrupted", True, False), ("ok", False, False)]
)
def test_a_study_whose_last_document_came_is_not_measured_again(
    status: Status, finished: bool, ended: bool, tmp_path: Path
) -> None:
    store = Store(tmp_path)
    came = study(measured("fake/cpu", 0.01))
    came.id, came.finished, came.results[0].status = "20260101-000000-abcd", finished, status
    store.save(came)
    machine = Machine(MachineGroup(), Member(label="a", study_id=came.id), "", store, named=True)
    machine.restore()
    assert machine.member.ended == ended
    assert machine.document == came


def test_of_a_machine_that_was_lost_an_anonymous_document_says_no_name(tmp_path: Path) -> None:
    task = Task(id="1", created="2", study=fleet(tmp_path).study, program=this_program())
    machine = Machine(
        MachineGroup(), Member(label="a", study_id="1"), "", None, named=False, without_names=True
    )
    machine.begun(Hello(hostname="node17"))
    machine.lost(Lost("the log on node17: /home/somebody/a.log"))
    machine.begun(Hello(hostname="node18"))
    machine.save(Saved(to_json(anonymous(from_json(document(task).document))), b"state"), None)
    assert machine.document is not None
    (note,) = [text for text in machine.document.warnings if "was lost" in text]
    lost = "<host> was lost (the log on <host>: <folder>/a.log)"
    assert note == f"{lost}: all of it was measured by another one, <host>"
    machine.give_up("node18 went away", None)
    assert [one.reason for one in machine.document.results] == ["<host> went away"]


def test_what_no_machine_can_go_on_with_is_not_kept(tmp_path: Path) -> None:
    task = Task(id="1", created="2", study=fleet(tmp_path).study, program=this_program())
    store = Store(tmp_path / "r")
    machine = Machine(MachineGroup(), Member(label="a", study_id="1"), "", store, named=False)
    machine.save(document(task), None)
    assert Unfinished(store.folder).ids() == ["1"]
    machine.forget()
    assert Unfinished(store.folder).ids() == []
