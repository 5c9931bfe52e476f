"""Going on with a study where it was stopped: only on the same machine, with the same versions and data."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from polybench.core.document.circumstances import Host, Resumed, Tool
from polybench.core.document.study import StudyDocument
from polybench.core.errors import BadInput
from polybench.core.spec import Study
from polybench.machine import host
from polybench.measuring.checkpoint import Checkpoint, Unfinished
from polybench.measuring.probing import probe
from polybench.measuring.progress import Progress
from polybench.measuring.state import StudyState
from polybench.measuring.study import measured, started
from polybench.planning.study_file import parse
from polybench.report.cell_record import CellRecord
from polybench.report.document import Context, study_toml
from polybench.report.saved_studies import Store

_MACHINE = ("hostname", "os", "cpu", "cores", "threads", "gpus", "governor", "python")
_OF_THE_END = ("rounds", "steps_per_round", "baseline")
"""Settings that a document has only once something was measured."""


def resume_study(id: str, progress: Progress, *, store: Store) -> StudyDocument:
    """Go on with a study that was stopped, killed or broken off.

    Finished replicates and trainings are kept, as are cells that have failed. What was measured of one that
    was not finished is measured again: no engine can go on with another process's steps.

    Args:
        id: of the study.
        progress: told what runs, between measurements.
        store: where it is saved.

    Raises:
        BadInput: there is nothing to go on with, the study runs still, or machine, versions or data differ.
    """
    unfinished = Unfinished(store.folder)
    checkpoint = unfinished.read(id)
    study = parse(checkpoint.study, f"the study of {id}")
    context = checkpoint.context
    _refuse(id, [*_of_machine(context.host, host.this_host()), *_of_tool(context.tool, host.tool())])
    with started(
        study,
        progress,
        store=store,
        context=_context(checkpoint, study),
        unfinished=unfinished,
        watched=study.metrics,
    ) as running:
        state = running.state
        _refuse(id, _of_settings(checkpoint, state))
        _refuse(id, _of_engines(checkpoint.records, state))
        state.restore(checkpoint)
        state.warn(_in_words(checkpoint))
        return measured(running)


def find_unfinished(study: Study, store: Store) -> str:
    """The ID of the newest study that can be resumed and asks for exactly this.

    Raises:
        BadInput: there is none; with what the newest one asks for instead.
    """
    unfinished, wanted = Unfinished(store.folder), study_toml(study)
    others = []
    for id in unfinished.ids():
        found = unfinished.read(id).study
        if found == wanted:
            return id
        others.append((id, found))
    if not others:
        raise BadInput(f"there is nothing to resume in {store.folder}; leave --resume out")
    newest, found = others[0]
    before, now = (msgspec.toml.decode(text) for text in (found, wanted))
    differs = "; ".join(_different(before, now))
    raise BadInput(
        f"no study that was stopped asks for the same; of {newest} {differs};"
        f" `polybench resume {newest}` goes on with that one"
    )


def _context(checkpoint: Checkpoint, study: Study) -> Context:
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    done = min(checkpoint.done.replicates, study.processes)
    trainings = sum(len(record.trainings) for record in checkpoint.records)
    context = checkpoint.context
    return msgspec.structs.replace(context, resumed=[*context.resumed, Resumed(now, done, trainings)])


def _in_words(checkpoint: Checkpoint) -> str:
    return (
        f"resumed after {checkpoint.done.replicates} replicates: what was finished before was measured in"
        " another run, when the machine may have been in another state"
    )


def _refuse(id: str, differences: Sequence[str]) -> None:
    if differences:
        raise BadInput(
            f"cannot go on with {id}: {'; '.join(differences)}; `polybench run {id}` measures all of it again"
        )


def _of_machine(before: Host, now: Host) -> list[str]:
    return _different(*({name: getattr(one, name) for name in _MACHINE} for one in (before, now)))


def _of_tool(before: Tool, now: Tool) -> list[str]:
    told = [
        {f"polybench's {name}": getattr(one, name) for name in ("version", "commit")} for one in (before, now)
    ]
    return _different(*told)


def _of_settings(checkpoint: Checkpoint, state: StudyState) -> list[str]:
    """Also of what workers are told by their environment."""
    settings = [msgspec.structs.asdict(one) for one in (checkpoint.settings, state.settings)]
    before, now = ({name: one[name] for name in one if name not in _OF_THE_END} for one in settings)
    found = _different(before, now)
    for kept, fresh in zip(checkpoint.records, state.records, strict=True):
        if kept.alive and not fresh.alive:
            found.append(f"{fresh.cell.name} is unavailable: {fresh.reason}")
        else:
            found += _different(kept.environment | kept.inherited, fresh.environment | fresh.inherited)
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
            found += [*_different(before.versions, now.versions), *_different(before.build, now.build)]
    return list(dict.fromkeys(found))


def _different(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    return list(_differences(before, now))


def _differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    for name in dict.fromkeys([*before, *now]):
        if before.get(name) != now.get(name):
            yield f"{name} is {now.get(name, 'not there')} now, and was {before.get(name, 'not there')}"
