"""What an experiment returns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, NamedTuple, TypeVar

from polybench.schema.metadata import Document

D_co = TypeVar("D_co", bound=Document, covariant=True)


class Outcome(NamedTuple, Generic[D_co]):
    """A document, the IDs of the logs that were measured for it, and the text of the last one.

    `notes` are sentences about other files that were written.
    """

    document: D_co
    ids: Sequence[str]
    log: bytes = b""
    notes: Sequence[str] = ()
