"""Run a study with progress, print it, and end with its exit code: what all measuring commands share."""

from __future__ import annotations

import contextlib
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import typer

from polybench.commands.live import progress_on_stderr
from polybench.commands.outcome import columns, emit, ensure_writable, exit_code
from polybench.core.names import pick
from polybench.core.results import NO_FILE, About
from polybench.core.spec import Study
from polybench.export import FORMATS, PARITY_FORMATS
from polybench.rendering import rendered


class Presentation(NamedTuple):
    """The options of the panel "What comes out"."""

    format: str
    columns: str | None
    output: Path | None
    results: Path | None
    save: bool
    quiet: bool
    verbose: bool
    published: bool = False


def execute(
    study: Study,
    how: Presentation,
    *,
    about: About = NO_FILE,
    strict: bool = False,
    parity_only: bool = False,
) -> NoReturn:
    """Measure (or only check) and print; raises typer.Exit with the code of the interface."""
    from polybench.runner import run_study
    from polybench.store import Store, results_folder

    metrics = columns(how.columns)
    formats = PARITY_FORMATS if parity_only else FORMATS
    pick(how.format, formats, "format")
    ensure_writable(how.output)
    store = Store(results_folder(how.results)) if how.save else None
    with _termination_as_interrupt(), progress_on_stderr(quiet=how.quiet, verbose=how.verbose) as progress:
        result = run_study(
            study,
            progress,
            store=store,
            argv=sys.argv[1:],
            about=about,
            strict=strict,
            parity_only=parity_only,
        )
    emit(rendered(result, how.format, metrics, formats, published=how.published), how.output)
    if store is not None and not how.quiet:
        typer.echo(f"saved as {result.id}; print it again with: polybench show {result.id}", err=True)
    raise typer.Exit(exit_code(result, parity_only=parity_only))


def print_plan(study: Study) -> None:
    """The cells that would be measured, and about how long that takes at most."""
    from polybench.plan import resolve, usual_start_seconds

    plan = resolve(study)
    starts = study.processes + study.parity  # the identity check has workers of its own
    start = usual_start_seconds(plan)
    for cell in plan.cells:
        typer.echo(cell.name)
    workload = plan.workload
    typer.echo(
        f"{workload.model}, batch {workload.batch_size}, {workload.precision}, threads {workload.threads},"
        f" processes {study.processes}\nabout {study.budget + starts * start:.0f} s: timed for at most"
        f" {study.budget:g} s in all, and {starts} starts of about {start:.0f} s",
        err=True,
    )


@contextlib.contextmanager
def _termination_as_interrupt() -> Iterator[None]:
    """`kill PID` ends a study as Ctrl-C does: workers ended, finished cells saved."""

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
