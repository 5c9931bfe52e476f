"""The options that commands share, the parsers of their values, and how a command gets them.

ADD AN OPTION: a field of schema.options.Study, and its row here. A row adds the help to a field and takes its
type and default. A command gets rows by their names, with `with_options`: it is a function of records, and typer
sees the rows instead. The help of a command with many options lists the common ones, `--help-all` the others too.
"""

from __future__ import annotations

import functools
import inspect
import math
import operator
import re
from collections.abc import Callable, Collection, Iterable, Sequence
from copy import copy
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, get_args, get_origin, get_type_hints

import msgspec
import typer

from polybench.cli.completion import column_names, engine_names, model_names, one_of, several_of
from polybench.cli.output import OutputOptions, echo
from polybench.errors import BadInput, lookup_or_suggest, split_names, validation_problem
from polybench.networks import MODELS
from polybench.networks.optimizers import OPTIMIZERS
from polybench.render import FORMATS, check_format
from polybench.schema.metadata import Tag
from polybench.schema.options import (
    MAX_THREADS_PER_CORE,
    QUICK_BUDGET,
    Precision,
    Study,
    environments_of,
    reject_unused_environments,
)
from polybench.storage.filters import Filters, filters_from_text

_SECONDS = {"ms": 1e-3, "s": 1.0, "": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}


def parse_duration(text: str) -> float:
    """Parse `60s`, `1.5m`, `500ms` or plain seconds."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*([a-z]*)\s*", text)
    if match is None or match[2] not in _SECONDS or float(match[1]) == 0:
        raise typer.BadParameter(
            f"invalid duration {text!r}: expected a number above 0 and a unit, such as 60s, 2m or 0.5h"
        )
    return float(match[1]) * _SECONDS[match[2]]


def parse_idle_wait(text: str) -> float:
    """Parse a duration; 0 is allowed."""
    return 0.0 if re.fullmatch(r"\s*0+(\.0*)?\s*[a-z]*\s*", text) else parse_duration(text)


FORMAT_BY_SUFFIX = {".md": "markdown", ".tex": "latex", ".csv": "csv", ".json": "json", ".html": "html"}


def format_of(output: Path | None) -> str:
    """Return the format that a file's ending chooses."""
    return FORMAT_BY_SUFFIX.get(output.suffix.lower(), "table") if output is not None else "table"


def parse_integers(text: str, option: str) -> list[int]:
    """Parse `1,8,32`; raise BadInput for anything else."""
    parts = [part.strip() for part in text.split(",")]
    if not all(re.fullmatch(r"\d{1,18}", part) for part in parts):
        raise BadInput(
            f"--{option.replace('_', '-')} {text}: expected whole numbers separated by commas, such as 1,8,32"
        )
    return [int(part) for part in parts]


def parse_fraction(text: str) -> float:
    """Parse `5%` or `0.05`."""
    number, percent = re.subn(r"\s*%\s*$", "", text)
    try:
        value = float(number) / (100 if percent else 1)
    except ValueError:
        value = 0.0
    if not 0 < value < 1:
        raise typer.BadParameter(f"invalid fraction {text!r}: expected a value between 0 and 1, such as 5% or 0.05")
    return value


def parse_pairs(texts: list[str], option: str, form: str, example: str) -> dict[str, float]:
    """Parse `name=number` pairs; raise BadInput that has their form, such as `DEVICE=DOLLARS`, and an example."""
    expected = f"expected {form} with a finite number above 0, such as {option} {example}"
    pairs: dict[str, float] = {}
    for text in texts:
        name, _, number = text.rpartition("=")
        if name in pairs:
            raise BadInput(f"{option} {text!r}: {name} is given twice; give it once")
        try:
            pairs[name] = float(number)
        except ValueError:
            raise BadInput(f"{option} {text!r}: {expected}") from None
        if not name or not 0 < pairs[name] < math.inf:
            raise BadInput(f"{option} {text!r}: {expected}")
    return pairs


