"""The file of a log: what is written when, and what is read of a file that others have changed."""

from __future__ import annotations

import errno
import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from polybench.errors import BadInput
from polybench.log import (
    AnyEvent,
    DamagedLog,
    EngineLoaded,
    Header,
    Log,
    PhaseEnded,
    PointStarted,
    ProcessStarted,
    StudyEnded,
    Warned,
    decode_lines,
    encode_line,
    read_log,
    read_outline,
    split_points,
)
from polybench.schema.metadata import PublishedResult, ToolVersion
from polybench.storage.anonymous_log import anonymous_event
from tests.factories import typical_study

TOOL = ToolVersion("0.1.0", None)
HEADER = Header(
    id="20250101-000000-abcd",
    created="2025-01-01T00:00:00Z",
    polybench=TOOL,
    argv=["compare"],
    host=typical_study().host,
    study='engines = ["fake"]\n',
)
EVENTS: list[AnyEvent] = [
    HEADER,
    ProcessStarted(process=0),
    Warned(text="naïve ☃\n"),
    PhaseEnded(phase="data", seconds=0.125),
]
END = StudyEnded(outcome="finished", polybench=TOOL)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "results" / f"{HEADER.id}.jsonl"


def write(path: Path, *events: AnyEvent) -> None:
    with Log.create(path) as log:
        for event in events:
            log.add(event)


def test_each_event_is_in_the_file_at_once_in_one_line(path: Path) -> None:
    with Log.create(path) as log:
        for count, event in enumerate(EVENTS, start=1):
            log.add(event)
            lines = path.read_bytes().splitlines()
            assert len(lines) == count
            assert json.loads(lines[-1])["event"] == json.loads(encode_line(event))["event"]
            assert read_log(path) == log.events == EVENTS[:count]
    assert json.loads(path.read_bytes().splitlines()[0])["schema"] == "polybench.log/1"
    assert path.stat().st_mode & 0o777 == 0o666 & ~umask()


def umask() -> int:
    os.umask(mask := os.umask(0o077))
    return mask


