"""Resumes an unfinished study, only on the same machine with the same versions and data."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from polybench.errors import BadInput
from polybench.machine import host
from polybench.planning.plan import Plan, resolve
from polybench.planning.shared_files import dataset_of
from polybench.planning.study_file import parse
from polybench.results.document import DocumentHeader, collect_versions, is_complete
from polybench.results.run_state import ConfigurationRun
from polybench.runner.checkpoint import StudyCheckpoint, StudyCheckpointStore
from polybench.runner.prepare import prepare
from polybench.runner.progress import Progress
from polybench.runner.state import StudyState, make_run
from polybench.runner.study import run_phases
from polybench.runner.workers import Environments, read_engine_info
from polybench.schema import units
from polybench.schema.metadata import Host, Resumed, ToolVersion
from polybench.schema.options import Study
from polybench.schema.study import StudyDocument
from polybench.storage.anonymize import is_anonymized
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


_MACHINE_FIELDS = ("hostname", "os", "cpu", "cores", "threads", "gpus", "cpu_governor", "python")


def reject_changed(id: str, rerun_hint: str, changes: Sequence[str]) -> None:
    """Raise BadInput if there are changes; `rerun_hint` is the command that starts over."""
    if changes:
        text = "; ".join(dict.fromkeys(changes))
        raise BadInput(f"cannot resume {id}: {text}: start over with {rerun_hint}")


def list_changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Describe each changed value."""
    return list(_iter_changes(before, now))


def machine_changes(host_before: Host, tool_before: ToolVersion) -> list[str]:
    """Describe changes of the machine and of polybench."""
    before = _machine_values(host_before, tool_before)
    return list_changes(before, _machine_values(host.this_host(), host.tool_version()))


def polybench_changes(before: ToolVersion) -> list[str]:
    """Describe changes of polybench."""
    return list_changes(_polybench_values(before), _polybench_values(host.tool_version()))


def study_changes(document: StudyDocument, plan: Plan, scratch: Path) -> list[str]:
    """Describe changes of the data and engine versions of a finished study.

    Versions are those of one configuration of each engine, environment and device.

    Args:
        document: the study.
        plan: of the same study, now.
        scratch: a folder for files.
    """
    study = plan.study
    images = dataset_of(study, plan.model, scratch)
    changes = list_changes({"data_sha256": document.settings.data_sha256}, {"data_sha256": images.sha256})
    environments = Environments(plan, scratch / "environments")
    first_of_each = {
        (configuration.engine, configuration.environment, configuration.device): (
            document.result(configuration.name),
            configuration,
        )
        for configuration in reversed(plan.configurations)
        if "build" in document.result(configuration.name).versions
    }
    pairs = [(result, make_run(configuration, plan, environments)) for result, configuration in first_of_each.values()]
    read_engine_info([run for _, run in pairs], study.timeout)
    for result, run in pairs:
        if run.engine_info is None:
            changes.append(f"{run.configuration.name}: {run.reason}")
        else:
            changes += _version_changes(result.versions, collect_versions(run), is_anonymized(document.host))
    return changes


def _version_changes(before: Mapping[str, Any], now: Mapping[str, Any], anonymized: bool) -> Iterator[str]:
    """Describe changes of versions, and of environment variables unless the study is anonymized."""
    yield from _iter_changes(_scalar_values(before), _scalar_values(now))
    for name in () if anonymized else ("environment", "inherited"):
        yield from _iter_changes(before.get(name, {}), now.get(name, {}))


def _scalar_values(versions: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in versions.items() if not isinstance(value, dict)}


def _machine_values(machine: Host, tool: ToolVersion) -> dict[str, Any]:
    return {name: getattr(machine, name) for name in _MACHINE_FIELDS} | _polybench_values(tool)


def _polybench_values(tool: ToolVersion) -> dict[str, Any]:
    return {f"polybench's {name}": getattr(tool, name) for name in ("version", "commit")}


def _iter_changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    for name in dict.fromkeys([*before, *now]):
        if before.get(name) != now.get(name):
            yield f"{name} was {before.get(name, 'absent')}, now {now.get(name, 'absent')}"
