"""`polybench diff`: two saved studies with a verdict for each row."""

from __future__ import annotations

from typing import Annotated

import typer

from polybench.commands.outcome import emit, ensure_writable
from polybench.commands.presentation import Presentation
from polybench.commands.signature import takes
from polybench.commands.terminal import echo
from polybench.commands.texts import parse_fraction
from polybench.core.document.diff import DiffDocument
from polybench.core.errors import BadInput
from polybench.core.names import pick
from polybench.export import RECORD_FORMATS

_ID = "An ID, a unique prefix of one, `last`, or the path of a document."
_CONDITIONS = ("slower", "faster")


@takes("output", "results")
def diff(
    a: Annotated[str, typer.Argument(metavar="A", help=f"What is compared with. {_ID}")],
    b: Annotated[str, typer.Argument(metavar="B", help="The same of the other study.")],
    how: Presentation,
    tolerance: Annotated[
        float,
        typer.Option(
            "--tolerance",
            help="A step may change by so much without a difference.",
            parser=parse_fraction,
            metavar="PERCENT",
        ),
    ] = "2%",  # type: ignore[assignment]  # typer parses it
    fail_if: Annotated[
        list[str] | None,
        typer.Option(
            "--fail-if",
            help="slower=5%: exit with 1 where a row is slower and its step takes 5% more time, beyond what"
            " is taken for the machine's part; also faster. Exit with 4 where no row has a verdict.",
        ),
    ] = None,
    same_machine: Annotated[
        bool,
        typer.Option("--same-machine", help="The hosts are one machine by two names, as containers are."),
    ] = False,
    format: Annotated[str, typer.Option("--format", help=f"{', '.join(RECORD_FORMATS)}.")] = "table",
) -> None:
    """Say of each row of two saved studies whether it became faster or slower; nothing is measured.

    Example: polybench diff 20261101 last --fail-if slower=5%
    """
    from polybench.export.diff import render
    from polybench.report.diff import diff as compared
    from polybench.report.saved_studies import Store, results_folder

    pick(format, dict.fromkeys(RECORD_FORMATS), "format")
    conditions = _conditions(fail_if or [])
    store = Store(results_folder(how.results))
    document = compared(store.load(a), store.load(b), tolerance, same_machine=same_machine)
    ensure_writable(how.output)
    emit(render(document, format), how.output)
    for text in document.warnings:
        if format in ("json", "csv"):
            echo(f"warning: {text}", err=True)
    if conditions:
        raise typer.Exit(_code(document, conditions))


def _conditions(texts: list[str]) -> dict[str, float]:
    """`slower=5%`: verdict and fraction."""
    found: dict[str, float] = {}
    for text in texts:
        name, equals, fraction = text.partition("=")
        pick(name, dict.fromkeys(_CONDITIONS), "verdict")
        if not equals:
            raise BadInput(f"--fail-if {text!r}: write name=percent, for example --fail-if slower=5%")
        found[name] = parse_fraction(fraction)
    return found


def _code(document: DiffDocument, conditions: dict[str, float]) -> int:
    """1 where a row is as bad as that, else 4 where nothing could be judged, else 0."""
    judged = [row for row in document.rows if row.verdict != "not comparable"]
    failed = [
        row for row in judged if row.verdict in conditions and _change(row.beyond) >= conditions[row.verdict]
    ]
    for row in failed:
        machine = "" if row.beyond == row.ratio else ", beyond the machine's part"
        echo(f"{row.cell} is {row.verdict} by {_change(row.beyond):.1%}{machine}", err=True)
    if not judged:
        echo("no row could be judged", err=True)
    return 1 if failed else 0 if judged else 4


def _change(ratio: float | None) -> float:
    """By which fraction the step takes more time, or by which there are more steps in the same time."""
    return 0.0 if ratio is None else max(ratio, 1 / ratio) - 1
