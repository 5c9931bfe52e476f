"""Numbers as text."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polybench.schema import units
from polybench.schema.units import (
    format_age,
    format_bytes,
    format_count,
    format_percent,
    format_ratio,
    format_rough_seconds,
    format_scientific,
    format_seconds,
    format_signed_seconds,
)


@pytest.mark.parametrize(
    ("format", "value", "text"),
    [
        (format_seconds, 0.0124, "12.4 ms"),
        (format_seconds, 1.2149, "1.21 s"),
        (format_seconds, 0.000_999_9, "1.00 ms"),
        (format_seconds, 3.2e-6, "3.20 µs"),
        (format_seconds, 5e-10, "0.500 ns"),
        (format_seconds, 754.2, "754 s"),
        (format_seconds, 12345.6, "12,346 s"),
        (format_seconds, 0, "0 s"),
        (format_seconds, 2, "2 s"),
        (format_seconds, -0.0124, "-12.4 ms"),
        (format_signed_seconds, 0.0124, "+12.4 ms"),
        (format_signed_seconds, -0.0124, "-12.4 ms"),
        (format_signed_seconds, 0.0, "0 s"),
        (format_signed_seconds, 1e-17, "0 s"),
        (format_rough_seconds, 8.4, "8 s"),
        (format_rough_seconds, 43.0, "40 s"),
        (format_rough_seconds, 178.0, "3 minutes"),
        (format_rough_seconds, 4500.0, "75 minutes"),
        (format_rough_seconds, 9000.0, "2.5 hours"),
        (format_rough_seconds, 90_000.0, "25 hours"),
        (format_age, 59, "now"),
        (format_age, -30, "now"),
        (format_age, -3600, "in the future"),
        (format_age, 60, "1 minute"),
        (format_age, 7199, "1 hour"),
        (format_age, 86400 * 3.9, "3 days"),
        (format_age, 86400 * 364, "11 months"),
        (format_age, 86400 * 800, "2 years"),
        (format_bytes, 54_840_000, "52.3 MiB"),
        (format_bytes, 512, "512 B"),
        (format_bytes, 0, "0 B"),
        (format_bytes, 1 << 30, "1.00 GiB"),
        (format_bytes, 1000 << 10, "1,000 KiB"),
        (format_count, 9870.2, "9,870"),
        (format_count, 62_006, "62,006"),
        (format_count, 7, "7"),
        (format_count, 7.0, "7.00"),
        (format_count, 0, "0"),
        (format_count, 9.996, "10.0"),
        (format_ratio, 1.931, "1.93x"),
        (format_ratio, 12.34, "12.3x"),
        (format_ratio, 0.0123, "0.0123x"),
        (format_percent, 0.0321, "3.2%"),
        (format_percent, 0.12, "12%"),
        (format_percent, 0.004, "0.40%"),
        (format_percent, 0, "0%"),
        (format_percent, 1, "100%"),
        (format_scientific, 8.8e-3, "8.8e-3"),
        (format_scientific, 2e-15, "2.0e-15"),
        (format_scientific, 0.0, "0"),
        (format_scientific, 31.0, "3.1e1"),
    ],
)
def test_numbers_have_the_digits_that_matter(format: Callable[[float], str], value: float, text: str) -> None:
    assert format(value) == text


@pytest.mark.parametrize(
    ("value", "interval", "text"),
    [
        (1.931, (1.9, 1.97), "1.93 (1.90 to 1.97)"),
        (0.985, (0.953, 1.02), "0.98 (0.95 to 1.02)"),
        (12.34, (11.1, 13.5), "12.3 (11.1 to 13.5)"),
        (0.0123, (0.011, 0.014), "0.0123 (0.0110 to 0.0140)"),
        (1.006, (1.002, 1.011), "1.006 (1.002 to 1.011)"),
        (1.02, (0.996, 1.05), "1.020 (0.996 to 1.050)"),  # a bound next to 1
        (2.0, None, "2.00"),
        (8.0, (0.09, 720.6), "(no result)"),
        (8.0, (1.1, 720.6), "8.00 (1.10 to 720.60)"),  # certainly above 1
    ],
)
def test_intervals_have_the_same_decimals_as_the_value(
    value: float, interval: tuple[float, float] | None, text: str
) -> None:
    assert units.format_with_ci(value, interval) == text


def test_a_margin_is_half_the_width_of_the_interval() -> None:
    assert units.format_seconds_with_margin(0.0223, (0.022, 0.0227)) == "22.3 ms ±1.6%"
    assert units.format_with_margin(0.746, (0.72, 0.772)) == "0.746 ±3.5%"


def test_a_time_with_an_interval_wider_than_twice_itself_has_no_bounds() -> None:
    assert units.format_seconds_with_ci(0.00569, (0.005, 0.006)) == "5.69 ms (5.00 ms to 6.00 ms)"
    assert units.format_seconds_with_ci(0.00569, (0.001, 0.0123)) == "5.69 ms (1.00 ms to 12.3 ms)"
    assert units.format_seconds_with_ci(0.00569, (0.001, 0.0125)) == "5.69 ms ±>100%"
    assert units.format_seconds_with_ci(0.00569, (-0.28, 0.29)) == "5.69 ms ±>100%"
    assert units.format_seconds_with_margin(0.00569, (0.001, 0.0123)) == "5.69 ms ±99%"
    assert units.format_seconds_with_ci(0.00569, (-0.0001, 0.011)) == "5.69 ms (0 s to 11.0 ms)"
    assert units.format_seconds_with_margin(0.00569, (-0.28, 0.29)) == "5.69 ms ±>100%"


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


@pytest.mark.parametrize(("number", "text"), [(1, "1 seed"), (2, "2 seeds")])
def test_plural(number: int, text: str) -> None:
    assert units.plural(number, "seed") == text


@given(st.floats(1e-9, 1e6))
def test_seconds_read_back_within_half_a_percent(value: float) -> None:
    number, unit = units.format_seconds(value).split()
    scale = {"s": 1, "ms": 1e-3, "µs": 1e-6, "ns": 1e-9}[unit]
    assert float(number.replace(",", "")) * scale == pytest.approx(value, rel=0.005)


def test_images_are_replaced_by_the_kind_of_input() -> None:
    text = "images/s of each image; imagery"
    assert units.with_input_kind(text, "image") == text
    assert units.with_input_kind(text, "sequence") == "sequences/s of each sequence; imagery"
