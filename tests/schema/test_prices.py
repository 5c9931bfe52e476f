"""Prices by device, and by device and threads."""

from __future__ import annotations

import pytest

from polybench.errors import BadInput
from polybench.schema.options import Study, merge_prices, missing_prices, parse_price_key

PRICES = {"cpu": 1.0, "cpu-16": 0.12, "cpu-1": 0.01, "cuda:1-8": 3.0}


@pytest.mark.parametrize(
    ("threads", "expected"),
    [(1, {"cpu": 0.01}), (16, {"cpu": 0.12}), (8, {"cpu": 1.0, "cuda:1": 3.0}), (2, {"cpu": 1.0})],
)
def test_a_price_for_these_threads_takes_precedence(threads: int, expected: dict[str, float]) -> None:
    assert merge_prices(PRICES, threads) == expected
    assert merge_prices(dict(reversed(PRICES.items())), threads) == expected


def test_a_device_without_a_price_for_these_threads_is_reported() -> None:
    (sentence,) = missing_prices({"cpu-16": 0.12, "cpu-32": 0.24, "cuda": 3}, ["cpu", "cpu", "cuda", "cuda:1"], 2)
    assert sentence.startswith("no price of cpu with 2 threads: prices have 16, 32 threads; add cpu-2")
    assert not list(missing_prices({"cpu-16": 0.12, "cpu": 1.0}, ["cpu"], 2))
    assert not list(missing_prices({}, ["cpu"], 2))


@pytest.mark.parametrize("name", ["cpu-", "cpu-0", "cpu-x", "cpu-1-2", "gpu-2", "-2", "", "cpu-2\n"])
def test_invalid_price_keys_are_rejected(name: str) -> None:
    with pytest.raises(BadInput, match="unknown device"):
        Study(prices={name: 1.0})


def test_price_keys_have_devices() -> None:
    assert [parse_price_key(name) for name in PRICES] == ["cpu", "cpu", "cpu", "cuda:1"]
