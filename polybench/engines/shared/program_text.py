"""Writes what the programs of all frameworks in Python have in common: first lines, start of `load`, learning rate."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from polybench.engines.shared.main_part import MainPart
from polybench.networks.layers import Shape
from polybench.networks.model import Model
from polybench.networks.optimizers import Optimizer
from polybench.networks.source_text import escape

_STANDARD_LIBRARY = (
    *("import json", "import math", "import os", "import re", "import sys", "import time"),
    *("from collections.abc import Callable", "from dataclasses import dataclass", "from functools import partial"),
    *("from pathlib import Path", "from statistics import median", "from time import perf_counter"),
)


def program(
    title: str, sections: Iterable[str], libraries: Iterable[str], main: MainPart, environment: Sequence[str] = ()
) -> str:
    """Return a program of these sections and its main part, with the imports of what they use.

    `libraries` are the lines that import other packages than the standard library, and `environment` those before them.
    """
    code = "\n\n\n".join(section.rstrip() for section in (*sections, main.text) if section)
    usage = f"\n\n{main.usage}\n" if main.usage else ""
    standard = _used(_STANDARD_LIBRARY, "\n".join([*environment, code]))
    return "\n".join([
        f'"""{escape(title)}{usage}"""',
        "",
        *([*main.first, ""] if main.first else []),
        *([*standard, ""] if standard else []),
        *([*environment, ""] if environment else []),
        *_used(libraries, code),
        *(["", ""] if code.startswith(("class ", "def ")) else [""]),
        code,
        "",
    ])  # fmt: skip


def _used(imports: Iterable[str], code: str) -> list[str]:
    """Return the lines that import what the code uses, without other names, as ruff sorts them."""
    found = []
    for line in imports:
        start, _, names = line.rpartition("import ")
        if used := [name for name in names.split(", ") if _is_used(name.rpartition(" ")[2], code)]:
            found.append(f"{start}import {', '.join(used)}")
    return sorted(found, key=lambda line: (line.startswith("from"), line))


def _is_used(name: str, code: str) -> bool:
    """Return True if the code calls this name or its attributes, or has it as a decorator or as a field's type."""
    return re.search(rf'(?<![\w."]){name}(\.\w|\()|^@{name}$|: {name}$', code, re.MULTILINE) is not None


def start_of_load(model: Model, end: str = "") -> list[str]:
    """Return the first lines of the function `load`; `end` is the last part of its docstring."""
    name = batch_name(model)
    described = f"{name} {_with_batch(model.input_shape)}"
    if model.vocabulary_size is not None:
        described += " of tokens"
    elif name == "images":
        described += " in 0..1"
    return [
        f"def load({name}, labels):",
        f'    """Move {described} and labels {_with_batch(model.label_shape)} to the device{end}."""',
    ]


def batch_name(model: Model) -> str:
    """Return the parameter of `load` for the inputs: images or sequences."""
    return f"{model.input_kind}s"


def _with_batch(shape: Shape) -> str:
    return f"({', '.join(['batch', *map(str, shape)])})" if shape else "(batch,)"


def schedule(optimizer: Optimizer) -> Iterator[str]:
    """Yield the lines of `learning_rate(step)`, which is `optimizer.learning_rate_at`; a cosine needs `math`."""
    rate = optimizer.learning_rate
    yield "def learning_rate(step):"
    if optimizer.warmup_steps:
        yield f"    if step < {optimizer.warmup_steps}:"
        yield f"        return {rate!r} * (step + 1) / {optimizer.warmup_steps + 1}"
    if optimizer.cosine_steps:
        low, warmup = optimizer.min_learning_rate, optimizer.warmup_steps
        since = f"(step - {warmup})" if warmup else "step"
        yield f"    progress = min(1.0, {since} / {optimizer.cosine_steps - warmup})"
        start, span = (f"{low!r} + ", f"({rate!r} - {low!r})") if low else ("", f"{rate!r}")
        yield f"    return {start}0.5 * (1 + math.cos(math.pi * progress)) * {span}"
        return
    for before, later in optimizer.lr_schedule:
        yield f"    if step < {before}:"
        yield f"        return {rate!r}"
        rate = later
    yield f"    return {rate!r}"
