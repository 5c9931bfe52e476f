"""A short version of `python benchmarks/fuzz.py`, with inputs close to valid ones."""

from __future__ import annotations

import functools
from collections.abc import Callable

import _fuzz_cases
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from polybench.schema.documents import read_document

seeds = functools.cache(_fuzz_cases.seeds)
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
    if name not in seeds() or draw(st.integers(0, 3)) == 0:
        return draw(st.binary(max_size=200))
    return damaged(draw, draw(st.sampled_from(seeds()[name])))


@pytest.mark.parametrize("name", sorted({*_fuzz_cases.TARGETS} - {"options"}))
@FEW
@given(data=st.data())
def test_no_input_causes_a_traceback(name: str, data: st.DataObject) -> None:
    _fuzz_cases.TARGETS[name](data.draw(inputs(name)))


@settings(FEW, max_examples=4)
@given(data=st.data())
def test_no_options_cause_a_traceback(data: st.DataObject) -> None:
    _fuzz_cases.options(data.draw(inputs("options")))


def test_the_seeds_are_valid() -> None:
    for seed in seeds()["document"]:
        _fuzz_cases.use(read_document(seed))
    shown: list[Callable[[bytes], None]] = [_fuzz_cases.message, _fuzz_cases.study, _fuzz_cases.network]
    for target in shown:
        for seed in seeds()[target.__name__]:
            target(seed)


def test_invalid_utf8_in_a_message_is_rejected() -> None:
    _fuzz_cases.message(b'{"type":"measu\xeered","step_seconds":[1]}\n')
