"""All replicates of a study, group after group; the document is saved after each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from polybench.machine.meters.observer import Observer
from polybench.machine.patience import Patience
from polybench.measuring.blocks import Blocks
from polybench.measuring.checkpoint import Group
from polybench.measuring.earlier_checks import CheckOutdated
from polybench.measuring.rounds import Replicate
from polybench.measuring.state import StudyState
from polybench.planning.pace import Pace
from polybench.planning.plan import counts_natively_apart
from polybench.report.cell_record import CellRecord


def measure(
    state: StudyState, observer: Observer | None, replicate: Callable[..., Replicate] = Replicate
) -> None:
    """Measure every cell that is alive in `--processes` fresh processes.

    Cells that memory does not hold at the same time form groups, which stay as they are through all
    replicates: each has a pace of its own, since its steps may be a hundred times as long as another's, and
    its part of the budget.

    Args:
        state: of the study; its records get their samples.
        observer: watches the workers; None where only times are wanted.
        replicate: what is done in each, with the arguments of `Replicate`.

    Raises:
        CheckOutdated: a check that an earlier study has kept does not hold, or holds for nobody knows what;
            of the first replicate nothing was measured yet.
    """
    study, done = state.plan.study, state.done
    groups = _groups(state)
    if len(groups) > 1:
        state.warn(f"memory does not hold all workers at once: measured in {len(groups)} groups, one by one")
        _want_confirmed(state.alive)
    patience = Patience(study.patience, state.progress.stage)
    patience.waited = state.waited
    blocks = Blocks(observer, patience, study.timeout)
    state.clock.expect(study.processes - done.replicates, len(groups))

    def finished(number: int) -> None:
        state.blocks = [pace.block for _, pace in groups if pace.block is not None]
        state.cut_short = any(pace.cut_short for _, pace in groups)
        state.note_patience(patience)
        done.replicates = number + 1
        done.groups = [Group([record.cell.name for record in group], pace.state) for group, pace in groups]
        state.save()

    for number in range(done.replicates, study.processes):
        if not state.alive:
            return
        for index, (group, pace) in enumerate(groups):
            state.clock.group = index
            members = [record for record in group if record.alive]
            if members:
                # Kept before native allocations are counted, which is done by itself where it is broken off.
                timed = partial(finished, number) if index == len(groups) - 1 else None
                replicate(state, members, pace, number, blocks).run(timed)
            if not any(record.alive for record in group):
                state.clock.all_failed(index)
        done.native = number + 1 == study.processes and not counts_natively_apart(study)
        finished(number)


def _want_confirmed(records: Sequence[CellRecord]) -> None:
    """A worker confirms a kept check when it has loaded: in a later group, after others were measured."""
    unconfirmed = [record for record in records if record.checked is not None]
    for record in unconfirmed:
        record.forget_check()
    if unconfirmed:
        raise CheckOutdated


def _groups(state: StudyState) -> list[tuple[list[CellRecord], Pace]]:
    """As they were, where the study is resumed."""
    study, alive = state.plan.study, state.alive
    if not state.done.groups:
        return [(group, Pace(study, len(group) / len(alive))) for group in state.groups(alive)]
    by_name = {record.cell.name: record for record in state.records}
    found = []
    for group in state.done.groups:
        pace = Pace(study)
        pace.restore(group.pace)
        found.append(([by_name[name] for name in group.cells], pace))
    state.blocks = [pace.block for _, pace in found if pace.block is not None]
    state.cut_short = any(pace.cut_short for _, pace in found)
    return found
