"""`polybench columns`: lists the values of `--columns`."""

from __future__ import annotations

from polybench.cli.options import TableOrJson
from polybench.cli.output import Rows, print_table


def columns(format: TableOrJson = "table") -> None:
    """List the columns of a study's table: unit, direction of improvement, groups and description."""
    from polybench.schema.metrics import GROUPS, METRICS

    rows: Rows = [
        {
            "column": metric.name,
            "title": metric.title,
            "unit": metric.unit,
            "better": metric.better,
            "description": metric.description,
            "groups": [group for group, members in GROUPS.items() if metric.name in members],
        }
        for metric in METRICS.values()
    ]
    print_table(rows, format, _table)


def _table(rows: Rows) -> str:
    from tabulate import tabulate

    lines = [
        (
            row["column"],
            row["unit"],
            row["better"],
            ", ".join(group for group in row["groups"] if group != "all"),
            row["description"].replace("`", ""),
        )
        for row in rows
    ]
    headers = ["column", "unit", "better", "groups", "description"]
    return tabulate(lines, headers=headers, maxcolwidths=[None, None, None, None, 60])
