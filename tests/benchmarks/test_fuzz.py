"""A short look for what `python benchmarks/fuzz.py` looks for at length, with inputs near sound ones."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import _fuzzed
import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from polybench.core.document.study import from_json

SEEDS = _fuzzed.seeds(Path(__file__).parents[1] / "golden" / "study.json")
WHOLE = msgspec.json.decode(SEEDS["document"][0])
ODD: tuple[Any, ...] = (None, 0, -1, 1e300, 2**63, "", "x\n\x1b[0m|&<", [], {}, True, [[[]]])
FEW = settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])


def damaged(draw: st.DrawFn, sound: bytes) -> bytes:
    """With a few of its bytes replaced, left out, or more of them put in."""
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


@pytest.mark.parametrize("name", sorted({*_fuzzed.TARGETS} - {"document", "options"}))
@FEW
@given(data=st.data())
def test_no_input_is_a_traceback(name: str, data: st.DataObject) -> None:
    _fuzzed.TARGETS[name](data.draw(inputs(name)))


@settings(FEW, max_examples=4)
@given(data=st.data())
def test_no_options_are_a_traceback(data: st.DataObject) -> None:
    _fuzzed.options(data.draw(inputs("options")))


def places(value: Any, above: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Of everything in a document: its keys and indices from the top."""
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [place for key, part in parts for place in [(*above, key), *places(part, (*above, key))]]


@settings(FEW, max_examples=10)
@given(st.lists(st.tuples(st.sampled_from(places(WHOLE)), st.sampled_from(ODD)), min_size=1, max_size=2))
def test_a_document_with_odd_values_is_shown_or_unreadable(changes: list[tuple[Any, ...]]) -> None:
    whole = msgspec.json.decode(SEEDS["document"][0])
    for place, value in changes:
        parent = whole
        with contextlib.suppress(KeyError, IndexError, TypeError):  # an earlier change replaced what is above
            for key in place[:-1]:
                parent = parent[key]
            parent[place[-1]] = value
    _fuzzed.document(msgspec.json.encode(whole))


def test_the_seeds_are_sound() -> None:
    for seed in SEEDS["document"]:
        assert from_json(seed).results
    shown: list[Callable[[bytes], None]] = [_fuzzed.message, _fuzzed.study, _fuzzed.pickled]
    for target in shown:
        for seed in SEEDS[target.__name__]:
            target(seed)


def test_bytes_that_are_no_text_in_a_message_are_no_message() -> None:
    _fuzzed.message(b'{"type":"measu\xeered","step_seconds":[1]}\n')
