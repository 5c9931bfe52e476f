"""The common output of benchmarks: a small table, then one line of JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import NamedTuple

from tabulate import tabulate


class Figure(NamedTuple):
    """A measured number; `met` is None without a target."""

    what: str
    value: float
    target: str = ""
    met: bool | None = None
    ci95: tuple[float, float] | None = None


def report(benchmark: str, figures: Sequence[Figure], **settings: object) -> None:
    """Print the figures; `settings` are only part of the JSON line."""
    rows = [
        (figure.what, f"{figure.value:.4g}", _interval(figure), figure.target, _verdict(figure.met))
        for figure in figures
    ]
    print(tabulate(rows, headers=["figure", "value", "95 % interval", "target", ""], disable_numparse=True))
    document = {"benchmark": benchmark, **settings, "figures": [figure._asdict() for figure in figures]}
    print(json.dumps(document), flush=True)


def _interval(figure: Figure) -> str:
    return "{:.4f} to {:.4f}".format(*figure.ci95) if figure.ci95 else ""


def _verdict(met: bool | None) -> str:
    return {None: "", True: "met", False: "MISSED"}[met]
