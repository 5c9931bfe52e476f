from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polybench.schema import units


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0124, "12.4 ms"),
        (1.2149, "1.21 s"),
        (0.000_999_9, "1.00 ms"),
        (3.2e-6, "3.20 µs"),
        (5e-10, "0.500 ns"),
        (754.2, "754 s"),
        (12345.6, "12,346 s"),
        (0, "0 s"),
        (0.0, "0 s"),
        (2, "2 s"),
        (-0.0124, "-12.4 ms"),
    ],
)
def test_seconds(value: float, text: str) -> None:
    assert units.format_seconds(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (54_840_000, "52.3 MiB"),
        (512, "512 B"),
        (7, "7 B"),
        (0, "0 B"),
        (1 << 30, "1.00 GiB"),
        (1000 << 10, "1,000 KiB"),
    ],
)
def test_bytes(value: float, text: str) -> None:
    assert units.format_bytes(value) == text


@pytest.mark.parametrize(
    ("value", "text"), [(9870.2, "9,870"), (62_006, "62,006"), (7, "7"), (7.0, "7.00"), (0, "0"), (9.996, "10.0")]
)
def test_count(value: float, text: str) -> None:
    assert units.format_count(value) == text


@pytest.mark.parametrize(("value", "text"), [(1.931, "1.93x"), (12.34, "12.3x"), (0.0123, "0.0123x")])
def test_ratio(value: float, text: str) -> None:
    assert units.format_ratio(value) == text


@pytest.mark.parametrize(("value", "text"), [(0.0321, "3.2%"), (0.12, "12%"), (0.004, "0.40%"), (0, "0%"), (1, "100%")])
def test_percent(value: float, text: str) -> None:
    assert units.format_percent(value) == text


@pytest.mark.parametrize(("value", "text"), [(8.8e-3, "8.8e-3"), (2e-15, "2.0e-15"), (0.0, "0"), (31.0, "3.1e1")])
def test_scientific(value: float, text: str) -> None:
    assert units.format_scientific(value) == text


@pytest.mark.parametrize(
    ("value", "interval", "text"),
    [
        (1.931, (1.9, 1.97), "1.93 (1.90 to 1.97)"),
        (0.985, (0.953, 1.02), "0.98 (0.95 to 1.02)"),
        (12.34, (11.1, 13.5), "12.3 (11.1 to 13.5)"),
        (0.0123, (0.011, 0.014), "0.0123 (0.0110 to 0.0140)"),
        (1.006, (1.002, 1.011), "1.006 (1.002 to 1.011)"),
        (2.0, None, "2.00"),
    ],
)
def test_intervals_have_the_same_decimals_as_the_value(
    value: float, interval: tuple[float, float] | None, text: str
) -> None:
    assert units.format_with_ci(value, interval) == text


@pytest.mark.parametrize(
    ("value", "interval", "text"),
    [
        (-0.0031, (-0.0112, 0.0049), "-0.003 (-0.011 to 0.005)"),
        (0.0124, (0.0003, 0.0245), "0.0124 (0.0003 to 0.0245)"),
        (0.0, (0.0, 0.0), "0.000 (0.000 to 0.000)"),
    ],
)
def test_differences_have_the_same_decimals_as_their_interval(
    value: float, interval: tuple[float, float], text: str
) -> None:
    assert units.format_difference(value, interval) == text


def test_signed_seconds_have_a_sign() -> None:
    found = [units.format_signed_seconds(value) for value in (0.0124, -0.0124, 0.0, 1e-17)]
    assert found == ["+12.4 ms", "-12.4 ms", "0 s", "0 s"]


@pytest.mark.parametrize(
    ("value", "text"),
    [(8.4, "8 s"), (43.0, "40 s"), (178.0, "3 minutes"), (9000.0, "2.5 hours"), (90_000.0, "25 hours")],
)
def test_estimates_have_few_digits(value: float, text: str) -> None:
    assert units.format_rough_seconds(value) == text


@pytest.mark.parametrize(("number", "text"), [(1, "1 seed"), (2, "2 seeds")])
def test_plural(number: int, text: str) -> None:
    assert units.plural(number, "seed") == text


@given(st.floats(1e-9, 1e6))
def test_seconds_read_back_within_half_a_percent(value: float) -> None:
    number, unit = units.format_seconds(value).split()
    scale = {"s": 1, "ms": 1e-3, "µs": 1e-6, "ns": 1e-9}[unit]
    assert float(number.replace(",", "")) * scale == pytest.approx(value, rel=0.005)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "now"),
        (59, "now"),
        (-30, "now"),
        (-3600, "in the future"),
        (60, "1 minute"),
        (7199, "1 hour"),
        (86400 * 3.9, "3 days"),
        (86400 * 364, "11 months"),
        (86400 * 800, "2 years"),
    ],
)
def test_an_age_has_one_unit(value: float, text: str) -> None:
    assert units.format_age(value) == text


def test_images_are_replaced_by_the_kind_of_input() -> None:
    text = "images/s of each image; imagery"
    assert units.with_input_kind(text, "image") == text
    assert units.with_input_kind(text, "sequence") == "sequences/s of each sequence; imagery"
