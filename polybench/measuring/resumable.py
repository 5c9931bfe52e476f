"""Everything that was stopped: found by what a user calls it, or by what it asks for, and listed."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import Any, Literal, NamedTuple, TypeVar

import msgspec

from polybench.core.errors import BadInput
from polybench.core.spec import Study
from polybench.measuring.checkpoint import Checkpoint, Unfinished
from polybench.measuring.fleet_checkpoint import Fleet, UnfinishedFleets
from polybench.measuring.kept import Kept
from polybench.measuring.sweep_checkpoint import Series, SweepCheckpoint, UnfinishedSweeps
from polybench.measuring.unchanged import different
from polybench.models import find_model
from polybench.planning.grid import points
from polybench.planning.network_file import with_network_of
from polybench.planning.plan import resolve
from polybench.planning.toml_text import TomlText
from polybench.report.anonymous import UNKNOWN_HOST
from polybench.report.document import known_versions, rounds_of, study_toml
from polybench.report.listed import Listed, ListedCell, Points, seconds_of
from polybench.report.saved_studies import Store

T = TypeVar("T", bound=msgspec.Struct)


Kind = Literal["study", "sweep", "fleet"]


class Found(NamedTuple):
    """What can be resumed."""

    id: str
    kind: Kind = "study"


def find(name: str, store: Store) -> Found:
    """The study, sweep or fleet whose ID begins like this, or `last`, the one that was stopped last.

    Of a sweep's points the last one is no study by itself: the sweep goes on with it. No study of a fleet is.

    Raises:
        BadInput: none or several of those that are not finished.
    """
    kept = _kept(store)
    kinds = {id: kind for kind in kept for id in kept[kind].ids()}
    fleets = {
        member.study_id: id
        for id, fleet in _readable(UnfinishedFleets(store.folder))
        for member in fleet.members
    }
    found = sorted({fleets.get(id, id) for id in kinds if name == "last" or id.startswith(name)})
    if name == "last" and found:
        sweeps = _readable(UnfinishedSweeps(store.folder))
        parts = {max(sweep.begun.values(), default=id): id for id, sweep in sweeps} | fleets
        # Of sweeps that are damaged nobody knows the points: one is taken where there is nothing else.
        newest = max([*(id for id in found if kinds[id] == "study"), *parts], default=found[-1])
        found = [parts.get(newest, newest)]
    if len(found) == 1:
        return Found(found[0], kinds[found[0]])
    if found:
        raise BadInput(f"{name!r} is the beginning of {len(found)} studies that are not finished")
    raise BadInput(f"there is nothing to resume of {name!r}: no such study, or it is complete")


def discard(found: Found, store: Store) -> None:
    """Give it up, damaged or not: what it needs to go on is removed; documents and a sweep's points stay.

    Raises:
        BadInput: it runs still, or cannot be removed.
    """
    members: list[str] = []
    if found.kind == "fleet":
        with contextlib.suppress(BadInput):  # damaged: nobody knows its studies
            members = [one.study_id for one in UnfinishedFleets(store.folder).read(found.id).members]
    _kept(store)[found.kind].discard(found.id)
    for id in members:  # not before it is known that nobody measures them
        Unfinished(store.folder).drop(id)


def _kept(store: Store) -> dict[Kind, Kept[Any]]:
    folder = store.folder
    return {"study": Unfinished(folder), "sweep": UnfinishedSweeps(folder), "fleet": UnfinishedFleets(folder)}


def find_study(study: Study, store: Store) -> str:
    """The ID of the newest study that can be resumed and asks for exactly this; one that is damaged is not.

    Raises:
        BadInput: there is none; with what the newest one asks for instead.
    """
    unfinished, wanted = Unfinished(store.folder), study_toml(study)
    damaged: list[str] = []
    kept = [(id, one.study) for id, one in _readable(unfinished, damaged)]
    for id, asked in kept:
        if asked == wanted:
            return id
    if not kept:
        raise _nothing(store, damaged)
    id, asked = kept[0]
    raise BadInput("; ".join([_differs(id, _fields(asked), _fields(wanted)), *damaged]))


def find_sweep(series: Series, store: Store) -> str:
    """The same of a sweep."""
    damaged: list[str] = []
    kept = list(_readable(UnfinishedSweeps(store.folder), damaged))
    for id, one in kept:
        if one.asks_for(series):
            return id
    if not kept:
        raise _nothing(store, damaged)
    id, one = kept[0]
    axes = {axis: list(values) for axis, values in series.axes.items()}
    before = _fields(one.study) | {"what is varied": one.axes, "command": one.kind}
    now = _fields(study_toml(series.study)) | {"what is varied": axes, "command": series.kind}
    raise BadInput("; ".join([_differs(id, before, now), *damaged]))


def find_fleet(fleet: Fleet, store: Store) -> str:
    """The same of a study on several machines, wherever they are to be reached now."""
    damaged: list[str] = []
    kept = list(_readable(UnfinishedFleets(store.folder), damaged))
    wanted = fleet.study, list(fleet.groups)
    for id, one in kept:
        if (one.fleet.study, list(one.fleet.groups)) == wanted:
            return id
    if not kept:
        raise _nothing(store, damaged)
    id, one = kept[0]
    before, now = (
        msgspec.to_builtins(asked.study) | {"machines": [group.label for group in asked.groups]}
        for asked in (one.fleet, fleet)
    )
    raise BadInput("; ".join([_differs(id, before, now), *damaged]))


def _nothing(store: Store, damaged: Iterable[str]) -> BadInput:
    nothing = f"there is nothing to resume in {store.folder}; leave --resume out"
    return BadInput("; ".join([nothing, *damaged]))


def _fields(study: str) -> dict[str, Any]:
    """Those of a study, a network of a file by its name."""
    text = TomlText("a study", study)
    fields = with_network_of(text, text.load())
    return fields | {"model": find_model(fields["model"]).name}


def _differs(id: str, before: dict[str, Any], now: dict[str, Any]) -> str:
    differs = "; ".join(different(before, now))
    remedy = f"`polybench resume {id}` goes on with that one"
    return f"nothing that was stopped asks for the same; of {id} {differs}; {remedy}"


def _readable(unfinished: Kept[T], damaged: list[str] | None = None) -> Iterator[tuple[str, T]]:
    """The newest first; of the others what is wrong with them."""
    for id in unfinished.ids():
        try:
            yield id, unfinished.read(id)
        except BadInput as error:
            if damaged is not None:
                damaged.append(str(error))


def without_documents(store: Store, saved: Iterable[Listed]) -> list[Listed]:
    """What can be resumed and has no document: studies that were stopped early, and sweeps."""
    studies, sweeps = Unfinished(store.folder), UnfinishedSweeps(store.folder)
    known = {one.file for one in saved}
    begun = [_listed(studies, id, _study) for id in studies.ids() if id not in known]
    return [*begun, *(_listed(sweeps, id, _sweep) for id in sweeps.ids())]


def _listed(kept: Kept[T], id: str, row: Any) -> Listed:
    try:
        one: Listed = row(kept.read(id))
        return one
    except BadInput as error:
        when = 0.0
        with contextlib.suppress(OSError):
            when = (kept.folder / id).stat().st_mtime
        return Listed(file=id, when=when, unreadable=str(error))


def _study(kept: Checkpoint) -> Listed:
    context, settings = kept.context, kept.settings
    cells = [
        ListedCell(
            record.cell.name,
            record.cell.engine,
            record.cell.variant,
            record.cell.device,
            bool(rounds_of(record)),
            {name: text for name, text in known_versions(record).items() if isinstance(text, str)},
        )
        for record in kept.records
    ]
    return Listed(
        file=context.id,
        when=seconds_of(context.created) or 0.0,
        id=context.id,
        created=context.created,
        title=context.background.title,
        model=settings.model,
        dataset=settings.dataset,
        batch_size=settings.batch_size,
        hostname=UNKNOWN_HOST if context.anonymous else context.host.hostname,
        finished=False,
        cells=cells,
    )


def _sweep(kept: SweepCheckpoint) -> Listed:
    plan = resolve(points(kept.series.study, kept.axes)[0].study)
    return Listed(
        file=kept.id,
        when=seconds_of(kept.created) or 0.0,
        id=kept.id,
        created=kept.created,
        title=kept.background.title,
        model=plan.model.name,
        dataset=plan.study.data,
        batch_size=plan.workload.batch_size,
        hostname=UNKNOWN_HOST if kept.anonymous else kept.host.hostname,
        finished=False,
        kind=kept.kind,
        points=Points(kept.axes, [kept.begun[number] for number in sorted(kept.begun)]),
        cells=[
            ListedCell(cell.name, cell.engine, cell.variant, cell.device, False, {}) for cell in plan.cells
        ],
    )
