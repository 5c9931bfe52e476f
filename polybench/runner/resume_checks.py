"""Detects changes of machine, versions and data, which prevent resuming a study."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from polybench.errors import BadInput
from polybench.machine import host
from polybench.planning.plan import Plan
from polybench.planning.shared_files import dataset_of
from polybench.results.document import collect_versions
from polybench.runner.engine_info import read_engine_info
from polybench.runner.environments import Environments
from polybench.runner.state import make_run
from polybench.schema.metadata import Host, ToolVersion
from polybench.schema.study import StudyDocument
from polybench.storage.anonymize import is_anonymized

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
