"""What is not any more as it was when something was begun: then nothing goes on with it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from polybench.core.document.circumstances import Host, Tool
from polybench.core.document.study import StudyDocument
from polybench.core.errors import BadInput
from polybench.machine import host
from polybench.measuring.environments import Environments
from polybench.measuring.probing import probe
from polybench.measuring.state import record_of
from polybench.planning.plan import Plan
from polybench.planning.shared_files import dataset_of
from polybench.report.anonymous import is_anonymous
from polybench.report.document import known_versions

_MACHINE = ("hostname", "os", "cpu", "cores", "threads", "gpus", "governor", "python")


def refuse(id: str, again: str, differences: Sequence[str]) -> None:
    """Raise BadInput where there are any; `again` is what measures all anew."""
    if differences:
        text = "; ".join(dict.fromkeys(differences))
        raise BadInput(f"cannot go on with {id}: {text}; {again} measures all of it again")


def different(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """In words."""
    return list(_differences(before, now))


def machine_changes(before: Host, tool: Tool) -> list[str]:
    """Of the machine, and of polybench."""
    then, now = ((before, tool), (host.this_host(), host.tool()))
    return different(_of_machine(*then), _of_machine(*now))


def tool_changes(before: Tool) -> list[str]:
    """Of polybench alone."""
    return different(_of_tool(before), _of_tool(host.tool()))


def study_changes(document: StudyDocument, plan: Plan, scratch: Path) -> list[str]:
    """Of what a finished study was measured with: its images, and one cell of each framework.

    Args:
        document: the study.
        plan: of the same study, now.
        scratch: a folder for files.
    """
    study = plan.study
    images = dataset_of(study, plan.model, scratch)
    found = different({"data_sha256": document.settings.data_sha256}, {"data_sha256": images.sha256})
    environments = Environments(plan, scratch / "environments")
    one_of_each = {
        (cell.engine, cell.environment, cell.device): (document.result(cell.name), cell)
        for cell in reversed(plan.cells)
        if "build" in document.result(cell.name).versions
    }
    pairs = [(result, record_of(cell, plan, environments)) for result, cell in one_of_each.values()]
    probe([record for _, record in pairs], study.timeout)
    for result, record in pairs:
        if record.probe is None:
            found.append(f"{record.cell.name}: {record.reason}")
        else:
            found += _of_versions(result.versions, known_versions(record), is_anonymous(document.host))
    return found


def _of_versions(before: Mapping[str, Any], now: Mapping[str, Any], nameless: bool) -> Iterator[str]:
    """With what workers are told by their environment, unless paths were left out of it."""
    yield from _differences(_plain(before), _plain(now))
    for name in () if nameless else ("environment", "inherited"):
        yield from _differences(before.get(name, {}), now.get(name, {}))


def _plain(versions: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in versions.items() if not isinstance(value, dict)}


def _of_machine(machine: Host, tool: Tool) -> dict[str, Any]:
    return {name: getattr(machine, name) for name in _MACHINE} | _of_tool(tool)


def _of_tool(tool: Tool) -> dict[str, Any]:
    return {f"polybench's {name}": getattr(tool, name) for name in ("version", "commit")}


def _differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    for name in dict.fromkeys([*before, *now]):
        if before.get(name) != now.get(name):
            yield f"{name} is {now.get(name, 'not there')} now, and was {before.get(name, 'not there')}"
