"""The log of what a command measures: what happened, one JSON object a line, in the order in which it happened.

Everything else is computed from it: `results.document.derive` is the report, and resuming measures what a log lacks.
A line is written and synchronized as soon as its event has happened, and never while a worker runs a timing block.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import math
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Literal, NamedTuple, get_args

import msgspec

from polybench.data.disk import atomic_write, open_regular_file, read_regular_file, remove_folder
from polybench.errors import BadInput
from polybench.machine.meters.observer import BlockUsage
from polybench.planning.schedule import RoundBudget
from polybench.protocol.calls import OperationTime
from polybench.schema import units
from polybench.schema.documents import json_schema, kind_of_id, point_id
from polybench.schema.measurements import AllocationProfile, PeakMeasurement
from polybench.schema.metadata import Host, PublishedResult, RoundInterference, Settings, Tag, ToolVersion
from polybench.schema.options import (
    Configuration,
    Id,
    LogCommand,
    NaturalInt,
    PositiveInt,
    Seconds,
    SweepCommand,
    Workload,
)
from polybench.schema.parity import ParityCheck
from polybench.schema.resources import (
    Allocation,
    BlockCounters,
    BlockMeasured,
    DeviceAllocation,
    Memory,
    MemoryInUse,
    NativeAllocation,
)
from polybench.schema.result import EndedResult, Program, Startup, TrainedEpoch

Schema = Literal["polybench.log/1"]

SCHEMA: Schema = "polybench.log/1"

SUFFIX = ".jsonl"
STATE_SUFFIX = ".state"
"""Suffix of the folder beside a log with what only resuming needs, until the study has finished."""

_MAX_BYTES = 1 << 30
"""Maximum size of a log that is read: a study of a week has about 100 MB."""

_TAIL_BYTES = 1 << 12
"""Bytes at the end of most logs that contain the last line, the end of the study."""


class Event(msgspec.Struct, frozen=True, kw_only=True, tag_field="event"):
    """Something that happened; times are in seconds."""

    point: NaturalInt | msgspec.UnsetType = msgspec.UNSET
    """Number of the point of a sweep, from 0; a study has none."""


class Header(Event, frozen=True, kw_only=True, tag="header"):
    """The first line: everything that is known before the first measurement.

    `study` is TOML with all defaults. An `anonymous` study names neither the machine nor paths. Anything but a study
    has the `command` that measured it, and a sweep the values of its axes, which its points combine.
    """

    schema: Schema = SCHEMA
    id: Id
    created: str
    """UTC, ISO 8601."""
    polybench: ToolVersion
    argv: list[str]
    host: Host
    study: str = ""
    title: str | None = None
    tags: list[Tag] = []
    published: list[PublishedResult] = []
    repeated_data_sha256: str | None = None
    """SHA-256 of the data of the study that is repeated."""
    machine_label: str | None = None
    """Label of the machine of a cluster run with several machines."""
    anonymous: bool = False
    axes: dict[str, list[NaturalInt]] = {}
    """Values by axis of `planning.grid`, the last axis fastest; empty for a study."""
    command: LogCommand | None = None
    usable_threads: PositiveInt | None = None
    """More threads oversubscribe the machine; only a sweep has them."""
    expand_blocks: bool = False
    """Layers of residual blocks have rows of their own; only layers have it."""

    def __post_init__(self) -> None:
        is_sweep = self.command in get_args(SweepCommand)
        if (bool(self.axes), self.usable_threads is not None) != (is_sweep, is_sweep):
            raise ValueError("a sweep has axes and usable threads, and nothing else has them")
        if self.command is not None and kind_of_id(self.id) != self.command:
            raise ValueError(f"the ID of this {self.command} is {self.id!r}")


class PointStarted(Event, frozen=True, kw_only=True, tag="point"):
    """A point of a sweep, before its data are prepared: its values of the axes, and its study as TOML."""

    point: NaturalInt
    parameters: dict[str, NaturalInt]
    study: str


class PlannedConfiguration(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A configuration, its workload, and the environment of its workers."""

    configuration: Configuration
    workload: Workload
    caveat: str | None = None
    """See `schema.result.Result`."""
    world_size: PositiveInt = 1
    compiled_as_whole: bool = False
    """The engine compiles or times the step as a whole, so its layers have no separate times."""
    env_vars: dict[str, str] = {}
    """Environment variables that polybench sets for the workers."""
    inherited_env_vars: dict[str, str] = {}
    """Environment variables of the user that reports show."""
    unrecorded_env_hash: str = ""
    """Hash of the user's other variables that engines may read."""

    @property
    def name(self) -> str:
        """The configuration's name."""
        return self.configuration.name


