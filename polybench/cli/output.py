"""Output of commands: its options, files, tables, terminals and exit codes.

`--help` needs this module, and no document: their modules are imported late.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, TypeVar

import typer

from polybench.errors import BadInput, PolybenchError, split_names
from polybench.schema.printable import printable

if TYPE_CHECKING:
    from polybench.schema.documents import AnyDocument
    from polybench.schema.measurements import AllocationsDocument, LayersDocument, PeakDocument
    from polybench.schema.metadata import StudyFileMetadata
    from polybench.schema.metrics import Metric
    from polybench.schema.result import ConfigurationStatus, Result
    from polybench.schema.study import StudyDocument
    from polybench.storage.store import Store

Document = TypeVar("Document", bound="AnyDocument")


_arguments: list[str] = []


def remember_arguments(arguments: Sequence[str]) -> None:
    """Remember the arguments of the command line."""
    _arguments[:] = arguments


def own_arguments() -> list[str]:
    """Return the arguments that polybench has parsed, never those of a program that calls it."""
    return [*_arguments]


class OutputOptions(NamedTuple):
    """The options of the help panel "Output"."""

    columns: str | None = None
    published: bool = False
    format: str = "table"
    output: Path | None = None
    results: Path | None = None
    save: bool = True
    title: str | None = None
    tags: tuple[str, ...] = ()
    explain: bool = False
    quiet: bool = False
    verbose: bool = False
    anonymous: bool = False

    def name(self, metadata: StudyFileMetadata) -> StudyFileMetadata:
        """Return the metadata with the title of the options, if given, and their tags in addition."""
        import msgspec

        tags = tuple(dict.fromkeys((*metadata.tags, *self.tags)))
        return msgspec.structs.replace(metadata, title=self.title or metadata.title, tags=tags)


def parse_columns(text: str | None) -> list[Metric] | None:
    """Return the metrics of `--columns`; None without that option."""
    from polybench.schema.metrics import select_metrics

    return select_metrics(split_names(text)) if text else None


def repeats_warnings_of(options: OutputOptions) -> bool:
    """Return True if the printed result contains the warnings, for people."""
    from polybench.render import FORMATS

    return options.output is None and FORMATS.find(options.format).for_humans


def check_writable(output: Path | None) -> None:
    """Raise BadInput before measuring if the result cannot be written."""
    if output is None:
        return
    from polybench.data.disk import check_output

    try:
        check_output(output)
    except OSError as error:
        raise BadInput(f"cannot write --output {output}: {error.strerror}; name another file") from error


def write(text: str | bytes, output: Path | None, fastest: Sequence[Sequence[str]] = ()) -> None:
    """Print text, or write text or bytes to a file; raises PolybenchError if the disk is full, for example.

    An older file remains until the new one is whole. `fastest` are the beginnings of the rows that a terminal shows in
    bold.
    """
    from polybench.data.disk import write_output

    try:
        if output is not None:
            write_output(output, text if isinstance(text, bytes) else text.encode())
        elif isinstance(text, str):
            print_result(text, fastest)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise PolybenchError(f"cannot write {output or 'to standard output'}: {error.strerror}") from error


def print_and_exit(
    text: str,
    options: OutputOptions,
    store: Store | None,
    saved_message: str,
    *codes: int,
    hint: str | None = None,
    fastest: Sequence[Sequence[str]] = (),
) -> NoReturn:
    """Print a result, and on standard error that it is saved, and exit with the most severe code.

    `store` is None if the result was not to be saved. `hint` is how to continue an interrupted run; it is
    the last line. The code is the first one if none of them is 130 or 1; a
    result that could not be saved adds 1. A result that is nowhere else is printed if its file cannot be written.
    """
    has_failed_saves = store is not None and bool(store.failed_saves)
    try:
        write(text, options.output, fastest)
    except PolybenchError:
        if options.output is not None and (store is None or has_failed_saves):
            write(text, None, fastest)
        raise
    finally:
        saved = [saved_message] if store is not None else []
        interrupted = [f"interrupted; {hint}"] if hint else []
        for line in [] if has_failed_saves or options.quiet else [*saved, *interrupted]:
            with contextlib.suppress(OSError):  # the reader of standard error may be gone
                echo(line, err=True)
    all_codes = (*codes, int(has_failed_saves))
    raise typer.Exit(next((severe for severe in (130, 1) if severe in all_codes), codes[0]))


def interrupted_hint(results: Sequence[Result | ConfigurationStatus]) -> str | None:
    """Return how to continue an interrupted run; None if it was not interrupted."""
    hint = next((one.hint for one in results if one.status == "interrupted"), None)
    return f"resume with: {hint}" if hint and hint.startswith("polybench") else hint


def exit_code(study: StudyDocument, *, parity_only: bool = False) -> int:
    """Return 130 if interrupted, 1 if something failed, 4 if nothing was measured, else 0."""

    def is_done(result: Result) -> bool:
        return result.parity.status == "pass" if parity_only else result.is_measured

    return _code([(result.status, result.parity.status, is_done(result)) for result in study.results])


def measured_exit_code(document: LayersDocument | PeakDocument | AllocationsDocument) -> int:
    """Return the exit code of a document other than a study."""
    from polybench.schema.measurements import ConfigurationAllocations, ConfigurationLayers, ConfigurationPeaks

    def is_done(one: ConfigurationLayers | ConfigurationPeaks | ConfigurationAllocations) -> bool:
        match one:
            case ConfigurationLayers():  # single layers have no step time
                return one.step_seconds is not None or bool(one.rows)
            case ConfigurationAllocations():
                return one.source is not None
        return one.status == "ok"

    return _code([(one.status, getattr(one, "parity", "skipped"), is_done(one)) for one in document.configurations])


def _code(configurations: Sequence[tuple[str, str, bool]]) -> int:
    """Return the exit code for triples of status, parity status and whether the result exists."""
    if any(status == "interrupted" for status, _, _ in configurations):
        return 130
    if any(status == "failed" or parity == "fail" for status, parity, _ in configurations):
        return 1
    return 0 if any(is_done for _, _, is_done in configurations) else 4


Rows = list[dict[str, Any]]


def print_table(rows: Rows, format: str, table: Callable[[Rows], str]) -> None:
    """Print rows as one JSON array, or as the text that `table` returns."""
    import msgspec

    echo(msgspec.json.encode(rows).decode() if format == "json" else table(rows))


DOCUMENT_HELP = (
    "Document: an ID, a unique prefix, `last`, `layers-last`, `sweep-last`, `overhead-last`, `peak-last`,"
    " `allocations-last`, or a path: of a log (.jsonl), or of another document (.json)."
)
"""Help of the argument of commands that load any document."""


def anonymize_if_requested(document: Document, options: OutputOptions) -> Document:
    """Return the document without names and paths if --anonymous is given."""
    from polybench.storage.anonymize import anonymize

    return anonymize(document) if options.anonymous else document


_FAILED = re.compile(r"\bDIFFERS\b|(?<=  )failed(?=: )|parity check failed(?=: )")
_MISSING = re.compile(
    r"(?<=  )(unavailable|interrupted)(?=: )|\((?:busy|no result|one run)\)|^  (?:Cannot tell|NO RESULT)\b",
    re.MULTILINE,
)
"""The outcome of a configuration in its row."""

_MIN_WIDTH = 40
"""Characters: enough for a configuration's name with its time, and for notes of several words per line."""


