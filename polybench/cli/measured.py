"""Measures layers, peaks or allocations, or what an interrupted run of them lacks, and prints the document."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, NoReturn

from polybench.cli.live import progress_on_stderr
from polybench.cli.output import (
    OutputOptions,
    anonymize_if_requested,
    check_writable,
    echo,
    interrupted_hint,
    measured_exit_code,
    print_and_exit,
    width,
)
from polybench.machine import interrupts
from polybench.render import check_format, render

if TYPE_CHECKING:
    from polybench.experiments.outcome import Outcome

RESUME = {
    "layers": "layers:resume_layers",
    "peak": "peak:resume_peak",
    "allocations": "allocation_sites:resume_allocation_sites",
}
"""References to functions in `polybench.experiments` that resume, by the command of a log."""


def measure_and_print(measure: Callable[..., Outcome[Any]], options: OutputOptions, **rendering: Any) -> NoReturn:
    """Call `measure` with a progress and a store, print its document, and exit; `rendering` is for `render`."""
    from polybench.storage.store import Store, results_folder

    check_format(options.format)
    check_writable(options.output)
    store = Store(results_folder(options.results)) if options.save else None
    with interrupts.defer_signals():
        with progress_on_stderr(quiet=options.quiet, verbose=options.verbose) as progress:
            outcome = measure(progress, store=store)
        for note in () if options.quiet else outcome.notes:
            echo(note, err=True)
        document = anonymize_if_requested(outcome.document, options)  # the cache of peaks has the host name
        text = render(document, options.format, width=width(options.output), **rendering)
        saved, message = store if outcome.ids else None, f"saved as {', '.join(outcome.ids)}"
        hint = interrupted_hint(document.configurations)
        print_and_exit(text, options, saved, message, measured_exit_code(document), hint=hint)


def resume_and_print(id: str, command: str, options: OutputOptions) -> NoReturn:
    """Measure what a log of this command lacks; print and exit."""
    module, _, name = RESUME[command].partition(":")
    resume = getattr(import_module(f"polybench.experiments.{module}"), name)
    measure_and_print(partial(resume, id, anonymous=options.anonymous), options)
