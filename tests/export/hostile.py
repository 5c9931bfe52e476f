"""A study whose every text is an attack: on HTML, on Markdown, on lines and on readers of issues."""

from __future__ import annotations

import msgspec

from polybench.core.document.circumstances import Tool
from polybench.core.document.study import StudyDocument
from tests.factories import absent, measured, study

TEXT = "<script>alert(1)</script> `a` | b\n\n# c *d* [e](f) @someone <!-- g &amp; \"h\" 'i' #12 ~~~\n```\n- j"


def hostile() -> StudyDocument:
    """Cells, reasons, warnings, versions and the host have it; the names of cells without a slash in it."""
    name = TEXT.replace("/", "")
    versions = {"torch": TEXT, TEXT: "1", "build": {}, "environment": {}}
    document = study(
        measured("torch/cpu", 0.01, engine=name, versions=versions),
        absent("tf/cpu", "failed", TEXT, TEXT),
        measured("torch@old/cpu#2", 0.02, environment=name, versions=versions, warnings=[TEXT]),
        warnings=[TEXT],
    )
    for result in document.results:
        result.cell = f"{name}/{result.cell}"
    host = msgspec.structs.replace(document.host, cpu=TEXT, hostname=TEXT, os=TEXT, python=TEXT, gpus=[TEXT])
    return msgspec.structs.replace(
        document, id=TEXT, created=TEXT, title=TEXT, study=f'engines = ["{TEXT}"]', host=host,
        polybench=Tool(TEXT, TEXT),
        settings=msgspec.structs.replace(document.settings, model=TEXT, dataset=TEXT, baseline=TEXT),
    )  # fmt: skip
