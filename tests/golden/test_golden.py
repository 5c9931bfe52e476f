"""The golden document: valid by its JSON Schema, and equal to a new measurement."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from jsonschema.exceptions import best_match

from polybench.schema.documents import JSON_SCHEMA, study_schema
from polybench.schema.study import from_json, to_json
from tests import golden
from tests.factories import trainings, typical_study

# Fields that depend on the machine and its load, and may be absent.
MACHINE_DEPENDENT = {"startup", "break_even_steps", "memory", "utilization", "energy", "interference"}
MACHINE_DEPENDENT |= {"inconclusive_reason", "full_collections", "code_fingerprint"}


_UPDATE = "update the example: python -m tests.golden"


@pytest.fixture(scope="module")
def schema() -> Draft202012Validator:
    return Draft202012Validator(json.loads(JSON_SCHEMA.read_text()))


def test_the_schema_matches_the_types() -> None:
    Draft202012Validator.check_schema(json.loads(JSON_SCHEMA.read_text()))
    assert JSON_SCHEMA.read_text() == study_schema(), "outdated: run make schema"


def test_the_golden_document_follows_the_schema(schema: Draft202012Validator) -> None:
    schema.validate(json.loads(golden.FILE.read_text()))


def test_rows_of_every_kind_follow_the_schema(schema: Draft202012Validator) -> None:
    document = typical_study()
    document.results[0].trainings = trainings(0.5, None)
    schema.validate(json.loads(to_json(document)))


@pytest.mark.parametrize(
    ("location", "value"),
    [
        (("id",), 7),
        (("settings", "batch_size"), "16"),
        (("results", 0, "status"), "fine"),
        (("results", 0, "step_time", "median"), None),
        (("results", 0, "step_times", "values"), [1.0]),
    ],
    ids=lambda part: ".".join(map(str, part)) if isinstance(part, tuple) else repr(part),
)
def test_violations_of_the_schema_are_found(
    schema: Draft202012Validator, location: tuple[str | int, ...], value: object
) -> None:
    document: Any = json.loads(golden.FILE.read_text())
    *parents, last = location
    part = document
    for key in parents:
        part = part[key]
    part[last] = value
    error = best_match(schema.iter_errors(document))
    assert error is not None
    assert tuple(error.absolute_path)[: len(location)] == location


def test_the_golden_document_is_the_same_after_reading_and_writing() -> None:
    text = golden.FILE.read_bytes()
    assert to_json(from_json(text)) == text, f"the document has changed; if on purpose, {_UPDATE}"


def test_a_new_measurement_differs_in_measured_numbers_only() -> None:
    found = dict(locations(json.loads(to_json(golden.measure()))))
    assert found == dict(locations(json.loads(golden.FILE.read_text()))), f"if on purpose, {_UPDATE}"


def locations(value: Any, location: str = "") -> Iterator[tuple[str, Any]]:
    """Iterate over each location of a document with its value; for measured numbers, with their type."""
    if isinstance(value, dict):
        for key, part in value.items():
            yield from (
                [(f"{location}.{key}", "...")] if key in MACHINE_DEPENDENT else locations(part, f"{location}.{key}")
            )
    elif isinstance(value, list):
        for index, part in enumerate(value):
            yield from locations(part, f"{location}[{index}]")
    else:
        yield location, float if isinstance(value, float) else value
