"""The command-line program: its commands, and errors as messages and exit codes."""

from __future__ import annotations

import sys
import traceback
import warnings
from typing import Annotated, Any

import typer

from polybench.cli.commands import Program
from polybench.cli.output import echo, flush_stdout, prepare_streams
from polybench.errors import EngineUnavailable, PolybenchError, __version__, import_name_conflict
from polybench.machine import interrupts
from polybench.plugins import PluginWarning, blame
from polybench.schema.printable import printable

app = typer.Typer(
    cls=Program,
    help="Train the identical network in Flux, PyTorch, TensorFlow, JAX and Keras, and compare their speed.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(requested: bool) -> None:
    if requested:
        echo(f"polybench {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    pass


def main() -> None:
    """Run the program; an expected error becomes one line on standard error and an exit code."""
    prepare_streams()
    warnings.showwarning = _show_warning
    sys.excepthook = _print_bug
    if (conflict := import_name_conflict()) is not None:
        print(f"warning: {conflict}", file=sys.stderr)
    try:
        command = typer.main.get_command(app)  # `app()` would replace sys.excepthook
        code = int(command(standalone_mode=False) or 0)
    except (*_EXPECTED, _UsageError) as error:
        code = _report_error(error)
    interrupts.ignore()
    sys.exit(flush_stdout(code))


_EXPECTED = (PolybenchError, KeyboardInterrupt, MemoryError, UnicodeEncodeError, OSError)


def _report_error(error: BaseException) -> int:  # noqa: PLR0911 - one return per kind of error
    """Print one line for an expected error, and return its exit code; raise any other again."""
    match error:
        case _UsageError():
            return _report_usage(error)
        case PolybenchError():
            hint = f": {error.hint}" if isinstance(error, EngineUnavailable) else ""
            return _report(f"error: {error}{hint}", error.exit_code)
        case KeyboardInterrupt():
            return _report("interrupted; nothing was measured yet", 130)
        case BrokenPipeError():
            return _report("", 1)  # the reader of standard output is gone
        case MemoryError():
            return _report("error: out of memory", 1)
        case UnicodeEncodeError() if "surrogates" in error.reason:
            hint = "expected UTF-8: rename it, or set LC_ALL=C.UTF-8 if the terminal's names are UTF-8"
            return _report(f"error: a path or option is not UTF-8: {error.object!a}: {hint}", 2)
        case OSError() if error.errno is not None:  # else it is not one of the operating system
            return _report(f"error: {error.strerror}{f': {error.filename}' if error.filename else ''}", 1)
    raise error


_UsageError: Any = typer.BadParameter.__mro__[1]
"""The class of typer's errors for an invalid command line; typer does not export it."""


def _report_usage(error: Any) -> int:
    """Print one line for an invalid command line, or the help without any arguments."""
    context = error.ctx
    if context is None or not sys.argv[1:] or type(error).__name__ == "NoArgsIsHelpError":
        error.show()  # the help
        return int(error.exit_code)
    message = error.format_message().rstrip(".")
    return _report(f"error: {message}; see {context.command_path} --help", int(error.exit_code))


_show_any_warning = warnings.showwarning


def _show_warning(message: Warning | str, category: type[Warning], *place: Any, **options: Any) -> None:
    if category is PluginWarning:
        echo(f"warning: {message}", err=True)
    else:
        _show_any_warning(message, category, *place, **options)


def _print_bug(_: type[BaseException], error: BaseException, __: object) -> None:
    """Print the traceback of a bug in polybench, or one line for a bug in another package."""
    message = blame(error)
    echo(f"error: {message}\n" if message else "".join(traceback.format_exception(error)), err=True, nl=False)


def _report(text: str, code: int) -> int:
    if text:
        print(printable(text), file=sys.stderr)
    return code
