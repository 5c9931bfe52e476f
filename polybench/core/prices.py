"""Prices of machines, dollars an hour: of a device, `cpu`, or of one beside so many threads, `cpu-16`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from polybench.core.units import plural

_NAME = re.compile(r"(.+?)(?:-([1-9]\d*))?")


def device_of(name: str) -> str:
    """Without the number of threads: `cpu-16` -> `cpu`."""
    return _taken_apart(name)[0]


def prices_with(prices: Mapping[str, float], threads: int) -> dict[str, float]:
    """Device -> dollars an hour of a machine with so many threads.

    A price of exactly these threads goes before one that says none; a device with neither is left out.
    """
    found: dict[str, float] = {}
    for name, price in prices.items():
        device, number = _taken_apart(name)
        if number == threads:
            found[device] = price
        elif number is None:
            found.setdefault(device, price)
    return found


def unpriced(prices: Mapping[str, float], devices: Iterable[str], threads: int) -> Iterator[str]:
    """A sentence for each device that has prices, but none with so many threads."""
    known = prices_with(prices, threads)
    for device in dict.fromkeys(devices):
        numbers = [number for one, number in map(_taken_apart, prices) if one == device]
        if numbers and device not in known:
            yield (
                f"no cost of {device} with {plural(threads, 'thread')}: there are prices with"
                f" {', '.join(map(str, numbers))} only; add {device}-{threads}, or {device} for all others"
            )


def _taken_apart(name: str) -> tuple[str, int | None]:
    match = _NAME.fullmatch(name)
    if match is None:  # no text at all, or with line breaks
        return name, None
    return match[1], int(match[2]) if match[2] else None
