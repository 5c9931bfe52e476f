"""`polybench setup`: installs what an engine needs in addition to its Python package."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from polybench.cli.terminal import echo
from polybench.errors import BadInput, EngineUnavailable

app = typer.Typer(help="Install what an engine needs in addition to its Python package.", no_args_is_help=True)


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
    try:
        if remove_package:
            _remove_projects(dry_run)
            return
        extra = (*(("CUDA", "cuDNN") if cuda else ()), *(add_package or ()))
        _check_names(extra)
        if not (if_missing and _is_complete(extra)):
            _set_up(julia, str(project) if project else None, extra=extra, offline=offline, dry_run=dry_run)
    except EngineUnavailable as missing:
        _print(f"flux is not set up: {missing.reason}; fix it with: {missing.hint}")
        raise typer.Exit(4) from missing


def _is_complete(extra: Sequence[str]) -> bool:
    """Return True if Julia has all packages, and the current PolyBench if its project contains that."""
    from polybench.engines.flux.julia.discovery import check, find
    from polybench.engines.flux.julia.extra_packages import check_packages
    from polybench.engines.flux.julia.installation import is_outdated

    try:
        check(julia := find())
        check_packages(julia, extra)
    except EngineUnavailable:
        return False
    return not is_outdated(julia)


def _check_names(extra: Sequence[str]) -> None:
    from polybench.engines.flux.julia.version_bounds import OPTIONAL_PACKAGES

    if unknown := [name for name in extra if name not in OPTIONAL_PACKAGES]:
        raise BadInput(f"--add-package {unknown[0]}: no engine uses it: expected one of {', '.join(OPTIONAL_PACKAGES)}")


def _set_up(executable: str | None, project: str | None, *, extra: Sequence[str], offline: bool, dry_run: bool) -> None:
    from polybench.engines.flux.julia import installation, juliapkg_setup, saved_config
    from polybench.engines.flux.julia.discovery import (
        EXECUTABLE,
        FOUND_BY,
        PROJECT,
        check,
        check_juliacall,
        check_version,
        version_of,
    )
    from polybench.engines.flux.julia.package import ENGINE
    from polybench.runner import doctor

    check_juliacall()
    julia = installation.choose(executable, project)
    if julia and julia.found_by != "juliapkg":  # juliapkg replaces a Julia of the wrong version
        check_version(julia)  # before anything is installed for it
    if dry_run:
        if julia:
            _print(f"Julia: {julia.executable}, project {julia.project}, from {julia.found_by}")
        for step in installation.planned_steps(julia, more=extra):
            _print(step)
        return
    if julia is None or (julia.found_by == "juliapkg" and juliapkg_setup.needs_resolve(julia, _print, extra)):
        julia = juliapkg_setup.set_up(_print, more=extra, offline=offline)
    version = ".".join(map(str, version_of(julia)))
    _print(f"Julia {version}: {julia.executable}, project {julia.project}, from {julia.found_by}")
    if julia.found_by != "juliapkg":
        installation.add_packages(julia, _print, more=extra, offline=offline)
    check(julia)
    installation.precompile(julia, _print, offline=offline)
    _print("training two steps")
    os.environ |= {EXECUTABLE: julia.executable, PROJECT: julia.project, FOUND_BY: julia.found_by}
    prepared = doctor.smoke_test(ENGINE)
    if executable or project or saved_config.load():
        _print(f"saved in {saved_config.save(julia.executable, julia.project, **installation.library_of(julia))}")
    _print(
        f"flux runs: first step {prepared.startup.first_step_seconds:.1f} s,"
        f" losses {', '.join(f'{loss:.4f}' for loss in prepared.losses)}"
    )


def _remove_projects(dry_run: bool) -> None:
    """Remove what setup created; Julia's depot stays, because other projects share it."""
    import shutil

    from polybench.engines.flux.julia import juliapkg_setup, saved_config
    from polybench.engines.flux.julia.installation import own_project

    if dry_run:
        _print(f"would remove the Julia of {saved_config.configuration_file()}, {own_project()} and juliapkg's project")
        return
    if saved_config.load():
        saved_config.delete()
        _print(f"removed the Julia of {saved_config.configuration_file()}")
    if folder := juliapkg_setup.remove():
        _print(f"removed {folder}")
    if own_project().is_dir():
        shutil.rmtree(own_project())
        _print(f"removed {own_project()}")
    _print("packages in Julia's own depot (~/.julia) stay: other projects may use them")


def _print(text: str) -> None:
    echo(text, err=True)