def parse_prices(texts: list[str]) -> dict[str, float]:
    """Parse prices by device; `merge` accepts devices of a host, HOST:DEVICE."""
    return parse_pairs(texts, "--price", "DEVICE=DOLLARS", "cpu=0.24")


def parse_paths(texts: list[str], option: str) -> dict[str, str]:
    """Parse `name=path` pairs; raise BadInput for a repeated name."""
    paths: dict[str, str] = {}
    for text in texts:
        name, _, path = text.partition("=")
        if not name or not path:
            raise BadInput(f"{option} {text!r}: expected name=path, such as {option} old=/path/to/venv")
        if name in paths:
            raise BadInput(f"{option} {text!r}: {name} is given twice; give it once")
        paths[name] = path
    return paths


def parse_precision(text: str) -> str | tuple[str, ...]:
    """Parse `fp32`, or a list such as `fp32,bf16`."""
    names = split_names(text)
    for name in names:
        lookup_or_suggest(name, dict.fromkeys(get_args(Precision)), "precision")
    return names[0] if len(names) == 1 else names


def parse_replicas(text: str) -> int | tuple[int, ...]:
    """Parse `2`, or a list such as `1,2`."""
    counts = parse_integers(text, "replicas")
    if min(counts) < 1:
        raise BadInput(f"--replicas {text}: expected numbers of at least 1")
    return counts[0] if len(counts) == 1 else tuple(counts)


def parse_title(text: str) -> str:
    """Return a title on one line; raise BadInput for an empty one."""
    if not text.split():
        raise BadInput(f"--title {text!r}: expected text, such as --title 'nightly run'")
    return " ".join(text.split())


def parse_tags(texts: list[str]) -> tuple[str, ...]:
    """Return each tag once; raise BadInput for an invalid one."""
    try:
        return tuple(dict.fromkeys(msgspec.convert(text, Tag) for text in texts))
    except msgspec.ValidationError:
        invalid = ", ".join(map(repr, texts))
        raise BadInput(
            f"--tag {invalid}: expected up to 60 letters, digits and . _ : = / + - only, a letter or digit first"
        ) from None


def parse_lr_schedule(texts: list[str]) -> tuple[tuple[int, float], ...]:
    """Parse `step=rate` pairs in any order; raise BadInput for a repeated step."""
    rates = parse_pairs(texts, "--lr-schedule", "STEP=RATE", "40000=0.01")
    for step in rates:
        if not step.isdecimal():
            raise BadInput(f"--lr-schedule: invalid step {step!r}: expected STEP=RATE, such as 40000=0.01")
    return tuple(sorted((int(step), rate) for step, rate in rates.items()))


class Option(NamedTuple):
    """An option: a field of Study or OutputOptions, or a flag of the command itself."""

    field: str
    kind: Any
    """Type that typer parses: `str`, `int | None`, `list[str] | None` ..."""
    info: Any
    """Result of `typer.Option`: spelling, help, panel."""
    default: Any
    """Default, of type `kind`."""
    read: Callable[[Any], Any]
    """Conversion from `kind` to the field's value."""
    is_common: bool
    """Listed by the `--help` of every command that has it."""

    def without_default(self, shown: str) -> Option:
        """Return the option with a default that depends on others, and what `--help` shows of it."""
        info = copy(self.info)
        info.show_default = shown
        return self._replace(kind=self.kind | None, info=info, default=None)


_HINTS = get_type_hints(Study) | get_type_hints(OutputOptions)
_DEFAULTS = msgspec.structs.asdict(Study()) | OutputOptions._field_defaults


def _same(value: Any) -> Any:
    return value


