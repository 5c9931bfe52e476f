"""State of one machine group, and warnings in its document."""

from __future__ import annotations

from pathlib import Path

import pytest

from polybench.cluster.driver import MachineRun
from polybench.cluster.executor import NodeLost
from polybench.cluster.messages import Saved, Started, Task, current_fingerprint
from polybench.runner.checkpoint import CheckpointStore, MachineStudy
from polybench.schema.options import MachineGroup
from polybench.schema.result import Status
from polybench.schema.study import from_json, to_json
from polybench.storage.anonymize import anonymize
from polybench.storage.store import Store
from tests.cluster.cluster_runs import cluster_run
from tests.cluster.test_driver import document
from tests.factories import measured, study


@pytest.mark.parametrize(
    ("status", "finished", "is_finished"), [("ok", True, True), ("interrupted", True, False), ("ok", False, False)]
)
def test_study_with_a_complete_document_is_not_repeated(
    status: Status, finished: bool, is_finished: bool, tmp_path: Path
) -> None:
    store = Store(tmp_path)
    saved = study(measured("fake/cpu", 0.01))
    saved.id, saved.finished, saved.results[0].status = "20260101-000000-abcd", finished, status
    store.save(saved)
    machine = MachineRun(MachineGroup(), MachineStudy(label="a", study_id=saved.id), "", store, is_labelled=True)
    machine.restore()
    assert machine.machine_study.finished == is_finished
    assert machine.document == saved


def test_anonymous_document_has_no_name_of_a_lost_machine(tmp_path: Path) -> None:
    task = Task(id="1", created="2", study=cluster_run(tmp_path).study, fingerprint=current_fingerprint())
    machine = MachineRun(
        MachineGroup(), MachineStudy(label="a", study_id="1"), "", None, is_labelled=False, anonymous=True
    )
    machine.mark_started(Started(hostname="node17"))
    machine.mark_lost(NodeLost("the log on node17: /home/user/a.log"))
    machine.mark_started(Started(hostname="node18"))
    machine.save(Saved(to_json(anonymize(from_json(document(task).document))), b"state"), None)
    assert machine.document is not None
    (note,) = [text for text in machine.document.warnings if "was lost" in text]
    lost = "<host> was lost (the log on <host>: <folder>/a.log)"
    assert note == f"{lost}: everything was measured on another machine, <host>"
    machine.fail("node18 is gone", None)
    assert [one.reason for one in machine.document.results] == ["<host> is gone"]


def test_reset_deletes_the_checkpoint(tmp_path: Path) -> None:
    task = Task(id="1", created="2", study=cluster_run(tmp_path).study, fingerprint=current_fingerprint())
    store = Store(tmp_path / "r")
    machine = MachineRun(MachineGroup(), MachineStudy(label="a", study_id="1"), "", store, is_labelled=False)
    machine.save(document(task), None)
    assert CheckpointStore(store.folder).ids() == ["1"]
    machine.reset()
    assert CheckpointStore(store.folder).ids() == []
