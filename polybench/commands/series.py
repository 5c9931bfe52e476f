"""A study at several points: measured, resumed, and printed as the curves or the fixed costs that it is."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NoReturn

from polybench.commands.live import progress_on_stderr
from polybench.commands.outcome import end, ensure_writable, exit_code
from polybench.commands.presentation import Presentation
from polybench.commands.terminal import echo
from polybench.core import interrupts
from polybench.core.document.overhead import OverheadDocument
from polybench.core.document.sweep import SweepDocument
from polybench.core.errors import BadInput
from polybench.core.names import pick
from polybench.export import RECORD_FORMATS

if TYPE_CHECKING:
    from polybench.measuring.progress import Progress
    from polybench.measuring.sweep import Measured, Swept
    from polybench.measuring.sweep_checkpoint import Series
    from polybench.report.saved_studies import Store


def execute_series(series: Series, how: Presentation, *, resume: bool = False) -> NoReturn:
    """Measure every point, or the rest of the same series, and print it; ends with the exit code."""
    from polybench.measuring.resumable import find_sweep
    from polybench.measuring.sweep import run_sweep
    from polybench.report.saved_studies import Store, results_folder

    def measure(progress: Progress, store: Store | None) -> Swept:
        return run_sweep(series, progress, store=store, argv=sys.argv[1:], anonymous=how.anonymous)

    if not resume:
        _execute(measure, how)
    if not how.save:
        raise BadInput("--resume goes on with what is saved; leave --no-save out")
    execute_rest_of_series(find_sweep(series, Store(results_folder(how.results))), how)


def execute_rest_of_series(id: str, how: Presentation) -> NoReturn:
    """The same of the one with this ID."""
    from polybench.measuring.sweep import resume_sweep

    def measure(progress: Progress, store: Store | None) -> Swept:
        assert store is not None  # nothing is resumed that is not saved
        return resume_sweep(id, progress, store=store, anonymous=how.anonymous)

    _execute(measure, how)


def refuse_options(given: Mapping[str, object], what: str) -> None:
    """Raise BadInput for the first of these options that has a value; `what`: "the file is a sweep"."""
    for option, value in given.items():
        if value:
            raise BadInput(f"{option}: {what}, which has no such option; leave it out")


def _execute(measure: Callable[[Progress, Store | None], Swept], how: Presentation) -> NoReturn:
    from polybench.report.saved_studies import Store, results_folder

    pick(how.format, dict.fromkeys(RECORD_FORMATS), "format")
    ensure_writable(how.output)
    store = Store(results_folder(how.results)) if how.save else None
    with interrupts.deferred():
        with progress_on_stderr(quiet=how.quiet, verbose=how.verbose) as progress:
            swept = measure(progress, store)
        found, said = _document(swept), "each point is saved as a study"
        if store is not None:
            if lost := store.try_to_save(found):
                echo(f"warning: {lost}", err=True)
            said += f", and all together as {found.id}: polybench show {found.id}"
        if swept.unfinished is not None:
            said += f"; go on with: polybench resume {swept.unfinished}"
        end(_text(found, how), how, store, said, _exit_code(swept.finished))


def _text(found: SweepDocument | OverheadDocument, how: Presentation) -> str:
    from polybench.export import overhead, sweep

    if isinstance(found, OverheadDocument):
        return overhead.render(found, how.format)
    return sweep.render(found, how.format, published=how.published)


def _document(swept: Swept) -> SweepDocument | OverheadDocument:
    from polybench.machine.host import usable_threads
    from polybench.report.anonymous import anonymous, is_anonymous
    from polybench.report.overhead import summarize as fixed_costs
    from polybench.report.sweep import summarize as curves

    argv, (_, axes, kind, background) = swept.argv, swept.series
    studies = [(one.point.values, one.document) for one in swept.finished]
    nameless = any(is_anonymous(document.host) for _, document in studies)
    if kind == "overhead":
        by_size = {values["batch_size"]: document for values, document in studies}
        costs = fixed_costs(by_size, argv, axes["batch_size"])
        return anonymous(costs) if nameless else costs
    found = curves(axes, studies, argv, usable_threads(), background)
    return anonymous(found) if nameless else found


def _exit_code(finished: Sequence[Measured]) -> int:
    """The gravest of all studies."""
    codes = [exit_code(one.document) for one in finished]
    return next((code for code in (130, 1, 4) if code in codes), 0) if codes else 4
