"""MkDocs hooks that generate the reference from the code.

Commands come from the program, columns from `METRICS`, fields of a saved study from its JSON Schema, and functions of
the Julia package from their docstrings.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import typer
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

from polybench.cli import app
from polybench.schema.metrics import GROUPS, METRICS

_ROOT = Path(__file__).parents[1]
_SCHEMA = _ROOT / "polybench/schema/study.schema.json"
_COMMANDS = "reference/commands/index.md"
_DOCSTRING = re.compile(
    r'^"""\n    ((?:PolyBench\.)?(\w+!?)\([^\n]*\)(?:\n    [^\n]+)*)\n\n(.*?)^"""$', re.MULTILINE | re.DOTALL
)
"""Pattern of a Julia docstring: signature, name, description."""
_PUBLIC = re.compile(r"(?:^export |Expr\(:public, )(.*)$", re.MULTILINE)
_CODE = re.compile("<code>[^<]*</code>")
_OPTION = re.compile("(--[a-z][a-z-]*)")


def on_config(config: MkDocsConfig) -> None:
    """Replace the commands in the navigation by their pages, below the headings of `--help`.

    If mike builds the site (`.github/workflows/docs.yml`), its header has a menu of versions.
    """
    if "MIKE_DOCS_VERSION" in os.environ:
        config.extra["version"] = {"provider": "mike"}
    assert config.nav is not None
    for section in config.nav:
        (pages,) = section.values()
        if isinstance(pages, list) and _COMMANDS in pages:
            panels = [{panel: [{one.name: one.path} for one in pages]} for panel, pages in _commands().items()]
            pages[pages.index(_COMMANDS)] = {"Commands": [{"All commands": _COMMANDS}, *panels]}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages."""
    commands = _commands()
    pages = {
        _COMMANDS: _command_list(commands),
        **{one.path: one.text for panel in commands.values() for one in panel},
        "reference/columns.md": _columns(),
        "reference/document.md": _document(),
        "contributing.md": (_ROOT / "CONTRIBUTING.md").read_text().replace("(docs/", "("),
        "julia.md": _julia(),
        "changelog.md": (_ROOT / "CHANGELOG.md").read_text().replace("(docs/", "("),
    }
    for path, text in pages.items():
        files.append(File.generated(config, path, content=text))
    return files


def on_page_content(html: str, **_: object) -> str:
    """Prevent line breaks inside of options, as in `--lr-schedule`."""
    return _CODE.sub(lambda code: _OPTION.sub(r'<span class="option">\1</span>', code[0]), html)


def on_post_page(output: str, **_: object) -> str:
    """Name the theme's search dialog for screen readers."""
    dialog = 'data-md-component="search" role="dialog"'
    return output.replace(dialog, f'{dialog} aria-label="Search"')


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


class _Command(NamedTuple):
    """Page of a command, with the first sentence of its help."""

    name: str
    summary: str
    text: str

    @property
    def path(self) -> str:
        return f"reference/commands/{self.name}.md"


def _commands() -> dict[str, list[_Command]]:
    """Return the pages of all commands by the headings of `--help`."""
    group: Any = typer.main.get_command(app)
    context = type(group).context_class(group, info_name="polybench")
    panels: dict[str, list[_Command]] = {}
    for name, listed in group.commands.items():
        command = listed.load()
        inner = type(command).context_class(command, info_name=name, parent=context)
        parts = []
        for level, one, where in _walk(command, inner):
            parts += [f"{level} {where.command_path}", _paragraphs(one.help or ""), *_options(f"#{level}", one, where)]
        panels.setdefault(listed.rich_help_panel, []).append(_Command(name, listed.help, "\n\n".join(parts)))
    return panels


def _command_list(panels: dict[str, list[_Command]]) -> str:
    parts = ["# Commands", "`python -m polybench` is the same program. `--help` and `--help-all` show the same texts."]
    for panel, commands in panels.items():
        rows = [(f"[`polybench {one.name}`]({one.name}.md)", one.summary) for one in commands]
        parts += [f"## {panel}", _table(("command", "does"), rows)]
    return "\n\n".join(parts)


def _walk(command: Any, context: Any, level: str = "#") -> Iterator[tuple[str, Any, Any]]:
    """Yield a command and its subcommands with the levels of their headings."""
    yield level, command, context
    for name, inner in getattr(command, "commands", {}).items():
        yield from _walk(inner, type(inner).context_class(inner, info_name=name, parent=context), f"#{level}")


def _paragraphs(text: str) -> str:
    """Convert a help text; lines with `Example:` become code."""
    lines = []
    for line in text.splitlines():
        label, found, code = line.partition("Example: ")
        lines.append(f"{label}For example `{code}`" if found else line)
    return "\n".join(lines)


def _options(level: str, command: Any, context: Any) -> Iterator[str]:
    """Yield a table of options for each panel of `--help`, with a heading if there are several."""
    panels: dict[str, list[tuple[str, str]]] = {}
    for parameter in command.params:
        if record := parameter.get_help_record(context):
            panel = getattr(parameter, "rich_help_panel", None) or "Options"
            panels.setdefault(panel, []).append((_code(record[0]), record[1]))
    for panel, rows in panels.items():
        yield from ([f"{level} {panel}"] if len(panels) > 1 else [])
        yield _table(("option", "meaning"), rows)


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
    """Return the README of the Julia package, and the docstrings of its public functions."""
    readme = (_ROOT / "julia/README.md").read_text()
    parts = [readme.replace("(../docs/", "(").replace("(../README.md)", "(index.md)"), "## Functions"]
    sources = [file.read_text() for file in sorted((_ROOT / "julia/src").glob("*.jl"))]
    package = (_ROOT / "julia/src/PolyBench.jl").read_text()
    found = [match.groups() for text in sources for match in _DOCSTRING.finditer(text)]
    exported, public = (re.findall(r"[a-z_]+!?", line[1]) for line in _PUBLIC.finditer(package))
    for name in sorted([*exported, *public]):
        if described := [(call, text) for call, of, text in found if of == name]:
            parts.append(f"### {name if name in exported else f'PolyBench.{name}'}")
            parts += [f"```julia\n{call}\n```\n\n{text}" for call, text in described]
    return "\n\n".join(parts).replace("```jldoctest", "```julia-repl")


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
