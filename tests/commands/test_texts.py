"""Texts to values."""

from __future__ import annotations

import pytest
import typer

from polybench.commands.texts import (
    parse_duration,
    parse_fraction,
    parse_pairs,
    parse_precision,
    parse_schedule,
)
from polybench.core.errors import BadInput
from polybench.core.names import split_names


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("60s", 60), ("90", 90), ("1.5m", 90), ("500ms", 0.5), ("2 min", 120), ("0.5h", 1800)],
)
def test_durations(text: str, seconds: float) -> None:
    assert parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "s", "0s", "-1s", "5 parsecs", "1e3"])
def test_no_durations(text: str) -> None:
    with pytest.raises(typer.BadParameter):
        parse_duration(text)


@pytest.mark.parametrize(("text", "value"), [("5%", 0.05), ("0.05", 0.05), ("2.5 %", 0.025)])
def test_fractions(text: str, value: float) -> None:
    assert parse_fraction(text) == pytest.approx(value)


@pytest.mark.parametrize("text", ["0", "100%", "five", "-1%", "nan"])
def test_no_fractions(text: str) -> None:
    with pytest.raises(typer.BadParameter):
        parse_fraction(text)


def test_names_and_pairs() -> None:
    assert split_names(" torch, tf+xla,,") == ("torch", "tf+xla")
    assert parse_pairs(["cpu=0.24", "cuda:1=3"], "--price") == {"cpu": 0.24, "cuda:1": 3.0}
    for bad in ("cpu", "=1", "cpu=free", "cpu=-1", "cpu=nan", "cpu=inf", "cpu=1e999"):
        with pytest.raises(BadInput, match="--price"):
            parse_pairs([bad], "--price")


@pytest.mark.parametrize("option", ["--price", "--schedule", "--handicap"])
def test_a_pair_given_twice(option: str) -> None:
    with pytest.raises(BadInput, match=f"{option} '5=2': 5 is given twice"):
        parse_pairs(["5=1", "5=2"], option)


def test_one_precision_or_several() -> None:
    assert parse_precision("bf16") == "bf16"
    assert parse_precision("fp32, bf16") == ("fp32", "bf16")
    with pytest.raises(BadInput, match="unknown precision 'fp16'"):
        parse_precision("fp32,fp16")


def test_a_schedule_in_any_order() -> None:
    assert parse_schedule(["10=0.1", "9=0.2"]) == ((9, 0.2), (10, 0.1))
    for bad in ("soon=0.1", "-1=0.1", "5", "5=0"):
        with pytest.raises(BadInput, match="--schedule"):
            parse_schedule([bad])
