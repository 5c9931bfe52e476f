"""Names that users write: parsing, and lookup in a table with suggestions."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from typing import NamedTuple, TypeVar

from polybench.core import old_names
from polybench.core.errors import BadInput

T = TypeVar("T")

_ENVIRONMENT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


class EngineName(NamedTuple):
    """An engine with its variants and environment: `torch+compile@nightly`.

    The name of a configuration appends the device, the precision if it is not the study's first, and a number
    if the same configuration is requested again: `torch+compile@nightly/cpu/bf16#2`.
    """

    engine: str
    variants: tuple[str, ...] = ()
    """Sorted; empty for the plain engine."""
    environment: str | None = None
    """A name of `--env`; None is the Python that runs polybench, and the Julia that it finds."""

    @classmethod
    def parse(cls, text: str) -> EngineName:
        """Split the name without checking that the engine and its variants exist.

        Raises:
            BadInput: the part after the @ is not a valid name of an environment.
        """
        plain, at, environment = text.partition("@")
        engine, *variants = plain.split("+")
        if "+" in environment:
            environment, _, variant = environment.partition("+")
            raise BadInput(f"{text!r}: the environment must come last; write {plain}+{variant}@{environment}")
        return cls(engine, tuple(sorted(variants)), check_environment(environment) if at else None)

    def __str__(self) -> str:
        plain = "+".join((self.engine, *self.variants))
        return plain if self.environment is None else f"{plain}@{self.environment}"


def check_environment(name: str) -> str:
    """Return `name`; raises BadInput if it is not a valid name of an environment."""
    if not _ENVIRONMENT.fullmatch(name):
        raise BadInput(
            f"invalid environment name {name!r}: expected letters, digits and . _ - only, a letter or digit first"
        )
    return name


_ALIASES = {"tensorflow": "tf", "pytorch": "torch", "julia": "flux", "flux.jl": "flux"}
"""Common names of engines that are not names here, for suggestions."""


def lookup_or_suggest(name: str, table: Mapping[str, T], what: str) -> T:
    """Return the entry `name` of `table`; `what` describes an entry, its noun first.

    For example, `variant of torch` becomes "variants of torch" in a message that lists them.

    Raises:
        BadInput: the name is unknown; the message has the nearest valid names, then all of them.
    """
    if name in table:
        return table[name]
    if (renamed := old_names.NAMES.get(name)) in table:
        raise BadInput(f"unknown {what} {name!r}: it is now {renamed!r}")
    alias = _ALIASES.get(name.lower(), "")
    matches = [alias] if alias in table else difflib.get_close_matches(name, table)
    nearest = " or ".join(map(repr, matches))
    question = f"did you mean {nearest}? " if nearest else ""
    noun, *rest = what.split(" ")
    plural = " ".join((f"{noun}s", *rest))
    valid = f"{plural} are: {', '.join(sorted(table))}" if table else f"the list of {plural} is empty"
    raise BadInput(f"unknown {what} {name!r}; {question}{valid}")


def split_names(text: str) -> tuple[str, ...]:
    """Split `a,b,c`; spaces and empty parts are ignored."""
    return tuple(part for name in text.split(",") if (part := name.strip()))
