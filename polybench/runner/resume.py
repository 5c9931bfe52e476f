"""Checks that an unfinished run can continue: only on the same machine with the same versions and data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from polybench.machine import host
from polybench.planning.plan import Plan
from polybench.planning.shared_files import dataset_of
from polybench.results.document import collect_versions
from polybench.results.run_state import ConfigurationRun
from polybench.runner.checkpoint import CheckpointStore, CheckpointT, StudyCheckpoint, list_changes
from polybench.runner.state import StudyState
from polybench.runner.workers import Environments, read_engine_info
from polybench.schema import units
from polybench.schema.metadata import Host, ToolVersion
from polybench.schema.study import StudyDocument
from polybench.storage.anonymize import is_anonymized

_MACHINE_FIELDS = ("hostname", "os", "cpu", "cores", "threads", "gpus", "cpu_governor", "python")

_SETTINGS_KNOWN_AT_END = ("rounds_per_process", "steps_per_round", "baseline")
"""Settings that are unknown before anything is measured."""


def restore(state: StudyState, checkpoint: StudyCheckpoint) -> None:
    """Restore the measurements of an earlier process of a study.

    Raises:
        BadInput: settings, versions or data have changed since.
    """
    changes = _setting_changes(checkpoint, state)
    if not changes:
        state.progress.on_stage("checking that engine versions are unchanged")
        saved = [
            (collect_versions(run), current)
            for run, current in zip(checkpoint.runs, state.runs, strict=True)
            if run.is_active and run.engine_info is not None
        ]
        changes = _version_changes(saved, state.plan.study.timeout, ("build",))
    assert state.checkpoints is not None  # only saved studies can be resumed
    state.checkpoints.reject_changed(checkpoint, changes)
    state.restore(checkpoint)
    process_runs = units.plural(checkpoint.completed.process_runs, "process run")
    state.warn(
        f"resumed after {process_runs}: the state of the machine may have changed between the earlier"
        " measurements and the later ones"
    )


def read_resumable(checkpoints: CheckpointStore, id: str, kind: type[CheckpointT]) -> CheckpointT:
    """Read a checkpoint that this machine can resume, as far as that is known without starting an engine.

    Raises:
        BadInput: the run is not unfinished, or the machine or polybench has changed.
    """
    checkpoint = checkpoints.read(id, kind)
    header = checkpoint.header
    before = _machine_values(header.host, header.tool_version)
    checkpoints.reject_changed(checkpoint, list_changes(before, _machine_values(host.this_host(), host.tool_version())))
    return checkpoint


def polybench_changes(before: ToolVersion) -> list[str]:
    """Describe changes of polybench."""
    return list_changes(_polybench_values(before), _polybench_values(host.tool_version()))


def study_changes(document: StudyDocument, plan: Plan, scratch: Path) -> list[str]:
    """Describe changes of the data and engine versions of a finished study.

    Args:
        document: the study.
        plan: of the same study, now.
        scratch: a folder for files.
    """
    images = dataset_of(plan.study, plan.model, scratch)
    environments = Environments(plan, scratch / "environments")
    results = [(document.result(configuration.name), configuration) for configuration in plan.configurations]
    saved = [
        (result.versions, environments.make_run(configuration))
        for result, configuration in results
        if "build" in result.versions
    ]
    nested = () if is_anonymized(document.host) else ("build", "environment", "inherited")
    return [
        *list_changes({"data_sha256": document.settings.data_sha256}, {"data_sha256": images.sha256}),
        *_version_changes(saved, plan.study.timeout, nested),
    ]


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
    return changes


def _version_changes(
    saved: Iterable[tuple[Mapping[str, Any], ConfigurationRun]], timeout: float, nested: Sequence[str]
) -> list[str]:
    """Describe version changes, from one configuration of each engine, environment and device.

    Args:
        saved: earlier versions, as in a document, and a run that may start workers.
        timeout: of each worker, in seconds.
        nested: names of nested versions to compare.
    """
    one_of_each = {
        (run.configuration.engine, run.configuration.environment, run.configuration.device): (versions, run)
        for versions, run in saved
    }
    read_engine_info([run for _, run in one_of_each.values()], timeout)
    changes: list[str] = []
    for before, run in one_of_each.values():
        if run.engine_info is None:
            changes.append(f"{run.configuration.name}: {run.reason}")
            continue
        now = collect_versions(run)
        changes += list_changes(_scalar_values(before), _scalar_values(now))
        for name in nested:
            changes += list_changes(before.get(name, {}), now.get(name, {}))
    return changes


def _scalar_values(versions: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in versions.items() if not isinstance(value, dict)}


def _machine_values(machine: Host, tool: ToolVersion) -> dict[str, Any]:
    return {name: getattr(machine, name) for name in _MACHINE_FIELDS} | _polybench_values(tool)


def _polybench_values(tool: ToolVersion) -> dict[str, Any]:
    return {f"polybench's {name}": getattr(tool, name) for name in ("version", "commit")}
