"""Messages between driver and job in a shared folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from polybench.cluster.messages import (
    Finished,
    Message,
    Saved,
    StageChanged,
    Started,
    Task,
    current_fingerprint,
    encode_line,
)
from polybench.cluster.slurm_folder import JobFolder, send
from polybench.schema.options import Study


@pytest.fixture
def folder(tmp_path: Path) -> JobFolder:
    folder = JobFolder(tmp_path / "job")
    folder.create(task())
    return folder


def task() -> Task:
    return Task(
        id="20260101-000000-aaaa",
        created="2026-01-01T00:00:00+00:00",
        study=Study(engines=("fake",), devices=("cpu",)),
        fingerprint=current_fingerprint(),
    )


def write_messages(folder: JobFolder, *messages: Message) -> None:
    with folder.open_messages() as file:
        for message in messages:
            send(file, message)


def test_job_reads_the_drivers_task(folder: JobFolder) -> None:
    assert folder.task() == task()


def test_each_message_is_read_once(folder: JobFolder) -> None:
    assert folder.read_messages() == ([], 0)
    write_messages(folder, Started(hostname="n1"), StageChanged("one"))
    first, offset = folder.read_messages()
    assert first == [Started(hostname="n1"), StageChanged("one")]
    assert folder.read_messages(offset) == ([], offset)
    write_messages(folder, StageChanged("two"))
    assert folder.read_messages(offset)[0] == [StageChanged("two")]


def test_incomplete_line_is_read_when_it_is_complete(folder: JobFolder) -> None:
    line = encode_line(StageChanged("complete"))
    with folder.open_messages() as file:
        file.write(line[:5])
    assert folder.read_messages() == ([], 0)
    with (folder.path / "messages.jsonl").open("ab") as more:
        more.write(line[5:])
    assert folder.read_messages()[0] == [StageChanged("complete")]


def test_truncated_message_of_a_killed_job_is_skipped(folder: JobFolder) -> None:
    write_messages(folder, StageChanged("one"))
    with folder.open_messages() as file:
        file.write(encode_line(StageChanged("truncated"))[:12])
    write_messages(folder, Finished())
    assert folder.read_messages()[0] == [StageChanged("one"), Finished()]


def test_checkpoint_belongs_to_its_host(folder: JobFolder) -> None:
    assert folder.last_host() == (None, None)
    write_messages(folder, Started(hostname="n1"))
    assert folder.last_host() == ("n1", None)
    write_messages(folder, Saved(b"{}", b"first"), Saved(b"{}", b"second"))
    assert folder.last_host() == ("n1", b"second")
    write_messages(folder, Started(hostname="n1"))
    assert folder.last_host() == ("n1", b"second")
    write_messages(folder, Started(hostname="n2"))
    assert folder.last_host() == ("n2", None)


def test_driver_sends_heartbeats_until_it_requests_a_stop(folder: JobFolder) -> None:
    first = folder.last_driver_message()
    assert first
    folder.heartbeat()
    assert folder.last_driver_message() != first
    assert not folder.is_stop_requested()
    folder.request_stop()
    assert folder.is_stop_requested()


def test_loss_reason_is_what_the_job_stored(folder: JobFolder) -> None:
    assert folder.loss_reason() is None
    folder.mark_lost("no memory")
    assert folder.loss_reason() == "no memory"
