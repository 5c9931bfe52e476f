"""Decides whether an unfinished study may be resumed, and describes what has changed since its log was written."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import msgspec

from polybench.data.disk import remove_folder
from polybench.errors import BadInput
from polybench.log import (
    STATE_SUFFIX,
    SUFFIX,
    AnyEvent,
    DamagedLog,
    Header,
    Log,
    PlannedConfiguration,
    SettingsChosen,
    StudyEnded,
    header_of,
    read_outline,
    split_points,
    whole_end,
)
from polybench.machine import host
from polybench.planning.study_file import parse
from polybench.protocol.loaded_code import changed_files, changed_names, describe_changes
from polybench.results.document import collect_versions, printed_results, report_of
from polybench.results.measured import measured_study
from polybench.results.sweep import document_of, points_of, sweep_end
from polybench.runner.configuration_run import ConfigurationRun
from polybench.runner.session import Session
from polybench.runner.workers import list_changes, version_changes
from polybench.schema.metadata import Host, ToolVersion
from polybench.schema.options import Study
from polybench.storage.anonymize import OMITTED, is_anonymized
from polybench.storage.anonymous_log import anonymous_event
from polybench.storage.store import Store

_MACHINE_FIELDS = ("hostname", "os", "cpu", "cores", "threads", "gpus", "cpu_governor", "python")


class ChangedSince(BadInput):
    """Machine, versions, settings or data have changed since the measurements."""

    def __init__(self, message: str, changes: Sequence[str]) -> None:
        super().__init__(message)
        self.changes = changes


def unfinished_logs(store: Store) -> list[Path]:
    """Return the logs of all studies that can be resumed, the newest first, and those that cannot be read."""
    return [path for path in sorted(store.logs(), reverse=True) if not _has_ended(path)]


def unfinished_ids(store: Store) -> list[str]:
    """Return the IDs of these studies."""
    return [path.stem for path in unfinished_logs(store)]


def _has_ended(path: Path) -> bool:
    try:
        end = read_outline(path).end
    except (BadInput, OSError):
        return False
    return end is not None and end.outcome != "interrupted"


@contextlib.contextmanager
def unfinished_log(id: str, store: Store, *, anonymous: bool = False) -> Iterator[tuple[Log, Study]]:
    """Open the log of a study or sweep to append to it, and read the study; nothing is written before `Log.release`.

    A process run without its end is measured again, because no engine can continue the timing block of another
    process. A study stays anonymous, or not, as it has started.

    Raises:
        BadInput: it has finished, another process measures it, the log is damaged, or it is that of another machine.
    """
    store.ensure_writable()
    path = store.log_path(id)
    with contextlib.ExitStack() as stack:
        try:
            log = stack.enter_context(Log.resume(path, anonymous_event))
            study = _unfinished_study(log, id)
        except DamagedLog as error:
            raise with_remedy(error, path) from error
        refuse_to_anonymize(log.header, anonymous=anonymous)
        yield log, study


def refuse_to_anonymize(header: Header, *, anonymous: bool) -> None:
    """Raise BadInput if a run that has started with names is to become anonymous: nothing that is written changes."""
    if anonymous and not header.anonymous:
        raise BadInput(
            f"--anonymous: {header.id} has started with names: resume it without this option, and print it with"
            f" `polybench show {header.id} --anonymous`"
        )


def with_remedy(error: DamagedLog, path: Path) -> DamagedLog:
    """Return the error of an unfinished log with what to do about it."""
    fix = "start over with the same command without --resume"
    return DamagedLog(f"{error}; {fix}, or give it up with `polybench resume {path.stem} --discard`")


def _unfinished_study(log: Log, id: str) -> Study:
    """Return the study of an intact log that can be resumed on this machine, whatever its engines are."""
    assert log.path is not None
    header, end = log.header, whole_end(log.events[-1])
    if header.id != id:
        raise DamagedLog(f"cannot read {log.path}: it is the log of {header.id}")
    if end is not None and end.outcome != "interrupted":
        raise BadInput(f"cannot resume {id}: it has finished")
    refuse(id, header.argv, [*machine_changes(header.host), *polybench_changes(header.polybench)], log.path.parent)
    if OMITTED in header.study:
        raise BadInput(
            f"cannot resume {id}: an anonymous log lacks the paths of data and environments: start over with the same"
            " command without --resume"
        )
    try:
        for events in split_points(log.events).values() if header.axes else [log.events]:
            _check_measurements(events)
    except (ArithmeticError, LookupError, ValueError, msgspec.MsgspecError) as error:
        raise DamagedLog(f"cannot read {log.path}: {error}") from error
    return parse(header.study, f"the study of {id}")


def _check_measurements(events: Sequence[AnyEvent]) -> None:
    """Raise an error unless a study has a valid report, and each configuration all process runs that have ended."""
    measured = measured_study(events)
    if measured.settings is None:
        return
    report_of(events)
    measured.drop_unfinished()
    for run in measured.runs:
        rounds = [max(len(blocks), len(others)) for blocks, others in zip(run.blocks, run.operations, strict=True)]
        if run.is_active and (len(rounds), 0 in rounds) != (measured.process_runs, False):
            raise ValueError(f"{run.configuration.name} has {len(rounds)} of {measured.process_runs} process runs")


def discard_study(id: str, store: Store) -> None:
    """End the log of a study or sweep, so that it cannot be resumed; its measurements remain. A damaged one is renamed.

    Raises:
        BadInput: another process measures it.
    """
    path = store.log_path(id)
    try:
        with Log.resume(path, anonymous_event) as log:
            log.release()
            log.add(_discarded(log.events))
    except DamagedLog:
        path.rename(f"{path}.damaged")
    if path.with_suffix(STATE_SUFFIX).exists():
        remove_folder(path.with_suffix(STATE_SUFFIX), store.folder)


def _discarded(events: Sequence[AnyEvent]) -> StudyEnded:
    """Return the end of a study that is given up, or of a sweep."""
    header = header_of(events)
    if header.axes:
        points = points_of(events)
        return sweep_end(events, "discarded", document_of(header, points) if points else None)
    has_settings = any(isinstance(event, SettingsChosen) for event in events)
    printed = printed_results(report_of(events)) if has_settings else {}
    return StudyEnded(outcome="discarded", polybench=header.polybench, **printed)


def machine_changes(before: Host) -> Iterator[str]:
    """Describe changes of the machine."""
    now = host.this_host()
    for name in _MACHINE_FIELDS:
        if name != "hostname" or not is_anonymized(before):
            yield from list_changes({name: getattr(before, name)}, {name: getattr(now, name)})


def polybench_changes(before: ToolVersion) -> list[str]:
    """Describe changes of polybench."""
    tools = before, host.tool_version()
    old, new = ({f"polybench's {name}": getattr(tool, name) for name in ("version", "commit")} for tool in tools)
    return list_changes(old, new)


def refuse_changes(session: Session) -> None:
    """Refuse to go on with other settings, variables, versions or code than those in the log.

    Raises:
        ChangedSince: it lists them.
    """
    if session.measured.settings is None:
        return
    id, argv = session.log.run_id, session.log.header.argv
    folder = session.log.path.parent if session.log.path else Path()
    refuse(id, argv, _setting_changes(session), folder)
    session.progress.on_stage("checking that engine versions are unchanged")
    runs = list(zip(session.runs, session.own_runs, strict=True))
    versions = [
        (collect_versions(saved), own) for saved, own in runs if saved.is_active and saved.engine_info is not None
    ]
    changes = version_changes(versions, session.plan.study.timeout, ("build",)) or _code_changes(session.log, runs)
    refuse(id, argv, changes, folder)


def _setting_changes(session: Session) -> list[str]:
    """Describe changes of the settings and of the workers' environment variables."""
    before, now = session.measured.settings, anonymous_event(session.log.header, session.settings)
    assert before is not None
    assert isinstance(now, SettingsChosen)
    changes = list_changes(msgspec.structs.asdict(before.settings), msgspec.structs.asdict(now.settings))
    if [run.configuration for run in session.runs] != [own.configuration for own in session.own_runs]:
        raise DamagedLog(f"cannot read {session.log.path}: its configurations are not those of its study")
    for saved, own, planned in zip(session.runs, session.own_runs, now.configurations, strict=True):
        if saved.is_active and not own.is_active:
            changes.append(f"{own.configuration.name} is unavailable: {own.reason}")
        else:
            changes += _variable_changes(saved.planned, planned)
    return changes


