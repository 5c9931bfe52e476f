"""Names that users write: taken apart, and looked up in one of polybench's tables."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import TypeVar

from polybench.core.errors import BadInput

T = TypeVar("T")


def pick(name: str, table: Mapping[str, T], what: str) -> T:
    """The entry `name` of `table`; `what` says what an entry is, its noun first.

    `variant of torch`, say, for a message that lists the "variants of torch".

    Raises:
        BadInput: there is no such entry; the message has the nearest valid names, then all of them.
    """
    if name in table:
        return table[name]
    near = " or ".join(repr(match) for match in difflib.get_close_matches(name, table))
    question = f"did you mean {near}? " if near else ""
    noun, *rest = what.split(" ")
    plural = " ".join((f"{noun}s", *rest))
    valid = f"{plural} are: {', '.join(sorted(table))}" if table else f"there are no {plural}"
    raise BadInput(f"unknown {what} {name!r}; {question}{valid}")


def split_names(text: str) -> tuple[str, ...]:
    """`a,b,c`, spaces and empty parts ignored."""
    return tuple(part for name in text.split(",") if (part := name.strip()))
