"""Export of a study as TensorBoard event files, one run per configuration; does not need TensorFlow."""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from polybench.errors import BadInput, install_command
from polybench.schema.result import Result
from polybench.schema.study import StudyDocument

_INVALID_IN_NAMES = re.compile(r"[^\w@+.#-]+")
_FIRST_RECORD = "brain.Event:2"


class ScalarPoint(NamedTuple):
    """A value at a step, after `seconds` of training."""

    tag: str
    step: int
    seconds: float
    value: float


def check_tensorboard(folder: Path) -> None:
    """Check before measuring that `write` can succeed.

    Raises:
        BadInput: tensorboard cannot be imported, or the folder is not writable.
    """
    try:
        from tensorboard.summary.writer import record_writer  # noqa: F401
    except ImportError as error:
        raise BadInput(
            f"--tensorboard: cannot import tensorboard ({error}); {install_command('tensorboard')}"
        ) from None
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / ".polybench").open("wb"):
            pass
        (folder / ".polybench").unlink()
    except OSError as error:
        raise BadInput(f"cannot write to --tensorboard {folder}: {error.strerror}") from error


def write(study: StudyDocument, folder: Path) -> list[Path]:
    """Write the study to `FOLDER/ID/CONFIGURATION/events.out.tfevents.*`, replacing earlier exports of it.

    The wall time of an event is the start of the study plus the seconds of training before the event.

    Returns:
        The files; configurations without times have none.
    """
    start = datetime.datetime.fromisoformat(study.created).timestamp()
    files = []
    for result in study.results:
        points = list(scalar_points(result))
        if points:
            run = folder / _safe_name(study.id) / _safe_name(result.configuration)
            run.mkdir(parents=True, exist_ok=True)
            files.append(run / f"events.out.tfevents.{start:.0f}.polybench")
            _write(files[-1], start, points)
    return files


def scalar_points(result: Result) -> Iterator[ScalarPoint]:
    """Yield steps per second of every step time and of every training segment, losses, accuracies, memory.

    Step numbers of step times continue across processes. Those of trainings count epochs, or segments.
    """
    if result.step_times is not None:
        step, seconds = 0, 0.0
        for step_time in (one for process in result.nested_step_times for values in process for one in values):
            step += result.step_times.steps_per_value
            seconds += step_time * result.step_times.steps_per_value
            yield ScalarPoint("steps_per_second", step, seconds, 1 / step_time)
        yield from (ScalarPoint("loss", step, 0.0, loss) for step, loss in enumerate(result.losses))
    for training in result.trainings:
        seconds, seed = 0.0, f"training/seed {training.seed}"
        for number, epoch in enumerate(training.epochs, start=1):
            segments = len(epoch.steps_per_second)
            for segment, rate in enumerate(epoch.steps_per_second, start=1):
                end = seconds + epoch.seconds * segment / segments
                yield ScalarPoint(f"{seed}/steps_per_second", (number - 1) * segments + segment, end, rate)
            seconds += epoch.seconds
            yield ScalarPoint(f"{seed}/loss", number, seconds, epoch.loss)
            if epoch.accuracy is not None:
                yield ScalarPoint(f"{seed}/accuracy", number, seconds, epoch.accuracy)
    for name in ("rss_after_import_bytes", "peak_rss_bytes", "device_peak_bytes") if result.is_measured else ():
        value = getattr(result.memory, name)
        if value is not None:
            yield ScalarPoint(f"memory/{name}", 0, 0.0, value)


def _safe_name(text: str) -> str:
    """Convert any text to the name of one folder."""
    return _INVALID_IN_NAMES.sub("_", text).lstrip(".") or "_"


def _write(path: Path, start: float, points: list[ScalarPoint]) -> None:
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.summary.writer.record_writer import RecordWriter

    # EventFileWriter would import TensorFlow if it is installed.
    with path.open("wb") as file:
        records = RecordWriter(file)
        records.write(Event(wall_time=start, file_version=_FIRST_RECORD).SerializeToString())
        for tag, step, seconds, value in points:
            summary = Summary(value=[Summary.Value(tag=tag, simple_value=value)])
            event = Event(wall_time=start + seconds, step=step, summary=summary)
            records.write(event.SerializeToString())
