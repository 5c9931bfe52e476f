"""Progress on standard error: a live table with a progress bar on a terminal, plain lines otherwise."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from polybench.schema import units
from polybench.schema.printable import printable

if TYPE_CHECKING:
    from polybench.runner.progress import ConfigurationProgress, PhaseProgress

_BAR_WIDTH = 30
"""Characters."""

_TICK_SECONDS = 1.0

_OTHER_LINES = 5
"""Lines in addition to the rows and warnings: the table's header, the stage, the bar, the phase and a spare one."""

_PARITY = {"pass": ("same", "green"), "fail": ("DIFFERS", "bold red"), "skipped": ("", "")}
_STATUS_STYLES = {"failed": "red", "unavailable": "yellow", "interrupted": "yellow"}


class _Warnings:
    """Prints warnings at once, or defers them because the result on this terminal repeats them."""

    def __init__(self, console: Console, *, repeats_warnings: bool) -> None:
        self._console = console
        self._repeats_warnings = repeats_warnings
        self._warnings: list[str] = []

    def on_warning(self, text: str) -> None:
        """Print a warning, even if quiet, or defer it."""
        if self._repeats_warnings:
            self._warnings.append(text)
        else:
            self._print_warning(text)

    def flush_warnings(self, repeated: Collection[str] = ()) -> None:
        """Print the deferred warnings that the result does not repeat; those of a cluster begin with a machine."""
        for text in dict.fromkeys(self._warnings):
            if not text.endswith(tuple(repeated)):
                self._print_warning(text)

    def _print_warning(self, text: str) -> None:
        self._print(f"warning: {text}", style="yellow")

    def _print(self, text: str, style: str | None = None) -> None:
        self._console.print(printable(text), style=style, highlight=False, markup=False, soft_wrap=True)


class LiveTable(_Warnings):
    """Table of the configurations, the current stage, phase and the remaining time.

    Its methods draw it, and `ticking` does so every second, but not while a block is timed: then this process sleeps.
    """

    def __init__(self, live: Live, *, repeats_warnings: bool = False) -> None:
        super().__init__(live.console, repeats_warnings=repeats_warnings)
        self._live = live
        self._stage = ""
        self._configurations: Sequence[ConfigurationProgress] = ()
        self._started_at = time.monotonic()
        self._ends_at: float | None = None
        self._phase: PhaseProgress | None = None
        self._phase_started_at = 0.0
        self._may_tick = threading.Event()

    def on_stage(self, text: str) -> None:
        """Show the stage."""
        self._stage = text
        self._draw()

    def on_time_left(self, seconds: float) -> None:
        """Show the remaining time."""
        self._ends_at = time.monotonic() + seconds
        self._draw()

    def on_phase(self, phase: PhaseProgress) -> None:
        """Show the phase with its duration, and the bar."""
        self._phase, self._phase_started_at = phase, time.monotonic()
        if phase.is_timed:
            self._may_tick.clear()
        else:
            self._may_tick.set()
        self._draw()

    def on_configurations(self, configurations: Sequence[ConfigurationProgress]) -> None:
        """Show the rows."""
        self._configurations = configurations
        self._draw()

    def on_warning(self, text: str) -> None:
        """Print a warning, or show it as long as the table."""
        super().on_warning(text)
        if self._repeats_warnings:
            self._draw()

    @contextlib.contextmanager
    def ticking(self) -> Iterator[None]:
        """Draw the table every second in phases without timing."""
        stopped = threading.Event()

        def tick() -> None:
            while not stopped.wait(_TICK_SECONDS):
                self._may_tick.wait()
                if not stopped.is_set():
                    self._draw()

        thread = threading.Thread(target=tick, daemon=True)
        thread.start()
        try:
            yield
        finally:
            stopped.set()
            self._may_tick.set()
            thread.join()

    def _draw(self) -> None:
        stage = Text(printable(self._stage), style="cyan", overflow="ellipsis", no_wrap=True)
        texts = (f"warning: {printable(text)}" for text in self._warnings)
        warnings = [Text(text, style="yellow", overflow="ellipsis", no_wrap=True) for text in texts]
        free_lines = self._live.console.height - _OTHER_LINES - len(warnings)
        fits = 0 < len(self._configurations) <= free_lines
        rows = [_table(self._configurations)] if fits else []
        self._live.update(Group(*warnings, *rows, stage, *self._bar()), refresh=True)

    def _bar(self) -> list[RenderableType]:
        """Return the progress bar over process runs and rounds with elapsed and remaining time, and the phase below."""
        if self._phase is None:
            return []
        now = time.monotonic()
        minutes, seconds = divmod(round(now - self._started_at), 60)
        times = f"{minutes}:{seconds:02} elapsed"
        if self._ends_at is not None and self._ends_at - now >= 1:
            times += f", about {units.format_rough_seconds(self._ends_at - now)} left"
        line = Table.grid(padding=(0, 2))
        bar = [] if self._phase.done is None else [ProgressBar(total=1.0, completed=self._phase.done, width=_BAR_WIDTH)]
        line.add_row(*bar, Text(times, style="dim"))
        return [line, Text(self._phase_text(now), style="dim", no_wrap=True)]

    def _phase_text(self, now: float) -> str:
        """Return the phase with its seconds so far; a timed one is not redrawn."""
        assert self._phase is not None
        name = printable(self._phase.name)
        return name if self._phase.is_timed else f"{name}: {now - self._phase_started_at:.0f} s"


