"""Run a study on other machines, and print it: an ordinary table of one machine, or one over all of them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from polybench.commands.execute import execute_measured
from polybench.commands.live import progress_on_stderr
from polybench.commands.outcome import end, ensure_writable, exit_code
from polybench.commands.presentation import Presentation
from polybench.commands.terminal import echo
from polybench.core import interrupts
from polybench.core.document.circumstances import NO_BACKGROUND, Background
from polybench.core.errors import BadInput
from polybench.core.machines import ONE_MACHINE, MachineGroup, check_machines
from polybench.core.names import pick
from polybench.core.spec import Study
from polybench.export import RECORD_FORMATS

if TYPE_CHECKING:
    from polybench.core.document.study import StudyDocument
    from polybench.fleet.driver import FleetMeasured
    from polybench.measuring.fleet_checkpoint import Fleet
    from polybench.measuring.progress import Progress
    from polybench.report.saved_studies import Store

    Measure = Callable[[Progress, Store | None], FleetMeasured]


On = Annotated[
    str | None,
    typer.Option(
        "--on",
        metavar="local|auto|ray://HOST:PORT|slurm",
        help="Measure on other machines, each of the study file's for itself: a Ray cluster"
        " (auto: the one that runs here), jobs of SLURM, or a process of this machine.",
        rich_help_panel="How it is measured",
        show_default="here",
    ),
]
"""`--on` of commands that measure a study."""

Ship = Annotated[
    bool,
    typer.Option(
        "--ship",
        help="With --on ray://...: send this polybench to nodes that lack it, or have another version.",
        rich_help_panel="How it is measured",
    ),
]
"""Beside `--on`."""


def refuse_ship_here(on: str | None, *, ship: bool) -> None:
    """Raise BadInput where there is nothing to ship to."""
    if ship and on is None:
        raise BadInput("--ship sends this polybench to other machines; say which: --on ray://HOST:PORT")


def check_reachable(study: Study, machines: Sequence[MachineGroup], on: str, *, ship: bool) -> None:
    """What a dry run refuses as the run does, without asking anybody.

    Raises:
        BadInput: nobody is reached like this, or the study is none for other machines.
    """
    from polybench.fleet.executor import check_on

    check_on(on, ship=ship)
    check_machines(study, machines or ONE_MACHINE)


def execute_fleet(
    study: Study,
    machines: Sequence[MachineGroup],
    on: str,
    how: Presentation,
    *,
    background: Background = NO_BACKGROUND,
    ship: bool = False,
    strict: bool = False,
    recheck: bool = False,
) -> NoReturn:
    """Measure on each machine, or on one where there are none, and print; ends with the exit code."""
    from polybench.fleet.run import run_fleet

    fleet = _fleet(
        study, machines, on, how,
        background=background, ship=ship, strict=strict, check="all" if recheck else "new",
    )  # fmt: skip
    _execute(lambda progress, store: run_fleet(fleet, progress, store=store), fleet, how)


def execute_rest_of_fleet(
    id: str, how: Presentation, *, on: str | None = None, ship: bool = False, strict: bool = False
) -> NoReturn:
    """Go on with the fleet of this ID, and print it as `execute_fleet` does."""
    from polybench.fleet.run import resume_fleet
    from polybench.measuring.fleet_checkpoint import UnfinishedFleets
    from polybench.report.saved_studies import Store, results_folder

    def measure(progress: Progress, store: Store | None) -> FleetMeasured:
        assert store is not None  # nothing is resumed that is not saved
        return resume_fleet(
            id, progress, store=store, on=on, ship=ship, strict=strict, anonymous=how.anonymous
        )

    _execute(measure, UnfinishedFleets(Store(results_folder(how.results)).folder).read(id).fleet, how)


def execute_rest_of_fleet_of(
    study: Study,
    machines: Sequence[MachineGroup],
    on: str,
    how: Presentation,
    *,
    ship: bool = False,
    strict: bool = False,
) -> NoReturn:
    """Go on with the newest fleet that asks for the same and was stopped."""
    id = find_rest_of_fleet(study, machines, on, how)
    execute_rest_of_fleet(id, how, on=on, ship=ship, strict=strict)


def find_rest_of_fleet(study: Study, machines: Sequence[MachineGroup], on: str, how: Presentation) -> str:
    """Its ID.

    Raises:
        BadInput: there is none, or nothing is saved.
    """
    from polybench.measuring.resumable import find_fleet
    from polybench.report.saved_studies import Store, results_folder

    if not how.save:
        raise BadInput("--resume goes on with what is saved; leave --no-save out")
    return find_fleet(_fleet(study, machines, on, how), Store(results_folder(how.results)))


def refuse_to_explain(how: Presentation, what: str) -> None:
    """Raise BadInput for --explain, which would measure more on this machine; `what` is on others."""
    if how.explain:
        raise BadInput(
            f"--explain: {what} is measured on other machines (--on), and what explains it would be here;"
            " leave it out, and ask afterwards: polybench explain ID"
        )


def _fleet(
    study: Study, machines: Sequence[MachineGroup], on: str, how: Presentation, **more: object
) -> Fleet:
    from polybench.measuring.fleet_checkpoint import Fleet

    refuse_to_explain(how, "the study")
    groups = tuple(machines) or ONE_MACHINE
    more = {"argv": sys.argv[1:], "anonymous": how.anonymous} | more
    return Fleet(study=study, groups=groups, on=on, **more)  # type: ignore[arg-type]


def _execute(measure: Measure, fleet: Fleet, how: Presentation) -> NoReturn:
    if len(fleet.groups) == 1:
        execute_measured(lambda progress, store: _only(measure(progress, store)), how)
    _refuse_of_one(how)
    _print_all(measure, fleet, how)


def _only(measured: FleetMeasured) -> StudyDocument:
    document = measured.machines[0].document
    assert document is not None  # or the driver has raised
    return document


def _refuse_of_one(how: Presentation) -> None:
    """What a table over machines has not."""
    given = {"--columns": how.columns, "--tensorboard": how.tensorboard, "--mlflow": how.mlflow}
    for option, value in given.items():
        if value:
            raise BadInput(f"{option}: a table over machines has no such option; each is saved as a study")
    pick(how.format, dict.fromkeys(RECORD_FORMATS), "format")


def _print_all(measure: Measure, fleet: Fleet, how: Presentation) -> NoReturn:
    from polybench.export.merge import render
    from polybench.fleet.table import table
    from polybench.report.saved_studies import Store, results_folder

    ensure_writable(how.output)
    store = Store(results_folder(how.results)) if how.save else None
    with interrupts.deferred():
        with progress_on_stderr(quiet=how.quiet, verbose=how.verbose) as progress:
            measured = measure(progress, store)
        documents = [one.document for one in measured.machines if one.document is not None]
        text = render(table(measured, fleet.study, partial(echo, err=True)), how.format)
        said = f"saved as {', '.join(document.id for document in documents)}"
        if measured.unfinished is not None:
            said += f"; go on with: polybench resume {measured.unfinished}"
        end(text, how, store, said, *_codes(measured, documents))


def _codes(measured: FleetMeasured, documents: Sequence[StudyDocument]) -> list[int]:
    codes = [exit_code(document) for document in documents]
    failed = any(one.document is None for one in measured.machines)
    worst = next((code for code in (130, 1) if code in codes), None)
    if measured.interrupted:
        return [130]
    if worst is not None or failed:
        return [worst or 1]
    return [0 if 0 in codes else 4]
