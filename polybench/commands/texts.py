"""What users type to values: durations, fractions, names, pairs."""

from __future__ import annotations

import math
import re
from typing import get_args

import typer

from polybench.core.errors import BadInput
from polybench.core.names import pick, split_names
from polybench.core.spec import Precision

_SECONDS = {"ms": 1e-3, "s": 1.0, "": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}


def parse_duration(text: str) -> float:
    """`60s`, `1.5m`, `500ms`, or plain seconds."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*([a-z]*)\s*", text)
    if match is None or match[2] not in _SECONDS or float(match[1]) == 0:
        raise typer.BadParameter(f"{text!r} is no duration above 0; write 60s, 2m or 0.5h")
    return float(match[1]) * _SECONDS[match[2]]


def parse_patience(text: str) -> float:
    """A duration, or 0 for none."""
    return 0.0 if re.fullmatch(r"\s*0+\s*[a-z]*\s*", text) else parse_duration(text)


def parse_integers(text: str, option: str) -> list[int]:
    """`1,8,32`.

    Raises:
        BadInput: something else.
    """
    parts = [part.strip() for part in text.split(",")]
    if not all(re.fullmatch(r"\d{1,18}", part) for part in parts):
        raise BadInput(f"--{option.replace('_', '-')} {text}: write whole numbers with commas: 1,8,32")
    return [int(part) for part in parts]


def parse_fraction(text: str) -> float:
    """`5%` or `0.05`."""
    number, percent = re.subn(r"\s*%\s*$", "", text)
    try:
        value = float(number) / (100 if percent else 1)
    except ValueError:
        value = 0.0
    if not 0 < value < 1:
        raise typer.BadParameter(f"{text!r} is no fraction between 0 and 1; write 5% or 0.05")
    return value


def parse_pairs(texts: list[str], option: str) -> dict[str, float]:
    """`name=number`; a name given twice is bad input."""
    pairs: dict[str, float] = {}
    for text in texts:
        name, _, number = text.rpartition("=")
        if name in pairs:
            raise BadInput(f"{option} {text!r}: {name} is given twice; give it once")
        try:
            pairs[name] = float(number)
        except ValueError:
            raise BadInput(f"{option} {text!r}: write name=number, for example {option} cpu=0.24") from None
        if not name or not 0 < pairs[name] < math.inf:
            raise BadInput(f"{option} {text!r}: write name=number with a finite number above 0")
    return pairs


def parse_paths(texts: list[str], option: str) -> dict[str, str]:
    """`name=path`; a name given twice is bad input."""
    paths: dict[str, str] = {}
    for text in texts:
        name, _, path = text.partition("=")
        if not name or not path:
            raise BadInput(f"{option} {text!r}: write name=path, for example {option} old=/path/to/venv")
        if name in paths:
            raise BadInput(f"{option} {text!r}: {name} is given twice; give it once")
        paths[name] = path
    return paths


def parse_precision(text: str) -> str | tuple[str, ...]:
    """`fp32`, or several: `fp32,bf16`."""
    names = split_names(text)
    for name in names:
        pick(name, dict.fromkeys(get_args(Precision)), "precision")
    return names[0] if len(names) == 1 else names


def parse_replicas(text: str) -> int | tuple[int, ...]:
    """`2`, or several: `1,2`."""
    counts = parse_integers(text, "replicas")
    if min(counts) < 1:
        raise BadInput(f"--replicas {text}: at least 1")
    return counts[0] if len(counts) == 1 else tuple(counts)


def parse_schedule(texts: list[str]) -> tuple[tuple[int, float], ...]:
    """`step=rate` in any order; a step given twice is bad input."""
    rates = parse_pairs(texts, "--schedule")
    for step in rates:
        if not step.isdecimal():
            raise BadInput(f"--schedule: {step!r} is no step; write step=rate, for example 40000=0.01")
    return tuple(sorted((int(step), rate) for step, rate in rates.items()))
