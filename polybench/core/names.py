"""Names that users write: taken apart, and looked up in one of polybench's tables."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from typing import NamedTuple, TypeVar

from polybench.core.errors import BadInput

T = TypeVar("T")

_ENVIRONMENT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


class EngineName(NamedTuple):
    """What may be asked for: an engine, then its variants, then an environment: `torch+compile@nightly`.

    The name of a cell goes on with its device, its precision where that is not the study's first, and its
    number where the same one is asked for again: `torch+compile@nightly/cpu/bf16#2`.
    """

    engine: str
    variants: tuple[str, ...] = ()
    """Sorted; empty means the plain engine."""
    environment: str | None = None
    """A name of `--env`; None is the Python that polybench runs in, and the Julia that it finds."""

    @classmethod
    def read(cls, text: str) -> EngineName:
        """Take the name apart; whether there are such an engine and such variants is for their tables.

        Raises:
            BadInput: what follows the @ is no name of an environment.
        """
        way, at, environment = text.partition("@")
        engine, *variants = way.split("+")
        if "+" in environment:
            last, _, late = environment.partition("+")
            raise BadInput(f"{text!r}: the environment comes last; write {way}+{late}@{last}")
        return cls(engine, tuple(sorted(variants)), check_environment(environment) if at else None)

    def __str__(self) -> str:
        way = "+".join((self.engine, *self.variants))
        return way if self.environment is None else f"{way}@{self.environment}"


def check_environment(name: str) -> str:
    """The same name; raises BadInput where no environment may be called so."""
    if not _ENVIRONMENT.fullmatch(name):
        raise BadInput(
            f"{name!r} is no name of an environment: letters, digits and . _ - only, a letter or digit first"
        )
    return name


_ALSO_CALLED = {"tensorflow": "tf", "pytorch": "torch", "julia": "flux", "flux.jl": "flux"}
"""What others call engines; no name of theirs here, but what is meant is known."""


def pick(name: str, table: Mapping[str, T], what: str) -> T:
    """The entry `name` of `table`; `what` says what an entry is, its noun first.

    `variant of torch`, say, for a message that lists the "variants of torch".

    Raises:
        BadInput: there is no such entry; the message has the nearest valid names, then all of them.
    """
    if name in table:
        return table[name]
    meant = _ALSO_CALLED.get(name.lower(), "")
    matches = [meant] if meant in table else difflib.get_close_matches(name, table)
    near = " or ".join(map(repr, matches))
    question = f"did you mean {near}? " if near else ""
    noun, *rest = what.split(" ")
    plural = " ".join((f"{noun}s", *rest))
    valid = f"{plural} are: {', '.join(sorted(table))}" if table else f"there are no {plural}"
    raise BadInput(f"unknown {what} {name!r}; {question}{valid}")


def split_names(text: str) -> tuple[str, ...]:
    """`a,b,c`, spaces and empty parts ignored."""
    return tuple(part for name in text.split(",") if (part := name.strip()))
