"""Table of commands. ADD A COMMAND: a file with its function, and its row here.

`--help` lists these rows without importing a command: the options of all commands take longer than its text.
"""

from __future__ import annotations

import inspect
from pkgutil import resolve_name
from typing import Any, NamedTuple

import typer
from rich.markup import escape
from typer.core import TyperCommand, TyperGroup

from polybench.cli.output import remember_arguments


class CommandSpec(NamedTuple):
    """Summary and location of a command.

    Attributes:
        summary: first paragraph of the command's help, before the docstring of its function.
        function: module and function in this package, as in "module:function", if they have another name.
    """

    summary: str
    function: str = ""


PANELS: dict[str, dict[str, CommandSpec]] = {
    "Measure": {
        "compare": CommandSpec("Train the identical network in several engines and compare speed, memory and cost."),
        "run": CommandSpec("Run a study file or repeat a saved study; options override the study's own settings."),
        "sweep": CommandSpec(
            "Measure every combination of the given values as a study; --budget covers all of them together."
        ),
        "overhead": CommandSpec(
            "Fit the fixed cost of a step and the cost per input over batch sizes; --budget covers all of them."
        ),
        "layers": CommandSpec(
            "Time each layer's operations alone (forward, input gradient, weight gradient), engines side by side."
        ),
        "peak": CommandSpec(
            "Measure the peak throughput of this machine: matrix products, the network's convolutions, and memory."
        ),
        "parity": CommandSpec(
            "Check the training, or the forward pass, of each engine against the float64 reference, tensor by tensor."
        ),
    },
    "Results": {
        "list": CommandSpec(
            "List saved studies, sweeps and overheads, oldest first, including corrupt and resumable ones.",
            "list:list_studies",
        ),
        "show": CommandSpec(
            "Print a saved study in any format, or another saved document in the formats of its command."
        ),
        "diff": CommandSpec("Compare two saved studies: is each configuration faster or slower than before?"),
        "explain": CommandSpec("Explain why configurations of a saved study differ in speed, without measuring."),
        "plot": CommandSpec("Draw a figure of a saved study, sweep, overhead or another document."),
        "report": CommandSpec(
            "Write an HTML report of saved studies: tables, figures, explanations, parity checks and programs."
        ),
        "resume": CommandSpec(
            "Resume an interrupted study or sweep; finished measurements are not repeated.", "run:resume"
        ),
    },
    "Your own code": {
        "import": CommandSpec(
            "Turn a model written for PyTorch, Keras or Flux into a network file with its weights, and prove it.",
            "importing:import_model",
        ),
        "export": CommandSpec("Write a network as plain code of a framework, with its weights."),
        "trace": CommandSpec("Compare recorded trainings: find where two of them part, and why.", "trace:app"),
    },
    "Versions and machines": {
        "versions": CommandSpec("Compare two releases of a package, or two commits of a checkout, side by side."),
        "bisect": CommandSpec("Find the release or commit at which an engine's step became slower or faster."),
        "history": CommandSpec(
            "Show the step time of each configuration over saved studies, with change points and package versions."
        ),
        "merge": CommandSpec("Merge saved studies of one workload on several machines into one table."),
    },
    "Information and set-up": {
        "engines": CommandSpec(
            "List the engines and their variants, what has to be installed for each, and whether it is."
        ),
        "models": CommandSpec("List the networks, or show one: layers, output shapes, parameters and multiply-adds."),
        "columns": CommandSpec(
            "List the columns of a study's table: unit, direction of improvement, groups and description."
        ),
        "doctor": CommandSpec("Check this machine and say what to do first: engines, devices, meters, load and data."),
        "setup": CommandSpec("Install what an engine needs in addition to its Python package.", "setup:app"),
        "data": CommandSpec("Download, verify or locate CIFAR-10.", "data:app"),
    },
}
"""Commands by their name, below the headings of `--help`."""


class Program(TyperGroup):
    """The program, which remembers its command line for the documents."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        for panel, rows in PANELS.items():
            for name, spec in rows.items():
                self.add_command(_ListedCommand(name, panel, spec))

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Remember the arguments, and parse those before the command."""
        remember_arguments(args)
        return super().parse_args(ctx, args)


class _ListedCommand(TyperCommand):
    """A command as `--help` and completion list it: `load` returns the command itself, with its options."""

    def __init__(self, name: str, panel: str, spec: CommandSpec) -> None:
        super().__init__(name, help=escape(spec.summary), rich_help_panel=panel)
        self.function = spec.function or f"{name}:{name}"

    def load(self) -> Any:
        function = resolve_name(f"{__package__}.{self.function}")
        program = typer.Typer(rich_markup_mode="rich")
        if isinstance(function, typer.Typer):
            program.add_typer(function, name=self.name, help=self.help)
        else:
            program.command(self.name, cls=_Command, help=f"{self.help}\n\n{_paragraphs(function)}")(function)
        (command,) = typer.main.get_group(program).commands.values()
        if isinstance(command, _Command):
            command.rare_options = getattr(function, "rare_options", frozenset())
        return command

    def make_context(self, *arguments: Any, **options: Any) -> Any:
        return self.load().make_context(*arguments, **options)


class _Command(TyperCommand):
    """A command whose help shows no type of flags, which take no value, and no rare options."""

    rare_options: frozenset[str] = frozenset()
    """Names of the options that its help leaves out; see `options.with_options`."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        every = self.params
        self.params = [param for param in every if param.name not in self.rare_options]
        super().format_help(ctx, formatter)
        self.params = every

    def get_params(self, ctx: Any) -> list[Any]:
        params = super().get_params(ctx)
        for param in params:
            if getattr(param, "is_flag", False):
                param.metavar = ""
        return params


def _paragraphs(function: Any) -> str:
    """Return a docstring with one line per paragraph, for typer to wrap at the terminal's width."""
    paragraphs = inspect.cleandoc(function.__doc__ or "").split("\n\n")
    return escape("\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs))
