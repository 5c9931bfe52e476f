"""A short version of `python benchmarks/fuzz.py`, with inputs close to valid ones."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import _fuzz_cases
import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from polybench.schema.study import from_json

SEEDS = _fuzz_cases.seeds(Path(__file__).parents[1] / "golden" / "study.json")
WHOLE = msgspec.json.decode(SEEDS["document"][0])
ODD: tuple[Any, ...] = (None, 0, -1, 1e300, 2**63, "", "x\n\x1b[0m|&<", [], {}, True, [[[]]])
FEW = settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])


def damaged(draw: st.DrawFn, sound: bytes) -> bytes:
    """Replace, remove or insert a few bytes."""
    data = bytearray(sound)
    for _ in range(draw(st.integers(0, 4))):
        start = draw(st.integers(0, len(data)))
        data[start : start + draw(st.integers(0, 8))] = draw(st.binary(max_size=8))
    return bytes(data)


@st.composite
def inputs(draw: st.DrawFn, name: str) -> bytes:
    if name not in SEEDS or draw(st.integers(0, 3)) == 0:
        return draw(st.binary(max_size=200))
    return damaged(draw, draw(st.sampled_from(SEEDS[name])))


@pytest.mark.parametrize("name", sorted({*_fuzz_cases.TARGETS} - {"document", "options"}))
@FEW
@given(data=st.data())
def test_no_input_causes_a_traceback(name: str, data: st.DataObject) -> None:
    _fuzz_cases.TARGETS[name](data.draw(inputs(name)))


@settings(FEW, max_examples=4)
@given(data=st.data())
def test_no_options_cause_a_traceback(data: st.DataObject) -> None:
    _fuzz_cases.options(data.draw(inputs("options")))


def places(value: Any, above: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Key paths of all values in a document."""
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [place for key, part in parts for place in [(*above, key), *places(part, (*above, key))]]


@settings(FEW, max_examples=10)
@given(st.lists(st.tuples(st.sampled_from(places(WHOLE)), st.sampled_from(ODD)), min_size=1, max_size=2))
def test_a_document_with_odd_values_is_rendered_or_rejected(changes: list[tuple[Any, ...]]) -> None:
    whole = msgspec.json.decode(SEEDS["document"][0])
    for place, value in changes:
        parent = whole
        with contextlib.suppress(KeyError, IndexError, TypeError):  # an earlier change replaced what is above
            for key in place[:-1]:
                parent = parent[key]
            parent[place[-1]] = value
    _fuzz_cases.document(msgspec.json.encode(whole))


def test_the_seeds_are_valid() -> None:
    for seed in SEEDS["document"]:
        assert from_json(seed).results
    shown: list[Callable[[bytes], None]] = [_fuzz_cases.message, _fuzz_cases.study, _fuzz_cases.pickled]
    for target in shown:
        for seed in SEEDS[target.__name__]:
            target(seed)


def test_invalid_utf8_in_a_message_is_rejected() -> None:
    _fuzz_cases.message(b'{"type":"measu\xeered","step_seconds":[1]}\n')
