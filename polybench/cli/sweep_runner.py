"""Execution of sweeps and overheads: measures or resumes every point, and prints one document."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NoReturn

from polybench.cli.live import progress_on_stderr
from polybench.cli.output import check_writable, exit_code, print_and_exit
from polybench.cli.output_options import OutputOptions
from polybench.cli.terminal import echo
from polybench.errors import BadInput, lookup_or_suggest
from polybench.machine import interrupts
from polybench.render import RECORD_FORMATS
from polybench.schema.measurements import OverheadDocument, SweepDocument

if TYPE_CHECKING:
    from polybench.runner.progress import Progress
    from polybench.runner.sweep import PointResult, SweepOutcome
    from polybench.runner.sweep_checkpoint import SweepSpec
    from polybench.storage.store import Store


def run_and_print_sweep(spec: SweepSpec, options: OutputOptions, *, resume: bool = False) -> NoReturn:
    """Measure every point, or the rest of an interrupted run of the same sweep; print and exit."""
    from polybench.runner.resumable import find_sweep
    from polybench.runner.sweep import run_sweep
    from polybench.storage.store import Store, results_folder

    def measure(progress: Progress, store: Store | None) -> SweepOutcome:
        return run_sweep(spec, progress, store=store, argv=sys.argv[1:], anonymous=options.anonymous)

    if not resume:
        _execute(measure, options)
    if not options.save:
        raise BadInput("--resume needs a saved sweep: leave --no-save out")
    resume_sweep_by_id(find_sweep(spec, Store(results_folder(options.results))), options)


def resume_sweep_by_id(id: str, options: OutputOptions) -> NoReturn:
    """Measure the rest of the sweep with this ID; print and exit."""
    from polybench.runner.sweep import resume_sweep

    def measure(progress: Progress, store: Store | None) -> SweepOutcome:
        assert store is not None  # only saved sweeps can be resumed
        return resume_sweep(id, progress, store=store, anonymous=options.anonymous)

    _execute(measure, options)


def reject_options(given: Mapping[str, object], reason: str) -> None:
    """Raise BadInput for the first option that has a value.

    Args:
        given: option -> value.
        reason: start of the message, such as "the file is a sweep".
    """
    for option, value in given.items():
        if value:
            raise BadInput(f"{option}: {reason}, which does not have this option: leave it out")


def _execute(measure: Callable[[Progress, Store | None], SweepOutcome], options: OutputOptions) -> NoReturn:
    from polybench.storage.store import Store, results_folder

    lookup_or_suggest(options.format, dict.fromkeys(RECORD_FORMATS), "format")
    check_writable(options.output)
    store = Store(results_folder(options.results)) if options.save else None
    with interrupts.defer_signals():
        with progress_on_stderr(quiet=options.quiet, verbose=options.verbose) as progress:
            outcome = measure(progress, store)
        document, message = _document(outcome), "each point is saved as a study"
        if store is not None:
            if problem := store.try_to_save(document):
                echo(f"warning: {problem}", err=True)
            message += f", and the whole as {document.id}; print it with: polybench show {document.id}"
        if outcome.resumable_id is not None:
            message += f"; resume with: polybench resume {outcome.resumable_id}"
        print_and_exit(_text(document, options), options, store, message, _exit_code(outcome.finished))


def _text(document: SweepDocument | OverheadDocument, options: OutputOptions) -> str:
    from polybench.render import overhead, sweep

    if isinstance(document, OverheadDocument):
        return overhead.render(document, options.format)
    return sweep.render(document, options.format, published=options.published)


def _document(outcome: SweepOutcome) -> SweepDocument | OverheadDocument:
    from polybench.machine.host import usable_threads
    from polybench.results.overhead import build_overhead_document
    from polybench.results.sweep import build_sweep_document
    from polybench.storage.anonymize import anonymize, is_anonymized

    argv, (_, axes, kind, metadata) = outcome.argv, outcome.spec
    studies = [(result.point.values, result.document) for result in outcome.finished]
    anonymous = any(is_anonymized(document.host) for _, document in studies)
    if kind == "overhead":
        by_size = {values["batch_size"]: document for values, document in studies}
        overhead = build_overhead_document(by_size, argv, axes["batch_size"])
        return anonymize(overhead) if anonymous else overhead
    sweep = build_sweep_document(axes, studies, argv, usable_threads(), metadata)
    return anonymize(sweep) if anonymous else sweep


def _exit_code(finished: Sequence[PointResult]) -> int:
    """Return the most severe exit code of all studies."""
    codes = [exit_code(result.document) for result in finished]
    return next((code for code in (130, 1, 4) if code in codes), 0) if codes else 4
