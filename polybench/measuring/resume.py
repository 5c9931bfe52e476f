"""Going on with a study where it was stopped: only on the same machine, with the same versions and data."""

from __future__ import annotations

import datetime
from collections.abc import Sequence

import msgspec

from polybench.core import units
from polybench.core.document.circumstances import Resumed
from polybench.core.document.study import StudyDocument
from polybench.core.spec import Study
from polybench.measuring.checkpoint import Checkpoint, Unfinished
from polybench.measuring.probing import probe
from polybench.measuring.progress import Progress
from polybench.measuring.state import StudyState
from polybench.measuring.study import measured, started
from polybench.measuring.unchanged import different, machine_changes, refuse
from polybench.planning.plan import resolve
from polybench.planning.study_file import parse
from polybench.report.cell_record import CellRecord
from polybench.report.document import Context, completed
from polybench.report.saved_studies import Store

_OF_THE_END = ("rounds", "steps_per_round", "baseline")
"""Settings that a document has only once something was measured."""


def resume_study(
    id: str, progress: Progress, *, store: Store, strict: bool = False, anonymous: bool = False
) -> StudyDocument:
    """Go on with a study that was stopped, killed or broken off.

    Finished replicates and epochs of trainings are kept, as are cells that have failed. What was measured of
    one that was not finished is measured again: no engine goes on with another process's block.

    Args:
        id: of the study.
        progress: told what runs, between measurements.
        store: where it is saved.
        strict: refuse to go on when an engine or device is unavailable; what is kept stays.
        anonymous: leave host name, user and paths out of the document, as is done if it was begun like that.

    Raises:
        BadInput: there is nothing to go on with, the study runs still, or machine, versions or data differ.
        StrictlyUnavailable: with `strict`.
    """
    store.ensure_writable()
    unfinished = Unfinished(store.folder)
    with unfinished.claimed(id):  # before it is read: another process may be about to finish it
        checkpoint = unfinished.read(id)
        again = unfinished.again(id, checkpoint.context.argv)
        study = parse(checkpoint.study, f"the study of {id}")
        refuse(id, again, machine_changes(checkpoint.context.host, checkpoint.context.tool))
        with started(
            resolve(study),
            progress,
            store=store,
            context=_context(checkpoint, study, anonymous),
            unfinished=unfinished,
            watched=study.metrics,
        ) as running:
            state = running.state
            refuse(id, again, _of_settings(checkpoint, state))
            refuse(id, again, _of_engines(checkpoint.records, state))
            state.restore(checkpoint)
            state.warn(_in_words(checkpoint))
            return measured(running, strict=strict)


def check_here(id: str, store: Store) -> None:
    """Whether this machine could go on with a study, as far as that is known without starting an engine.

    Raises:
        BadInput: there is nothing to go on with, or machine or polybench differ.
    """
    unfinished = Unfinished(store.folder)
    checkpoint = unfinished.read(id)
    again = unfinished.again(id, checkpoint.context.argv)
    refuse(id, again, machine_changes(checkpoint.context.host, checkpoint.context.tool))


def _context(checkpoint: Checkpoint, study: Study, anonymous: bool) -> Context:
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    done = min(checkpoint.done.replicates, study.processes)
    trainings = sum(
        completed(training, study) for record in checkpoint.records for training in record.trainings
    )
    context = checkpoint.context
    return msgspec.structs.replace(
        context,
        resumed=[*context.resumed, Resumed(now, done, trainings)],
        anonymous=context.anonymous or anonymous,
    )


def _in_words(checkpoint: Checkpoint) -> str:
    done = units.plural(checkpoint.done.replicates, "replicate")
    return (
        f"resumed after {done}: what was finished before was measured in another run, when the machine may"
        " have been in another state"
    )


def _of_settings(checkpoint: Checkpoint, state: StudyState) -> list[str]:
    """Also of what workers are told by their environment."""
    settings = [msgspec.structs.asdict(one) for one in (checkpoint.settings, state.settings)]
    before, now = ({name: one[name] for name in one if name not in _OF_THE_END} for one in settings)
    found = different(before, now)
    for kept, fresh in zip(checkpoint.records, state.records, strict=True):
        if kept.alive and not fresh.alive:
            found.append(f"{fresh.cell.name} is unavailable: {fresh.reason}")
        else:
            found += different(kept.environment | kept.inherited, fresh.environment | fresh.inherited)
    return list(dict.fromkeys(found))


def _of_engines(kept: Sequence[CellRecord], state: StudyState) -> list[str]:
    """Asked of one cell of each framework, wherever it is installed, on each device."""
    one_of_each = {}
    for record, fresh in zip(kept, state.records, strict=True):
        if record.alive and record.probe is not None:
            cell = record.cell
            one_of_each[cell.engine, cell.environment, cell.device] = record.probe, fresh
    state.progress.stage("looking whether all engines are what they were")
    probe([fresh for _, fresh in one_of_each.values()], state.plan.study.timeout)
    found: list[str] = []
    for before, fresh in one_of_each.values():
        now = fresh.probe
        if now is None:
            found.append(f"{fresh.cell.name}: {fresh.reason}")
        else:
            found += [*different(before.versions, now.versions), *different(before.build, now.build)]
    return list(dict.fromkeys(found))
