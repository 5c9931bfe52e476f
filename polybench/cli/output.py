"""Output of documents: standard output or a file, and the exit code."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import typer

from polybench.cli.output_options import OutputOptions
from polybench.cli.terminal import echo, print_result
from polybench.errors import BadInput, PolybenchError, split_names
from polybench.schema.measurements import LayersDocument, PeakDocument
from polybench.schema.metrics import Metric, select_metrics
from polybench.schema.result import Result
from polybench.schema.study import StudyDocument

if TYPE_CHECKING:
    from polybench.storage.store import Store


def parse_columns(text: str | None) -> list[Metric] | None:
    """Return the metrics of `--columns`; None without that option."""
    return select_metrics(split_names(text)) if text else None


def check_writable(output: Path | None) -> None:
    """Check before measuring that the result can be written.

    Raises:
        BadInput: the file cannot be written.
    """
    if output is None:
        return
    try:
        with output.open("ab"):
            pass
    except OSError as error:
        raise BadInput(f"cannot write --output {output}: {error.strerror}") from error


def write(text: str | bytes, output: Path | None) -> None:
    """Print text, or write text or bytes to a file.

    Raises:
        PolybenchError: writing failed, for example because the disk is full.
    """
    try:
        if output is not None:
            output.write_bytes(text if isinstance(text, bytes) else text.encode())
        elif isinstance(text, str):
            print_result(text)
    except BrokenPipeError:
        raise
    except OSError as error:
        if output is None:  # otherwise Python would try to flush it again at its exit
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise PolybenchError(f"cannot write {output or 'to standard output'}: {error.strerror}") from error


def print_and_exit(text: str, options: OutputOptions, store: Store | None, saved_message: str, *codes: int) -> NoReturn:
    """Print a result and a message that it is saved, and exit with the most severe code.

    Args:
        text: the result.
        options: where to print.
        store: where the result was saved; None if it was not.
        saved_message: message on standard error if it was saved.
        codes: exit codes; the first one if none of them is 130 or 1. A result that could not be saved adds 1.
    """
    has_failed_saves = store is not None and bool(store.failed_saves)
    try:
        write(text, options.output)
    finally:
        if store is not None and not has_failed_saves and not options.quiet:
            with contextlib.suppress(OSError):  # the reader of standard error may be gone
                echo(saved_message, err=True)
    all_codes = (*codes, int(has_failed_saves))
    raise typer.Exit(next((severe for severe in (130, 1) if severe in all_codes), codes[0]))


def exit_code(study: StudyDocument, *, parity_only: bool = False) -> int:
    """Return 130 if interrupted, 1 if something failed, 4 if nothing was measured, else 0."""

    def is_done(result: Result) -> bool:
        return result.parity.status == "pass" if parity_only else result.is_measured

    return _code([(result.status, result.parity.status, is_done(result)) for result in study.results])


def layers_exit_code(document: LayersDocument) -> int:
    """Return the exit code of a layers document; single layers have no step time."""
    return _code(
        [
            (layers.status, layers.parity, layers.step_seconds is not None or bool(layers.rows))
            for layers in document.configurations
        ]
    )


def peak_exit_code(document: PeakDocument) -> int:
    """Return the exit code of a peak document."""
    return _code([(peaks.status, "skipped", peaks.status == "ok") for peaks in document.configurations])


def _code(configurations: Sequence[tuple[str, str, bool]]) -> int:
    """Return the exit code for triples of status, parity status and whether the result exists."""
    if any(status == "interrupted" for status, _, _ in configurations):
        return 130
    if any(status == "failed" or parity == "fail" for status, parity, _ in configurations):
        return 1
    return 0 if any(is_done for _, _, is_done in configurations) else 4