def _option(
    field: str,
    help: str,
    *flags: str,
    kind: Any = None,
    read: Callable[[Any], Any] = _same,
    write: Callable[[Any], Any] = _same,
    is_common: bool = False,
    **more: Any,
) -> Option:
    """Make a row of the table.

    Args:
        field: field of Study or OutputOptions; any other name is a flag.
        help: a sentence for `--help`.
        flags: spellings; by default the field's name.
        kind: type that typer parses; by default the field's type.
        read: conversion from `kind` to the field's value.
        write: the inverse, for the default.
        is_common: whether `--help` lists it even if a command has many options.
        more: arguments of `typer.Option`.
    """
    hint = _HINTS.get(field, bool)
    default = _DEFAULTS.get(field, False)
    if get_origin(hint) is Literal:
        more["autocompletion"] = one_of(get_args(hint))
    return Option(
        field,
        kind=kind or (str if get_origin(hint) is Literal else hint),
        info=typer.Option(*(flags or [f"--{field.replace('_', '-')}"]), help=help, **more),
        default=None if default is None or default == {} else write(default),
        read=read,
        is_common=is_common,
    )


def _panel(title: str, *options: Option) -> dict[str, Option]:
    for option in options:
        option.info.rich_help_panel = title
    return {option.field: option for option in options}


WORKLOAD_PANEL, MEASUREMENT_PANEL, OUTPUT_PANEL = "Workload", "Measurement", "Output"
_MODEL_DEFAULT = "the model's"

WORKLOAD = _panel(
    WORKLOAD_PANEL,
    _option(
        "engines",
        "Engines to compare, with variants and environments: torch,tf,torch+compile,torch@old. An engine may be"
        " repeated. List: polybench engines.",
        kind=str,
        read=split_names,
        write=",".join,
        is_common=True,
        autocompletion=several_of(engine_names),
    ),
    _option(
        "devices",
        "Devices: cpu,cuda,cuda:1.",
        kind=str | None,
        read=split_names,
        is_common=True,
        show_default="every device of this machine",
        autocompletion=several_of(lambda _: ("cpu", "cuda")),
    ),
    _option(
        "env",
        "Environment of engines such as torch@old: --env old=PATH. PATH is a folder with bin/python and that"
        " framework, a Python executable or a Julia project. polybench installs nothing into it.",
        metavar="NAME=PATH",
        kind=list[str] | None,
        read=lambda texts: parse_paths(texts, "--env"),
    ),
    _option(
        "model",
        "Network: a name (list: polybench models), or a network file such as my_net.toml.",
        kind=str,
        is_common=True,
        autocompletion=model_names,
    ),
    _option(
        "data",
        "Data set: cifar10, mnist, imdb, synthetic, or the path of an official archive, of its unpacked"
        " files, or of a folder with one subfolder of images per class. auto: the network's real data set if it"
        " is on disk, else synthetic.",
        is_common=True,
        autocompletion=one_of(("auto", "synthetic", "cifar10", "mnist", "imdb")),
    ),
    _option(
        "inference",
        "Measurement of the forward pass alone: the logits of a batch in evaluation mode, instead of a training step.",
        "--inference",
    ),
    _option("batch_size", "Images or sequences per step.", is_common=True, show_default=_MODEL_DEFAULT),
    _option(
        "optimizer",
        f"Optimizer: {', '.join(OPTIMIZERS)}.",
        show_default=_MODEL_DEFAULT,
        autocompletion=one_of(OPTIMIZERS),
    ),
    _option("learning_rate", "Learning rate of the optimizer.", show_default=_MODEL_DEFAULT),
    _option("momentum", "Momentum of the optimizer.", show_default=_MODEL_DEFAULT),
    _option(
        "weight_decay",
        "L2 penalty: this factor times the weights is added to the gradient.",
        show_default=_MODEL_DEFAULT,
    ),
    _option(
        "lr_schedule",
        "Learning rate from a step on, STEP=RATE: --lr-schedule 40000=0.01 --lr-schedule 60000=0.001.",
        metavar="STEP=RATE",
        kind=list[str] | None,
        read=parse_lr_schedule,
        show_default=_MODEL_DEFAULT,
    ),
    _option(
        "precision",
        "Precision: fp32, tf32 (CUDA only) or bf16, or a list such as fp32,bf16.",
        kind=str,
        read=parse_precision,
        is_common=True,
        autocompletion=several_of(lambda _: get_args(Precision)),
    ),
    _option(
        "input",
        "Source of the batches. preload: all data is on the device before timing starts; pipeline: the engine's"
        " own input pipeline prepares batches during training.",
    ),
    _option(
        "loader_workers",
        "Workers of the input pipeline; 0 prepares batches in the training thread.",
        show_default="the number of threads",
    ),
    _option("augment", "Random flips and crops of the images, with --input pipeline.", "--augment"),
    _option(
        "threads",
        "Threads of every thread pool of every engine.",
        is_common=True,
        show_default="the usable physical cores",
    ),
    _option(
        "oversubscribe",
        f"Permission for more threads than {MAX_THREADS_PER_CORE} times the usable cores.",
        "--oversubscribe",
    ),
    _option(
        "replicas",
        "Data-parallel replicas of the network, which share the batch and the threads; or a list such as 1,2.",
        kind=str,
        read=parse_replicas,
        write=str,
    ),
    _option(
        "malloc",
        "Malloc policy. retain: the process keeps freed memory; system: the C library returns some of it to the"
        " kernel, and steps can lose time to page faults.",
    ),
    _option(
        "pin_cpus", "Pin every worker to the same physical cores, one per thread, away from interrupts.", "--pin-cpus"
    ),
    _option("seed", "Seed of initial weights and batch order."),
)