class SettingsChosen(Event, frozen=True, kw_only=True, tag="settings"):
    """All settings after defaults, and the data, weights and batches that all configurations share."""

    settings: Settings
    steps_in_epoch: PositiveInt | None
    """Null for a user's own data in Julia, whose number is unknown."""
    cache_bytes: NaturalInt | None = None
    """Size of the last-level cache."""
    configurations: list[PlannedConfiguration]


class GroupsChosen(Event, frozen=True, kw_only=True, tag="groups"):
    """Names of the configurations whose workers fit into memory together; a resumed study keeps these groups."""

    groups: list[list[str]]


class EngineLoaded(Event, frozen=True, kw_only=True, tag="engine"):
    """The engine that a worker has loaded: the first one, each with other versions or other code, and with its program.

    `program` is what process runs time; null before the first one, and for an engine without a program. `python` are
    version and path of another environment's interpreter.
    """

    configuration: str
    versions: dict[str, str]
    build: dict[str, str] = {}
    devices: list[str] = []
    python: tuple[str, str] | None = None
    program: Program | None = None
    code_sha256: str | None = None
    """Hash of `protocol.loaded_code`, which is saved beside the log until the study has finished."""


class ParityChecked(Event, frozen=True, kw_only=True, tag="parity"):
    """A parity check, or the result of an earlier study that still holds (`cached`)."""

    configuration: str
    parity: ParityCheck
    cached: bool = False
    later_code_sha256: str | None = None
    """Hash of the files that the checked worker had loaded at the end in addition, which are saved as well."""


class ProgramStarted(Event, frozen=True, kw_only=True, tag="cold_start"):
    """A start of a configuration's exported program alone on the machine, and the losses of its first steps."""

    configuration: str
    startup: Startup
    losses: list[float | None] = []


class WorkerStarted(Event, frozen=True, kw_only=True, tag="startup"):
    """Start of a worker in a process run, and the losses of its first steps; a loss that is not finite is null.

    `startup` is null for a process that had been running before, as a session of Julia. `alone` is true if no other
    worker was starting, and this one did not use compiled code of others.
    """

    configuration: str
    process: NaturalInt
    startup: Startup | None
    alone: bool = True
    resolution: Literal["step", "block"]
    losses: list[float | None] = []


class ProcessStarted(Event, frozen=True, kw_only=True, tag="process_start"):
    """Start of a process run, in which each configuration gets a fresh process."""

    process: NaturalInt


class ProcessEnded(Event, frozen=True, kw_only=True, tag="process_end"):
    """End of a process run: its blocks count from here on. `budgets` are those of the groups."""

    process: NaturalInt
    budgets: list[RoundBudget]


class RoundMeasured(Event, frozen=True, kw_only=True, tag="round"):
    """Load of the machine during a round, and the waits for an idle machine so far."""

    load: RoundInterference
    idle_wait_seconds: float = 0.0
    busiest_programs: list[str] = []


class BlockTimed(BlockMeasured, frozen=True, kw_only=True, tag_field="event", tag="block"):
    """An attempt at a timing block: what the worker has measured, and what was observed from outside.

    The attempt with the least interference, by the kernel's counters, counts.
    """

    configuration: str
    process: NaturalInt
    round: NaturalInt
    attempt: NaturalInt = 0
    counters: BlockCounters
    usage: BlockUsage | None = None
    point: NaturalInt | msgspec.UnsetType = msgspec.UNSET
    """That of `Event`, which cannot be a second base."""


class OperationsTimed(Event, frozen=True, kw_only=True, tag="operation"):
    """Times of all operations of a configuration in a round, in the order of a step; the same ones in each round."""

    configuration: str
    process: NaturalInt
    round: NaturalInt
    operations: list[OperationTime]


