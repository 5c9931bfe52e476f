"""How every benchmark ends: a small table, then one line of JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import NamedTuple

from tabulate import tabulate


class Figure(NamedTuple):
    """One measured number; `met` is None where there is no target."""

    what: str
    value: float
    target: str = ""
    met: bool | None = None
    interval95: tuple[float, float] | None = None


def report(benchmark: str, figures: Sequence[Figure], **settings: object) -> None:
    """Print the figures; `settings` go into the JSON line only."""
    rows = [
        (figure.what, f"{figure.value:.4g}", _interval(figure), figure.target, _verdict(figure.met))
        for figure in figures
    ]
    print(tabulate(rows, headers=["figure", "value", "95 % interval", "target", ""], disable_numparse=True))
    document = {"benchmark": benchmark, **settings, "figures": [figure._asdict() for figure in figures]}
    print(json.dumps(document), flush=True)


def _interval(figure: Figure) -> str:
    return "{:.4f} to {:.4f}".format(*figure.interval95) if figure.interval95 else ""


def _verdict(met: bool | None) -> str:
    return {None: "", True: "met", False: "MISSED"}[met]