MEASUREMENT = _panel(
    MEASUREMENT_PANEL,
    _option("processes", "Fresh processes per configuration; confidence intervals are over processes."),
    _option("quick", f"One process and at most {QUICK_BUDGET:g} s of timing, without a verdict.", is_common=True),
    _option("rounds_per_process", "Rounds per process.", show_default="as many as --margin and --budget allow"),
    _option("steps_per_round", "Timed steps per round.", show_default="as many as take half a second"),
    _option("epochs", "Whole epochs to train as well, once per seed.", is_common=True, show_default="none"),
    _option("accuracy", "Evaluation on the test set after each epoch (1 epoch without --epochs).", "--accuracy"),
    _option(
        "target_accuracy", "Test accuracy to train to, such as 0.60; reports the time to reach it.", kind=float | None
    ),
    _option("target_loss", "Test loss to train to, such as 1.9; reports the time to reach it.", kind=float | None),
    _option(
        "margin",
        "Margin of error of each speed-up (half width of its 95 % confidence interval) at which timing stops.",
        parser=parse_fraction,
        metavar="PERCENT",
        write="{:.0%}".format,
    ),
    _option(
        "tolerance",
        "Smallest difference of step times that sentences and verdicts name.",
        parser=parse_fraction,
        metavar="PERCENT",
        write="{:.0%}".format,
    ),
    _option(
        "budget",
        "Time limit for all timed steps of the study.",
        parser=parse_duration,
        metavar="TIME",
        write="{:g}s".format,
    ),
    _option(
        "wait_idle",
        "Total time to wait for an idle machine, before the rounds of a process and after interference.",
        is_common=True,
        parser=parse_idle_wait,
        metavar="TIME",
        write="{:g}s".format,
    ),
    _option(
        "timeout", "Maximum wait for a worker's reply.", parser=parse_duration, metavar="TIME", write="{:g}s".format
    ),
    _option("parity_steps", "Training steps of the parity check."),
    _option("cold_starts", "Starts of each engine's program alone, as in a user's first run; 5 give an interval."),
    _option("recheck", "Repeat the parity check even if a cached result of this machine still applies.", "--recheck"),
    _option(
        "parity",
        "Skip the parity check; no configuration is then called identical.",
        "--no-parity",
        read=operator.not_,
        write=operator.not_,
    ),
    _option(
        "metrics",
        "Measurement of allocations, memory, utilization and energy in addition to time.",
        "--metrics/--no-metrics",
    ),
    _option(
        "injected_delays",
        "Tests only: artificial delay, CONFIGURATION=FRACTION of its step time.",
        "--inject-delay",
        kind=list[str] | None,
        read=lambda texts: parse_pairs(texts, "--inject-delay", "CONFIGURATION=FRACTION", "torch/cpu=0.1"),
        hidden=True,
    ),
    _option("strict", "Exit with 3 before measuring if an engine or device is unavailable."),
    _option("dry_run", "Print the configurations and an estimate of the time; measure nothing."),
)

