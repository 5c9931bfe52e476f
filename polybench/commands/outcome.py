"""From a study's document to standard output and an exit code."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import typer

from polybench.commands.presentation import Presentation
from polybench.commands.terminal import echo, echo_result
from polybench.core.document.layers import LayersDocument
from polybench.core.document.limit import LimitDocument
from polybench.core.document.result import Result
from polybench.core.document.study import StudyDocument
from polybench.core.errors import BadInput, PolybenchError
from polybench.core.names import split_names
from polybench.metrics import metrics_of
from polybench.metrics.base import Metric

if TYPE_CHECKING:
    from polybench.report.saved_studies import Store


def columns(text: str | None) -> list[Metric] | None:
    """The metrics of `--columns`; None when it was not given."""
    return metrics_of(split_names(text)) if text else None


def ensure_writable(output: Path | None) -> None:
    """Find out before measuring that the result could not be written.

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


def emit(text: str | bytes, output: Path | None) -> None:
    """Print, or write to `output`, as what is no text must be.

    Raises:
        PolybenchError: there is no room for it.
    """
    try:
        if output is not None:
            output.write_bytes(text if isinstance(text, bytes) else text.encode())
        elif isinstance(text, str):
            echo_result(text)
    except BrokenPipeError:
        raise
    except OSError as error:
        if output is None:  # or Python would try it again when it ends
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise PolybenchError(f"cannot write {output or 'to standard output'}: {error.strerror}") from error


def end(text: str, how: Presentation, store: Store | None, saved: str, *codes: int) -> NoReturn:
    """Print a result, say that it is saved, and end with the gravest code.

    Args:
        text: the result.
        how: where to print it, and how much is said beside it.
        store: where it was to be saved; None is nowhere.
        saved: what is said then, on standard error.
        codes: of the interface; the first one where no other is graver. 1 if something is not saved.
    """
    lost = store is not None and bool(store.unsaved)
    try:
        emit(text, how.output)
    finally:
        if store is not None and not lost and not how.quiet:
            with contextlib.suppress(OSError):  # nobody reads it any more
                echo(saved, err=True)
    known = (*codes, int(lost))
    raise typer.Exit(next((grave for grave in (130, 1) if grave in known), codes[0]))


def exit_code(study: StudyDocument, *, parity_only: bool = False) -> int:
    """As the interface says: 130 interrupted, 1 something failed, 4 nothing measured, 0."""

    def done(result: Result) -> bool:
        return result.parity.status == "pass" if parity_only else result.measured

    return _code([(result.status, result.parity.status, done(result)) for result in study.results])


def exit_code_of_layers(document: LayersDocument) -> int:
    """The same; a layer by itself has no whole step."""
    return _code(
        [(one.status, one.parity, one.step_seconds is not None or bool(one.rows)) for one in document.engines]
    )


def exit_code_of_limit(document: LimitDocument) -> int:
    """The same."""
    return _code([(one.status, "skipped", one.status == "ok") for one in document.engines])


def _code(cells: Sequence[tuple[str, str, bool]]) -> int:
    """Of cells: status, that of the identity check, and whether what was asked for is there."""
    if any(status == "interrupted" for status, _, _ in cells):
        return 130
    if any(status == "failed" or parity == "fail" for status, parity, _ in cells):
        return 1
    return 0 if any(done for _, _, done in cells) else 4
