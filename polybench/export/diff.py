"""Two studies beside each other as text: what changed first, then a verdict for each row."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, get_args

from polybench.core import units
from polybench.core.document.diff import Changed, DiffDocument, DiffRow, Side, Verdict
from polybench.core.document.study import json_of
from polybench.export.one_line import one_line
from polybench.export.records import comma_separated, laid_out, wrapped

_SHOWN = 60
"""Characters of a value that changed; JSON has all of it."""

HEADER = ["cell", "A", "B", "speed of B", "verdict"]
UNCHANGED = "nothing changed in settings, machine, versions and environment"


def render(document: DiffDocument, format: str) -> str:
    """Text that ends with a newline; `format` is one of export.RECORD_FORMATS."""
    if format == "json":
        return json_of(document).decode()
    if format == "csv":
        return _csv(document)
    break_ = "  \n" if format == "markdown" else "\n"
    sides = break_.join([_side("A", document.a), _side("B", document.b)])
    lines = [line_of(row) for row in document.rows]
    table = laid_out(HEADER, lines, left=1, markdown=format == "markdown")
    changes = changes_of(document)
    said = "\n".join(["What changed:", *(f"- {one}" for one in changes)]) if changes else UNCHANGED
    blocks = [sides, said, table, "\n".join(map(wrapped, sentences_of(document)))]
    return "\n\n".join(blocks) + "\n"


def _side(name: str, side: Side) -> str:
    title = f", {one_line(side.title)}" if side.title else ""
    return f"{name}: {side.id} on {one_line(side.hostname)}, {side.created}{title}"


def changes_of(document: DiffDocument) -> list[str]:
    """Of all rows first; what changed alike in several rows is said once."""
    of_rows: dict[tuple[str, str], list[str]] = {}
    for row in document.rows:
        for name, pair in row.changed.items():
            of_rows.setdefault((name, _arrow(name, *pair)), []).append(row.cell)
    return [
        *(f"{name}: {_arrow(name, *pair)}" for name, pair in document.changed.items()),
        *(f"{', '.join(cells)}: {name}: {arrow}" for (name, arrow), cells in of_rows.items()),
    ]


def _arrow(name: str, one: Any, two: Any) -> str:
    return f"{_value(name, one)} -> {_value(name, two)}"


def _value(name: str, value: Any) -> str:
    if value is None or value == []:
        return "none"
    if name == "roof":
        return f"{value / 1e9:.3g} GFLOP/s"
    if name.endswith("_bytes"):
        return units.nbytes(value)
    if isinstance(value, dict):
        value = ", ".join(f"{key} {part}" for key, part in value.items() if part not in (None, [], 0.0))
    elif isinstance(value, list | tuple):
        value = ", ".join(map(str, value))
    text = one_line(str(value))
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"


def line_of(row: DiffRow) -> list[str]:
    """Texts, as HEADER names them."""
    seconds = ["" if value is None else units.seconds(value) for value in row.seconds]
    ratio = "" if row.ratio is None else units.with_interval(row.ratio, row.interval95)
    return [row.cell, *seconds, ratio, row.verdict]


def sentences_of(document: DiffDocument) -> Iterator[str]:
    """Why rows are not comparable, how many have which verdict, and warnings."""
    for row in document.rows:
        if row.reason:
            yield f"{row.cell}: not comparable: {row.reason}"
    counts = Counter(row.verdict for row in document.rows)
    yield (
        ", ".join(f"{counts[verdict]} {verdict}" for verdict in get_args(Verdict) if counts[verdict])
        + f"; tolerance {100 * document.tolerance:g}%, intervals: 95%, over fresh processes; at most"
        " 5% of such verdicts are false"
    )
    yield from document.warnings


def _csv(document: DiffDocument) -> str:
    header = ["cell", "verdict", "reason", "seconds_a", "seconds_b", "ratio", "low", "high"]
    header += ["false_discovery_rate", "machine", "beyond", "changed"]
    lines = [
        [
            row.cell,
            row.verdict,
            row.reason,
            *row.seconds,
            row.ratio,
            *(row.interval95 or (None, None)),
            row.false_discovery_rate,
            row.machine,
            row.beyond,
            "; ".join(_named(row.changed)),
        ]
        for row in document.rows
    ]
    return comma_separated(header, lines)


def _named(changed: Changed) -> Iterator[str]:
    yield from (f"{name}: {_arrow(name, *pair)}" for name, pair in changed.items())
