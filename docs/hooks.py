"""MkDocs hooks that generate the reference from the code.

Commands come from the program, columns from `METRICS`, fields of a saved study from its JSON Schema, and functions of
the Julia package from their docstrings.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import typer
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

from polybench.cli import app
from polybench.schema.metrics import GROUPS, METRICS

_ROOT = Path(__file__).parents[1]
_SCHEMA = _ROOT / "polybench/schema/study.schema.json"
_DOCSTRING = re.compile(r'^"""\n    ((\w+)\([^\n]*\))\n\n(.*?)^"""$', re.MULTILINE | re.DOTALL)
"""Pattern of a Julia docstring: signature, name, description."""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages."""
    pages = {
        "reference/commands.md": _commands(),
        "reference/columns.md": _columns(),
        "reference/document.md": _document(),
        "contributing.md": (_ROOT / "CONTRIBUTING.md").read_text().replace("(docs/", "("),
        "julia.md": _julia(),
        "changelog.md": (_ROOT / "CHANGELOG.md").read_text().replace("(docs/", "("),
    }
    for path, text in pages.items():
        files.append(File.generated(config, path, content=text))
    return files


def on_page_markdown(markdown: str, **_: object) -> str:
    """Convert links to files outside of docs/ to their pages, and replace the sample marker."""
    markdown = markdown.replace("](../../CONTRIBUTING.md", "](../contributing.md")
    markdown = markdown.replace("](../CONTRIBUTING.md", "](contributing.md")
    markdown = markdown.replace("](../julia/README.md", "](julia.md")
    mark = "<!-- sample -->"
    return markdown.replace(mark, _sample()) if mark in markdown else markdown


def _sample() -> str:
    _, _, rest = (_ROOT / "README.md").read_text().partition("<!-- sample: ")
    return rest.partition("-->\n")[2].partition("<!-- end of sample -->")[0].replace("(docs/", "(")


def _commands() -> str:
    group = typer.main.get_command(app)
    parts = ["# Commands", "`python -m polybench` is the same program. `--help` says the same as this page."]
    for path, command, context in _walk(group, type(group).context_class(group, info_name="polybench")):
        parts += [f"## {path}", _paragraphs(command.help or ""), _options(command, context)]
    return "\n\n".join(parts)


def _walk(command: Any, context: Any) -> Iterator[tuple[str, Any, Any]]:
    """Yield every executable command with its path."""
    if not hasattr(command, "commands"):
        yield context.command_path, command, context
    for name, inner in getattr(command, "commands", {}).items():
        yield from _walk(inner, type(inner).context_class(inner, info_name=name, parent=context))


def _paragraphs(text: str) -> str:
    """Convert a help text; lines with `Example:` become code."""
    lines = []
    for line in text.splitlines():
        label, found, code = line.partition("Example: ")
        lines.append(f"{label}For example `{code}`" if found else line)
    return "\n".join(lines)


def _options(command: Any, context: Any) -> str:
    records = (parameter.get_help_record(context) for parameter in command.params)
    return _table(("option", "meaning"), ((_code(record[0]), record[1]) for record in records if record))


def _columns() -> str:
    rows = []
    for metric in METRICS.values():
        groups = ", ".join(_code(name) for name, members in GROUPS.items() if metric.name in members)
        rows.append((_code(metric.name), metric.title, metric.unit or "", metric.better or "", groups))
    header = ("`--columns`", "title", "unit", "better", "groups")
    return "\n\n".join(("# Columns", "What a result can show, and in which unit.", _table(header, rows)))


def _document() -> str:
    schema = msgspec.json.decode(_SCHEMA.read_bytes())
    parts = [
        "# A saved study",
        "`--format json` prints it, and every study is saved as one. Seconds, bytes, joules; null is "
        "“not measured” or “no source”, never 0.",
    ]
    first = schema["$ref"].rpartition("/")[2]
    for name in sorted(schema["$defs"], key=lambda one: (one != first, one)):
        part = schema["$defs"][name]
        fields = part.get("properties", {})
        rows = [(_code(field), _type(of), _default(of)) for field, of in fields.items()]
        parts += [f"## {name}", part.get("description", ""), _table(("field", "type", "default"), rows)]
    return "\n\n".join(parts)


def _julia() -> str:
    """Return the README of the Julia package, and the docstrings of its exported functions."""
    readme = (_ROOT / "julia/README.md").read_text()
    parts = [readme.replace("(../docs/", "(").replace("(../README.md)", "(index.md)"), "## Functions"]
    sources = [file.read_text() for file in sorted((_ROOT / "julia/src").glob("*.jl"))]
    exported = next(line for text in sources for line in text.splitlines() if line.startswith("export "))
    found = [match.groups() for text in sources for match in _DOCSTRING.finditer(text)]
    for name in exported.removeprefix("export ").split(", "):
        if described := [(call, text) for call, of, text in found if of == name]:
            parts.append(f"### {name}")
            parts += [f"```julia\n{call}\n```\n\n{text}" for call, text in described]
    return "\n\n".join(parts)


def _type(schema: dict[str, Any]) -> str:
    """Describe a type of the JSON Schema."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "anyOf" in schema:
        return " or ".join(_type(one) for one in schema["anyOf"])
    if "enum" in schema:
        return " or ".join(_code(f'"{one}"' if isinstance(one, str) else str(one)) for one in schema["enum"])
    return _plain_type(schema)


def _plain_type(schema: dict[str, Any]) -> str:
    """Describe a type with items."""
    if "prefixItems" in schema:
        return f"({', '.join(_type(one) for one in schema['prefixItems'])})"
    if schema.get("type") == "array":
        return f"list of {_type(schema['items'])}"
    if schema.get("type") == "object" and isinstance(schema.get("additionalProperties"), dict):
        return f"object of {_type(schema['additionalProperties'])}"
    return str(schema.get("type", "anything"))


def _default(schema: dict[str, Any]) -> str:
    return _code(msgspec.json.encode(schema["default"]).decode()) if "default" in schema else ""


def _code(text: str) -> str:
    return f"`{text}`"


def _table(header: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    lines = [" | ".join(map(_cell, row)) for row in rows]
    titles = " | ".join(header)
    return "\n".join(f"| {line} |" for line in (titles, " | ".join("---" for _ in titles.split("|")), *lines))


def _cell(text: str) -> str:
    """Escape pipes for Python-Markdown, which splits rows at pipes outside of code."""
    parts = " ".join(text.split()).split("`")
    return "`".join(part if i % 2 else part.replace("|", "\\|") for i, part in enumerate(parts))
