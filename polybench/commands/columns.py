"""`polybench columns`: what `--columns` takes."""

from __future__ import annotations

from polybench.commands.options import TableOrJson
from polybench.commands.rows import Rows, print_rows


def columns(format: TableOrJson = "table") -> None:
    """List the columns of a table: unit, which direction is better, and the groups that have them."""
    from polybench.metrics import GROUPS, METRICS

    rows: Rows = [
        {
            "column": metric.name,
            "title": metric.title,
            "unit": metric.unit,
            "better": metric.better,
            "note": metric.note,
            "groups": [group for group, members in GROUPS.items() if metric.name in members],
        }
        for metric in METRICS.values()
    ]
    print_rows(rows, format, _table)


def _table(rows: Rows) -> str:
    from tabulate import tabulate

    lines = [
        (
            row["column"],
            row["unit"],
            row["better"],
            ", ".join(group for group in row["groups"] if group != "all"),
            row["note"].replace("`", ""),
        )
        for row in rows
    ]
    return tabulate(lines, headers=["column", "unit", "better", "groups", "note"])
