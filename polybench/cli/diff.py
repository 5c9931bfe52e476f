"""`polybench diff`: compares two saved studies, with a verdict for each configuration."""

from __future__ import annotations

from typing import Annotated

import typer

from polybench.cli.completion import saved
from polybench.cli.options import TableFormat, parse_fraction, with_options
from polybench.cli.output import OutputOptions, check_writable, echo, width, write
from polybench.errors import BadInput, lookup_or_suggest
from polybench.render import render
from polybench.schema.analyses import DiffDocument

_ID = "an ID, a unique prefix, `last`, or the path of a log"
_CONDITIONS = ("slower", "faster")


@with_options("tolerance", "output", "results")
def diff(
    a: Annotated[str, typer.Argument(metavar="A", help=f"Old study: {_ID}.", autocompletion=saved("study"))],
    b: Annotated[str, typer.Argument(metavar="B", help=f"New study: {_ID}.", autocompletion=saved("study"))],
    options: OutputOptions,
    tolerance: float,
    fail_if: Annotated[
        list[str] | None,
        typer.Option(
            "--fail-if",
            metavar="VERDICT=PERCENT",
            help="Condition for exit code 1, VERDICT=PERCENT. slower=5%: a configuration is slower and its"
            " step takes 5% more time, corrected for machine drift; also faster=5%, for less time. The exit code is 4"
            " if no interval decides it.",
        ),
    ] = None,
    same_machine: Annotated[
        bool,
        typer.Option("--same-machine", help="Treat both hosts as one machine: the host names of containers differ."),
    ] = False,
    format: TableFormat = "table",
) -> None:
    """Example: polybench diff 20261101 last --fail-if slower=5%"""
    from polybench.analysis.diff import diff
    from polybench.storage.store import Store, results_folder

    conditions = parse_conditions(fail_if or [])
    store = Store(results_folder(options.results))
    document = diff(store.load(a), store.load(b), tolerance, same_machine=same_machine, saved=store.summaries())
    check_writable(options.output)
    write(render(document, format, width=width(options.output)), options.output)
    for text in document.warnings:
        if format in ("json", "csv"):
            echo(f"warning: {text}", err=True)
    if conditions:
        raise typer.Exit(_exit_code(document, conditions))


def parse_conditions(texts: list[str]) -> dict[str, float]:
    """Parse `slower=5%` into verdict and fraction."""
    conditions: dict[str, float] = {}
    for text in texts:
        name, equals, fraction = text.partition("=")
        lookup_or_suggest(name, dict.fromkeys(_CONDITIONS), "verdict")
        if not equals:
            raise BadInput(f"--fail-if {text!r}: expected VERDICT=PERCENT, such as --fail-if slower=5%")
        conditions[name] = parse_fraction(fraction)
    return conditions


def _exit_code(document: DiffDocument, conditions: dict[str, float]) -> int:
    """Return 1 if a row meets a condition, else 4 if no row shows that it does not, else 0."""
    from polybench.analysis.verdicts import change, meets

    found = [
        (row, meets(row.verdict, row.corrected_ratio or 1.0, row.corrected_ci95, conditions)) for row in document.rows
    ]
    for row, is_met in found:
        if is_met:
            corrected = "" if row.corrected_ratio == row.ratio else ", corrected for machine drift"
            echo(
                f"{row.configuration} is {row.verdict} by {change(row.corrected_ratio or 1.0):.1%}{corrected}", err=True
            )
    answers = [is_met for _, is_met in found]
    if any(answers):
        return 1
    if False in answers:
        return 0
    echo("cannot tell whether a configuration meets a condition", err=True)
    return 4
