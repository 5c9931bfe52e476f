"""`polybench run`: a study file, or a saved study once more."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from polybench.commands.changes import Changes
from polybench.commands.execute import execute, execute_rest_of, print_plan
from polybench.commands.fleet import (
    On,
    Ship,
    check_reachable,
    execute_fleet,
    execute_rest_of_fleet_of,
    find_rest_of_fleet,
    refuse_ship_here,
)
from polybench.commands.options import OPTIONS
from polybench.commands.presentation import Presentation
from polybench.commands.series import execute_series, refuse_options
from polybench.commands.signature import takes
from polybench.commands.sweep import print_points
from polybench.commands.terminal import echo
from polybench.core.errors import BadInput
from polybench.core.machines import MachineGroup

if TYPE_CHECKING:
    from polybench.measuring.sweep_checkpoint import Series
    from polybench.planning.study_file import StudyFile


@takes(*OPTIONS)
def run(
    study: Annotated[
        str,
        typer.Argument(
            metavar="STUDY.toml|ID",
            help="A study file, or a saved study to repeat: its ID, a unique prefix of it, or `last`.",
        ),
    ],
    changes: Changes,
    how: Presentation,
    quick: bool,
    strict: bool,
    recheck: bool,
    dry_run: bool,
    resume: Annotated[
        bool,
        typer.Option("--resume", help="Go on with this study where it was stopped; see polybench resume."),
    ] = False,
    on: On = None,
    ship: Ship = False,
) -> None:
    """Measure what a study file says, or a saved study again; options given here replace what it says.

    A file with a table [sweep] is measured at every combination of its values.

    Example: polybench run examples/flux_tutorial.toml --quick --published
    """
    from polybench.measuring.sweep_checkpoint import Series

    refuse_ship_here(on, ship=ship)
    found, background, axes, machines = _find(study, quick, how.results, elsewhere=on is not None)
    chosen = changes.applied_to(found)
    if (chosen.data, chosen.model, chosen.seed) != (found.data, found.model, found.seed):
        background = msgspec.structs.replace(background, data_sha256=None)
    chosen = chosen.quick() if quick else chosen
    if axes:
        _refuse_what_a_sweep_has_not(how, on, strict=strict, recheck=recheck)
    series = Series(chosen, axes, "sweep", background)
    if dry_run and on is not None:
        check_reachable(chosen, machines, on, ship=ship)
    if dry_run:
        goes_on = _rest(series, machines, on, how) if resume else None
        _print_plans(series, machines, how.results, goes_on, recheck=recheck, elsewhere=on is not None)
    elif axes:
        execute_series(series, how, resume=resume)
    elif on is not None and resume:
        execute_rest_of_fleet_of(chosen, machines, on, how, ship=ship, strict=strict)
    elif on is not None:
        execute_fleet(
            chosen, machines, on, how, background=background, ship=ship, strict=strict, recheck=recheck
        )
    elif machines:
        labels = ", ".join(group.label for group in machines)
        raise BadInput(f"{study} is for the machines {labels}; say where they are: --on ray://HOST:PORT")
    elif resume:
        execute_rest_of(chosen, how, strict=strict)
    else:
        execute(chosen, how, background=background, strict=strict, recheck=recheck)


def _refuse_what_a_sweep_has_not(how: Presentation, on: str | None, **more: object) -> None:
    """Raise BadInput for options of a single study, by the names of their parameters."""
    if on is not None:
        raise BadInput(
            f"--on {on}: the file is a sweep, which is measured on the machine where it is started; start it"
            " there without --on"
        )
    given = {
        **more,
        "columns": how.columns,
        "tensorboard": how.tensorboard,
        "mlflow": how.mlflow,
        "explain": how.explain,
    }
    refuse_options({f"--{name}": value for name, value in given.items()}, "the file is a sweep")


def _rest(series: Series, machines: Sequence[MachineGroup], on: str | None, how: Presentation) -> str:
    """The ID of what was stopped and asks for the same, if this machine could go on with it.

    Raises:
        BadInput: there is none, or the machine is another one.
    """
    from polybench.measuring.resumable import find_study, find_sweep
    from polybench.measuring.resume import check_here
    from polybench.measuring.sweep import check_sweep_here
    from polybench.report.saved_studies import Store, results_folder

    store = Store(results_folder(how.results))
    if series.axes:
        check_sweep_here(sweep := find_sweep(series, store), store)
        return sweep
    if on is not None:
        return find_rest_of_fleet(series.study, machines, on, how)
    check_here(id := find_study(series.study, store), store)
    return id


def _print_plans(
    series: Series,
    machines: Sequence[MachineGroup],
    results: Path | None,
    goes_on: str | None,
    *,
    recheck: bool,
    elsewhere: bool,
) -> None:
    """Of each point of a sweep, of each machine, or of this one; and the ID of what it would go on with."""
    if goes_on is not None:
        echo(f"--resume goes on with {goes_on}", err=True)
    study = series.study
    if series.axes:
        print_points(study, series.axes, results)
    elif machines:
        for group in machines:
            print_plan(group.study(study), results, recheck=recheck, elsewhere=True, machine=group.label)
    else:
        print_plan(study, results, recheck=recheck, elsewhere=elsewhere)


def _find(name: str, quick: bool, results: Path | None, *, elsewhere: bool) -> StudyFile:
    """A file has a folder or `.toml` in its name; all else is an ID.

    Raises:
        BadInput: it is not there, or not valid.
    """
    from polybench.core.document.circumstances import Background
    from polybench.data.disk import is_file
    from polybench.planning.study_file import StudyFile, parse, read
    from polybench.report.saved_studies import Store, results_folder

    path = Path(name)
    if path.suffix == ".toml" or (path.suffix != ".json" and ("/" in name or is_file(path))):
        return read(path, quick=quick, elsewhere=elsewhere)
    saved = Store(results_folder(results)).load(name)
    study = parse(saved.study, f"the study of {saved.id}", elsewhere=elsewhere)
    background = Background(saved.title, saved.published, saved.settings.data_sha256)
    return StudyFile(study.quick() if quick else study, background, {})