OUTPUT = _panel(
    OUTPUT_PANEL,
    _option(
        "baseline",
        "Configuration that speed-ups refer to, such as torch/cpu.",
        show_default="torch/cpu if present, else the first",
    ),
    _option(
        "prices",
        "Price in dollars per hour: --price cpu=0.24 --price cuda=3.06; cpu-16=0.12 for a machine with 16 threads.",
        "--price",
        metavar="DEVICE=DOLLARS",
        kind=list[str] | None,
        read=parse_prices,
    ),
    _option(
        "columns",
        "Columns of the table, by name or group, in this order: step_time,speedup,memory. List: polybench columns.",
        show_default="the most important ones that fit; all in csv",
        autocompletion=several_of(column_names),
    ),
    _option("published", "Print the published numbers that a study file refers to below the table.", "--published"),
    _option("format", f"Format: {', '.join(FORMATS)}.", is_common=True, autocompletion=one_of(FORMATS.names)),
    _option(
        "output",
        f"File to write instead of standard output; {', '.join(FORMAT_BY_SUFFIX)} choose the format.",
        "--output",
        "-o",
        is_common=True,
    ),
    _option("results", "Folder of saved studies.", show_default="$POLYBENCH_RESULTS, else the user's data folder"),
    _option("save", "Save the study.", "--save/--no-save"),
    _option("title", "Title of the study, for lists, tables and reports.", read=parse_title),
    _option(
        "tags",
        "Tag of the study, to select it later: polybench list --tag ci. May be repeated.",
        "--tag",
        metavar="TAG",
        kind=list[str] | None,
        read=parse_tags,
    ),
    _option(
        "explain",
        "Explain in words where the time differs; times the layers as well unless saved times apply.",
        "--explain",
    ),
    _option("anonymous", "Omit host name, user and paths from what is saved and printed.", "--anonymous"),
    _option("quiet", "Print only warnings and results.", "--quiet", "-q"),
    _option("verbose", "Print one line per stage, even on a terminal.", "--verbose", "-v"),
)

OPTIONS = WORKLOAD | MEASUREMENT | OUTPUT
"""Every option by field, in the order of the help."""


def format_option(names: Iterable[str], check: Callable[[str], str] | None = None) -> Any:
    """Return the option `--format`; `check` raises BadInput for invalid values, by default those not in `names`."""
    table = {name: name for name in names}

    def checked(name: str) -> str:
        return check(name) if check else lookup_or_suggest(name, table, "format")

    return typer.Option("--format", help=f"Format: {', '.join(table)}.", callback=checked, autocompletion=one_of(table))


TableFormat = Annotated[str, format_option(FORMATS, check_format)]
TableOrJson = Annotated[str, format_option(("table", "json"))]


def parse_filters(
    engine: Annotated[
        str | None,
        typer.Option("--engine", help="Engine: torch selects any variant, torch+compile this one. Wildcards: * and ?."),
    ] = None,
    model: Annotated[str | None, typer.Option("--model", help="Network: lenet or catdog-*, for example.")] = None,
    device: Annotated[
        str | None, typer.Option("--device", help="Device of a configuration: cpu or cuda*, for example.")
    ] = None,
    host: Annotated[str | None, typer.Option("--host", help="Host name of the machine.")] = None,
    since: Annotated[str | None, typer.Option("--since", help="First date: 2026-11-01 (UTC).")] = None,
    until: Annotated[str | None, typer.Option("--until", help="Last date, inclusive: 2026-11-30 (UTC).")] = None,
    version: Annotated[
        list[str] | None,
        typer.Option(
            "--version",
            metavar="PACKAGE=VERSION",
            help="Version of a package: torch=2.13 selects 2.13.0 and 2.13.1. May be repeated.",
        ),
    ] = None,
    title: Annotated[str | None, typer.Option("--title", help="Title: nightly*, for example.")] = None,
    tag: Annotated[
        list[str] | None, typer.Option("--tag", metavar="TAG", help="Tag: ci or lr=*, for example. May be repeated.")
    ] = None,
) -> Filters:
    """Parse the filters; raise BadInput for an invalid date or version."""
    given = {"engine": engine, "model": model, "device": device, "host": host, "since": since, "until": until}
    return filters_from_text(given | {"title": title}, version or (), tag or ())


