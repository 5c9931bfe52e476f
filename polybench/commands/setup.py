"""`polybench setup`: install what an engine needs beside its Python package."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from polybench.commands.terminal import echo
from polybench.core.errors import BadInput, Unavailable

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
    cuda: Annotated[
        bool, typer.Option("--cuda", help="With CUDA.jl and cuDNN.jl, for --devices cuda.")
    ] = False,
    more: Annotated[
        list[str] | None,
        typer.Option(
            "--with",
            help="A package for lux or a variant: Enzyme, Lux, MKL, Mooncake, Reactant. May be repeated.",
        ),
    ] = None,
    if_missing: Annotated[
        bool, typer.Option("--if-missing", help="Do nothing where a complete Julia is there.")
    ] = False,
    offline: Annotated[
        bool, typer.Option("--offline", help="Ask no server: all packages are on this machine already.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be done, and do nothing.")
    ] = False,
    remove: Annotated[
        bool,
        typer.Option(
            "--remove", help="Forget Julia, and remove the projects that setup made (not ~/.julia)."
        ),
    ] = False,
) -> None:
    """Find or install Julia, install the Julia packages, precompile, train two steps.

    Ends with 0 if the flux engine runs, else 4. Nothing else in polybench downloads Julia or its packages.
    """
    try:
        if remove:
            _remove(dry_run)
            return
        wanted = (*(("CUDA", "cuDNN") if cuda else ()), *(more or ()))
        _check_names(wanted)
        if not (if_missing and _complete(wanted)):
            _set_up(julia, str(project) if project else None, more=wanted, offline=offline, dry_run=dry_run)
    except Unavailable as missing:
        _say(f"flux is not set up: {missing.reason}; mend it with: {missing.remedy}")
        raise typer.Exit(4) from missing


def _complete(more: Sequence[str]) -> bool:
    """Whether the Julia that is found has all packages, and PolyBench's as it is now where it has that."""
    from polybench.engines.flux.julia.extra_packages import check_packages
    from polybench.engines.flux.julia.finding import check, find
    from polybench.engines.flux.julia.installing import resolved_earlier

    try:
        check(julia := find())
        check_packages(julia, more)
    except Unavailable:
        return False
    return not resolved_earlier(julia)


def _check_names(more: Sequence[str]) -> None:
    from polybench.engines.flux.julia.bounds import ADDED

    if unknown := [name for name in more if name not in ADDED]:
        raise BadInput(f"--with {unknown[0]}: nothing here needs it; there are {', '.join(ADDED)}")


def _set_up(
    executable: str | None, project: str | None, *, more: Sequence[str], offline: bool, dry_run: bool
) -> None:
    from polybench.engines.flux.julia import installing, with_juliapkg
    from polybench.engines.flux.julia.finding import (
        EXECUTABLE,
        FOUND_BY,
        PROJECT,
        check,
        check_juliacall,
        check_version,
        version_of,
    )
    from polybench.engines.flux.julia.package import ENGINE
    from polybench.engines.flux.julia.remembered import recall, remember
    from polybench.measuring import smoke

    check_juliacall()
    julia = installing.choose(executable, project)
    if julia and julia.found_by != "juliapkg":  # which replaces its own
        check_version(julia)  # before anything is installed for it
    if dry_run:
        if julia:
            _say(f"Julia: {julia.executable}, project {julia.project}, from {julia.found_by}")
        for step in installing.steps(julia, more=more):
            _say(step)
        return
    if julia is None or (julia.found_by == "juliapkg" and with_juliapkg.has_to_resolve(julia, _say, more)):
        julia = with_juliapkg.set_up(_say, more=more, offline=offline)
    version = ".".join(map(str, version_of(julia)))
    _say(f"Julia {version}: {julia.executable}, project {julia.project}, from {julia.found_by}")
    if julia.found_by != "juliapkg":
        installing.add_packages(julia, _say, more=more, offline=offline)
    check(julia)
    installing.precompile(julia, _say, offline=offline)
    _say("training two steps")
    os.environ |= {EXECUTABLE: julia.executable, PROJECT: julia.project, FOUND_BY: julia.found_by}
    prepared = smoke.smoke_test(ENGINE)
    if executable or project or recall():
        _say(f"remembered in {remember(julia.executable, julia.project, **installing.library_of(julia))}")
    _say(
        f"flux runs: its first step takes {prepared.startup.first_step_seconds:.1f} s,"
        f" losses {', '.join(f'{loss:.4f}' for loss in prepared.losses)}"
    )


def _remove(dry_run: bool) -> None:
    """Forget what is remembered, and remove what setup made; Julia's own depot is everybody's."""
    import shutil

    from polybench.engines.flux.julia import with_juliapkg
    from polybench.engines.flux.julia.installing import own_project
    from polybench.engines.flux.julia.remembered import configuration_file, forget, recall

    if dry_run:
        _say(
            f"would forget the Julia of {configuration_file()}, remove {own_project()} and juliapkg's project"
        )
        return
    if recall():
        forget()
        _say(f"forgotten: {configuration_file()} names no Julia any more")
    if folder := with_juliapkg.remove():
        _say(f"removed: {folder}")
    if own_project().is_dir():
        shutil.rmtree(own_project())
        _say(f"removed: {own_project()}")
    _say("what Julia has in its own depot (~/.julia) stays: other projects may use it")


def _say(text: str) -> None:
    echo(text, err=True)
