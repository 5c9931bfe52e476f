"""Parsers of option values."""

from __future__ import annotations

import pytest
import typer

from polybench.cli.options import parse_duration, parse_fraction, parse_lr_schedule, parse_pairs, parse_precision
from polybench.errors import BadInput, split_names


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("60s", 60), ("90", 90), ("1.5m", 90), ("500ms", 0.5), ("2 min", 120), ("0.5h", 1800)],
)
def test_parse_duration(text: str, seconds: float) -> None:
    assert parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "s", "0s", "-1s", "5 parsecs", "1e3"])
def test_invalid_durations_are_rejected(text: str) -> None:
    with pytest.raises(typer.BadParameter):
        parse_duration(text)


@pytest.mark.parametrize(("text", "value"), [("5%", 0.05), ("0.05", 0.05), ("2.5 %", 0.025)])
def test_parse_fraction(text: str, value: float) -> None:
    assert parse_fraction(text) == pytest.approx(value)


@pytest.mark.parametrize("text", ["0", "100%", "five", "-1%", "nan"])
def test_invalid_fractions_are_rejected(text: str) -> None:
    with pytest.raises(typer.BadParameter):
        parse_fraction(text)


def test_parse_names_and_pairs() -> None:
    assert split_names(" torch, tf+xla,,") == ("torch", "tf+xla")
    assert parse_pairs(["cpu=0.24", "cuda:1=3"], "--price") == {"cpu": 0.24, "cuda:1": 3.0}
    for bad in ("cpu", "=1", "cpu=free", "cpu=-1", "cpu=nan", "cpu=inf", "cpu=1e999"):
        with pytest.raises(BadInput, match="--price"):
            parse_pairs([bad], "--price")


@pytest.mark.parametrize("option", ["--price", "--lr-schedule", "--inject-delay"])
def test_a_repeated_name_is_rejected(option: str) -> None:
    with pytest.raises(BadInput, match=f"{option} '5=2': 5 is given twice"):
        parse_pairs(["5=1", "5=2"], option)


def test_parse_one_or_several_precisions() -> None:
    assert parse_precision("bf16") == "bf16"
    assert parse_precision("fp32, bf16") == ("fp32", "bf16")
    with pytest.raises(BadInput, match="unknown precision 'fp16'"):
        parse_precision("fp32,fp16")


def test_parse_a_schedule_in_any_order() -> None:
    assert parse_lr_schedule(["10=0.1", "9=0.2"]) == ((9, 0.2), (10, 0.1))
    for bad in ("soon=0.1", "-1=0.1", "5", "5=0"):
        with pytest.raises(BadInput, match="--lr-schedule"):
            parse_lr_schedule([bad])