def test_each_line_is_written_once_and_synchronized(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    for name in ("pwrite", "fsync"):
        monkeypatch.setattr(os, name, recorded(name, getattr(os, name), calls))
    write(path, *EVENTS)
    assert calls == ["pwrite", "fsync"] * len(EVENTS)


def recorded(name: str, function: Callable[..., Any], calls: list[str]) -> Callable[..., Any]:
    def call(*arguments: Any) -> Any:
        calls.append(name)
        return function(*arguments)

    return call


def test_a_resumed_log_goes_on_after_its_last_whole_line(path: Path) -> None:
    write(path, *EVENTS)
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"event":"end","outc' + b"x" * 500)
    assert read_log(path) == EVENTS
    with Log.resume(path) as log:
        assert log.events == EVENTS
        log.add(Warned(text="held"))
        assert path.read_bytes().startswith(whole + b'{"event":"end","outc')  # nothing is written before `release`
        log.release()
        log.add(END)
    assert path.read_bytes() == whole + encode_line(Warned(text="held")) + encode_line(END)
    assert read_log(path) == [*EVENTS, Warned(text="held"), END]


def test_a_resumed_log_that_is_refused_stays_as_it_was(path: Path) -> None:
    write(path, *EVENTS)
    path.write_bytes(path.read_bytes() + b'{"event":')
    before = path.read_bytes()
    with Log.resume(path) as log:
        log.add(END)
        assert log.problem is None
    assert path.read_bytes() == before


def test_each_line_is_sent_once_with_its_number_even_if_the_disk_is_full(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    sent: list[tuple[int, AnyEvent]] = []
    with Log.create(path) as log:
        log.send_to(lambda number, event: sent.append((number, event)))
        for count, event in enumerate(EVENTS, start=1):
            if count == 2:
                monkeypatch.setattr(os, "pwrite", full)
            log.add(event)
            assert sent == [*enumerate(EVENTS[:count], start=1)]
        monkeypatch.undo()
        assert log.problem is None
    sent.clear()
    with Log.resume(path) as log:
        log.send_to(lambda number, event: sent.append((number, event)), after=len(EVENTS) - 1)
        log.add(Warned(text="held"))
        assert sent == []  # a study that is refused sends nothing
        log.release()
        log.add(END)
    assert sent == [*enumerate([EVENTS[-1], Warned(text="held"), END], start=len(EVENTS))]
    sent.clear()
    log = Log()
    log.add(HEADER)
    log.send_to(lambda number, event: sent.append((number, event)))
    log.add(END)
    assert sent == [(1, HEADER), (2, END)]


def test_a_log_has_one_writer(path: Path) -> None:
    with Log.create(path) as log:
        log.add(HEADER)
        with pytest.raises(BadInput, match=f"{HEADER.id} is still running"), Log.resume(path):
            pass
        with pytest.raises(BadInput, match="exists"), Log.create(path):
            pass
        assert read_log(path) == [HEADER]  # readers need no lock
    with Log.resume(path) as log:
        assert log.events == [HEADER]
    with pytest.raises(BadInput, match="cannot resume nothing"), Log.resume(path.with_name("nothing.jsonl")):
        pass


def test_lines_that_cannot_be_written_stay_in_memory_until_they_can(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_all, free = os.pwrite, 7

    def full_disk(file: int, text: bytes, offset: int) -> int:
        if free == 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write_all(file, text[:free], offset)

    with Log.create(path) as log:
        log.add(EVENTS[0])
        monkeypatch.setattr(os, "pwrite", full_disk)
        log.add(EVENTS[1])  # the disk takes the beginning of the line
        assert log.problem == f"cannot write to {path}: No space left on device"
        free = 0
        log.add(EVENTS[2])
        assert log.problem is not None
        assert log.events == EVENTS[:3]
        assert read_log(path) == EVENTS[:1]
        monkeypatch.undo()
        log.add(EVENTS[3])
        assert log.problem is None
    assert read_log(path) == EVENTS


@pytest.mark.parametrize("lost", ["file", "folder", "replaced"])
def test_a_file_that_was_deleted_is_written_again_with_all_events(lost: str, path: Path) -> None:
    with Log.create(path) as log:
        for event in EVENTS[:2]:
            log.add(event)
        path.unlink()
        if lost == "folder":
            path.parent.rmdir()
        if lost == "replaced":
            path.write_text("of another program")
        log.add(EVENTS[2])
        if lost == "replaced":
            assert log.problem == f"cannot write to {path}: File exists"
            assert path.read_text() == "of another program"
            copy = Path(tempfile.gettempdir()) / f"polybench-{path.name}"
            assert log.save_copy() == f"{log.problem}; saved a copy to {copy}"
            assert read_log(copy) == EVENTS[:3]
            copy.unlink()
            victim = path.with_name("victim")
            victim.touch()
            copy.symlink_to(victim)  # of another user of the temporary folder
            assert log.save_copy() == f"{log.problem}; saved a copy to {copy}"
            assert victim.read_bytes() == b""
            copy.unlink()
        else:
            assert read_log(path) == log.events == EVENTS[:3]
            assert log.save_copy() is None


def test_a_log_without_a_file_has_its_events(tmp_path: Path) -> None:
    log = Log()
    for event in EVENTS:
        log.add(event)
    assert (log.events, log.header, log.problem, log.states) == (EVENTS, HEADER, None, None)
    log.save_content("0", {"a": "b"})
    assert log.read_content("0") == {}
    assert log.text == b"".join(map(encode_line, EVENTS))
    assert not list(tmp_path.iterdir())


def test_contents_are_kept_beside_the_log(path: Path) -> None:
    with Log.create(path) as log:
        log.add(HEADER)
        log.save_content("1f", {"/path": "1 2"})
        assert log.read_content("1f") == {"/path": "1 2"}
        assert log.read_content("2f") == log.read_content(None) == {}
    (kept,) = path.with_suffix(".state").iterdir()
    kept.write_bytes(b"[")
    assert log.read_content("1f") == {}


def test_the_first_and_last_line_are_read_alone(path: Path) -> None:
    write(path, *EVENTS)
    assert read_outline(path)[:3] == (HEADER, None, None)
    long = Warned(text="x" * (1 << 20))
    with Log.resume(path) as log:
        log.release()
        log.add(long)
        assert read_outline(path).end is None
        log.add(END)
    assert read_outline(path)[:3] == (HEADER, None, END)
    whole = path.read_bytes()
    for rest in (b'{"event"', b"\xff\n", b"[" * 50_000 + b"\n"):  # a process that went on was killed; damage
        path.write_bytes(whole + rest)
        assert read_outline(path)[:3] == (HEADER, None, None)


def test_the_end_of_a_study_with_many_configurations_is_read(path: Path) -> None:
    end = msgspec.structs.replace(END, step_seconds={f"fake/cpu#{number}": 0.5 for number in range(2, 1000)})
    write(path, *EVENTS, end)
    assert read_outline(path)[:3] == (HEADER, None, end)
    path.write_bytes(encode_line(end))  # one line only
    with pytest.raises(DamagedLog, match="expected the header in line 1"):
        read_outline(path)


DAMAGE: dict[str, tuple[bytes, str]] = {
    "nothing": (b"", "it has no header"),
    "only a beginning": (b'{"event":"hea', "it has no header"),
    "no JSON": (b"{}}\n", "line 1: .*; 0 lines before it are usable"),
    "no object": (encode_line(HEADER) + b"[]\n", "line 2: "),
    "NaN": (encode_line(HEADER) + b'{"event":"phase","phase":"data","seconds":NaN}\n', "line 2: "),
    "a negative number": (encode_line(HEADER) + b'{"event":"process_start","process":-1}\n', r"line 2: .*\$.process"),
    "no text": (encode_line(HEADER) + b'{"event":"warning","text":"\xff"}\n', "line 2: "),
    "no header": (encode_line(END), "line 1: expected the header"),
    "two headers": (encode_line(HEADER) * 2, "line 2: expected the header in line 1, and nowhere else"),
    "another schema": (encode_line(HEADER).replace(b"log/1", b"log/2"), "line 1: "),
    "an unknown event": (encode_line(HEADER) + b'{"event":"surprise"}\n', "line 2: .*surprise"),
    "damage in the middle": (
        encode_line(HEADER) + b"\0" * 9 + b"\n" + encode_line(END),
        "line 2: .*; 1 line before it is usable",
    ),
}  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_log_is_refused_with_the_line(damage: str, path: Path) -> None:
    content, message = DAMAGE[damage]
    path.parent.mkdir()
    path.write_bytes(content)
    if "line 2" in message and "header" not in message:
        assert read_log(path, salvage=True) == [HEADER]
    else:
        with pytest.raises(DamagedLog, match=message):
            read_log(path, salvage=True)
    with pytest.raises(DamagedLog, match=message) as refused:
        read_log(path)
    assert str(path) in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_log_that_is_too_large_is_refused(path: Path) -> None:
    write(path, HEADER)
    with path.open("r+b") as file:
        file.truncate(2 << 30)
    with pytest.raises(DamagedLog, match="it has 2048 MiB: expected at most 1024 MiB"):
        read_log(path)


@given(cut=st.integers(min_value=0, max_value=len(b"".join(map(encode_line, EVENTS)))))
def test_a_log_that_is_cut_off_anywhere_has_its_whole_lines(cut: int) -> None:
    text = b"".join(map(encode_line, EVENTS))[:cut]
    assert list(decode_lines(text.splitlines(keepends=True), "text")) == EVENTS[: text.count(b"\n")]


def test_an_anonymous_log_lacks_what_names_a_machine_from_its_first_line_on(path: Path) -> None:
    header = Header(
        id=HEADER.id,
        created=HEADER.created,
        polybench=TOOL,
        argv=["compare", "--data", "/home/mary"],
        host=msgspec.structs.replace(HEADER.host, hostname="marys-laptop"),
        study='data = "/home/mary"\n[env]\nold = "/opt/old"\n',
        anonymous=True,
    )
    with Log.create(path, anonymous_event) as log:
        log.add(header)
        log.add(Warned(text="/home/mary is slow", names=True))
        log.add(Warned(text="/home/mary is full", configuration="fake/cpu"))
        log.add(Warned(text="busy"))
    text = path.read_text()
    assert not any(word in text for word in ("mary", "/opt"))
    assert [event.text for event in read_log(path) if isinstance(event, Warned)][1:] == ["busy"]
    assert read_log(path) == log.events


def test_an_anonymous_log_has_no_path_of_an_engine() -> None:
    header = msgspec.structs.replace(HEADER, anonymous=True)
    paths = {"blas": "mkl", "library": "/home/mary/lib.so"}
    loaded = EngineLoaded(configuration="fake/cpu", versions=paths, build=paths, python=("3.12", "/home/mary/python"))
    event = anonymous_event(header, loaded)
    assert isinstance(event, EngineLoaded)
    assert (event.versions, event.build, event.python) == ({"blas": "mkl"}, {"blas": "mkl"}, None)


def test_the_study_of_a_point_has_what_all_points_of_its_sweep_share() -> None:
    shared = msgspec.structs.replace(HEADER, tags=["nightly"], repeated_data_sha256="0" * 64, machine_label="a")
    own = {"title": "speeds", "published": [PublishedResult("Flux", "epoch", 1.0, "s", "CPU", "a paper")]}
    axes = {"axes": {"threads": [1, 2]}, "command": "sweep", "usable_threads": 2}
    sweep = msgspec.structs.replace(shared, id="sweep-20250101-000000-abcd", **own, **axes)
    studies = ["threads = 1\n", "threads = 2\n"]
    started = [
        PointStarted(point=number, parameters={"threads": number + 1}, study=one) for number, one in enumerate(studies)
    ]
    assert split_points([sweep, *started]) == {
        number: [msgspec.structs.replace(shared, id=f"{sweep.id}.{number}", study=one)]
        for number, one in enumerate(studies)
    }
