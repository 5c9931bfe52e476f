"""`polybench run`: a study file, or a saved study again."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from polybench.cli.cluster import (
    TargetOption,
    UploadOption,
    check_cluster,
    find_cluster_checkpoint,
    reject_explain,
    reject_upload,
    resume_cluster_run,
    run_on_cluster,
)
from polybench.cli.completion import saved, unfinished
from polybench.cli.execute import (
    check_output,
    execute,
    find_checkpoint,
    print_plan,
    resume_matching_study,
    resume_study_by_id,
)
from polybench.cli.measured import RESUME, resume_and_print
from polybench.cli.options import OPTIONS, Overrides, with_options
from polybench.cli.output import OutputOptions, echo
from polybench.cli.sweep import Resume, print_points, reject_options, resume_sweep_by_id, run_and_print_sweep
from polybench.errors import BadInput
from polybench.schema.options import MachineGroup, Study, SweepCommand, require_allowed

if TYPE_CHECKING:
    from polybench.planning.grid import SweepSpec
    from polybench.planning.study_file import StudyFile


AllowPrograms = Annotated[
    bool,
    typer.Option("--allow-programs", help="Run the programs that the study names, with your rights: read them first."),
]


@with_options(*OPTIONS)
def run(
    study: Annotated[
        str,
        typer.Argument(
            metavar="STUDY.toml|ID",
            help="Study file, or saved study or sweep to repeat: its ID, a unique prefix, or `last`.",
            autocompletion=saved("study", "sweep", "overhead"),
        ),
    ],
    overrides: Overrides,
    options: OutputOptions,
    quick: bool,
    strict: bool,
    recheck: bool,
    dry_run: bool,
    resume: Resume = False,
    on: TargetOption = None,
    upload: UploadOption = False,
    allow_programs: AllowPrograms = False,
) -> None:
    """A file with a [sweep] table is measured at every combination of its values.

    Example: polybench run examples/flux_tutorial.toml --quick --published
    """
    from polybench.planning.grid import SweepSpec

    reject_upload(on, upload=upload)
    is_remote = on is not None
    original, metadata, axes, machines, command = _find(study, quick, options.results, is_remote=is_remote)
    chosen = _override(original, overrides, study, allow_programs=allow_programs)
    if (chosen.data, chosen.model, chosen.seed) != (original.data, original.model, original.seed):
        metadata = msgspec.structs.replace(metadata, data_sha256=None)
    chosen = chosen.quick() if quick else chosen
    if axes:
        _reject_single_study_options(study, options, on, strict=strict, recheck=recheck)
    spec = SweepSpec(chosen, axes, command, metadata)
    if dry_run and on is not None:
        check_cluster(chosen, machines, on, upload=upload)
    if dry_run:
        check_output(options)
        resumed_id = _find_checkpoint(spec, machines, on, options) if resume else None
        _print_plans(spec, machines, resumed_id, is_remote=is_remote)
    elif axes:
        run_and_print_sweep(spec, options, resume=resume)
    elif on is not None and resume:
        id = find_cluster_checkpoint(chosen, machines, options)
        resume_cluster_run(id, options, on=on, upload=upload, strict=strict)
    elif on is not None:
        run_on_cluster(chosen, machines, on, options, metadata=metadata, upload=upload, strict=strict, recheck=recheck)
    elif machines:
        labels = ", ".join(group.label for group in machines)
        raise BadInput(f"{study} is for the machines {labels}: expected a cluster: add --on ray://HOST:PORT")
    elif resume:
        resume_matching_study(chosen, options, strict=strict)
    else:
        execute(chosen, options, metadata=metadata, strict=strict, recheck=recheck)


def _override(study: Study, overrides: Overrides, name: str, *, allow_programs: bool) -> Study:
    """Return the study with the options; BadInput if its engines are programs that are not allowed."""
    if not overrides.gives("engines"):
        require_allowed(study.engines, name, allowed=allow_programs)
    return overrides.apply(study)


def _reject_single_study_options(name: str, options: OutputOptions, on: str | None, **more: object) -> None:
    """Raise BadInput for options that a sweep does not have."""
    if on is not None:
        raise BadInput(
            f"--on {on}: {name} is a sweep, which cannot run remotely: start it on that machine, without --on"
        )
    given = {**more, "columns": options.columns, "explain": options.explain}
    reject_options({f"--{name}": value for name, value in given.items()}, f"{name} is a sweep")


def _find_checkpoint(spec: SweepSpec, machines: Sequence[MachineGroup], on: str | None, options: OutputOptions) -> str:
    """Return the ID of the newest interrupted run with the same settings, which this machine can resume."""
    from polybench.runner.checkpoint import select_sweep
    from polybench.runner.resume import unfinished_log
    from polybench.storage.store import Store, results_folder

    if on is not None:
        return find_cluster_checkpoint(spec.study, machines, options)
    store = Store(results_folder(options.results))
    if spec.axes:
        id = find_checkpoint(spec.study, options, spec.command, select_sweep(spec.axes))
    else:
        id = find_checkpoint(spec.study, options)
    with unfinished_log(id, store):
        pass  # as far as that is known before an engine starts
    return id


def _print_plans(spec: SweepSpec, machines: Sequence[MachineGroup], resumed_id: str | None, *, is_remote: bool) -> None:
    """Print the plan of each point of a sweep, of each machine or of this one, and the ID to be resumed."""
    if resumed_id is not None:
        echo(f"--resume would resume {resumed_id}", err=True)
    study = spec.study
    if spec.axes:
        print_points(study, spec.axes)
    elif machines:
        for group in machines:
            print_plan(group.study(study), is_remote=True, machine=group.label)
    else:
        print_plan(study, is_remote=is_remote)


def _find(name: str, quick: bool, results: Path | None, *, is_remote: bool) -> StudyFile:
    """Read a study file (a name with a folder or the suffix `.toml`), or a saved study or sweep by its ID or log."""
    from polybench.data.disk import is_file
    from polybench.log import SUFFIX
    from polybench.planning.study_file import StudyFile, parse, read
    from polybench.planning.suggested_commands import check_repeatable
    from polybench.schema.metadata import StudyFileMetadata
    from polybench.storage.store import Store, results_folder

    path = Path(name)
    if path.suffix == ".toml" or (path.suffix not in (".json", SUFFIX) and ("/" in name or is_file(path))):
        return read(path, quick=quick, remote=is_remote)
    store = Store(results_folder(results))
    if (header := store.find_sweep(name)) is not None:
        study = parse(header.study, f"the study of {header.id}", remote=is_remote)
        metadata = StudyFileMetadata(header.title, header.published, tags=tuple(header.tags))
        command: SweepCommand = "overhead" if header.command == "overhead" else "sweep"
        return StudyFile(study.quick() if quick else study, metadata, header.axes, command=command)
    saved = store.load(name)
    check_repeatable(saved)
    study = parse(saved.study, f"the study of {saved.id}", remote=is_remote)
    metadata = StudyFileMetadata(saved.title, saved.published, saved.settings.data_sha256, tuple(saved.tags))
    return StudyFile(study.quick() if quick else study, metadata, {})


@with_options(
    "strict", "columns", "published", "format", "output", "results", "explain", "anonymous", "quiet", "verbose",
)  # fmt: skip
def resume(
    study: Annotated[
        str,
        typer.Argument(
            metavar="ID", help="Interrupted run: its ID, a unique prefix, or `last`.", autocompletion=unfinished
        ),
    ],
    options: OutputOptions,
    strict: bool,
    discard: Annotated[
        bool, typer.Option("--discard", help="Never resume it: its measurements stay as they are.")
    ] = False,
    allow_programs: AllowPrograms = False,
) -> None:
    """A run resumes only on the same machine, with the same versions and data. `polybench list` shows what can
    be resumed.

    Example: polybench resume last
    """
    from polybench.runner.checkpoint import discard as discard_run
    from polybench.runner.checkpoint import find_resumable
    from polybench.schema.documents import DOCUMENT_KINDS
    from polybench.storage.store import Store, results_folder

    store = Store(results_folder(options.results))
    found = find_resumable(study, store)
    if discard:
        discard_run(found, store)
        echo(f"{found.id} can no longer be resumed; its measurements remain")
        return
    require_allowed(_engines(store.log_path(found.id)), found.id, allowed=allow_programs)
    if found.kind == "cluster":
        reject_explain(options, found.id)
        resume_cluster_run(found.id, options, strict=strict)
    if found.kind == "study":
        resume_study_by_id(found.id, options, strict=strict)
    given = {"--strict": strict, "--columns": options.columns, "--explain": options.explain}
    reject_options(given, f"{found.id} is {DOCUMENT_KINDS[found.kind].description}")
    if found.kind in RESUME:
        resume_and_print(found.id, found.kind, options)
    resume_sweep_by_id(found.id, options)


def _engines(log: Path) -> Sequence[str]:
    """Return the engines of an unfinished log; none if it cannot be read, which its resumption reports."""
    from polybench.log import read_outline
    from polybench.planning.study_file import parse

    with contextlib.suppress(OSError, BadInput):
        return parse(read_outline(log).header.study, str(log)).engines
    return ()
