"""What driver and job write for each other."""

from __future__ import annotations

from pathlib import Path

import pytest

from polybench.core.spec import Study
from polybench.fleet.messages import Finished, Hello, Message, Saved, Stage, Task, line_of
from polybench.fleet.program import this_program
from polybench.fleet.slurm_folder import JobFolder, tell


@pytest.fixture
def folder(tmp_path: Path) -> JobFolder:
    folder = JobFolder(tmp_path / "job")
    folder.begin(task())
    return folder


def task() -> Task:
    return Task(
        id="20260101-000000-aaaa",
        created="2026-01-01T00:00:00+00:00",
        study=Study(engines=("fake",), devices=("cpu",)),
        program=this_program(),
    )


def say(folder: JobFolder, *messages: Message) -> None:
    with folder.said() as file:
        for message in messages:
            tell(file, message)


def test_a_job_has_the_task_that_was_given(folder: JobFolder) -> None:
    assert folder.task() == task()


def test_messages_are_read_once_each(folder: JobFolder) -> None:
    assert folder.read() == ([], 0)
    say(folder, Hello(hostname="n1"), Stage("one"))
    first, offset = folder.read()
    assert first == [Hello(hostname="n1"), Stage("one")]
    assert folder.read(offset) == ([], offset)
    say(folder, Stage("two"))
    assert folder.read(offset)[0] == [Stage("two")]


def test_half_a_line_waits_for_its_rest(folder: JobFolder) -> None:
    line = line_of(Stage("whole"))
    with folder.said() as file:
        file.write(line[:5])
    assert folder.read() == ([], 0)
    with (folder.path / "messages.jsonl").open("ab") as more:
        more.write(line[5:])
    assert folder.read()[0] == [Stage("whole")]


def test_what_a_killed_job_did_not_finish_to_say_is_left_out(folder: JobFolder) -> None:
    say(folder, Stage("one"))
    with folder.said() as file:
        file.write(line_of(Stage("cut off"))[:12])
    say(folder, Finished())
    assert folder.read()[0] == [Stage("one"), Finished()]


def test_what_is_kept_belongs_to_the_host_that_kept_it(folder: JobFolder) -> None:
    assert folder.begun() == (None, None)
    say(folder, Hello(hostname="n1"))
    assert folder.begun() == ("n1", None)
    say(folder, Saved(b"{}", b"first"), Saved(b"{}", b"second"))
    assert folder.begun() == ("n1", b"second")
    say(folder, Hello(hostname="n1"))
    assert folder.begun() == ("n1", b"second")
    say(folder, Hello(hostname="n2"))
    assert folder.begun() == ("n2", None)


def test_a_driver_lives_until_it_wants_no_more(folder: JobFolder) -> None:
    first = folder.heard()
    assert first
    folder.beat()
    assert folder.heard() != first
    assert not folder.is_to_stop()
    folder.ask_to_stop()
    assert folder.is_to_stop()


def test_why_a_job_was_lost_is_what_it_said(folder: JobFolder) -> None:
    assert folder.why_lost() is None
    folder.lose("no memory")
    assert folder.why_lost() == "no memory"
