"""Texts to values, and values to a study."""

from __future__ import annotations

import pytest
import typer

from polybench.commands import options as o
from polybench.core.errors import BadInput
from polybench.core.spec import Study


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("60s", 60), ("90", 90), ("1.5m", 90), ("500ms", 0.5), ("2 min", 120), ("0.5h", 1800)],
)
def test_durations(text: str, seconds: float) -> None:
    assert o.parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "s", "0s", "-1s", "5 parsecs", "1e3"])
def test_no_durations(text: str) -> None:
    with pytest.raises(typer.BadParameter):
        o.parse_duration(text)


@pytest.mark.parametrize(("text", "value"), [("5%", 0.05), ("0.05", 0.05), ("2.5 %", 0.025)])
def test_fractions(text: str, value: float) -> None:
    assert o.parse_fraction(text) == pytest.approx(value)


@pytest.mark.parametrize("text", ["0", "100%", "five", "-1%", "nan"])
def test_no_fractions(text: str) -> None:
    with pytest.raises(typer.BadParameter):
        o.parse_fraction(text)


def test_names_and_pairs() -> None:
    assert o.split_names(" torch, tf+xla,,") == ("torch", "tf+xla")
    assert o.parse_pairs(["cpu=0.24", "cuda:1=3"], "--price") == {"cpu": 0.24, "cuda:1": 3.0}
    for bad in ("cpu", "=1", "cpu=free", "cpu=-1"):
        with pytest.raises(BadInput, match="--price"):
            o.parse_pairs([bad], "--price")


@pytest.mark.parametrize("option", ["--price", "--schedule", "--handicap"])
def test_a_pair_given_twice(option: str) -> None:
    with pytest.raises(BadInput, match=f"{option} '5=2': 5 is given twice"):
        o.parse_pairs(["5=1", "5=2"], option)


def test_a_schedule_in_any_order() -> None:
    assert o.parse_schedule(["10=0.1", "9=0.2"]) == ((9, 0.2), (10, 0.1))
    assert o.parse_schedule(None) is None
    for bad in ("soon=0.1", "-1=0.1", "5", "5=0"):
        with pytest.raises(BadInput, match="--schedule"):
            o.parse_schedule([bad])
    with pytest.raises(BadInput, match="--schedule"):
        o.make_study(schedule=o.parse_schedule(["0=0.1"]))


def test_a_study_names_the_option_that_is_out_of_range() -> None:
    assert o.make_study() == Study()
    with pytest.raises(BadInput, match="--parity-steps"):
        o.make_study(parity_steps=0)
    with pytest.raises(BadInput, match="--momentum"):
        o.make_study(momentum=1.5)
