"""Prices by device, and by device and threads."""

from __future__ import annotations

import pytest

from polybench.core.errors import BadInput
from polybench.core.prices import device_of, prices_with, unpriced
from polybench.core.spec import Study

PRICES = {"cpu": 1.0, "cpu-16": 0.12, "cpu-1": 0.01, "cuda:1-8": 3.0}


@pytest.mark.parametrize(
    ("threads", "found"),
    [(1, {"cpu": 0.01}), (16, {"cpu": 0.12}), (8, {"cpu": 1.0, "cuda:1": 3.0}), (2, {"cpu": 1.0})],
)
def test_the_price_of_these_threads_goes_before_that_of_any(threads: int, found: dict[str, float]) -> None:
    assert prices_with(PRICES, threads) == found
    assert prices_with(dict(reversed(PRICES.items())), threads) == found


def test_a_device_without_a_price_of_these_threads_is_named() -> None:
    (said,) = unpriced({"cpu-16": 0.12, "cpu-32": 0.24, "cuda": 3}, ["cpu", "cpu", "cuda", "cuda:1"], 2)
    assert said.startswith("no cost of cpu with 2 threads: there are prices with 16, 32 only; add cpu-2")
    assert not list(unpriced({"cpu-16": 0.12, "cpu": 1.0}, ["cpu"], 2))
    assert not list(unpriced({}, ["cpu"], 2))


@pytest.mark.parametrize("name", ["cpu-", "cpu-0", "cpu-x", "cpu-1-2", "gpu-2", "-2", "", "cpu-2\n"])
def test_what_is_no_price_of_a_device_is_refused(name: str) -> None:
    with pytest.raises(BadInput, match="unknown device"):
        Study(prices={name: 1.0})


def test_devices_of_names() -> None:
    assert [device_of(name) for name in PRICES] == ["cpu", "cpu", "cpu", "cuda:1"]
