"""The options that commands share. ADD AN OPTION: a field of core.spec.Study, and its row here.

A row says only what its field does not: type and default are the field's. A command takes rows by their
names with `commands.signature.takes`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from copy import copy
from typing import Annotated, Any, Literal, NamedTuple, get_origin, get_type_hints

import msgspec
import typer

from polybench.commands.presentation import Presentation
from polybench.commands.texts import (
    parse_duration,
    parse_fraction,
    parse_pairs,
    parse_paths,
    parse_patience,
    parse_precision,
    parse_replicas,
    parse_schedule,
)
from polybench.core.names import split_names
from polybench.core.optimizers import OPTIMIZERS
from polybench.core.spec import Study
from polybench.export import FORMATS
from polybench.metrics import GROUPS, METRICS


class Option(NamedTuple):
    """One option: a field of Study or Presentation, or a flag of the command itself."""

    field: str
    kind: Any
    """What typer makes of the text: `str`, `int | None`, `list[str] | None` ..."""
    info: Any
    """What `typer.Option` made: spelling, help, panel."""
    default: Any
    """In `kind`."""
    read: Callable[[Any], Any]
    """From `kind` to the field's value."""

    def without_default(self) -> Option:
        """The same for a study that exists already: it keeps its own where nothing is given."""
        info = copy(self.info)
        info.show_default = "the study's"
        return self._replace(kind=self.kind | None, info=info, default=None)


_HINTS = get_type_hints(Study) | get_type_hints(Presentation)
_DEFAULTS = msgspec.structs.asdict(Study()) | Presentation._field_defaults


def _same(value: Any) -> Any:
    return value


def _option(
    field: str,
    help: str,
    *flags: str,
    kind: Any = None,
    read: Callable[[Any], Any] = _same,
    write: Callable[[Any], Any] = _same,
    **more: Any,
) -> Option:
    """A row of the table.

    Args:
        field: of Study or Presentation; what is a field of neither is a flag.
        help: one sentence for `--help`.
        flags: its spelling, by default that of the field.
        kind: what typer reads, by default the field's type.
        read: from `kind` to the field's value.
        write: the way back, for the default.
        more: for `typer.Option`.
    """
    hint = _HINTS.get(field, bool)
    default = _DEFAULTS.get(field, False)
    return Option(
        field,
        kind=kind or (str if get_origin(hint) is Literal else hint),
        info=typer.Option(*(flags or [f"--{field.replace('_', '-')}"]), help=help, **more),
        default=None if default is None or default == {} else write(default),
        read=read,
    )


def _panel(title: str, *options: Option) -> dict[str, Option]:
    for option in options:
        option.info.rich_help_panel = title
    return {option.field: option for option in options}


_MODELS_OWN = "the model's own"

WHAT = _panel(
    "What is measured",
    _option(
        "engines",
        "Names, variants and environments: torch,tf,torch+compile,torch@old. Repeats are allowed. All:"
        " polybench engines.",
        kind=str,
        read=split_names,
        write=",".join,
    ),
    _option(
        "devices",
        "cpu,cuda,cuda:1",
        kind=str | None,
        read=split_names,
        show_default="all that the machine has",
    ),
    _option(
        "env",
        "An environment, for engines named torch@old: --env old=PATH, a folder with bin/python and that"
        " framework, such a program, or a Julia project. Nothing is installed into it.",
        kind=list[str] | None,
        read=lambda texts: parse_paths(texts, "--env"),
    ),
    _option("model", "The network, or a file of your own, my_net.toml; all: polybench models.", kind=str),
    _option(
        "data",
        "auto (CIFAR-10, MNIST or IMDb if it is on disk and fits the network, else synthetic), synthetic,"
        " cifar10, mnist, imdb, the path of an official archive or of the folder that it unpacks to, of a"
        " folder with MNIST's files, or of a folder of images, one class a subfolder.",
    ),
    _option("batch_size", "Images or sequences a step.", show_default=_MODELS_OWN),
    _option("optimizer", f"{', '.join(OPTIMIZERS)}.", show_default=_MODELS_OWN),
    _option("learning_rate", "For the optimizer.", show_default=_MODELS_OWN),
    _option("momentum", "For the optimizer.", show_default=_MODELS_OWN),
    _option("weight_decay", "Times the weights, added to the gradient.", show_default=_MODELS_OWN),
    _option(
        "schedule",
        "Another rate from a step on: --schedule 40000=0.01 --schedule 60000=0.001",
        kind=list[str] | None,
        read=parse_schedule,
        show_default=_MODELS_OWN,
    ),
    _option(
        "precision",
        "fp32, tf32 (cuda only) or bf16; several: fp32,bf16.",
        kind=str,
        read=parse_precision,
    ),
    _option(
        "input",
        "preload: all data is on the device before a step is timed; pipeline: each engine's own input"
        " pipeline prepares batches during training.",
    ),
    _option(
        "workers",
        "Of the input pipeline; 0 prepares batches in the thread that trains.",
        show_default="as many as threads",
    ),
    _option("augment", "Flip and shift the images, in an input pipeline.", "--augment"),
    _option("threads", "Of every pool of every engine.", show_default="the usable physical cores"),
    _option(
        "replicas",
        "Of the network, each training on its part of every batch; they share the threads. Several: 1,2.",
        kind=str,
        read=parse_replicas,
        write=str,
    ),
    _option(
        "heap",
        "keep: memory that is freed stays in the process; system: the C library's own rule, by which steps"
        " may lose time to page faults, or not.",
    ),
    _option(
        "pin",
        "Every worker on the same physical cores, as many as threads, near each other and not where"
        " interrupts arrive.",
        "--pin",
    ),
    _option("seed", "Draws initial weights and batches."),
)

