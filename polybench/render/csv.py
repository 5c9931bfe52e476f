"""CSV with one header line: plain numbers in SI units, an empty field if a value is unknown."""

from __future__ import annotations

import contextlib
import csv
import io

from polybench.render.table import Records, one_line

_FORMULA = tuple("=+-@＝＋－＠")  # noqa: RUF001 - spreadsheets accept the full-width ones
"""Characters with which a spreadsheet's formulas begin, which may run programs and send data."""


def render(records: Records) -> str:
    """Render the records; texts are on one line, booleans are "true" or "false"."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(map(_field, records.fields))
    writer.writerows([_field(value) for value in row] for row in records.rows)
    return text.getvalue()


def _field(value: object) -> object:
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, str):
        return value
    text = one_line(value)
    if text.startswith(_FORMULA):
        with contextlib.suppress(ValueError):
            float(text)
            return text
        return f"'{text}"
    return text
