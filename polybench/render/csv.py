"""CSV with one header line: plain numbers in SI units, an empty field if a value is unknown."""

from __future__ import annotations

import csv
import io

from polybench.render.table import Records, one_line


def render(records: Records) -> str:
    """Render the records; texts are on one line, booleans are "true" or "false"."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(records.fields)
    writer.writerows([_field(value) for value in row] for row in records.rows)
    return text.getvalue()


def _field(value: object) -> object:
    if isinstance(value, bool):
        return "true" if value else "false"
    return one_line(value) if isinstance(value, str) else value