class KernelsChosen(Event, frozen=True, kw_only=True, tag="kernels"):
    """What `peak` times: products of square matrices, the network's convolutions, and NumPy's triad unless null.

    `numpy` is its version. The operations of a round are those of the kernels, in this order.
    """

    matrix_sizes: list[PositiveInt]
    triad_bytes: PositiveInt | None
    numpy: str


class NumpyTimed(Event, frozen=True, kw_only=True, tag="numpy"):
    """Times of NumPy in a round, as `protocol.calls.NumpyTimes`."""

    process: NaturalInt
    products: list[Seconds]
    triad: Seconds | None


class MemoryMeasured(Event, frozen=True, kw_only=True, tag="memory"):
    """Memory of a worker after training steps, what it had in use between them, or the GPU memory that its end freed.

    `in_use` belongs to the process run that has started last.
    """

    configuration: str
    memory: Memory | None = None
    gpu_bytes_freed: NaturalInt | None = None
    in_use: MemoryInUse | None = None


class AllocationsCounted(Event, frozen=True, kw_only=True, tag="allocations"):
    """Allocations per step: the engine's own count, or the native one; null with a reason if that failed.

    `profile` are the sites in the engine's code, of `layers --allocations`.
    """

    configuration: str
    host: Allocation | None = None
    device: DeviceAllocation | None = None
    native: NativeAllocation | None = None
    native_failure: str | None = None
    profile: AllocationProfile | None = None


class PipelineTimed(Event, frozen=True, kw_only=True, tag="pipeline"):
    """Seconds per step of the input pipeline alone and of training alone."""

    configuration: str
    pipeline_seconds: Seconds
    training_seconds: Seconds


class AllreduceTimed(Event, frozen=True, kw_only=True, tag="allreduce"):
    """Seconds per step with and without the all-reduce of gradients."""

    configuration: str
    with_seconds: Seconds
    without_seconds: Seconds


class PeaksUsed(Event, frozen=True, kw_only=True, tag="peak"):
    """The machine's cached peaks with which a configuration is compared."""

    configuration: str
    peaks: list[PeakMeasurement]


class EpochTrained(Event, frozen=True, kw_only=True, tag="epoch"):
    """Epoch `number` of a training, from 0. An epoch that is trained again replaces it and all after it."""

    configuration: str
    seed: NaturalInt
    number: NaturalInt
    epoch: TrainedEpoch


class PhaseEnded(Event, frozen=True, kw_only=True, tag="phase"):
    """Seconds of a phase, a field of `schema.metadata.PhaseSeconds`; `process` is null outside of process runs."""

    phase: str
    process: NaturalInt | None = None
    seconds: float


class Failed(Event, frozen=True, kw_only=True, tag="failure"):
    """A configuration that cannot be measured any further."""

    configuration: str
    status: Literal["unavailable", "failed"]
    reason: str | None
    hint: str | None = None
    log_path: str | None = None


class Warned(Event, frozen=True, kw_only=True, tag="warning"):
    """A warning of one configuration, or of the study; `names` if it may name paths, variables or programs."""

    text: str
    configuration: str | None = None
    names: bool = False


class StudyResumed(Event, frozen=True, kw_only=True, tag="resumed"):
    """A process that goes on; `processes` and `trainings` were finished before."""

    resumed_at: str
    """UTC, ISO 8601."""
    processes: NaturalInt
    trainings: NaturalInt


class StudyEnded(Event, frozen=True, kw_only=True, tag="end"):
    """The end of a process: nothing is left to measure, it was interrupted, or the user will not resume it.

    `step_seconds` are the step times that were printed, by configuration, and `results` more about each one; `hint` is
    the command that goes on. `failure` is the reason if the driver of a cluster run gave up the machine. A sweep ends
    after its points, whose ends it repeats: lists read the first lines and the last one.
    """

    outcome: Literal["finished", "interrupted", "discarded"]
    polybench: ToolVersion
    failure: str | None = None
    step_seconds: dict[str, Seconds] = {}
    results: dict[str, EndedResult] = {}
    hint: str | None = None
    idle_wait_seconds: float = 0.0
    busiest_programs: list[str] = []
    points: list[StudyEnded] | msgspec.UnsetType = msgspec.UNSET


