"""The typer app: wiring only."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from polybench.commands.allocations import allocations
from polybench.commands.columns import columns
from polybench.commands.compare import compare
from polybench.commands.data import app as data
from polybench.commands.diff import diff
from polybench.commands.doctor import doctor
from polybench.commands.engines import engines
from polybench.commands.explain import explain
from polybench.commands.history import history
from polybench.commands.layers import layers
from polybench.commands.limit import limit
from polybench.commands.list import list_studies
from polybench.commands.merge import merge
from polybench.commands.models import models
from polybench.commands.overhead import overhead
from polybench.commands.parity import parity
from polybench.commands.plot import plot
from polybench.commands.report import report
from polybench.commands.resume import resume
from polybench.commands.run import run
from polybench.commands.setup import app as setup
from polybench.commands.show import show
from polybench.commands.sweep import sweep
from polybench.commands.terminal import echo, prepare_stdout, shown
from polybench.commands.view import view
from polybench.commands.weights import weights
from polybench.core import interrupts
from polybench.core.errors import PolybenchError
from polybench.core.version import __version__

app = typer.Typer(
    help="Train the identical network in Flux.jl, PyTorch, TensorFlow and others, and compare what it costs.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command()(compare)
app.command()(run)
app.command()(resume)
app.command()(layers)
app.command()(parity)
app.command()(sweep)
app.command()(overhead)
app.command()(limit)
app.command()(allocations)
app.command()(weights)
app.command("list")(list_studies)
app.command()(show)
app.command()(explain)
app.command()(diff)
app.command()(history)
app.command()(merge)
app.command()(plot)
app.command()(report)
app.command()(view)
app.command()(engines)
app.command()(models)
app.command()(columns)
app.command()(doctor)
app.add_typer(data, name="data")
app.add_typer(setup, name="setup")


def _version(wanted: bool) -> None:
    if wanted:
        echo(f"polybench {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


def main() -> None:
    """Run the program; expected errors become one line on standard error and an exit code."""
    prepare_stdout()
    code = _exit_code()
    interrupts.ignore()
    sys.exit(code)


def _exit_code() -> int:  # noqa: PLR0911 - one for each way to end
    try:
        return int(app(standalone_mode=False) or 0)
    except _UsageError as error:
        return _usage(error)
    except PolybenchError as error:
        return _say(f"error: {error}", error.exit_code)
    except KeyboardInterrupt:
        return _say("interrupted; nothing was measured yet", 130)
    except BrokenPipeError:
        return _say("", 1)  # whoever read our output went away
    except MemoryError:
        return _say("error: out of memory", 1)
    except OSError as error:
        if error.errno is None:  # not from the system
            raise
        return _say(f"error: {error.strerror}{f': {error.filename}' if error.filename else ''}", 1)


_UsageError: Any = typer.BadParameter.__mro__[1]
"""What typer raises for a command line that it does not understand; it has no public name there."""


def _usage(error: Any) -> int:
    """The same one line as for input that polybench refuses; where nothing was asked, the help."""
    context = error.ctx
    if context is None or not sys.argv[1:] or type(error).__name__ == "NoArgsIsHelpError":
        error.show()  # the help
        return int(error.exit_code)
    message = error.format_message().rstrip(".")
    return _say(f"error: {message}; see {context.command_path} --help", int(error.exit_code))


def _say(text: str, code: int) -> int:
    if text:
        print(shown(text), file=sys.stderr)
    return code
