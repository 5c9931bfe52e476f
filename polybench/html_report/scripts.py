"""The two scripts of a page, with their hashes for the Content-Security-Policy.

The page contains plotly.js compressed and as plain text. Browsers therefore show the page before they
decompress the 5 MB of plotly.js, and the page has less than half of that size.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
from functools import cache
from typing import NamedTuple

from polybench.figures.image_export import plotly_javascript
from polybench.html_report.templating import read_template


class Script(NamedTuple):
    """A script in the page.

    Attributes:
        text: JavaScript; for plotly.js, compressed with gzip and encoded as base64.
        csp_hash: entry in the policy, 'sha256-...'.
    """

    text: str
    csp_hash: str


def report_script() -> Script:
    """Load the script that sorts, filters and draws."""
    text = read_template("report.js")
    return Script(text, csp_hash(text))


@cache
def plotly_script() -> Script:
    """Load plotly.js from the package plotly.

    Raises:
        BadInput: plotly is not installed.
    """
    text = plotly_javascript()
    compressed = gzip.compress(text.encode(), mtime=0)
    return Script(base64.b64encode(compressed).decode(), csp_hash(text))


def csp_hash(text: str) -> str:
    """Hash a script or style sheet for a policy: 'sha256-...'."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
