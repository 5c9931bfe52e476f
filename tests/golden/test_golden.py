"""The saved document, as its readers find it: against its JSON Schema, and against what is measured today."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from jsonschema.exceptions import best_match

from polybench.core.document.schema import FILE as SCHEMA_FILE
from polybench.core.document.schema import study_schema
from polybench.core.document.study import from_json, to_json
from tests import golden
from tests.factories import trainings, typical_study

# What depends on the machine and its load, and may be there or not. A disturbed block is measured again.
OF_THE_MACHINE = {"startup", "break_even", "memory", "utilization", "energy"}
OF_THE_MACHINE |= {"disturbance", "no_verdict", "full_sweeps"}


@pytest.fixture(scope="module")
def schema() -> Draft202012Validator:
    return Draft202012Validator(json.loads(SCHEMA_FILE.read_text()))


def test_the_schema_is_that_of_the_types() -> None:
    Draft202012Validator.check_schema(json.loads(SCHEMA_FILE.read_text()))
    assert SCHEMA_FILE.read_text() == study_schema(), "make schema writes it anew"


def test_the_golden_document_follows_the_schema(schema: Draft202012Validator) -> None:
    schema.validate(json.loads(golden.FILE.read_text()))


def test_so_do_rows_of_every_kind(schema: Draft202012Validator) -> None:
    document = typical_study()
    document.results[0].trainings = trainings(0.5, None)
    schema.validate(json.loads(to_json(document)))


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("id",), 7),
        (("settings", "batch_size"), "16"),
        (("results", 0, "status"), "fine"),
        (("results", 0, "step_seconds", "median"), None),
        (("results", 0, "samples", "step_seconds"), [1.0]),
    ],
    ids=lambda part: ".".join(map(str, part)) if isinstance(part, tuple) else repr(part),
)
def test_what_does_not_follow_the_schema_is_found(
    schema: Draft202012Validator, place: tuple[str | int, ...], value: object
) -> None:
    document: Any = json.loads(golden.FILE.read_text())
    *parents, last = place
    part = document
    for key in parents:
        part = part[key]
    part[last] = value
    error = best_match(schema.iter_errors(document))
    assert error is not None
    assert tuple(error.absolute_path)[: len(place)] == place


def test_the_golden_document_is_read_and_written_as_it_is() -> None:
    text = golden.FILE.read_bytes()
    assert to_json(from_json(text)) == text


def test_the_same_study_gives_the_same_document_but_for_what_is_measured() -> None:
    found = dict(places(json.loads(to_json(golden.measure()))))
    assert found == dict(places(json.loads(golden.FILE.read_text())))


def places(value: Any, place: str = "") -> Iterator[tuple[str, Any]]:
    """Each place of a document and what must be there: of a measured number, that it is a number."""
    if isinstance(value, dict):
        for key, part in value.items():
            yield from (
                [(f"{place}.{key}", "...")] if key in OF_THE_MACHINE else places(part, f"{place}.{key}")
            )
    elif isinstance(value, list):
        for index, part in enumerate(value):
            yield from places(part, f"{place}[{index}]")
    else:
        yield place, float if isinstance(value, float) else value
