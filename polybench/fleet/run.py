"""A study on several machines from beginning to end, or the rest of it."""

from __future__ import annotations

import contextlib
import datetime
import secrets

import msgspec

from polybench.core.machines import check_machines
from polybench.fleet.driver import Driver, FleetMeasured
from polybench.fleet.executor import can_ship, executor
from polybench.machine import host
from polybench.measuring.fleet_checkpoint import Fleet, FleetCheckpoint, Member, UnfinishedFleets
from polybench.measuring.progress import Progress
from polybench.measuring.study import new_id
from polybench.measuring.unchanged import refuse, tool_changes
from polybench.planning.plan import check_elsewhere
from polybench.report.saved_studies import Store


def run_fleet(fleet: Fleet, progress: Progress, *, store: Store | None) -> FleetMeasured:
    """Measure a study on every group's machine.

    Ctrl-C ends the studies on all machines; what was finished is returned, marked.

    Args:
        fleet: what, and where.
        progress: told what runs where.
        store: where each study is saved, and what is needed to go on, as soon as it has come.

    Raises:
        BadInput: before anything is measured.
        StrictlyUnavailable: with `strict`.
        PolybenchError: there is one group, and nothing came of it.
    """
    check_machines(fleet.study, fleet.groups)
    for group in fleet.groups:
        check_elsewhere(group.study(fleet.study))  # what no machine could run is said here
    if store is not None:
        store.ensure_writable()
    ids = _new_ids(len(fleet.groups))
    checkpoint = FleetCheckpoint(
        id=new_id(),
        created=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        tool=host.tool(),
        fleet=fleet,
        members=[Member(label=group.label, study_id=id) for group, id in zip(fleet.groups, ids, strict=True)],
    )
    return _run(checkpoint, progress, store, resumed=False)


def resume_fleet(
    id: str,
    progress: Progress,
    *,
    store: Store,
    on: str | None = None,
    ship: bool = False,
    strict: bool = False,
    anonymous: bool = False,
) -> FleetMeasured:
    """Go on with what was stopped, killed or broken off: every replicate that has come counts.

    Args:
        id: of the fleet.
        progress: as of `run_fleet`.
        store: where it is saved.
        on: where its machines are now, if that is not where they were.
        ship: send them this polybench, also if it was not begun like that.
        strict: refuse to go on where an engine or device is unavailable, also if it was not begun like that.
        anonymous: the same of leaving host names, user and paths out of the documents.

    Raises:
        BadInput: there is nothing to go on with, it runs still, or machine, versions or data differ.
        StrictlyUnavailable: with `strict`.
    """
    store.ensure_writable()
    unfinished = UnfinishedFleets(store.folder)
    checkpoint = unfinished.read(id)
    fleet = checkpoint.fleet
    checkpoint.fleet = msgspec.structs.replace(
        fleet,
        on=on or fleet.on,
        ship=ship or (fleet.ship and can_ship(on or fleet.on)),
        strict=fleet.strict or strict,
        anonymous=fleet.anonymous or anonymous,
    )
    return _run(checkpoint, progress, store, resumed=True)


def _run(
    checkpoint: FleetCheckpoint, progress: Progress, store: Store | None, *, resumed: bool
) -> FleetMeasured:
    with contextlib.ExitStack() as stack:
        if store is not None:
            stack.enter_context(UnfinishedFleets(store.folder).claimed(checkpoint.id))
            if resumed:  # another process may have finished it since
                asked = checkpoint.fleet
                checkpoint = _unchanged(UnfinishedFleets(store.folder), checkpoint.id)
                checkpoint.fleet = asked
        runs = executor(checkpoint.fleet.on, ship=checkpoint.fleet.ship)
        stack.callback(runs.close)
        return Driver(checkpoint, runs, progress, store, resumed=resumed).run()


def _unchanged(unfinished: UnfinishedFleets, id: str) -> FleetCheckpoint:
    """What was kept of it, by this polybench: groups that begin now are beside what others have measured."""
    checkpoint = unfinished.read(id)
    refuse(id, unfinished.again(id, checkpoint.fleet.argv), tool_changes(checkpoint.tool))
    return checkpoint


def _new_ids(number: int) -> list[str]:
    """Of studies that begin at once, all different."""
    ids: dict[str, None] = {}
    while len(ids) < number:
        ids[new_id() if number == 1 else f"{new_id()}{secrets.token_hex(2)}"] = None
    return list(ids)
