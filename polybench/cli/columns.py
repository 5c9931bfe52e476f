"""`polybench columns`: lists the values of `--columns`."""

from __future__ import annotations

from polybench.cli.options import TableOrJson
from polybench.cli.output import Rows, print_table


def columns(format: TableOrJson = "table") -> None:
    """Example: polybench columns"""
    from polybench.schema.metrics import GROUPS, METRICS

    rows: Rows = [
        {
            "column": metric.name,
            "title": metric.title,
            "unit": metric.unit,
            "better": metric.better,
            "description": metric.description,
            "groups": [group for group in GROUPS if group in ("all", *metric.groups)],
        }
        for metric in METRICS.rows().values()
    ]
    print_table(rows, format, _table)


def _table(rows: Rows) -> str:
    from polybench.render.table import Column, Table, text_columns
    from polybench.render.terminal import format_rows

    lines = [
        (
            row["column"],
            row["unit"] or "",
            row["better"] or "",
            ", ".join(group for group in row["groups"] if group != "all"),
            row["description"].replace("`", ""),
        )
        for row in rows
    ]
    columns = [*text_columns("column", "unit", "better", "groups"), Column("description", width=60)]
    return format_rows(Table(columns=columns, rows=lines))
