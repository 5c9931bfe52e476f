"""Run a study with progress, print it, and end with its exit code: what all measuring commands share."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from polybench.commands.explain import Explained, explain_measured
from polybench.commands.live import progress_on_stderr
from polybench.commands.outcome import columns, end, ensure_writable, exit_code
from polybench.commands.presentation import Presentation
from polybench.commands.terminal import echo, width
from polybench.commands.watchable import ensure_watchable, write_watchable
from polybench.core import interrupts, units
from polybench.core.document.circumstances import NO_BACKGROUND, Background
from polybench.core.errors import BadInput
from polybench.core.names import pick
from polybench.core.spec import Study
from polybench.export import FORMATS, PARITY_FORMATS
from polybench.export.rendering import rendered

if TYPE_CHECKING:
    from polybench.core.document.study import StudyDocument
    from polybench.measuring.progress import Progress
    from polybench.planning.estimate import Known
    from polybench.planning.plan import Plan
    from polybench.report.saved_studies import Store


def execute(
    study: Study,
    how: Presentation,
    *,
    background: Background = NO_BACKGROUND,
    strict: bool = False,
    parity_only: bool = False,
    recheck: bool = False,
) -> NoReturn:
    """Measure (or only check) and print; raises typer.Exit with the code of the interface."""
    from polybench.measuring.study import new_context, run_study

    def measure(progress: Progress, store: Store | None) -> StudyDocument:
        return run_study(
            study,
            progress,
            store=store,
            context=new_context(sys.argv[1:], background, anonymous=how.anonymous),
            strict=strict,
            check="only" if parity_only else "all" if recheck else "new",
        )

    execute_measured(measure, how, study, parity_only=parity_only)


def execute_rest(id: str, how: Presentation, *, strict: bool = False, asked: Study | None = None) -> NoReturn:
    """Go on with the study of this ID, and print it as `execute` does."""
    from polybench.measuring.resume import resume_study

    def measure(progress: Progress, store: Store | None) -> StudyDocument:
        assert store is not None  # nothing is resumed that is not saved
        return resume_study(id, progress, store=store, strict=strict, anonymous=how.anonymous)

    execute_measured(measure, how, asked)


def execute_rest_of(study: Study, how: Presentation, *, strict: bool = False) -> NoReturn:
    """Go on with the newest study that asks for the same and was stopped."""
    from polybench.measuring.resumable import find_study
    from polybench.report.saved_studies import Store, results_folder

    if not how.save:
        raise BadInput("--resume goes on with a saved study; leave --no-save out")
    id = find_study(study, Store(results_folder(how.results)))
    execute_rest(id, how, strict=strict, asked=study)


def execute_measured(
    measure: Callable[[Progress, Store | None], StudyDocument],
    how: Presentation,
    asked: Study | None = None,
    *,
    parity_only: bool = False,
) -> NoReturn:
    """Measure like this, and print; raises typer.Exit with the code of the interface.

    Args:
        measure: what is given progress and where to save.
        how: where to print it.
        asked: the study, for `--explain`.
        parity_only: whether only identity was checked.
    """
    from polybench.export.explanation import FORMATS as EXPLAINED
    from polybench.export.explanation import render_below
    from polybench.report.saved_studies import Store, results_folder

    metrics = columns(how.columns)
    formats = PARITY_FORMATS if parity_only else FORMATS
    pick(how.format, formats, "format")
    if how.explain and how.format not in EXPLAINED:
        raise BadInput(f"--explain is words, and --format {how.format} has none: {', '.join(EXPLAINED)}")
    ensure_writable(how.output)
    ensure_watchable(how)
    store = Store(results_folder(how.results)) if how.save else None
    repeated = how.output is None and sys.stdout.isatty() and formats[how.format].audience == "people"
    told = partial(progress_on_stderr, quiet=how.quiet, verbose=how.verbose)
    explained = Explained(None)
    measured: StudyDocument | None = None
    try:
        with interrupts.deferred():  # until it is printed
            with told(repeated=repeated and not parity_only) as progress:
                measured = result = measure(progress, store)
            if how.explain:
                with told() as progress:  # the table has the study's warnings, and none of these
                    explained = explain_measured(result, store, progress, sys.argv[1:], asked)
            line = width(how.output)
            text = rendered(result, how.format, metrics, formats, published=how.published, width=line)
            if explained.document is not None and how.format != "json":  # the JSON has the sentences
                text += f"\n{render_below(explained.document, how.format)}"
            said = f"saved as {result.id}; print it again with: polybench show {result.id}"
            end(text, how, store, said, exit_code(result, parity_only=parity_only), explained.code)
    finally:  # a server that hangs costs nobody the table
        if measured is not None:
            write_watchable(measured, how)


def print_plan(
    study: Study,
    results: Path | None,
    *,
    recheck: bool = False,
    elsewhere: bool = False,
    machine: str | None = None,
) -> None:
    """The cells that would be measured, about how long that takes, and what this guess rests on.

    What is measured elsewhere is not judged by this machine, and the guess is of this one. Cells of a machine
    that has a name have it before theirs.
    """
    from polybench.machine.host import this_host
    from polybench.planning.estimate import estimate
    from polybench.planning.plan import resolve, resolve_elsewhere
    from polybench.report.experience import experience
    from polybench.report.saved_studies import Store, results_folder

    plan = resolve_elsewhere(study) if elsewhere else resolve(study)
    known = experience(plan, Store(results_folder(results)), this_host())
    expected = estimate(plan, known._replace(checked=known.checked and not recheck))
    workload, precision = plan.workload, ",".join(plan.study.precisions)
    for cell in plan.cells:
        echo(cell.name if machine is None else f"{machine}:{cell.name}")
    echo(
        f"{workload.model}, batch {workload.batch_size}, {precision}, threads {workload.threads},"
        f" processes {study.processes}\n{expected.in_words()}\n{_basis(plan, known)}",
        err=True,
    )


def _basis(plan: Plan, known: Known) -> str:
    """What an estimate rests on."""
    from polybench.core.arithmetic import training_multiply_adds
    from polybench.planning.estimate import rate

    if known.took is not None:
        return "by what the same cells took in earlier studies on this machine"
    if seen := [cell.name for cell in plan.cells if cell.name in known.steps]:
        return f"by earlier studies on this machine of {', '.join(seen)}"
    workload = plan.workload
    products = units.number(workload.batch_size * training_multiply_adds(plan.model) / 1e6)
    rates = dict.fromkeys(
        f"{rate(plan, cell.device) / 1e9:,.0f} billion a second on {cell.device}" for cell in plan.cells
    )
    return (
        f"rough: a step has {products} million multiply-adds, and every engine is taken to do"
        f" {', '.join(rates)}"
    )
