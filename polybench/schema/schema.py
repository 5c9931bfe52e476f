"""The JSON Schema of a saved study, generated from its types; `make schema` writes it to this folder."""

from __future__ import annotations

import inspect
import json
from pathlib import Path
from typing import Any

import msgspec

from polybench.schema.study import SCHEMA, StudyDocument

FILE = Path(__file__).with_name("study.schema.json")


def study_schema() -> str:
    """Return the schema as indented JSON."""
    (reference,), definitions = msgspec.json.schema_components([StudyDocument], ref_template="#/$defs/{name}")
    for definition in definitions.values():
        if "description" in definition:
            definition["description"] = inspect.cleandoc(definition["description"])
    header = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": SCHEMA}
    full_schema: dict[str, Any] = {**header, **reference, "$defs": dict(sorted(definitions.items()))}
    return json.dumps(full_schema, indent=1) + "\n"


if __name__ == "__main__":
    FILE.write_text(study_schema())