def _variable_changes(before: PlannedConfiguration, now: PlannedConfiguration) -> Iterator[str]:
    yield from list_changes(before.env_vars | before.inherited_env_vars, now.env_vars | now.inherited_env_vars)
    if before.unrecorded_env_hash != now.unrecorded_env_hash:
        yield "an environment variable that engines may read has another value"


def _code_changes(log: Log, runs: Iterable[tuple[ConfigurationRun, ConfigurationRun]]) -> list[str]:
    """Describe changes of the code that workers load; not every current run has started one."""
    runs = list(runs)
    changed: set[str] = set()
    for saved, own in runs:
        before, later = log.read_content(saved.code_sha256), log.read_content(saved.later_code_sha256)
        changed |= {*(changed_names(before, own.code) if before and own.code else ()), *changed_files(later)}
    if changed:
        return [describe_changes(changed)]
    hashes = [(saved.code_sha256, own.code_sha256) for saved, own in runs if own.code_sha256 is not None]
    return ["the loaded code changed"] if any(before != now for before, now in hashes if before is not None) else []


def refuse(id: str, argv: Sequence[str], changes: Iterable[str], folder: Path) -> None:
    """Raise ChangedSince, with the command that starts over, if there are changes."""
    if unique := list(dict.fromkeys(changes)):
        message = f"cannot resume {id}: {'; '.join(unique)}: start over with {rerun_hint(id, argv, folder)}"
        raise ChangedSince(message, unique)


def rerun_hint(id: str, argv: Sequence[str], folder: Path) -> str:
    """Return the command that starts over; a saved study is repeated by its ID."""
    if (folder / f"{id}{SUFFIX}").is_file():
        return f"`polybench run {id}`"
    return f"`{shlex.join(['polybench', *argv])}`" if argv else "the same command without --resume"