OfConfiguration = (
    EngineLoaded | ParityChecked | WorkerStarted | BlockTimed | OperationsTimed | MemoryMeasured | AllocationsCounted
    | PipelineTimed | AllreduceTimed | ProgramStarted | PeaksUsed | EpochTrained | Failed
)  # fmt: skip
"""Events of one configuration; a warning may be one as well."""

OfStudy = (
    Header | PointStarted | SettingsChosen | GroupsChosen | KernelsChosen | ProcessStarted | ProcessEnded
    | RoundMeasured | NumpyTimed | PhaseEnded | Warned | StudyResumed | StudyEnded
)  # fmt: skip

AnyEvent = OfStudy | OfConfiguration

_DECODER: msgspec.json.Decoder[AnyEvent] = msgspec.json.Decoder(AnyEvent)
_ENCODER = msgspec.json.Encoder()
_UNDECODABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, BadInput)
"""Exceptions for a line that is not an event; records that check themselves raise BadInput."""


class DamagedLog(BadInput):
    """A line of a log is not an event, or contradicts those before it."""


def encode_line(event: AnyEvent) -> bytes:
    """Return the event as a line; raises ValueError for a number that JSON cannot hold."""
    return _ENCODER.encode(event) + b"\n"


def decode_lines(lines: Iterable[bytes], name: str, *, salvage: bool = False) -> Iterator[AnyEvent]:
    """Yield the events of a log; a last line without its end was cut off and is ignored.

    Raises:
        DamagedLog: a line is not an event; `name` is that of the log. With `salvage`, the events end before this line.
    """
    for number, line in enumerate(lines, start=1):
        if not line.endswith(b"\n"):
            return
        try:
            event = _DECODER.decode(line)
        except _UNDECODABLE as error:
            if salvage and number > 1:
                return
            raise damaged(name, number, str(error)) from error
        if (number == 1) != isinstance(event, Header):
            raise damaged(name, number, "expected the header in line 1, and nowhere else")
        yield event


def damaged(name: str, number: int, problem: str) -> DamagedLog:
    """Return the error for a line of a log."""
    usable = f"{units.plural(number - 1, 'line')} before it {'is' if number == 2 else 'are'} usable"
    return DamagedLog(f"cannot read {name}: line {number}: {problem}; {usable}: `polybench show ID --salvage`")


def read_log(path: Path, *, salvage: bool = False) -> list[AnyEvent]:
    """Read a log; with `salvage`, only the lines before a damaged one.

    Raises:
        OSError: the file cannot be read.
        DamagedLog: it is empty, or a line is not an event.
    """
    with open_regular_file(path) as file:
        if (size := os.fstat(file.fileno()).st_size) > _MAX_BYTES:
            raise DamagedLog(f"cannot read {path}: it has {size >> 20} MiB: expected at most {_MAX_BYTES >> 20} MiB")
        events = list(decode_lines(file, str(path), salvage=salvage))
    if not events:
        raise DamagedLog(f"cannot read {path}: it has no header")
    return events


class Outline(NamedTuple):
    """The first lines of a log and its last one, if they are there: the process was killed, or is still running.

    A sweep has the outlines of the points that have started, and no settings of its own.
    """

    header: Header
    settings: SettingsChosen | None
    end: StudyEnded | None
    points: Sequence[Outline] = ()
    parameters: Mapping[str, int] = {}
    """A point's values of the axes; empty for a study or sweep."""


def read_outline(path: Path) -> Outline:
    """Return the outline of a log without reading what is between; raises as `read_log`."""
    with open_regular_file(path) as file:
        begun = [*_beginning(decode_lines(file, str(path)))]
        end = _read_end(file)
    if not begun:
        raise DamagedLog(f"cannot read {path}: it has no header")
    header = header_of(begun)
    if not header.axes:
        return Outline(header, _settings(begun), end)
    ends = {one.point: one for one in (end.points or () if end is not None else ())}
    parameters = {one.point: one.parameters for one in begun if isinstance(one, PointStarted)}
    points = [
        Outline(header_of(events), _settings(events), ends.get(number), parameters=parameters[number])
        for number, events in split_points(begun).items()
    ]
    return Outline(header, None, end, points)


