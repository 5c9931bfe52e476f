"""State of a running study: configuration runs, warnings, checkpoint and saved document."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from statistics import fmean

import msgspec
import platformdirs

from polybench.data.disk import is_inside, remove_folder
from polybench.errors import BadInput
from polybench.machine.cores import last_level_cache_bytes
from polybench.machine.load import IdleWait
from polybench.machine.meters.observer import Observer
from polybench.planning.plan import Plan, memory_groups
from polybench.planning.schedule import WARM_UP_STEPS
from polybench.planning.shared_files import SharedFiles
from polybench.protocol import calls
from polybench.protocol.calls import Prepared, Request
from polybench.protocol.loaded_code import changed_files, changed_names, describe_changes
from polybench.results.document import (
    DocumentHeader,
    build_settings,
    build_study_document,
    collect_versions,
    measured_step_times,
    study_toml,
)
from polybench.results.run_state import ConfigurationRun, StudyRun
from polybench.results.sanity import implausible_results
from polybench.results.warnings import final_warnings
from polybench.runner.checkpoint import CheckpointStore, CompletedPhases, StudyCheckpoint, list_changes
from polybench.runner.peak_cache import PeakCache
from polybench.runner.progress import ConfigurationProgress, PhaseTimer
from polybench.runner.scratch import prune_logs
from polybench.runner.workers import make_runs, version_changes
from polybench.schema import units
from polybench.schema.metadata import Host, RoundInterference, Settings
from polybench.schema.study import StudyDocument, from_json, to_json
from polybench.storage.anonymize import anonymize
from polybench.storage.store import Store

_SETTINGS_KNOWN_AT_END = ("rounds_per_process", "steps_per_round", "baseline")
"""Settings that are unknown before anything is measured."""


class StudyState:
    """State that the parity check, process runs and trainings of a study share.

    Runs are in the plan's order, and interference has one entry per round. Without `observer`, only times are measured.
    """

    def __init__(
        self,
        plan: Plan,
        files: SharedFiles,
        header: DocumentHeader,
        phase_timer: PhaseTimer,
        *,
        scratch: Path,
        observer: Observer | None,
        store: Store | None,
        checkpoints: CheckpointStore | None,
    ) -> None:
        self.plan, self.files = plan, files
        self.phase_timer, self.progress = phase_timer, phase_timer.progress
        self.scratch, self.observer = scratch, observer
        self.runs = make_runs(plan, scratch / "environments")
        self.interference: list[RoundInterference] = []
        self.completed = CompletedPhases()
        self.idle_wait = IdleWait(plan.study.wait_idle, self.progress.on_stage)
        self.idle_wait.waited_seconds = header.host.idle_wait_seconds
        self._folder = store.folder if store else platformdirs.user_cache_path("polybench")
        self.logs = self._folder / "logs" / header.id
        if not is_inside(self.logs, self._folder):
            raise BadInput(
                f"cannot write logs to {self.logs}: expected a folder inside of {self._folder}: delete the link"
            )
        prune_logs(self.logs.parent)
        self._store, self._header, self.checkpoints = store, header, checkpoints
        self._warnings: list[str] = []
        self._private_warnings: set[str] = set()

    @property
    def active_runs(self) -> list[ConfigurationRun]:
        """Runs that can start another worker."""
        return [run for run in self.runs if run.is_active]

    def warn(self, text: str, *, names: bool = False) -> None:
        """Report a warning once, and add it to the result.

        With `names`, it contains paths, values of variables or texts of other programs: an anonymous result lacks it.
        """
        if text not in self._warnings:
            self._warnings.append(text)
            self._private_warnings |= {text} if names else set()
            self.progress.on_warning(text)

    def report_progress(self) -> None:
        """Report the progress of each configuration."""
        self.progress.on_configurations([_configuration_progress(run) for run in self.runs])

    @property
    def host(self) -> Host:
        """The host, as in the document."""
        return self._header.host

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

    @property
    def settings(self) -> Settings:
        """The settings of all configurations, as far as they are known before measuring."""
        return build_settings(self.plan, self.files)

    def restore(self, checkpoint: StudyCheckpoint) -> None:
        """Restore an earlier process of this study; raises BadInput if settings, versions or data have changed."""
        assert self.checkpoints is not None  # only saved studies are resumed
        self.reject_invalid(checkpoint)
        self.checkpoints.reject_changed(checkpoint, _setting_changes(checkpoint, self))
        self.progress.on_stage("checking that engine versions are unchanged")
        versions = [
            (collect_versions(saved), current)
            for saved, current in zip(checkpoint.runs, self.runs, strict=True)
            if saved.is_active and saved.engine_info is not None
        ]
        changes = version_changes(versions, self.plan.study.timeout, ("build",)) or _code_changes(
            checkpoint.runs, self.runs
        )
        self.checkpoints.reject_changed(checkpoint, changes)
        for saved, current in zip(checkpoint.runs, self.runs, strict=True):
            saved.interpreter = current.interpreter  # the earlier links to bundled packages are gone
        self.runs, self.interference, self.completed = (checkpoint.runs, checkpoint.interference, checkpoint.completed)
        self._private_warnings |= {*checkpoint.warnings} - {*self._warnings}
        self._warnings = list(dict.fromkeys([*checkpoint.warnings, *self._warnings]))
        self.warn(
            f"resumed after {units.plural(self.completed.process_runs, 'process run')}: the state of the machine may"
            " have changed between the earlier measurements and the later ones"
        )

    def reject_invalid(self, checkpoint: StudyCheckpoint) -> None:
        """Raise CorruptCheckpoint unless the measurements in a checkpoint make a valid document of this study."""
        assert self.checkpoints is not None
        timing_blocks = [block for group in checkpoint.completed.groups if (block := group.round_budget.block)]
        measured = StudyRun(checkpoint.runs, [], timing_blocks, checkpoint.interference, [], None, finished=False)
        try:
            if [run.configuration for run in checkpoint.runs] != [run.configuration for run in self.runs]:
                raise ValueError("its configurations are not those of its study")
            from_json(to_json(build_study_document(self._header, self.plan, self.files, measured, lambda *_: None)))
        except (ArithmeticError, AssertionError, LookupError, ValueError, msgspec.MsgspecError) as error:
            raise self.checkpoints.unreadable(self._header.id, StudyCheckpoint, error) from error

    def write_checkpoint(self) -> None:
        """Write the checkpoint from which the study can be resumed."""
        if self.checkpoints is None:
            return
        self._record_idle_wait()
        study = study_toml(self.plan.study)
        checkpoint = StudyCheckpoint(
            header=self._header, study=study, settings=self.settings, runs=self.runs,
            interference=self.interference, warnings=self._warnings, completed=self.completed,
        )  # fmt: skip
        with contextlib.suppress(OSError):  # saving the document reports the same problem
            self.checkpoints.write(checkpoint)

    def checkpoint_file(self, name: str) -> Path | None:
        """Return the path of a file beside the checkpoint; None if the study has no checkpoint."""
        return self.checkpoints.run_folder(self._header.id) / name if self.checkpoints else None

    def save(self) -> None:
        """Write the checkpoint and save the document."""
        self.write_checkpoint()
        if self._store is not None:
            self._save(self._anonymized(self._build_document(finished=False)))

    def interrupt(self) -> None:
        """Mark unfinished configurations as interrupted."""
        processes = self.plan.study.processes
        for run in self.active_runs:
            run.status = "interrupted"
            run.reason = f"interrupted after {len(measured_step_times(run))} of {processes} processes"
            run.hint = f"polybench resume {self._header.id}" if self.checkpoints else "run the command again"
        self.warn("interrupted: the results contain only finished measurements")

    def finish(self) -> StudyDocument:
        """Save and return the complete document; delete the checkpoint, and logs if no worker failed."""
        document = self._build_document(finished=True)
        cut_short = any(group.round_budget.cut_short for group in self.completed.groups)
        cache_bytes = last_level_cache_bytes(self.plan.workload.threads)
        for text in (
            *final_warnings(document, self.plan.study, cut_short),
            *implausible_results(document.results, self.plan.model, cache_bytes),
        ):
            self.warn(text)
        document.warnings = list(self._warnings)
        self._save(self._anonymized(document))
        document.warnings = list(self._warnings)
        if self.checkpoints and all(run.status != "interrupted" for run in self.runs):
            self.checkpoints.remove(self._header.id)
        if all(run.log_path is None for run in self.runs):
            remove_folder(self.logs, self._folder)
        return self._anonymized(document)

    def _anonymized(self, document: StudyDocument) -> StudyDocument:
        """Return the document, anonymized if the study is."""
        if not self._header.anonymous:
            return document
        warnings = [text for text in document.warnings if text not in self._private_warnings]
        return msgspec.structs.replace(anonymize(document), warnings=warnings)

    def discard(self) -> None:
        """Delete checkpoint and logs, because nothing will be measured."""
        remove_folder(self.logs, self._folder)
        if self.checkpoints:
            self.checkpoints.remove(self._header.id)

    def _save(self, document: StudyDocument) -> None:
        # A full disk does not stop the study: space may become free, and the end prints all results.
        save_error = self._store.try_to_save(document) if self._store is not None else None
        if save_error is not None and document.finished:
            self.warn(save_error, names=True)
        elif save_error is not None:
            self.progress.on_warning(f"{save_error}; polybench retries later")

    def _record_idle_wait(self) -> None:
        self.host.idle_wait_seconds = self.idle_wait.waited_seconds
        if self.idle_wait.busiest_programs:
            self.host.busiest_programs = [program.name for program in self.idle_wait.busiest_programs]

    def _build_document(self, *, finished: bool) -> StudyDocument:
        self._record_idle_wait()
        return build_study_document(
            self._header,
            self.plan,
            self.files,
            StudyRun(
                self.runs,
                self._warnings,
                [block for group in self.completed.groups if (block := group.round_budget.block) is not None],
                self.interference,
                memory_groups=[group.configurations for group in self.completed.groups],
                phase_seconds=None if self._header.resumed else self.phase_timer.durations(),
                finished=finished,
            ),
            partial(PeakCache().find, self.host, self.plan.study.malloc),
        )


def _setting_changes(checkpoint: StudyCheckpoint, state: StudyState) -> list[str]:
    """Describe changes of the settings and of the workers' environment variables."""
    settings = [msgspec.structs.asdict(values) for values in (checkpoint.settings, state.settings)]
    before, now = ({name: values[name] for name in values if name not in _SETTINGS_KNOWN_AT_END} for values in settings)
    changes = list_changes(before, now)
    for saved, current in zip(checkpoint.runs, state.runs, strict=True):
        if saved.is_active and not current.is_active:
            changes.append(f"{current.configuration.name} is unavailable: {current.reason}")
        else:
            changes += list_changes(
                saved.env_vars | saved.inherited_env_vars, current.env_vars | current.inherited_env_vars
            )
            if saved.unrecorded_env_hash != current.unrecorded_env_hash:
                changes.append("an environment variable that engines may read has another value")
    return changes


def _code_changes(saved_runs: Sequence[ConfigurationRun], current_runs: Sequence[ConfigurationRun]) -> list[str]:
    """Describe changes of the code that workers load; not every current run has started one."""
    changed = {
        name
        for saved, current in zip(saved_runs, current_runs, strict=True)
        for name in (
            *(changed_names(saved.code, current.code) if saved.code and current.code else ()),
            *changed_files(saved.later_code),
        )
    }
    return [describe_changes(changed)] if changed else []


def _configuration_progress(run: ConfigurationRun) -> ConfigurationProgress:
    rounds = [times for process in measured_step_times(run) for times in process]
    seconds = fmean(map(fmean, rounds)) if rounds else None
    return ConfigurationProgress(run.configuration.name, run.parity.status, run.status, len(rounds), seconds)