HOW = _panel(
    "How it is measured",
    _option("processes", "Fresh processes for each cell: the unit of every interval."),
    _option("quick", "One process and a timed part of 10 s at most: no verdict."),
    _option("rounds", "In each process.", show_default="as many as the target and the budget ask for"),
    _option("steps", "Timed steps in a round.", show_default="about half a second"),
    _option("epochs", "Also train for this many whole epochs, once a seed.", show_default="none"),
    _option("accuracy", "Evaluate on the test images after each epoch (1 by default).", "--accuracy"),
    _option(
        "until",
        "accuracy=0.60: train until then, and tell how long it took.",
        kind=str | None,
        read=lambda text: parse_pairs([text], "--until"),
    ),
    _option(
        "target",
        "Half width of a ratio's interval.",
        parser=parse_fraction,
        metavar="PERCENT",
        write="{:.0%}".format,
    ),
    _option(
        "budget",
        "Of the whole study's timed part.",
        parser=parse_duration,
        metavar="TIME",
        write="{:g}s".format,
    ),
    _option(
        "patience",
        "Wait for a quiet machine, before the rounds of a process and after a disturbance; in all.",
        parser=parse_patience,
        metavar="TIME",
        write="{:g}s".format,
    ),
    _option(
        "timeout",
        "Of one request to a worker.",
        parser=parse_duration,
        metavar="TIME",
        write="{:g}s".format,
    ),
    _option("parity_steps", "Training steps that the identity check follows."),
    _option(
        "recheck",
        "Check identity again; else a check that passed before on this machine is taken, if nothing of what"
        " it was of has changed.",
        "--recheck",
    ),
    _option(
        "parity",
        "Skip the identity check; no row is then called identical.",
        "--no-parity",
        read=operator.not_,
        write=operator.not_,
    ),
    _option(
        "metrics", "Look at allocations, memory, utilization and energy as well.", "--metrics/--no-metrics"
    ),
    _option(
        "handicaps",
        "Test only: cell=fraction.",
        "--handicap",
        kind=list[str] | None,
        read=lambda texts: parse_pairs(texts, "--handicap"),
        hidden=True,
    ),
    _option("strict", "Exit with 3 when an engine or device is missing, measuring nothing."),
    _option("dry_run", "Print the cells and a time; run nothing."),
)

OUT = _panel(
    "What comes out",
    _option(
        "baseline",
        "The cell that others are compared with.",
        show_default="torch/cpu, else the first",
    ),
    _option(
        "prices",
        "Dollars an hour: --price cpu=0.24 --price cuda=3.06; of a machine with so many threads: cpu-16=0.12",
        "--price",
        kind=list[str] | None,
        read=lambda texts: parse_pairs(texts, "--price"),
    ),
    _option(
        "columns",
        f"Metrics to show, in this order: {', '.join(METRICS)}; or a group: {', '.join(GROUPS)}."
        " What they are: polybench columns.",
        show_default="the important ones that fit; every one in csv",
    ),
    _option("published", "Show the author's numbers below the table, where a file has any.", "--published"),
    _option("format", f"{', '.join(FORMATS)}."),
    _option("output", "Write to a file instead of standard output."),
    _option("results", "Folder of saved studies.", show_default="$POLYBENCH_RESULTS, else the user's data"),
    _option("save", "Keep the study.", "--save/--no-save"),
    _option(
        "explain",
        "Also say in words where the time differs; layers are measured, too, unless they are saved already.",
        "--explain",
    ),
    _option("tensorboard", "A folder for event files: one run a cell, to be watched with TensorBoard."),
    _option("mlflow", "A tracking server or folder of MLflow, to which each cell is written as a run."),
    _option("anonymous", "Leave host name, user and paths out of what is saved and printed.", "--anonymous"),
    _option("quiet", "Only warnings and results.", "--quiet", "-q"),
    _option("verbose", "One line for each stage, even on a terminal.", "--verbose", "-v"),
)

OPTIONS = WHAT | HOW | OUT
"""By field, in the order of the help."""

TableOrJson = Annotated[str, typer.Option("--format", help="table or json.")]
"""`--format` of commands that print something else than a study's table."""
