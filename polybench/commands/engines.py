"""`polybench engines`: what `--engines` takes."""

from __future__ import annotations

import typer

from polybench.commands.options import TableOrJson
from polybench.commands.rows import Rows, print_rows


def engines(format: TableOrJson = "table") -> None:
    """List the engines and their variants: what is timed, and what installs them.

    Whether they run on this machine: polybench doctor
    """
    from polybench.engines.installed import all_engines

    known, broken = all_engines()
    rows: Rows = [
        {
            "engine": name,
            "summary": row.summary,
            "variants": {variant: one.summary for variant, one in row.variants.items()},
            "runs_on": row.runs_on,
            "install": f"pip install 'polybench[{row.extra}]'" if row.extra else None,
        }
        for name, row in known.items()
    ]
    for reason in broken.values():
        typer.echo(f"warning: {reason}", err=True)
    print_rows(rows, format, _table)


def _table(rows: Rows) -> str:
    from tabulate import tabulate

    lines = []
    for row in rows:
        name = row["engine"]
        lines.append((name, row["summary"], row["install"] or ""))
        lines += [(f"{name}+{variant}", summary, "") for variant, summary in row["variants"].items()]
    return tabulate(lines, headers=["engine", "what is timed", "install"], maxcolwidths=[None, 60, None])
