"""Progress on standard error: one live line on a terminal, plain lines elsewhere."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from polybench.commands.terminal import shown
from polybench.measuring.progress import Progress


class LiveLine:
    """A single line that is redrawn only when something is said.

    There is no refresh thread: while a block is timed, this process sleeps.
    """

    def __init__(self, live: Live, *, repeated: bool = False) -> None:
        self._live = live
        self._repeated = repeated
        self._held: list[str] = []
        self._stage = ""
        self._ends_at: float | None = None

    def stage(self, text: str) -> None:
        """Draw the line anew, with this stage."""
        self._stage = text
        self._draw()

    def remaining(self, seconds: float) -> None:
        """Draw the line anew, and count down from here."""
        self._ends_at = time.monotonic() + seconds
        self._draw()

    def warn(self, text: str) -> None:
        """Print above the line; where the result repeats it, it goes with the line."""
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
        line = Text(shown(self._stage), style="cyan", overflow="ellipsis", no_wrap=True)
        if self._ends_at is not None and (left := self._ends_at - time.monotonic()) >= 1:
            line.append(f"  about {left:.0f} s left", style="dim")
        held = (f"warning: {shown(text)}" for text in self._held)
        warnings = (Text(text, style="yellow", overflow="ellipsis", no_wrap=True) for text in held)
        self._live.update(Group(*warnings, line), refresh=True)


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
    """What fits standard error: a live line, plain lines, or with `quiet` warnings only.

    With `repeated`, the result on this terminal has all warnings again: those of the live line go with it.
    """
    console = _Console(stderr=True)
    if quiet or verbose or not console.is_terminal:
        yield Lines(console, quiet)
        return
    with Live(console=console, auto_refresh=False, transient=True) as live:
        line = LiveLine(live, repeated=repeated)
        try:
            yield line
        except BaseException:  # there will be no result
            line.keep()
            raise
