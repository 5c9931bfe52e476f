"""`polybench setup`: installs what an engine needs in addition to its Python package."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from polybench.cli.output import echo
from polybench.engines import ENGINES
from polybench.errors import BadInput, EngineUnavailable

if TYPE_CHECKING:
    from polybench.engines.flux.julia.discovery import Julia

app = typer.Typer(no_args_is_help=True)


@app.callback()
def _group() -> None:
    pass  # makes typer treat `flux`, the only command, as a subcommand


@app.command()
def flux(
    julia: Annotated[
        str | None,
        typer.Option("--julia", help="Julia executable to use from now on.", show_default="find or install one"),
    ] = None,
    project: Annotated[
        Path | None, typer.Option("--project", help="Julia project (a folder) to use from now on.")
    ] = None,
    cuda: Annotated[bool, typer.Option("--cuda", help="Add CUDA.jl and cuDNN.jl, for --devices cuda.")] = False,
    add_package: Annotated[
        list[str] | None,
        typer.Option(
            "--add-package",
            metavar="NAME",
            help="Julia package for lux or a variant: Enzyme, Lux, MKL, Mooncake, Reactant. May be repeated.",
        ),
    ] = None,
    if_missing: Annotated[
        bool, typer.Option("--if-missing", help="Do nothing if Julia and all packages are installed.")
    ] = False,
    offline: Annotated[
        bool, typer.Option("--offline", help="Use no network: all packages are on this machine already.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the steps without running them.")] = False,
    remove_package: Annotated[
        bool,
        typer.Option(
            "--remove-package",
            help="Remove the Julia projects that setup created, with all their packages, and its saved"
            " configuration; ~/.julia stays.",
        ),
    ] = False,
) -> None:
    """Find or install Julia, install and precompile its packages, and train two steps as a test.

    The exit code is 0 if the flux engine runs, else 4. No other command downloads Julia or its packages.

    Example: polybench setup flux --add-package Enzyme
    """
    from polybench.engines.flux.julia import setup
    from polybench.engines.flux.julia.discovery import OPTIONAL_PACKAGES, saved_julia, with_companions

    extra = (*(("CUDA", "cuDNN") if cuda else ()), *(add_package or ()))
    if unknown := [name for name in extra if name not in OPTIONAL_PACKAGES]:
        raise BadInput(f"--add-package {unknown[0]}: no engine uses it: expected one of {', '.join(OPTIONAL_PACKAGES)}")
    extra = (*with_companions(extra),)
    try:
        if remove_package:
            setup.remove(_print, dry_run=dry_run)
            return
        if if_missing and _is_complete(extra):
            return
        chosen = setup.choose(julia, str(project) if project else None)
        if dry_run:
            for step in setup.planned_steps(chosen, extra):
                _print(step)
            return
        with setup.set_up(chosen, _print, more=extra, offline=offline) as ready:
            _test(ready, extra)
        if julia or project or saved_julia():
            _print(f"saved in {setup.save(ready)}")
    except EngineUnavailable as missing:
        _print(f"flux is not set up: {missing.reason}; fix it with: {missing.hint}")
        raise typer.Exit(4) from missing


def _is_complete(extra: Sequence[str]) -> bool:
    from polybench.engines.flux.julia.discovery import check, check_packages, find

    try:
        check(julia := find())
        check_packages(julia, extra)
    except EngineUnavailable:
        return False
    return True


def _test(julia: Julia, more: Sequence[str]) -> None:
    """Train two steps in a worker of flux that uses this Julia, and in one of each engine or variant of `more`."""
    from polybench.engines.flux.julia.discovery import ENGINE, EXECUTABLE, FOUND_BY, PACKAGE_BY_VARIANT, PROJECT
    from polybench.runner import doctor

    os.environ |= {EXECUTABLE: julia.executable, PROJECT: julia.project, FOUND_BY: julia.found_by, **julia.variables}
    added = [name for name, package in PACKAGE_BY_VARIANT.items() if package in more]
    for name in (ENGINE, *(name if name in ENGINES else f"{ENGINE}+{name}" for name in added)):
        _print(f"training two steps of {name}")
        prepared = doctor.smoke_test(name)
        losses = ", ".join(f"{loss:.4f}" for loss in prepared.losses)
        _print(f"{name} runs: first step {prepared.startup.first_step_seconds:.1f} s, losses {losses}")
    for name in added:
        _print(f"{PACKAGE_BY_VARIANT[name]} is for: {_use_of(name)}")


def _use_of(name: str) -> str:
    """Return what an engine or a variant of flux does, with the command that measures it."""
    from polybench.engines.flux.julia.discovery import ENGINE

    if name in ENGINES:
        return f"{ENGINES[name].summary}; polybench compare --engines {name},{ENGINE}"
    variant = ENGINES[ENGINE].variants[name]
    return f"{variant.summary}; polybench compare --engines {ENGINE},{ENGINE}+{name}"


def _print(text: str) -> None:
    echo(text, err=True)
