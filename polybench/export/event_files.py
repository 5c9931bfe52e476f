"""A study as event files for TensorBoard: one run a cell, without TensorFlow."""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from polybench.core.document.result import Result
from polybench.core.document.study import StudyDocument
from polybench.core.errors import BadInput

_NOT_IN_NAMES = re.compile(r"[^\w@+.#-]+")
_FIRST_RECORD = "brain.Event:2"


class Point(NamedTuple):
    """A value at a step; `seconds` of training lie before it."""

    tag: str
    step: int
    seconds: float
    value: float


def ensure_tensorboard(folder: Path) -> None:
    """Find out before measuring what would prevent `write`.

    Raises:
        BadInput: the package is not there, or the folder cannot be written.
    """
    try:
        from tensorboard.summary.writer import record_writer  # noqa: F401
    except ImportError as error:
        raise BadInput(
            f"--tensorboard: the package does not load ({error}); pip install 'polybench[tensorboard]'"
        ) from None
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / ".polybench").open("wb"):
            pass
        (folder / ".polybench").unlink()
    except OSError as error:
        raise BadInput(f"cannot write to --tensorboard {folder}: {error.strerror}") from error


def write(study: StudyDocument, folder: Path) -> list[Path]:
    """Write the study to `FOLDER/ID/CELL/events.out.tfevents.*`, in place of what was written of it before.

    No event says when it happened: the time of each is the study's start and the seconds of training so far.

    Returns:
        The files; a cell without times has none.
    """
    start = datetime.datetime.fromisoformat(study.created).timestamp()
    files = []
    for result in study.results:
        found = list(points(result))
        if found:
            run = folder / _name(study.id) / _name(result.cell)
            run.mkdir(parents=True, exist_ok=True)
            files.append(run / f"events.out.tfevents.{start:.0f}.polybench")
            _write(files[-1], start, found)
    return files


def points(result: Result) -> Iterator[Point]:
    """Steps a second of every sample and of every part of a training, losses, accuracies, memory.

    The steps of samples are counted through all processes; those of a training are epochs.
    """
    if result.samples is not None:
        step, seconds = 0, 0.0
        for sample in (one for process in result.steps for rounds in process for one in rounds):
            step += result.samples.steps_per_sample
            seconds += sample * result.samples.steps_per_sample
            yield Point("steps_per_second", step, seconds, 1 / sample)
        yield from (Point("loss", step, 0.0, loss) for step, loss in enumerate(result.losses))
    for training in result.trainings:
        seconds, seed = 0.0, f"training/seed {training.seed}"
        for number, epoch in enumerate(training.epochs, start=1):
            parts = len(epoch.steps_per_second)
            for part, rate in enumerate(epoch.steps_per_second, start=1):
                at = seconds + epoch.seconds * part / parts
                yield Point(f"{seed}/steps_per_second", (number - 1) * parts + part, at, rate)
            seconds += epoch.seconds
            yield Point(f"{seed}/loss", number, seconds, epoch.loss)
            if epoch.accuracy is not None:
                yield Point(f"{seed}/accuracy", number, seconds, epoch.accuracy)
    for name in ("baseline_rss_bytes", "peak_rss_bytes", "device_peak_bytes") if result.measured else ():
        value = getattr(result.memory, name)
        if value is not None:
            yield Point(f"memory/{name}", 0, 0.0, value)


def _name(text: str) -> str:
    """A folder's name: one, whatever the text; a cell without its `/`."""
    return _NOT_IN_NAMES.sub("_", text).lstrip(".") or "_"


def _write(path: Path, start: float, points: list[Point]) -> None:
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.summary.writer.record_writer import RecordWriter

    # Not EventFileWriter: it imports TensorFlow where there is one.
    with path.open("wb") as file:
        records = RecordWriter(file)
        records.write(Event(wall_time=start, file_version=_FIRST_RECORD).SerializeToString())
        for tag, step, seconds, value in points:
            summary = Summary(value=[Summary.Value(tag=tag, simple_value=value)])
            event = Event(wall_time=start + seconds, step=step, summary=summary)
            records.write(event.SerializeToString())
