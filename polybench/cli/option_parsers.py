"""Parsers of option values: durations, fractions, names and pairs."""

from __future__ import annotations

import math
import re
from typing import get_args

import typer

from polybench.errors import BadInput, lookup_or_suggest, split_names
from polybench.schema.options import Precision

_SECONDS = {"ms": 1e-3, "s": 1.0, "": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}


def parse_duration(text: str) -> float:
    """Parse `60s`, `1.5m`, `500ms` or plain seconds."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*([a-z]*)\s*", text)
    if match is None or match[2] not in _SECONDS or float(match[1]) == 0:
        raise typer.BadParameter(
            f"invalid duration {text!r}: expected a number above 0 and a unit, such as 60s, 2m or 0.5h"
        )
    return float(match[1]) * _SECONDS[match[2]]


def parse_idle_wait(text: str) -> float:
    """Parse a duration; 0 is allowed."""
    return 0.0 if re.fullmatch(r"\s*0+\s*[a-z]*\s*", text) else parse_duration(text)


def parse_integers(text: str, option: str) -> list[int]:
    """Parse `1,8,32`; raise BadInput for anything else."""
    parts = [part.strip() for part in text.split(",")]
    if not all(re.fullmatch(r"\d{1,18}", part) for part in parts):
        raise BadInput(
            f"--{option.replace('_', '-')} {text}: expected whole numbers separated by commas, such as 1,8,32"
        )
    return [int(part) for part in parts]


def parse_fraction(text: str) -> float:
    """Parse `5%` or `0.05`."""
    number, percent = re.subn(r"\s*%\s*$", "", text)
    try:
        value = float(number) / (100 if percent else 1)
    except ValueError:
        value = 0.0
    if not 0 < value < 1:
        raise typer.BadParameter(f"invalid fraction {text!r}: expected a value between 0 and 1, such as 5% or 0.05")
    return value


def parse_pairs(texts: list[str], option: str) -> dict[str, float]:
    """Parse `name=number` pairs; raise BadInput for a repeated name."""
    pairs: dict[str, float] = {}
    for text in texts:
        name, _, number = text.rpartition("=")
        if name in pairs:
            raise BadInput(f"{option} {text!r}: {name} is given twice; give it once")
        try:
            pairs[name] = float(number)
        except ValueError:
            raise BadInput(f"{option} {text!r}: expected name=number, such as {option} cpu=0.24") from None
        if not name or not 0 < pairs[name] < math.inf:
            raise BadInput(f"{option} {text!r}: expected name=number with a finite number above 0")
    return pairs


def parse_paths(texts: list[str], option: str) -> dict[str, str]:
    """Parse `name=path` pairs; raise BadInput for a repeated name."""
    paths: dict[str, str] = {}
    for text in texts:
        name, _, path = text.partition("=")
        if not name or not path:
            raise BadInput(f"{option} {text!r}: expected name=path, such as {option} old=/path/to/venv")
        if name in paths:
            raise BadInput(f"{option} {text!r}: {name} is given twice; give it once")
        paths[name] = path
    return paths


def parse_precision(text: str) -> str | tuple[str, ...]:
    """Parse `fp32`, or a list such as `fp32,bf16`."""
    names = split_names(text)
    for name in names:
        lookup_or_suggest(name, dict.fromkeys(get_args(Precision)), "precision")
    return names[0] if len(names) == 1 else names


def parse_replicas(text: str) -> int | tuple[int, ...]:
    """Parse `2`, or a list such as `1,2`."""
    counts = parse_integers(text, "replicas")
    if min(counts) < 1:
        raise BadInput(f"--replicas {text}: expected numbers of at least 1")
    return counts[0] if len(counts) == 1 else tuple(counts)


def parse_lr_schedule(texts: list[str]) -> tuple[tuple[int, float], ...]:
    """Parse `step=rate` pairs in any order; raise BadInput for a repeated step."""
    rates = parse_pairs(texts, "--lr-schedule")
    for step in rates:
        if not step.isdecimal():
            raise BadInput(
                f"--lr-schedule: invalid step {step!r}: expected step=rate, such as --lr-schedule 40000=0.01"
            )
    return tuple(sorted((int(step), rate) for step, rate in rates.items()))
