"""`polybench engines`: lists the values of `--engines`, with what each of them needs."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from polybench.cli.options import TableOrJson
from polybench.cli.output import Rows, print_table
from polybench.engines import ALLOCATOR_VARIANTS, ENGINES, EngineSpec

_SUMMARY_WIDTH = 48
"""Characters."""


def engines(
    show_all: Annotated[
        bool, typer.Option("--all", help="List fake and reference as well, which polybench uses internally.")
    ] = False,
    format: TableOrJson = "table",
) -> None:
    """To start each installed engine and show its version, run: polybench doctor

    Example: polybench engines --all
    """
    rows = [_row(name, spec) for name, spec in ENGINES.rows().items() if show_all or not spec.internal]
    print_table(rows, format, _table)


def _row(name: str, spec: EngineSpec) -> dict[str, Any]:
    import msgspec

    from polybench.runner.doctor import engine_requirement, variant_requirements

    requirements = variant_requirements(spec)
    return {
        "engine": name,
        "summary": spec.summary,
        "runs_on": spec.runs_on,
        **msgspec.to_builtins(engine_requirement(spec)),
        "variants": {
            variant: {
                "summary": row.summary,
                "experimental": row.experimental,
                **msgspec.to_builtins(requirements[variant]),
            }
            for variant, row in (spec.variants | ALLOCATOR_VARIANTS).items()
        },
    }


def _table(rows: Rows) -> str:
    from polybench.render.table import Column, Table
    from polybench.render.terminal import format_rows

    lines = []
    for row in rows:
        name, variants = row["engine"], row["variants"]
        lines.append(_line(name, row))
        lines += [
            _line(f"{name}+{variant}", variants[variant]) for variant in variants if variant not in ALLOCATOR_VARIANTS
        ]
    if rows:
        variants = rows[0]["variants"]
        lines += [_line(f"ENGINE+{variant}", variants[variant]) for variant in ALLOCATOR_VARIANTS]
    columns = [Column("engine"), Column("what is timed", width=_SUMMARY_WIDTH), Column("requires"), Column("installed")]
    return format_rows(Table(columns=columns, rows=lines))


def _line(name: str, row: dict[str, Any]) -> tuple[str, str, str, str]:
    summary = row["summary"] + "; experimental: never run" * row.get("experimental", False)
    if row["requires"] is None:
        return name, summary, "", ""
    commands = row["install"].split("; ") if row["install"] else []
    requirement = "\n".join([row["requires"], *(f"  {command}" for command in commands)])
    return name, summary, requirement, "yes" if row["installed"] else "no"
