"""`polybench compare`: the main job."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from polybench.commands.describe import describe as print_scripts
from polybench.commands.execute import execute, print_plan
from polybench.commands.fleet import On, Ship, check_reachable, execute_fleet, refuse_ship_here
from polybench.commands.options import OPTIONS
from polybench.commands.presentation import Presentation
from polybench.commands.signature import takes
from polybench.core.errors import BadInput
from polybench.core.spec import Study


@takes(*(name for name in OPTIONS if name != "published"))
def compare(
    study: Study,
    how: Presentation,
    quick: bool,
    strict: bool,
    recheck: bool,
    dry_run: bool,
    describe: Annotated[
        bool, typer.Option("--describe", help="Print the plain scripts that do what is timed; run nothing.")
    ] = False,
    folder: Annotated[
        Path | None,
        typer.Argument(
            metavar="[FOLDER]", help="With --describe: write them there, with all that they need."
        ),
    ] = None,
    on: On = None,
    ship: Ship = False,
) -> None:
    """Train the identical network in several engines and compare what it costs.

    Example: polybench compare --engines torch,tf --data cifar10
    """
    if quick:
        study = study.quick()
    refuse_ship_here(on, ship=ship)
    if folder is not None and not describe:
        raise BadInput(f"{folder}: compare takes a folder with --describe only; options begin with --")
    if describe:
        print_scripts(study, folder)
    elif dry_run:
        if on is not None:
            check_reachable(study, (), on, ship=ship)
        print_plan(study, how.results, recheck=recheck, elsewhere=on is not None)
    elif on is not None:
        execute_fleet(study, (), on, how, ship=ship, strict=strict, recheck=recheck)
    else:
        execute(study, how, strict=strict, recheck=recheck)