def make_study(**fields: Any) -> Study:
    """Make a study of fields; raise BadInput that names the option for a value outside its range."""
    try:
        study = _with_network(msgspec.convert(fields, Study))
        reject_unused_environments(study)
        return study
    except msgspec.ValidationError as error:
        text = str(error)
        match = re.search(r"\$\.(\w+)", text)
        field = match[1] if match else ""
        words = get_args(get_type_hints(Study).get(field))
        given = fields.get(field)
        if "enum" in text and given not in words:  # the field accepts a few words only
            lookup_or_suggest(str(given), dict.fromkeys(words), field)
        option = f"--{field.replace('_', '-')}" if field else "the study"
        raise BadInput(f"{option}: {validation_problem(error)}") from error
    except UnicodeEncodeError as error:
        raise BadInput(f"invalid name {error.object!r}: expected UTF-8 text") from error


def _with_network(study: Study) -> Study:
    """Do the same as `study_file.with_network`, but without loading NumPy for polybench's own networks."""
    if study.model in MODELS:
        return study
    from polybench.planning.study_file import with_network

    return with_network(study)


class Overrides:
    """Fields of a study that were given on the command line."""

    def __init__(self, **fields: Any) -> None:
        self._fields = fields

    def gives(self, field: str) -> bool:
        """Return True if this field was given."""
        return field in self._fields

    def apply(self, study: Study) -> Study:
        """Return the study with these fields; raise BadInput if they do not fit together.

        If `engines` are overridden, environments that no engine uses any more are removed.
        """
        fields = msgspec.structs.asdict(study) | self._fields
        if "engines" in self._fields and "env" not in self._fields:
            fields["env"] = environments_of(fields["engines"], study.env)
        return make_study(**fields)


def reject_given(context: typer.Context, names: Collection[str], reason: str) -> None:
    """Raise BadInput with the reason for an option of these parameters that is on the command line."""
    for parameter in context.command.params:
        source = context.get_parameter_source(parameter.name or "")
        if parameter.name in names and source is not None and source.name == "COMMANDLINE":
            spellings = parameter.opts if context.params[parameter.name] is not False else parameter.secondary_opts
            raise BadInput(f"{(spellings or parameter.opts)[0]}: {reason}")


Command = Callable[..., None]

_STUDY = Study.__struct_fields__
_RECORDS: dict[Any, tuple[tuple[str, ...], Callable[..., Any]]] = {
    Study: (_STUDY, make_study),
    Overrides: (_STUDY, Overrides),
    OutputOptions: (OutputOptions._fields, OutputOptions),
}
"""Type of a parameter -> its fields, and the function that builds it from the given ones."""

MAX_LISTED = 15
"""Options that `--help` lists; commands with more of them list the common ones, and have `--help-all`."""

RARE = "rare"
"""Marks, in its annotation, an option of a command's own that is not common."""


def _print_whole_help(context: typer.Context, requested: bool) -> None:
    if requested:
        context.command.rare_options = frozenset()  # type: ignore[attr-defined]  # see commands.Command
        echo(context.get_help())
        raise typer.Exit


_HELP_ALL = "help_all"
_HelpAll = Annotated[
    bool, typer.Option("--help-all", callback=_print_whole_help, is_eager=True, help="Show all options and exit.")
]

_OWN_OPTIONS: dict[Any, Callable[..., Any]] = {Filters: parse_filters}
"""Type of a parameter -> the function that builds it, whose parameters are options outside the table."""