def _beginning(events: Iterable[AnyEvent]) -> Iterator[AnyEvent]:
    """Yield the events up to the settings of a study, or of all points of a sweep, which precede any process run."""
    is_sweep = False
    for event in events:
        yield event
        if isinstance(event, Header):
            is_sweep = bool(event.axes)
        if isinstance(event, ProcessStarted) or (isinstance(event, SettingsChosen) and not is_sweep):
            return


def _settings(events: Iterable[AnyEvent]) -> SettingsChosen | None:
    return next((event for event in events if isinstance(event, SettingsChosen)), None)


def _read_end(file: IO[bytes]) -> StudyEnded | None:
    """Return the last event of a log if the study, or the whole sweep, has ended."""
    try:
        event = _DECODER.decode(_last_line(file))
    except _UNDECODABLE:
        return None
    return whole_end(event)


def whole_end(last: AnyEvent) -> StudyEnded | None:
    """Return the last event of a log if it is the end of the study or of the whole sweep, not that of a point."""
    return last if isinstance(last, StudyEnded) and last.point is msgspec.UNSET else None


def split_points(events: Sequence[AnyEvent], *, salvage: bool = False) -> dict[int, list[AnyEvent]]:
    """Return the events of each point of a sweep that has started, with a header, as the log of a study has them.

    Raises:
        DamagedLog: an event belongs to no point that has started. With `salvage`, the events end before it.
    """
    sweep, found = header_of(events), dict[int, list[AnyEvent]]()
    for number, event in enumerate(events[1:], start=2):
        point = event.point
        if (
            isinstance(event, PointStarted)
            and point not in found
            and event.parameters == _values_at(sweep.axes, event.point)
        ):
            found[event.point] = [_header_of(sweep, event)]
        elif not isinstance(event, PointStarted) and isinstance(point, int) and point in found:
            found[point].append(event)
        elif not isinstance(event, StudyEnded) or point is not msgspec.UNSET:
            if salvage:
                break
            raise damaged(f"the log of {sweep.id}", number, "expected an event of a point that has started")
    return dict(sorted(found.items()))


def _values_at(axes: Mapping[str, Sequence[int]], point: int) -> dict[str, int] | None:
    """Return the values of a point, the last axis fastest; None if there are fewer points."""
    if point >= math.prod(map(len, axes.values())):
        return None
    values = {}
    for axis, several in reversed([*axes.items()]):
        point, place = divmod(point, len(several))
        values[axis] = several[place]
    return values


def _header_of(sweep: Header, started: PointStarted) -> Header:
    """Return the header of a point's study."""
    own = {"id": point_id(sweep.id, started.point), "study": started.study, "title": None}
    return msgspec.structs.replace(sweep, **own, published=[], axes={}, command=None, usable_threads=None)


def header_of(events: Sequence[AnyEvent]) -> Header:
    """Return the first event of a log."""
    header = events[0]
    assert isinstance(header, Header)
    return header


def _last_line(file: IO[bytes]) -> bytes:
    size, length = os.fstat(file.fileno()).st_size, _TAIL_BYTES
    while True:
        file.seek(max(0, size - length))
        _, newline, last = file.read(length).removesuffix(b"\n").rpartition(b"\n")
        if newline or length >= size:
            return last
        length *= 8


Edit = Callable[[Header, AnyEvent], AnyEvent | None]
"""Function of the header and an event that returns what the log gets; None leaves the event out."""

Send = Callable[[int, AnyEvent], None]
"""Function of the number of a line, from 1, and of its event."""


def _unchanged(_: Header, event: AnyEvent) -> AnyEvent:
    return event


