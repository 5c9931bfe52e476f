"""Prices of machines in dollars per hour, by device (`cpu`) or by device and number of threads (`cpu-16`)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from polybench.core.units import plural

_KEY = re.compile(r"(.+?)(?:-([1-9]\d*))?")


def parse_price_key(key: str) -> str:
    """Return the device of a price key: `cpu-16` -> `cpu`."""
    return _parse(key)[0]


def merge_prices(prices: Mapping[str, float], threads: int) -> dict[str, float]:
    """Return dollars per hour by device, for a machine with this number of threads.

    A price for exactly this number takes precedence over one without threads; devices with neither are left
    out.
    """
    merged: dict[str, float] = {}
    for key, price in prices.items():
        device, key_threads = _parse(key)
        if key_threads == threads:
            merged[device] = price
        elif key_threads is None:
            merged.setdefault(device, price)
    return merged


def missing_prices(prices: Mapping[str, float], devices: Iterable[str], threads: int) -> Iterator[str]:
    """Yield a sentence for each device that has prices, but none for this number of threads."""
    available = merge_prices(prices, threads)
    for device in dict.fromkeys(devices):
        priced = [number for key_device, number in map(_parse, prices) if key_device == device]
        if priced and device not in available:
            yield (
                f"no price of {device} with {plural(threads, 'thread')}: prices have"
                f" {', '.join(map(str, priced))} threads; add {device}-{threads}, or {device} for any number"
            )


def _parse(key: str) -> tuple[str, int | None]:
    match = _KEY.fullmatch(key)
    if match is None:  # empty, or with line breaks
        return key, None
    return match[1], int(match[2]) if match[2] else None
