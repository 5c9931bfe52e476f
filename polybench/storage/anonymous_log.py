"""Events without what may name a host, a user or a folder."""

from __future__ import annotations

import dataclasses

import msgspec

from polybench.log import (
    AllocationsCounted,
    AnyEvent,
    BlockTimed,
    EngineLoaded,
    Failed,
    Header,
    PlannedConfiguration,
    PointStarted,
    SettingsChosen,
    Warned,
)
from polybench.schema.options import EngineName, is_program
from polybench.storage.anonymize import OMITTED, OMITTED_WARNINGS, anonymize_study, without_names, without_paths


def anonymous_event(header: Header, event: AnyEvent) -> AnyEvent | None:  # noqa: PLR0911 - one return per event
    """Return what the log of an anonymous study gets of an event; the log of another study gets all of it."""
    if not header.anonymous:
        return event
    match event:
        case Header() | PointStarted():
            plain = without_names(msgspec.to_builtins(event))
            return msgspec.convert(plain | {"study": anonymize_study(event.study)}, type(event))
        case SettingsChosen():
            return msgspec.structs.replace(event, configurations=[*map(_without_values, event.configurations)])
        case EngineLoaded():
            names = {"versions": without_paths(event.versions), "build": without_paths(event.build)}
            own = is_program(EngineName.parse(event.configuration.partition("/")[0]).engine)
            program = None if own else event.program
            return msgspec.structs.replace(event, python=None, program=program, **names)
        case BlockTimed() if event.usage is not None:
            usage = event.usage
            gpu = usage.gpu and dataclasses.replace(usage.gpu, failures={})
            return msgspec.structs.replace(event, usage=dataclasses.replace(usage, failures={}, gpu=gpu))
        case AllocationsCounted():
            failure = event.native_failure and OMITTED_WARNINGS
            plain = without_names(msgspec.to_builtins(event)) | {"native_failure": failure}
            return msgspec.convert(plain, AllocationsCounted)
        case Failed():
            path = event.log_path and event.log_path.rpartition("/")[2]
            return msgspec.structs.replace(event, reason=OMITTED, hint=None, log_path=path)
        case Warned() if event.configuration is not None:
            return msgspec.structs.replace(event, text=OMITTED_WARNINGS)
        case Warned():
            return None if event.names else event
    return event


def _without_values(planned: PlannedConfiguration) -> PlannedConfiguration:
    """Return a configuration without the values of variables that contain a path."""
    own, inherited = without_paths(planned.env_vars), without_paths(planned.inherited_env_vars)
    return msgspec.structs.replace(planned, env_vars=own, inherited_env_vars=inherited, unrecorded_env_hash="")