def with_options(*names: str) -> Callable[[Command], Command]:
    """Add options of the table to a command.

    The value of each option goes to the parameter of its name, or into the field of its name in a parameter
    that is a Study, OutputOptions or Overrides. Overrides, and parameters whose default is None, have the study's own
    value if the option is not given. A parameter of type Filters adds
    the options of `parse_filters`. Own options with a help panel follow those of the table. The attribute
    `rare_options` has the names of options that only `--help-all` lists.
    """

    def decorate(function: Command) -> Command:
        declared = inspect.signature(function, eval_str=True).parameters
        records = {
            name: _RECORDS[parameter.annotation]
            for name, parameter in declared.items()
            if parameter.annotation in _RECORDS
        }
        builders = {
            name: _OWN_OPTIONS[parameter.annotation]
            for name, parameter in declared.items()
            if parameter.annotation in _OWN_OPTIONS
        }
        builder_options = {name: inspect.signature(build, eval_str=True).parameters for name, build in builders.items()}
        has_overrides = any(parameter.annotation is Overrides for parameter in declared.values())
        rows = [OPTIONS[name] for name in sorted(names, key=list(OPTIONS).index)]

        @functools.wraps(function)
        def command(**values: Any) -> None:
            values.pop(_HELP_ALL, None)
            if "format" in values:
                values["format"] = values["format"] or format_of(values.get("output"))
            parsed = [(row, values.pop(row.field)) for row in rows]
            given = {row.field: row.read(value) for row, value in parsed if value not in (None, [])}
            values |= {name: given.pop(name) for name in declared if name in given}
            values |= {
                name: build(**{option: values.pop(option) for option in builder_options[name]})
                for name, build in builders.items()
            }
            for name, (fields, build) in records.items():
                values[name] = build(**{field: given.pop(field) for field in fields if field in given})
            function(**values, **given)

        own = [option for options in builder_options.values() for option in options.values()]
        own += [parameter for name, parameter in declared.items() if name not in {*records, *builders, *names}]
        parameters = [parameter.replace(kind=parameter.KEYWORD_ONLY) for parameter in own]
        optional = {name for name, parameter in declared.items() if parameter.default is None}
        parameters += [_parameter(row, is_the_study_s=has_overrides or row.field in optional) for row in rows]
        parameters.sort(key=_has_panel_of_its_own)
        command.rare_options = rare = _rare_options(parameters)  # type: ignore[attr-defined]
        if rare:
            parameters.append(
                inspect.Parameter(_HELP_ALL, inspect.Parameter.KEYWORD_ONLY, default=False, annotation=_HelpAll)
            )
        command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        return command

    def _has_panel_of_its_own(parameter: inspect.Parameter) -> bool:
        """Return True for an option of the command itself that stands in one of the table's panels."""
        panels = (getattr(info, "rich_help_panel", None) for info in getattr(parameter.annotation, "__metadata__", ()))
        return parameter.name not in names and any(panels)

    return decorate


def _rare_options(parameters: Sequence[inspect.Parameter]) -> frozenset[str]:
    """Return the names of the options that only `--help-all` lists, if a command has many."""
    if sum(map(_is_option, parameters)) <= MAX_LISTED:
        return frozenset()
    return frozenset(parameter.name for parameter in parameters if _is_rare(parameter))


def _is_option(parameter: inspect.Parameter) -> bool:
    metadata = getattr(parameter.annotation, "__metadata__", ())
    return not any(isinstance(one, typer.models.ArgumentInfo) for one in metadata)


def _is_rare(parameter: inspect.Parameter) -> bool:
    """Return True for an option that only `--help-all` lists; own options have the table's row of their name."""
    row = OPTIONS.get(parameter.name)
    return RARE in getattr(parameter.annotation, "__metadata__", ()) if row is None else not row.is_common


def _parameter(row: Option, *, is_the_study_s: bool) -> inspect.Parameter:
    if row.field == "format":
        row = row.without_default("that of the output's ending, else table")
    elif is_the_study_s and row.field in _STUDY:
        row = row.without_default("the study's")
    return inspect.Parameter(
        row.field, inspect.Parameter.KEYWORD_ONLY, default=row.default, annotation=Annotated[row.kind, row.info]
    )
