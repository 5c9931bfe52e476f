"""The Pythons of a study's environments, each found once."""

from __future__ import annotations

from pathlib import Path

from polybench.core.errors import Unavailable
from polybench.core.spec import Cell
from polybench.planning.environments import Place, place_of
from polybench.planning.plan import Plan, row
from polybench.wire.interpreter import OWN, Interpreter, interpreter


class Environments:
    """What starts the workers of a plan's cells.

    Args:
        plan: with the environments.
        folder: for what is lent to them, which must outlive their workers.
    """

    def __init__(self, plan: Plan, folder: Path) -> None:
        self._plan, self._folder = plan, folder
        self._found: dict[str, Interpreter | Unavailable] = {}

    def place(self, cell: Cell) -> Place:
        """Where the cell runs."""
        return place_of(cell, row(cell), self._plan.study.env)

    def interpreter(self, cell: Cell) -> Interpreter:
        """The Python that runs it; raises Unavailable where that cannot be."""
        python = self.place(cell).python
        if python is None:
            return OWN
        if python not in self._found:
            try:
                self._found[python] = interpreter(python, self._folder / str(len(self._found)))
            except Unavailable as missing:
                self._found[python] = missing
        found = self._found[python]
        if isinstance(found, Unavailable):
            raise found
        return found
