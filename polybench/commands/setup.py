"""`polybench setup`: install what an engine needs beside its Python package."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from polybench.commands.terminal import echo
from polybench.core.errors import Unavailable

app = typer.Typer(help="Install what an engine needs beside its Python package.", no_args_is_help=True)


@app.callback()
def _group() -> None:
    pass  # makes `flux` a subcommand though it is the only one


@app.command()
def flux(
    julia: Annotated[
        str | None,
        typer.Option("--julia", help="An installed Julia; remembered.", show_default="find or install"),
    ] = None,
    project: Annotated[
        Path | None, typer.Option("--project", help="The Julia project (a folder) to use; remembered.")
    ] = None,
    if_missing: Annotated[
        bool, typer.Option("--if-missing", help="Do nothing where a complete Julia is there.")
    ] = False,
) -> None:
    """Find or install Julia, install the Julia packages, precompile, train two steps.

    Ends with 0 if the flux engine runs, else 4. Nothing else in polybench downloads Julia or its packages.
    """
    try:
        if if_missing and _complete():
            return
        _set_up(julia, str(project) if project else None)
    except Unavailable as missing:
        _say(f"flux is not set up: {missing.reason}; mend it with: {missing.remedy}")
        raise typer.Exit(4) from missing


def _complete() -> bool:
    from polybench.engines.flux.julia.finding import check, find

    try:
        check(find())
    except Unavailable:
        return False
    return True


def _set_up(executable: str | None, project: str | None) -> None:
    from polybench.engines.flux.julia import installing
    from polybench.engines.flux.julia.finding import EXECUTABLE, FOUND_BY, PROJECT, check, version_of
    from polybench.engines.flux.julia.package import ENGINE
    from polybench.engines.flux.julia.remembered import remember
    from polybench.measuring import smoke

    julia = installing.choose(executable, project, _say)
    version = ".".join(map(str, version_of(julia)))
    _say(f"Julia {version}: {julia.executable}, project {julia.project}, from {julia.found_by}")
    installing.add_packages(julia, _say)
    check(julia)
    installing.precompile(julia, _say)
    _say("training two steps")
    os.environ |= {EXECUTABLE: julia.executable, PROJECT: julia.project, FOUND_BY: julia.found_by}
    prepared = smoke.smoke_test(ENGINE)
    if executable or project:
        _say(f"remembered in {remember(julia.executable, julia.project)}")
    _say(
        f"flux runs: its first step takes {prepared.startup.first_step_seconds:.1f} s,"
        f" losses {', '.join(f'{loss:.4f}' for loss in prepared.losses)}"
    )


def _say(text: str) -> None:
    echo(text, err=True)
