"""`polybench engines`: what `--engines` takes."""

from __future__ import annotations

from polybench.commands.options import TableOrJson
from polybench.commands.rows import Rows, print_rows
from polybench.commands.terminal import echo
from polybench.engines import ALLOCATORS, Variant


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
            "variants": _summaries(row.variants | ALLOCATORS),
            "runs_on": row.runs_on,
            "install": f"pip install 'polybench[{row.extra}]'" if row.extra else None,
        }
        for name, row in known.items()
    ]
    for reason in broken.values():
        echo(f"warning: {reason}", err=True)
    print_rows(rows, format, _table)


def _summaries(variants: dict[str, Variant]) -> dict[str, str]:
    return {name: variant.summary for name, variant in variants.items()}


def _table(rows: Rows) -> str:
    from tabulate import tabulate

    lines = []
    for row in rows:
        name = row["engine"]
        lines.append((name, row["summary"], row["install"] or ""))
        own = {variant: summary for variant, summary in row["variants"].items() if variant not in ALLOCATORS}
        lines += [(f"{name}+{variant}", summary, "") for variant, summary in own.items()]
    lines += [(f"ENGINE+{variant}", row.summary, "") for variant, row in ALLOCATORS.items()]
    return tabulate(lines, headers=["engine", "what is timed", "install"], maxcolwidths=[None, 60, None])
