"""Resumes an unfinished study, only on the same machine with the same versions and data."""

from __future__ import annotations

import datetime
from collections.abc import Sequence

import msgspec

from polybench.planning.plan import resolve
from polybench.planning.study_file import parse
from polybench.results.document import DocumentHeader, is_complete
from polybench.results.run_state import ConfigurationRun
from polybench.runner.engine_info import read_engine_info
from polybench.runner.progress import Progress
from polybench.runner.resume_checks import list_changes, machine_changes, reject_changed
from polybench.runner.state import StudyState
from polybench.runner.study import prepare, run_phases
from polybench.runner.study_checkpoint import StudyCheckpoint, StudyCheckpointStore
from polybench.schema import units
from polybench.schema.metadata import Resumed
from polybench.schema.options import Study
from polybench.schema.study import StudyDocument
from polybench.storage.store import Store

_SETTINGS_KNOWN_AT_END = ("rounds_per_process", "steps_per_round", "baseline")
"""Settings that are unknown before anything is measured."""


def resume_study(
    id: str, progress: Progress, *, store: Store, strict: bool = False, anonymous: bool = False
) -> StudyDocument:
    """Resume a study that was interrupted or killed.

    Finished process runs, trained epochs and failed configurations are restored. An unfinished process run is
    measured again, because no engine can continue the timing block of another process.

    Args:
        id: of the study.
        progress: receives progress reports between measurements.
        store: with the study.
        strict: refuse to resume if an engine or device is unavailable; the checkpoint remains.
        anonymous: leave host name, user and paths out of the document; always so if the study started that
            way.

    Raises:
        BadInput: the study is not unfinished, it is running, or machine, versions or data have changed.
        RequiredEngineMissing: with `strict`.
    """
    store.ensure_writable()
    checkpoints = StudyCheckpointStore(store.folder)
    with checkpoints.lock(id):  # before reading, since another process may be finishing it
        checkpoint = checkpoints.read(id)
        rerun_hint = checkpoints.rerun_hint(id, checkpoint.header.argv)
        study = parse(checkpoint.study, f"the study of {id}")
        reject_changed(id, rerun_hint, machine_changes(checkpoint.header.host, checkpoint.header.tool_version))
        with prepare(
            resolve(study),
            progress,
            store=store,
            header=_resumed_header(checkpoint, study, anonymous),
            checkpoints=checkpoints,
            observed=study.metrics,
        ) as prepared:
            state = prepared.state
            reject_changed(id, rerun_hint, _setting_changes(checkpoint, state))
            reject_changed(id, rerun_hint, _engine_changes(checkpoint.runs, state))
            state.restore(checkpoint)
            state.warn(_resume_warning(checkpoint))
            return run_phases(prepared, strict=strict)


def check_resumable_here(id: str, store: Store) -> None:
    """Check that this machine can resume a study, as far as possible without starting an engine.

    Raises:
        BadInput: the study is not unfinished, or the machine or polybench has changed.
    """
    checkpoints = StudyCheckpointStore(store.folder)
    checkpoint = checkpoints.read(id)
    rerun_hint = checkpoints.rerun_hint(id, checkpoint.header.argv)
    reject_changed(id, rerun_hint, machine_changes(checkpoint.header.host, checkpoint.header.tool_version))


def _resumed_header(checkpoint: StudyCheckpoint, study: Study, anonymous: bool) -> DocumentHeader:
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    process_runs = min(checkpoint.completed.process_runs, study.processes)
    trainings = sum(is_complete(training, study) for run in checkpoint.runs for training in run.trainings)
    header = checkpoint.header
    return msgspec.structs.replace(
        header,
        resumed=[*header.resumed, Resumed(now, process_runs, trainings)],
        anonymous=header.anonymous or anonymous,
    )


def _resume_warning(checkpoint: StudyCheckpoint) -> str:
    process_runs = units.plural(checkpoint.completed.process_runs, "process run")
    return (
        f"resumed after {process_runs}: the state of the machine may have changed between the earlier"
        " measurements and the later ones"
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
    return list(dict.fromkeys(changes))


def _engine_changes(saved_runs: Sequence[ConfigurationRun], state: StudyState) -> list[str]:
    """Describe version changes, from one configuration of each engine, environment and device."""
    first_of_each = {}
    for saved, current in zip(saved_runs, state.runs, strict=True):
        if saved.is_active and saved.engine_info is not None:
            configuration = saved.configuration
            first_of_each[configuration.engine, configuration.environment, configuration.device] = (
                saved.engine_info,
                current,
            )
    state.progress.on_stage("checking that engine versions are unchanged")
    read_engine_info([current for _, current in first_of_each.values()], state.plan.study.timeout)
    changes: list[str] = []
    for before, current in first_of_each.values():
        now = current.engine_info
        if now is None:
            changes.append(f"{current.configuration.name}: {current.reason}")
        else:
            changes += [*list_changes(before.versions, now.versions), *list_changes(before.build, now.build)]
    return list(dict.fromkeys(changes))
