"""Origin of a document: command, machine and polybench version."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from polybench.schema.metadata import Host, ToolVersion


def format_command(argv: Sequence[str]) -> str:
    """Format the command line; "" for studies from Python, whose first argument is a file."""
    word, *_ = argv or [""]
    return shlex.join(["polybench", *argv]) if word.isalpha() else ""


def environment_rows(host: Host, tool: ToolVersion) -> list[tuple[str, str]]:
    """List names and values of the environment."""
    return [
        ("machine", host.hostname),
        ("processor", f"{host.cpu}, {host.cores} cores, {host.threads} threads"),
        *([("GPU", ", ".join(host.gpus))] if host.gpus else []),
        ("memory", f"{host.memory_bytes / 2**30:.1f} GiB"),
        ("system", host.os),
        ("Python", host.python),
        ("polybench", tool.version + (f", {tool.commit}" if tool.commit else "")),
    ]