class Log:
    """The events of a study: in memory and, if it is saved, in a file that this process has locked.

    A line that cannot be written, on a full disk for example, stays in memory and is written with the next one.

    Attributes:
        events: all events, in their order.
    """

    def __init__(self, path: Path | None = None, *, edit: Edit = _unchanged) -> None:
        """Start an empty log; `edit` omits what an anonymous log must not contain."""
        self.path = path
        self.events: list[AnyEvent] = []
        self._edit = edit
        self._send: Send | None = None
        self._sent = 0
        self._file: int | None = None
        self._written = 0
        self._pending: list[bytes] = []
        self._is_held = False

    @classmethod
    @contextlib.contextmanager
    def create(cls, path: Path | None, edit: Edit = _unchanged) -> Iterator[Log]:
        """Create a log, without a file if `path` is None; no other process may write it meanwhile.

        Raises:
            BadInput: it exists, or its folder cannot be written.
        """
        log = cls(path, edit=edit)
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            log._open(os.O_CREAT | os.O_EXCL)
        with contextlib.closing(log):
            yield log

    @classmethod
    @contextlib.contextmanager
    def resume(cls, path: Path, edit: Edit = _unchanged) -> Iterator[Log]:
        """Open a log to append to it; nothing is written, and a last line that was cut off remains, until `release`.

        Raises:
            BadInput: it cannot be read or written, or another process writes it.
        """
        log = cls(path, edit=edit)
        log._open(0)  # locked before it is read, since another process may be finishing it
        with contextlib.closing(log):
            log.events = read_log(path)
            log._written = _bytes_in_whole_lines(path)
            log._is_held = True
            yield log

    @property
    def is_resumed(self) -> bool:
        """True if it was opened to append to it, and nothing is written yet."""
        return self._is_held

    def release(self) -> None:
        """Write what was added since the log was opened, and from now on every event at once."""
        self._is_held = False

    @property
    def text(self) -> bytes:
        """All lines."""
        return b"".join(map(encode_line, self.events))

    @property
    def header(self) -> Header:
        """The first event."""
        return header_of(self.events)

    @property
    def run_id(self) -> str:
        """The ID with which a user resumes it."""
        return self.header.id

    def add(self, event: AnyEvent) -> AnyEvent | None:
        """Append an event and return what was appended; the attribute `problem` says why it is not written yet."""
        edited = self._edit(event if isinstance(event, Header) else self.header, event)
        if edited is None:
            return None
        self.events.append(edited)
        if self.path is not None:
            self._pending.append(encode_line(edited))
            if not self._is_held:
                with contextlib.suppress(OSError):
                    self._write()
        self._pass_on()
        return edited

    def send_to(self, send: Send, *, after: int = 0) -> None:
        """Pass on each line after the first ones, once: those that the log has, and then each that is added.

        A line that is held until `release` follows with the next one; one that cannot be written is passed on at once.
        """
        self._send, self._sent = send, after
        self._pass_on()

    def _pass_on(self) -> None:
        if self._send is not None and not self._is_held:
            for number in range(self._sent, len(self.events)):
                self._send(number + 1, self.events[number])
            self._sent = len(self.events)

    @property
    def problem(self) -> str | None:
        """Why the last lines are only in memory; None if the file has all."""
        if not self._pending or self._is_held:
            return None
        try:
            self._write()
        except OSError as error:
            return f"cannot write to {self.path}: {error.strerror}"
        return None

    @property
    def states(self) -> Path | None:
        """The folder beside the file with what only resuming needs; None for a log without a file."""
        return self.path.with_suffix(STATE_SUFFIX) if self.path else None

    def save_content(self, sha256: str | None, content: Mapping[str, str]) -> None:
        """Save a content beside the log, named by its hash, which an event has; a failure is ignored."""
        if self.states is not None and sha256 is not None:
            with contextlib.suppress(OSError):
                self.states.mkdir(parents=True, exist_ok=True)
                with atomic_write(self.states / f"{sha256}.json") as file:
                    file.write(_ENCODER.encode(content))

    def read_content(self, sha256: str | None) -> dict[str, str]:
        """Return a saved content; empty if it was not saved, or is corrupt."""
        if self.states is not None and sha256 is not None:
            with contextlib.suppress(OSError, msgspec.MsgspecError):
                return msgspec.json.decode(read_regular_file(self.states / f"{sha256}.json"), type=dict[str, str])
        return {}

    def save_copy(self) -> str | None:
        """Write the whole log to the temporary folder if its file lacks a line; return the problem, and the copy."""
        if (problem := self.problem) is None:
            return None
        assert self.path is not None
        path = Path(tempfile.gettempdir()) / f"polybench-{self.path.name}"
        try:
            with atomic_write(path) as file:
                file.write(self.text)
        except OSError:
            return problem
        return f"{problem}; saved a copy to {path}"

    def close(self) -> None:
        """Release the file."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def delete(self) -> None:
        """Delete the file and the folder beside it, because nothing was measured."""
        if self.path is not None and self.states is not None:
            self.path.unlink(missing_ok=True)
            remove_folder(self.states, self.path.parent)

    def _open(self, flags: int) -> None:
        assert self.path is not None
        try:
            self._file = _open_private(self.path, flags)
        except FileExistsError:
            raise BadInput(f"{self.path} exists: choose another --results folder") from None
        except FileNotFoundError:
            raise BadInput(f"cannot resume {self.path.stem}: it is not in {self.path.parent}") from None
        except OSError as error:
            raise BadInput(f"cannot write to {self.path}: {error.strerror}") from error
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.close()
            raise BadInput(f"{self.path.stem} is still running: wait for it, or stop it first") from None
        except OSError:
            pass  # a file system without locks

    def _write(self) -> None:
        """Write all lines that the file lacks in one piece; raises OSError, and leaves no part of a line behind."""
        if self._is_lost():
            self._reopen()
        assert self._file is not None
        os.ftruncate(self._file, self._written)
        text = b"".join(self._pending)
        if os.pwrite(self._file, text, self._written) < len(text):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))  # the disk took a part
        os.fsync(self._file)
        self._written += len(text)
        self._pending = []

    def _is_lost(self) -> bool:
        """Return True if the file, or its folder, was deleted or replaced."""
        assert self.path is not None
        if self._file is None:
            return True
        with contextlib.suppress(OSError):
            return not os.path.samestat(os.fstat(self._file), self.path.lstat())
        return True

    def _reopen(self) -> None:
        """Create the file again; it gets all events."""
        assert self.path is not None
        self.close()
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._file = _open_private(self.path, os.O_CREAT | os.O_EXCL)
        with contextlib.suppress(OSError):
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        self._written, self._pending = 0, [encode_line(event) for event in self.events]


class PointLog(Log):
    """The log of a point of a sweep: the sweep's log gets each event, with the number of the point."""

    def __init__(self, sweep: Log, point: int, events: Sequence[AnyEvent], *, is_resumed: bool) -> None:
        """Go on after these events, those of `split_points`; nothing is written before the sweep is released."""
        super().__init__(sweep.path)
        self._sweep, self._point = sweep, point
        self.events, self._is_held = [*events], is_resumed

    @property
    def run_id(self) -> str:
        """The ID of the sweep."""
        return self._sweep.run_id

    def add(self, event: AnyEvent) -> AnyEvent | None:
        """Append an event here and to the sweep's log."""
        edited = self._sweep.add(msgspec.structs.replace(event, point=self._point))
        if edited is not None:
            self.events.append(edited)
        return edited

    @property
    def problem(self) -> str | None:
        """That of the sweep's log."""
        return self._sweep.problem

    @property
    def states(self) -> Path | None:
        """A folder of its own in that of the sweep."""
        return self._sweep.states / str(self._point) if self._sweep.states else None

    def save_copy(self) -> str | None:
        """Leave it to the sweep, whose log is copied as a whole."""
        return None


def _open_private(path: Path, flags: int) -> int:
    """Open a file of a results folder, in which a link may lead to any other file."""
    return os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | flags, 0o666)


def _bytes_in_whole_lines(path: Path) -> int:
    content = path.read_bytes()
    return content.rfind(b"\n") + 1


JSON_SCHEMA = Path(__file__).with_name("schema") / "log.schema.json"


def log_schema() -> str:
    """Return the JSON Schema of a line as indented JSON."""
    return json_schema(AnyEvent, SCHEMA)


if __name__ == "__main__":
    JSON_SCHEMA.write_text(log_schema())
