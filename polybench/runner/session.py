"""A study that is being measured: its plan, its inputs, its log, and what the log says so far."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

import msgspec
import platformdirs

from polybench.data.disk import is_inside, remove_folder
from polybench.errors import BadInput
from polybench.log import AnyEvent, Failed, Log, PeaksUsed, SettingsChosen, StudyEnded, StudyResumed, Warned
from polybench.machine import host
from polybench.machine.cores import last_level_cache_bytes
from polybench.machine.load import IdleWait
from polybench.machine.meters.observer import Observer
from polybench.planning.plan import Plan, memory_groups
from polybench.planning.schedule import WARM_UP_STEPS
from polybench.planning.shared_files import SharedFiles
from polybench.protocol import calls
from polybench.protocol.calls import Prepared, Request
from polybench.results.document import build_settings, derive, is_complete, printed_results
from polybench.results.measured import MeasuredStudy
from polybench.runner.configuration_run import ConfigurationRun
from polybench.runner.peak_cache import PeakCache
from polybench.runner.progress import ConfigurationProgress, PhaseTimer
from polybench.runner.scratch import prune_logs
from polybench.runner.workers import make_runs
from polybench.schema import units
from polybench.schema.study import StudyDocument
from polybench.storage.store import Store


class Session:
    """A study that is being measured on this machine: what its parity check, process runs and trainings share.

    The log is all that it remembers. Runs are in the plan's order. Without `observer`, only times are measured.

    Attributes:
        measured: what the log says, with the process run that is being measured.
        host: this machine, with its name, which an anonymous log omits.
        own_runs: the configurations as they are on this machine now, without measurements.
    """

    def __init__(
        self,
        plan: Plan,
        files: SharedFiles,
        log: Log,
        phase_timer: PhaseTimer,
        *,
        store: Store | None,
        scratch: Path,
        observer: Observer | None,
    ) -> None:
        self.plan, self.files, self.log, self._store = plan, files, log, store
        self.phase_timer, self.progress = phase_timer, phase_timer.progress
        self.scratch, self.observer = scratch, observer
        self.host = host.this_host()
        self._folder = store.folder if store else platformdirs.user_cache_path("polybench")
        self.logs = self._folder / "logs" / log.header.id
        for folder in (self.logs, log.states):
            if folder is not None and not is_inside(folder, self._folder):
                raise BadInput(f"cannot write to {folder}: expected a folder inside of {self._folder}: delete the link")
        prune_logs(self.logs.parent)
        self.measured = MeasuredStudy(ConfigurationRun).apply_all(log.events)
        self.idle_wait = IdleWait(plan.study.wait_idle, self.progress.on_stage)
        self.idle_wait.waited_seconds = self.measured.idle_wait_seconds
        self.own_runs = make_runs(plan, scratch / "environments", files.dataset.name)
        self._last_problem: str | None = None

    @property
    def runs(self) -> list[ConfigurationRun]:
        """The state of each configuration."""
        return self.measured.runs

    @property
    def active_runs(self) -> list[ConfigurationRun]:
        """Runs that can start another worker."""
        return [run for run in self.runs if run.is_active]

    @property
    def next_process_run(self) -> int | None:
        """The number of the process run that the log lacks; None if it has all, or every configuration has failed."""
        number = self.measured.process_runs
        return number if number < self.plan.study.processes and self.active_runs else None

    @property
    def settings(self) -> SettingsChosen:
        """The settings of this study on this machine now."""
        return SettingsChosen(
            settings=build_settings(self.plan, self.files),
            steps_in_epoch=self.files.steps_in_epoch,
            cache_bytes=last_level_cache_bytes(self.plan.workload.threads),
            configurations=[run.planned for run in self.own_runs],
        )

    def start(self) -> None:
        """Record the settings unless the log has them, and let the runs start workers."""
        if self.measured.settings is None:
            self.record(self.settings)
        for run, own in zip(self.runs, self.own_runs, strict=True):
            run.interpreter, run.log, run.planned = own.interpreter, self.log, own.planned
            run.source = own.source
            if run.is_active and own.status == "unavailable":
                name = run.configuration.name
                run.record(Failed(configuration=name, status=own.status, reason=own.reason, hint=own.hint))

    def resume(self) -> None:
        """Record that this process continues the log, and start."""
        study, processes = self.plan.study, min(self.measured.process_runs, self.plan.study.processes)
        trainings = sum(is_complete(training, study) for run in self.runs for training in run.trainings)
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        self.record(StudyResumed(resumed_at=now, processes=processes, trainings=trainings))
        self.log.release()
        self.start()
        self.warn(
            f"resumed after {units.plural(processes, 'process run')}: the state of the machine may have"
            " changed between the earlier measurements and the later ones"
        )

    def record(self, event: AnyEvent) -> None:
        """Add an event to the log, and apply it."""
        self.log.add(event)
        self.measured.apply(event)

    def warn(self, text: str, *, names: bool = False) -> None:
        """Report a warning once, and record it.

        With `names`, it contains paths, values of variables or texts of other programs: an anonymous log lacks it.
        """
        if text not in [warned.text for warned in self.measured.warnings]:
            self.record(Warned(text=text, names=names))
            self.progress.on_warning(text)

    def report_progress(self) -> None:
        """Report the progress of each configuration."""
        self.progress.on_configurations([_configuration_progress(run) for run in self.runs])

    def group_by_memory(self, runs: Sequence[ConfigurationRun]) -> list[list[ConfigurationRun]]:
        """Divide runs into groups whose workers fit into memory at the same time."""
        by_configuration = {run.configuration: run for run in runs}
        groups = memory_groups(self.plan, by_configuration, self.files.loaded_bytes)
        return [[by_configuration[configuration] for configuration in group] for group in groups]

    def prepare_request(self, run: ConfigurationRun) -> Request[Prepared]:
        """Return the request that builds a configuration and loads its data before measuring or training."""
        files = self.files
        warmup_steps = min(WARM_UP_STEPS, files.steps_in_epoch)
        return calls.prepare(
            self.plan.job(run.configuration), str(files.weights), files.epoch, warmup_steps, files.stream
        )

    def state_file(self, name: str) -> Path | None:
        """Return the path of a file beside the log for the state of a training; None if the log has no file."""
        if self.log.states is None:
            return None
        self.log.states.mkdir(parents=True, exist_ok=True)
        return self.log.states / name

    def check_log(self) -> None:
        """Report a log that cannot be written."""
        problem = self.log.problem
        if problem not in (None, self._last_problem):
            self.progress.on_warning(f"{problem}; polybench retries later")
        self._last_problem = problem

    def end(self, *, interrupted: bool = False) -> StudyDocument:
        """End the log, and return the report; delete the logs of workers if none failed."""
        self._record_peaks()
        resume = f"polybench resume {self.log.run_id}" if self.log.path else "run the command again"
        programs = [program.name for program in self.idle_wait.busiest_programs]
        end = StudyEnded(
            outcome="interrupted" if interrupted else "finished",
            polybench=self.log.header.polybench,
            hint=resume if interrupted else None,
            idle_wait_seconds=self.idle_wait.waited_seconds,
            busiest_programs=programs,
        )
        document = derive([*self.log.events, end])
        self.record(msgspec.structs.replace(end, **printed_results(document)))
        known = {warned.text for warned in self.measured.warnings}
        for text in document.warnings:
            if text not in known:
                self.progress.on_warning(text)
        document.warnings += self._copy_unwritten()
        if self.log.states is not None and not interrupted:
            remove_folder(self.log.states, self._folder)
        if all(run.log_path is None for run in self.runs):
            self.delete_worker_logs()
        return document

    def delete_worker_logs(self) -> None:
        """Delete the logs of workers: none failed, or nothing will be measured."""
        remove_folder(self.logs, self._folder)

    def _record_peaks(self) -> None:
        """Record the cached peaks of this machine with which configurations are compared."""
        for run in self.runs:
            peaks = PeakCache().peaks_of(self.host, self.plan.study.malloc, run) if run.counted_blocks else None
            if peaks is not None:
                run.record(PeaksUsed(configuration=run.configuration.name, peaks=peaks))

    def _copy_unwritten(self) -> list[str]:
        """Copy the log if its file lacks something; return what the user should know."""
        if self._store is None or (text := self.log.save_copy()) is None:
            return []
        self._store.failed_saves[self.log.header.id] = text
        self.progress.on_warning(text)
        return [text]


def _configuration_progress(run: ConfigurationRun) -> ConfigurationProgress:
    rounds = [times for process in run.step_times for times in process]
    seconds = fmean(map(fmean, rounds)) if rounds else None
    parity = run.cached_check.parity if run.cached_check else run.parity
    return ConfigurationProgress(run.configuration.name, parity.status, run.status, len(rounds), seconds)
