"""The two programs of a page, each with the hash by which its policy knows it.

plotly.js is carried compressed, as text that no browser takes for a program: the page is shown before the
5 MB of it are unpacked, and has less than half of its size.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
from functools import cache
from typing import NamedTuple

from polybench.page.templating import text_of
from polybench.plots.image import plotly_program


class Program(NamedTuple):
    """A program as it stands in the page.

    Attributes:
        text: JavaScript; of plotly.js base64 of its gzip.
        source: for the policy: 'sha256-...'
    """

    text: str
    source: str


def own() -> Program:
    """What sorts, filters and draws."""
    text = text_of("report.js")
    return Program(text, source(text))


@cache
def plotly() -> Program:
    """plotly.js, of the version that the package plotly brings.

    Raises:
        BadInput: plotly is not installed.
    """
    text = plotly_program()
    packed = gzip.compress(text.encode(), mtime=0)
    return Program(base64.b64encode(packed).decode(), source(text))


def source(text: str) -> str:
    """Of a program or style for a policy: 'sha256-...'."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
