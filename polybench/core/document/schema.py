"""The JSON Schema of a saved study, from its types; `make schema` writes it beside this file."""

from __future__ import annotations

import inspect
import json
from pathlib import Path
from typing import Any

import msgspec

from polybench.core.document.study import SCHEMA, StudyDocument

FILE = Path(__file__).with_name("study.schema.json")


def study_schema() -> str:
    """The schema as indented JSON."""
    (reference,), parts = msgspec.json.schema_components([StudyDocument], ref_template="#/$defs/{name}")
    for part in parts.values():
        if "description" in part:
            part["description"] = inspect.cleandoc(part["description"])
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": SCHEMA}
    whole: dict[str, Any] = {**head, **reference, "$defs": dict(sorted(parts.items()))}
    return json.dumps(whole, indent=1) + "\n"


if __name__ == "__main__":
    FILE.write_text(study_schema())