def width(output: Path | None) -> int:
    """Return the characters per line of results: the terminal's, or WIDTH for a file or pipe."""
    from polybench.render import WIDTH

    return WIDTH if output is not None else terminal_width() or WIDTH


def terminal_width() -> int | None:
    """Return the characters per line of the terminal; None for a pipe or file."""
    if not sys.stdout.isatty():
        return None
    from polybench.render import WIDTH

    return max(_MIN_WIDTH, shutil.get_terminal_size((WIDTH, 24)).columns)


class _LossyText(io.TextIOWrapper):
    """Standard error whose reader may be gone, or whose disk may be full: no message is worth a measurement."""

    def write(self, text: str) -> int:
        with contextlib.suppress(OSError):
            super().write(text)
        return len(text)

    def flush(self) -> None:
        with contextlib.suppress(OSError):
            super().flush()


def prepare_streams() -> None:
    """Make standard output and standard error robust.

    Closed ones become the null device; Python has None in their place. Characters that the terminal's encoding lacks
    are written as question marks instead of raising an error. Long texts are written completely: with
    PYTHONUNBUFFERED, Python writes a text with one system call and drops the rest if a signal interrupts it.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: PTH123, SIM115 - stay open until the end
    if isinstance(sys.stdout, io.TextIOWrapper):
        if isinstance(sys.stdout.buffer, io.RawIOBase):
            sys.stdout = open(sys.stdout.fileno(), "w", encoding=sys.stdout.encoding, closefd=False)  # noqa: SIM115 - stay open until the end
        sys.stdout.reconfigure(errors="replace")
    if isinstance(sys.stderr, io.TextIOWrapper) and sys.stderr is sys.__stderr__:  # not a capture of its output
        encoding, errors = sys.stderr.encoding, sys.stderr.errors
        sys.stderr = _LossyText(sys.stderr.detach(), encoding, errors, line_buffering=True)


def flush_stdout(code: int) -> int:
    """Write what is left of the output, and return the exit code, which is 1 instead of 0 if that fails."""
    try:
        sys.stdout.flush()
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python flushes it again at its exit
        if not code:
            print(f"error: cannot write to standard output: {error.strerror}", file=sys.stderr)
            return 1
    return code


def echo(text: str, *, err: bool = False, nl: bool = True) -> None:
    """Print to standard output, or to standard error."""
    typer.echo(printable(text), err=err, nl=nl)  # noqa: TID251 - escaped here


def print_result(text: str, fastest: Sequence[Sequence[str]] = ()) -> None:
    """Print to standard output, on a terminal with failures in colour and the `fastest` rows in bold."""
    plain = printable(text)
    if sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb":
        for cells in fastest:
            beginning = " +".join(map(re.escape, cells))
            row = re.compile(f"^{beginning} .*", re.MULTILINE)
            plain = row.sub(lambda match: typer.style(match[0], bold=True), plain, count=1)
        plain = _FAILED.sub(lambda match: typer.style(match[0], fg="red", bold=True), plain)
        plain = _MISSING.sub(lambda match: typer.style(match[0], fg="yellow"), plain)
    typer.echo(plain, nl=False)  # noqa: TID251 - escaped before the styles were added
