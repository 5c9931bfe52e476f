"""Progress on standard error: a table that fills in, and a bar, on a terminal; plain lines elsewhere."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from polybench.commands.terminal import shown
from polybench.core import units
from polybench.measuring.progress import CellSoFar, Progress

_BAR = 30
"""Characters."""

_OTHER_LINES = 4
"""Beside the rows: the table's header, the stage, the bar, and one to spare."""

_IDENTITY = {"pass": ("identical", "green"), "fail": ("DIFFERS", "bold red"), "skipped": ("", "")}
_STATUS = {"failed": "red", "unavailable": "yellow", "interrupted": "yellow"}


class LiveTable:
    """What is known of each cell, what runs now, and how much is left; redrawn only when something is said.

    There is no refresh thread: while a block is timed, this process sleeps.
    """

    def __init__(self, live: Live, *, repeated: bool = False) -> None:
        self._live = live
        self._repeated = repeated
        self._held: list[str] = []
        self._stage = ""
        self._cells: Sequence[CellSoFar] = ()
        self._began = time.monotonic()
        self._ends_at: float | None = None

    def stage(self, text: str) -> None:
        """Draw anew, with this stage."""
        self._stage = text
        self._draw()

    def remaining(self, seconds: float) -> None:
        """Draw anew, and count down from here."""
        self._ends_at = time.monotonic() + seconds
        self._draw()

    def cells(self, cells: Sequence[CellSoFar]) -> None:
        """Draw anew, with these rows."""
        self._cells = cells
        self._draw()

    def warn(self, text: str) -> None:
        """Print above the table; where the result repeats it, it goes with the table."""
        if self._repeated:
            self._held.append(text)
            self._draw()
        else:
            self._print(text)

    def keep(self) -> None:
        """Have all warnings stay: nothing will repeat them."""
        for text in self._held:
            self._print(text)

    def _print(self, text: str) -> None:
        self._live.console.print(f"warning: {shown(text)}", style="yellow", highlight=False, markup=False)

    def _draw(self) -> None:
        stage = Text(shown(self._stage), style="cyan", overflow="ellipsis", no_wrap=True)
        held = (f"warning: {shown(text)}" for text in self._held)
        warnings = [Text(text, style="yellow", overflow="ellipsis", no_wrap=True) for text in held]
        room = self._live.console.height - _OTHER_LINES - len(warnings)
        rows = [_table(self._cells)] if 0 < len(self._cells) <= room else []
        self._live.update(Group(*warnings, *rows, stage, *self._bar()), refresh=True)

    def _bar(self) -> list[RenderableType]:
        """How much of the study is done; nothing where nobody knows."""
        now = time.monotonic()
        if self._ends_at is None or (left := self._ends_at - now) < 1:
            return []
        line = Table.grid(padding=(0, 2))
        done = now - self._began
        bar = ProgressBar(total=done + left, completed=done, width=_BAR)
        line.add_row(bar, Text(f"about {units.rough_seconds(left)} left", style="dim"))
        return [line]


def _table(cells: Sequence[CellSoFar]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for title in ("cell", "parity", "rounds", "step time"):
        table.add_column(title, justify="left" if title in ("cell", "parity") else "right", no_wrap=True)
    for cell in cells:
        identity, style = _IDENTITY[cell.identity]
        seconds = "" if cell.step_seconds is None else units.seconds(cell.step_seconds)
        outcome = Text(seconds) if cell.status == "ok" else Text(cell.status, style=_STATUS[cell.status])
        table.add_row(shown(cell.name), Text(identity, style=style), str(cell.rounds or ""), outcome)
    return table


class Lines:
    """One line for each stage."""

    def __init__(self, console: Console, quiet: bool) -> None:
        self._console = console
        self._quiet = quiet

    def stage(self, text: str) -> None:
        """Print it, unless quiet."""
        if not self._quiet:
            self._print(text)

    def remaining(self, seconds: float) -> None:
        """Print it, unless quiet."""
        if seconds and not self._quiet:
            self._print(f"about {seconds:.0f} s left")

    def cells(self, cells: Sequence[CellSoFar]) -> None:
        """Nothing: the lines say what runs."""

    def warn(self, text: str) -> None:
        """Print it, quiet or not."""
        self._print(f"warning: {text}", style="yellow")

    def _print(self, text: str, style: str | None = None) -> None:
        self._console.print(shown(text), style=style, highlight=False, markup=False, soft_wrap=True)


class _Console(Console):
    """One whose reader may go away: that is no reason to end a study."""

    def on_broken_pipe(self) -> None:
        self.quiet = True


@contextlib.contextmanager
def progress_on_stderr(*, quiet: bool, verbose: bool, repeated: bool = False) -> Iterator[Progress]:
    """What fits standard error: a live table, plain lines, or with `quiet` warnings only.

    With `repeated`, the result on this terminal has all warnings again: those of the live table go with it.
    """
    console = _Console(stderr=True)
    if quiet or verbose or not console.is_terminal:
        yield Lines(console, quiet)
        return
    with Live(console=console, auto_refresh=False, transient=True) as live:
        table = LiveTable(live, repeated=repeated)
        try:
            yield table
        except BaseException:  # there will be no result
            table.keep()
            raise