def _table(configurations: Sequence[ConfigurationProgress]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for title in ("engine", "parity", "rounds", "step time"):
        table.add_column(title, justify="left" if title in ("engine", "parity") else "right", no_wrap=True)
    for configuration in configurations:
        parity, style = _PARITY[configuration.parity]
        status, seconds = configuration.status, configuration.step_seconds
        if status == "ok":
            outcome = Text("" if seconds is None else units.format_seconds(seconds))
        else:
            outcome = Text(status, style=_STATUS_STYLES[status])
        table.add_row(
            printable(configuration.name), Text(parity, style=style), str(configuration.rounds or ""), outcome
        )
    return table


class LineProgress(_Warnings):
    """Prints one line per stage."""

    def __init__(self, console: Console, *, quiet: bool, repeats_warnings: bool) -> None:
        super().__init__(console, repeats_warnings=repeats_warnings)
        self._quiet = quiet

    def on_stage(self, text: str) -> None:
        """Print the stage, unless quiet."""
        if not self._quiet:
            self._print(text)

    def on_time_left(self, seconds: float) -> None:
        """Print the remaining time, unless quiet."""
        if seconds and not self._quiet:
            self._print(f"about {seconds:.0f} s left")

    def on_phase(self, phase: PhaseProgress) -> None:
        """Do nothing: the stages are enough."""

    def on_configurations(self, configurations: Sequence[ConfigurationProgress]) -> None:
        """Do nothing: the stages are enough."""


StderrProgress = LiveTable | LineProgress


@contextlib.contextmanager
def progress_on_stderr(*, quiet: bool, verbose: bool, repeats_warnings: bool = False) -> Iterator[StderrProgress]:
    """Report progress on standard error.

    Args:
        quiet: print warnings only.
        verbose: print plain lines even on a terminal.
        repeats_warnings: the printed result repeats warnings, so that they are deferred: those that it lacks are
            printed by `flush_warnings`, and all of them if an exception prevents the result.
    """
    console = Console(stderr=True)
    progress: StderrProgress
    with contextlib.ExitStack() as stack:
        if quiet or verbose or not console.is_terminal:
            progress = LineProgress(console, quiet=quiet, repeats_warnings=repeats_warnings)
        else:
            live = stack.enter_context(Live(console=console, auto_refresh=False, transient=True))
            progress = LiveTable(live, repeats_warnings=repeats_warnings)
            stack.enter_context(progress.ticking())
        try:
            yield progress
        except BaseException:  # no result follows
            progress.flush_warnings()
            raise
