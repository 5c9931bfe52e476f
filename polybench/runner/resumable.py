"""Finds and lists unfinished studies, sweeps and cluster runs, by ID or by what they measure."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import Any, Literal, NamedTuple, TypeVar

import msgspec

from polybench.errors import BadInput
from polybench.networks import find_model
from polybench.networks.toml_text import TomlText
from polybench.planning.grid import points
from polybench.planning.plan import resolve
from polybench.planning.study_file import replace_network
from polybench.results.document import collect_versions, measured_step_times, study_toml
from polybench.runner.checkpoint import (
    CheckpointStore,
    ClusterCheckpointStore,
    ClusterRun,
    StudyCheckpoint,
    StudyCheckpointStore,
    SweepCheckpoint,
    SweepCheckpointStore,
    SweepSpec,
)
from polybench.runner.resume import list_changes
from polybench.schema.options import Study
from polybench.storage.anonymize import UNKNOWN_HOST
from polybench.storage.store import Store
from polybench.storage.study_summary import ConfigurationSummary, StudySummary, SweepPoints, parse_time

CheckpointT = TypeVar("CheckpointT", bound=msgspec.Struct)


RunKind = Literal["study", "sweep", "cluster"]


class ResumableRun(NamedTuple):
    """An unfinished study, sweep or cluster run."""

    id: str
    kind: RunKind = "study"


def find_resumable(name: str, store: Store) -> ResumableRun:
    """Find the unfinished run whose ID begins with `name`, or for `last` the one that stopped last.

    A study that belongs to a sweep or cluster run is resumed with the whole run.

    Raises:
        BadInput: no or several unfinished runs match.
    """
    stores = _checkpoint_stores(store)
    kinds = {id: kind for kind in stores for id in stores[kind].ids()}
    cluster_runs = {
        machine_study.study_id: id
        for id, checkpoint in _read_all(ClusterCheckpointStore(store.folder))
        for machine_study in checkpoint.machine_studies
    }
    ids = sorted({cluster_runs.get(id, id) for id in kinds if name == "last" or id.startswith(name)})
    if name == "last" and ids:
        sweeps = _read_all(SweepCheckpointStore(store.folder))
        parents = {max(sweep.started.values(), default=id): id for id, sweep in sweeps} | cluster_runs
        # The studies of a corrupt sweep are unknown, so it is chosen only if there is no other run.
        newest = max([*(id for id in ids if kinds[id] == "study"), *parents], default=ids[-1])
        ids = [parents.get(newest, newest)]
    if len(ids) == 1:
        return ResumableRun(ids[0], kinds[ids[0]])
    if ids:
        raise BadInput(f"ambiguous ID {name!r}: {len(ids)} unfinished studies match: use a longer prefix")
    raise BadInput(f"cannot resume {name!r}: it has finished, or the ID is unknown")


def discard(run: ResumableRun, store: Store) -> None:
    """Delete the checkpoint of a run, even if it is corrupt; documents and finished points of a sweep remain.

    Raises:
        BadInput: the run is active, or its checkpoint cannot be deleted.
    """
    study_ids: list[str] = []
    if run.kind == "cluster":
        with contextlib.suppress(BadInput):  # corrupt: its studies are unknown
            checkpoint = ClusterCheckpointStore(store.folder).read(run.id)
            study_ids = [study.study_id for study in checkpoint.machine_studies]
    _checkpoint_stores(store)[run.kind].discard(run.id)
    for id in study_ids:  # after `discard` has checked that no process measures them
        StudyCheckpointStore(store.folder).remove(id)


def _checkpoint_stores(store: Store) -> dict[RunKind, CheckpointStore[Any]]:
    folder = store.folder
    return {
        "study": StudyCheckpointStore(folder),
        "sweep": SweepCheckpointStore(folder),
        "cluster": ClusterCheckpointStore(folder),
    }


def find_study(study: Study, store: Store) -> str:
    """Return the ID of the newest unfinished study with exactly these settings, among intact checkpoints.

    Raises:
        BadInput: no study matches; the message lists differences from the newest unfinished study.
    """
    checkpoints, requested = StudyCheckpointStore(store.folder), study_toml(study)
    errors: list[str] = []
    unfinished = [(id, checkpoint.study) for id, checkpoint in _read_all(checkpoints, errors)]
    for id, candidate in unfinished:
        if candidate == requested:
            return id
    if not unfinished:
        raise _nothing_to_resume(store, errors)
    id, candidate = unfinished[0]
    difference = _difference_text(id, _study_fields(candidate), _study_fields(requested))
    raise BadInput("; ".join([difference, *errors]))


def find_sweep(spec: SweepSpec, store: Store) -> str:
    """Return the ID of the newest unfinished sweep with exactly these settings; see `find_study`."""
    errors: list[str] = []
    unfinished = list(_read_all(SweepCheckpointStore(store.folder), errors))
    for id, candidate in unfinished:
        if candidate.matches(spec):
            return id
    if not unfinished:
        raise _nothing_to_resume(store, errors)
    id, candidate = unfinished[0]
    axes = {axis: list(values) for axis, values in spec.axes.items()}
    before = _study_fields(candidate.study) | {"swept values": candidate.axes, "command": candidate.command}
    now = _study_fields(study_toml(spec.study)) | {"swept values": axes, "command": spec.command}
    raise BadInput("; ".join([_difference_text(id, before, now), *errors]))


def find_cluster_run(run: ClusterRun, store: Store) -> str:
    """Return the ID of the newest unfinished run of this study on these machines, whatever `run.on` is."""
    errors: list[str] = []
    unfinished = list(_read_all(ClusterCheckpointStore(store.folder), errors))
    requested = run.study, list(run.groups)
    for id, candidate in unfinished:
        if (candidate.run.study, list(candidate.run.groups)) == requested:
            return id
    if not unfinished:
        raise _nothing_to_resume(store, errors)
    id, candidate = unfinished[0]
    before, now = (
        msgspec.to_builtins(one.study) | {"machines": [group.label for group in one.groups]}
        for one in (candidate.run, run)
    )
    raise BadInput("; ".join([_difference_text(id, before, now), *errors]))


def _nothing_to_resume(store: Store, errors: Iterable[str]) -> BadInput:
    nothing = f"no unfinished study in {store.folder}: run the command without --resume"
    return BadInput("; ".join([nothing, *errors]))


def _study_fields(study: str) -> dict[str, Any]:
    """Return the fields of a study in TOML, with the name of a custom network in place of its content."""
    text = TomlText("a study", study)
    fields = replace_network(text, text.load())
    return fields | {"model": find_model(fields["model"]).name}


def _difference_text(id: str, before: dict[str, Any], now: dict[str, Any]) -> str:
    changes = "; ".join(list_changes(before, now))
    return f"no unfinished study has these settings: in {id}, {changes}: `polybench resume {id}` resumes it"


def _read_all(
    checkpoints: CheckpointStore[CheckpointT], errors: list[str] | None = None
) -> Iterator[tuple[str, CheckpointT]]:
    """Yield readable checkpoints, newest first; append the messages of the others to `errors`."""
    for id in checkpoints.ids():
        try:
            yield id, checkpoints.read(id)
        except BadInput as error:
            if errors is not None:
                errors.append(str(error))


def summarize_unsaved(store: Store, saved: Iterable[StudySummary]) -> list[StudySummary]:
    """Summarize unfinished runs without a document: studies that stopped early, and sweeps."""
    studies, sweeps = StudyCheckpointStore(store.folder), SweepCheckpointStore(store.folder)
    known = {summary.file for summary in saved}
    unsaved = [_summarize(studies, id, _study_summary) for id in studies.ids() if id not in known]
    return [*unsaved, *(_summarize(sweeps, id, _sweep_summary) for id in sweeps.ids())]


def _summarize(checkpoints: CheckpointStore[CheckpointT], id: str, make_summary: Any) -> StudySummary:
    try:
        summary: StudySummary = make_summary(checkpoints.read(id))
        return summary
    except BadInput as error:
        started_at = 0.0
        with contextlib.suppress(OSError):
            started_at = (checkpoints.folder / id).stat().st_mtime
        return StudySummary(file=id, started_at=started_at, unreadable_reason=str(error))


def _study_summary(checkpoint: StudyCheckpoint) -> StudySummary:
    header, settings = checkpoint.header, checkpoint.settings
    configurations = [
        ConfigurationSummary(
            run.configuration.name,
            run.configuration.engine,
            run.configuration.variant,
            run.configuration.device,
            bool(measured_step_times(run)),
            {name: text for name, text in collect_versions(run).items() if isinstance(text, str)},
        )
        for run in checkpoint.runs
    ]
    return StudySummary(
        file=header.id,
        started_at=parse_time(header.created) or 0.0,
        id=header.id,
        created=header.created,
        title=header.study_file.title,
        model=settings.model,
        dataset=settings.dataset,
        batch_size=settings.batch_size,
        hostname=UNKNOWN_HOST if header.anonymous else header.host.hostname,
        finished=False,
        configurations=configurations,
    )


def _sweep_summary(checkpoint: SweepCheckpoint) -> StudySummary:
    plan = resolve(points(checkpoint.spec.study, checkpoint.axes)[0].study)
    return StudySummary(
        file=checkpoint.id,
        started_at=parse_time(checkpoint.created) or 0.0,
        id=checkpoint.id,
        created=checkpoint.created,
        title=checkpoint.study_file.title,
        model=plan.model.name,
        dataset=plan.study.data,
        batch_size=plan.workload.batch_size,
        hostname=UNKNOWN_HOST if checkpoint.anonymous else checkpoint.host.hostname,
        finished=False,
        kind=checkpoint.command,
        points=SweepPoints(checkpoint.axes, [checkpoint.started[number] for number in sorted(checkpoint.started)]),
        configurations=[
            ConfigurationSummary(
                configuration.name,
                configuration.engine,
                configuration.variant,
                configuration.device,
                False,
                {},
            )
            for configuration in plan.configurations
        ],
    )
