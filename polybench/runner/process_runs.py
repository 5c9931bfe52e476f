"""All process runs of a study, group by group; the document is saved after each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from polybench.machine.load import IdleWait
from polybench.machine.meters.observer import Observer
from polybench.planning.plan import needs_native_count_process
from polybench.planning.schedule import RoundBudget
from polybench.results.run_state import ConfigurationRun
from polybench.runner.cached_checks import StaleCheck
from polybench.runner.rounds import ProcessRun
from polybench.runner.state import StudyState
from polybench.runner.study_checkpoint import ConfigurationGroup
from polybench.runner.timing_blocks import BlockRunner


def run_all(
    state: StudyState, observer: Observer | None, process_run_type: Callable[..., ProcessRun] = ProcessRun
) -> None:
    """Measure every active configuration in `--processes` process runs.

    If memory cannot hold all workers at once, configurations form groups, which stay the same in all process
    runs. Each group has its own part of the budget and its own round budget, because step times may differ by
    a factor of a hundred.

    Args:
        state: of the study; its configuration runs receive the step times.
        observer: observes the workers; None if only times are wanted.
        process_run_type: makes a process run from the arguments of `ProcessRun`.

    Raises:
        StaleCheck: a cached check is not valid, or cannot be confirmed in time. No configuration has been
            measured in that case.
    """
    study, completed = state.plan.study, state.completed
    groups = _groups(state)
    if len(groups) > 1:
        state.warn(f"memory cannot hold all workers at once: measuring {len(groups)} groups, one after the other")
        _require_confirmed_checks(state.active_runs)
    idle_wait = IdleWait(study.wait_idle, state.progress.on_stage)
    idle_wait.waited_seconds = state.idle_wait_seconds
    block_runner = BlockRunner(observer, idle_wait, study.timeout)
    state.phase_timer.plan_process_runs(study.processes - completed.process_runs, len(groups))

    def save_finished(number: int) -> None:
        state.timing_blocks = [budget.block for _, budget in groups if budget.block is not None]
        state.cut_short = any(budget.cut_short for _, budget in groups)
        state.record_idle_wait(idle_wait)
        completed.process_runs = number + 1
        completed.groups = [
            ConfigurationGroup([run.configuration.name for run in group], budget.state) for group, budget in groups
        ]
        state.save()

    for number in range(completed.process_runs, study.processes):
        if not state.active_runs:
            return
        for index, (group, budget) in enumerate(groups):
            state.phase_timer.group = index
            active = [run for run in group if run.is_active]
            if active:
                # Saves before native allocations are counted: a resumed study counts them separately.
                on_timing_finished = partial(save_finished, number) if index == len(groups) - 1 else None
                process_run_type(state, active, budget, number, block_runner).run(on_timing_finished)
            if not any(run.is_active for run in group):
                state.phase_timer.drop_group(index)
        completed.native_allocations = number + 1 == study.processes and not needs_native_count_process(study)
        save_finished(number)


def _require_confirmed_checks(runs: Sequence[ConfigurationRun]) -> None:
    """Discard unconfirmed cached checks, because workers of later groups would confirm them too late."""
    unconfirmed = [run for run in runs if run.cached_worker_info is not None]
    for run in unconfirmed:
        run.discard_check()
    if unconfirmed:
        raise StaleCheck


def _groups(state: StudyState) -> list[tuple[list[ConfigurationRun], RoundBudget]]:
    """Return the configuration groups and their round budgets, unchanged if the study is resumed."""
    study, active = state.plan.study, state.active_runs
    if not state.completed.groups:
        return [(group, RoundBudget(study, len(group) / len(active))) for group in state.group_by_memory(active)]
    by_name = {run.configuration.name: run for run in state.runs}
    groups = []
    for group in state.completed.groups:
        budget = RoundBudget(study)
        budget.restore(group.round_budget)
        groups.append(([by_name[name] for name in group.configurations], budget))
    state.timing_blocks = [budget.block for _, budget in groups if budget.block is not None]
    state.cut_short = any(budget.cut_short for _, budget in groups)
    return groups
