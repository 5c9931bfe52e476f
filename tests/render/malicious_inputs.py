"""A study whose texts all attack HTML, Markdown, line-based formats or GitHub issues."""

from __future__ import annotations

import msgspec

from polybench.schema.metadata import ToolVersion
from polybench.schema.study import StudyDocument
from tests.factories import measured, study, unmeasured

MALICIOUS_TEXT = "<script>alert(1)</script> `a` | b\n\n# c *d* [e](f) @someone <!-- g &amp; \"h\" 'i' #12 ~~~\n```\n- j"


def malicious_study() -> StudyDocument:
    """Create a study with the text in configurations, reasons, warnings, versions and the host.

    The names of configurations contain it without its slashes.
    """
    name = MALICIOUS_TEXT.replace("/", "")
    versions = {"torch": MALICIOUS_TEXT, MALICIOUS_TEXT: "1", "build": {}, "environment": {}}
    document = study(
        measured("torch/cpu", 0.01, engine=name, versions=versions),
        unmeasured("tf/cpu", "failed", MALICIOUS_TEXT, MALICIOUS_TEXT),
        measured("torch@old/cpu#2", 0.02, environment=name, versions=versions, warnings=[MALICIOUS_TEXT]),
        warnings=[MALICIOUS_TEXT],
    )
    for result in document.results:
        result.configuration = f"{name}/{result.configuration}"
    text = MALICIOUS_TEXT
    host = msgspec.structs.replace(document.host, cpu=text, hostname=text, os=text, python=text, gpus=[text])
    settings = msgspec.structs.replace(document.settings, model=text, dataset=text, baseline=text)
    return msgspec.structs.replace(
        document,
        id=text,
        title=text,
        study=f'engines = ["{text}"]',
        host=host,
        polybench=ToolVersion(text, text),
        settings=settings,
    )
