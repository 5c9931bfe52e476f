"""Who allocates: a few steps of every cell under its own profiler, in a process of its own; never timed."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

import msgspec

from polybench.core.document.places import AllocationsDocument, EnginePlaces, Places
from polybench.core.document.result import Result
from polybench.core.document.row import fields_of
from polybench.core.document.study import StudyDocument
from polybench.core.errors import CellFailed, Unavailable
from polybench.core.spec import Study
from polybench.measuring.progress import Progress
from polybench.measuring.state import StudyState
from polybench.measuring.study import new_context, started
from polybench.measuring.workers import load, start_worker
from polybench.planning.pace import COUNTED_STEPS
from polybench.planning.plan import resolve
from polybench.report.cell_record import CellRecord
from polybench.wire.messages import FindPlaces, Loaded, PlacesFound, Prepared
from polybench.wire.process import WorkerProcess


def find_places(study: Study, progress: Progress, *, argv: Sequence[str] = ()) -> AllocationsDocument:
    """Ask every cell of the study where it allocates; nothing is saved.

    A cell that cannot tell keeps the reason; the others go on.

    Args:
        study: whose cells; how often and how long it measures plays no part.
        progress: told what runs.
        argv: the command line, for the record.

    Raises:
        BadInput: before anything is started.
    """
    found: dict[str, Places] = {}
    # Neither checked nor measured, so that neither's warnings are said.
    study = msgspec.structs.replace(study, processes=1, parity=False)
    with started(resolve(study), progress, context=new_context(argv)) as running:
        state = running.state
        try:
            for group in state.groups([record for record in state.alive if record.cell.repeat == 1]):
                progress.stage(f"looking at {', '.join(record.cell.name for record in group)}")
                found |= _places(state, group)
        except KeyboardInterrupt:
            state.interrupt()
        return _document(state.finish(), found)


def _places(state: StudyState, group: Sequence[CellRecord]) -> dict[str, Places]:
    """The group's workers start side by side; those that cannot tell are left out."""
    find = FindPlaces(min(COUNTED_STEPS, state.files.steps_in_epoch))
    found = {}
    with contextlib.ExitStack() as stack:
        workers = [
            (record, stack.enter_context(start_worker(record, state.logs, "places"))) for record in group
        ]
        for record, worker in workers:
            for request in (load(record), state.prepare(record), find):
                worker.send(request)
        for record, worker in workers:
            try:
                found[record.cell.name] = _receive(state, record, worker, find)
            except (CellFailed, Unavailable) as error:
                record.fail(error, worker.log)
                worker.kill()
    return found


def _receive(state: StudyState, record: CellRecord, worker: WorkerProcess, find: FindPlaces) -> Places:
    timeout = state.plan.study.timeout
    record.probe = worker.receive(load(record), Loaded, timeout).probe
    worker.receive(state.prepare(record), Prepared, timeout)
    return worker.receive(find, PlacesFound, timeout).places


def _document(study: StudyDocument, found: dict[str, Places]) -> AllocationsDocument:
    return AllocationsDocument(
        created=study.created,
        polybench=study.polybench,
        argv=study.argv,
        study=study.study,
        settings=study.settings,
        host=study.host,
        warnings=study.warnings,
        engines=[_engine(result, found.get(result.cell)) for result in study.results],
    )


def _engine(result: Result, found: Places | None) -> EnginePlaces:
    engine = EnginePlaces(**fields_of(result))
    if found is not None:
        engine.source, engine.covers, engine.places = found.source, found.covers, found.places
        engine.bytes_per_step = sum(place.bytes_per_step for place in found.places)
        engine.calls_per_step = sum(place.calls_per_step for place in found.places)
    return engine
