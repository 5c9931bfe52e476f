"""How a document of a page came to be: what was typed, on which machine, with which polybench."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from polybench.core.document.circumstances import Host, Tool


def command_of(argv: Sequence[str]) -> str:
    """What was typed; "" for what was measured from Python, whose first word is a file."""
    word, *_ = argv or [""]
    return shlex.join(["polybench", *argv]) if word.isalpha() else ""


def environment_of(host: Host, tool: Tool) -> list[tuple[str, str]]:
    """Names and values, one a line."""
    return [
        ("machine", host.hostname),
        ("processor", f"{host.cpu}, {host.cores} cores, {host.threads} threads"),
        *([("GPU", ", ".join(host.gpus))] if host.gpus else []),
        ("memory", f"{host.memory_bytes / 2**30:.1f} GiB"),
        ("system", host.os),
        ("Python", host.python),
        ("polybench", tool.version + (f", {tool.commit}" if tool.commit else "")),
    ]
