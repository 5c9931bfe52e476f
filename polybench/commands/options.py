"""The options that several commands share: declared once; their defaults are those of core.spec.Study."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, get_args

import typer

from polybench.core.errors import BadInput
from polybench.core.names import pick
from polybench.core.optimizers import OPTIMIZERS
from polybench.core.spec import Precision, Study
from polybench.metrics import GROUPS, METRICS

DEFAULTS = Study()
DEFAULT_ENGINES = ",".join(DEFAULTS.engines)
DEFAULT_PRECISION = ",".join(DEFAULTS.precisions)

_SECONDS = {"ms": 1e-3, "s": 1.0, "": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}


def parse_duration(text: str) -> float:
    """`60s`, `1.5m`, `500ms`, or plain seconds."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*([a-z]*)\s*", text)
    if match is None or match[2] not in _SECONDS or float(match[1]) == 0:
        raise typer.BadParameter(f"{text!r} is no duration above 0; write 60s, 2m or 0.5h")
    return float(match[1]) * _SECONDS[match[2]]


def parse_fraction(text: str) -> float:
    """`5%` or `0.05`."""
    number, percent = re.subn(r"\s*%\s*$", "", text)
    try:
        value = float(number) / (100 if percent else 1)
    except ValueError:
        value = 0.0
    if not 0 < value < 1:
        raise typer.BadParameter(f"{text!r} is no fraction between 0 and 1; write 5% or 0.05")
    return value


def split_names(text: str) -> tuple[str, ...]:
    """`a,b,c`, spaces and empty parts ignored."""
    return tuple(part for name in text.split(",") if (part := name.strip()))


def parse_pairs(texts: list[str], option: str) -> dict[str, float]:
    """`name=number`; a name given twice is bad input."""
    pairs: dict[str, float] = {}
    for text in texts:
        name, _, number = text.rpartition("=")
        if name in pairs:
            raise BadInput(f"{option} {text!r}: {name} is given twice; give it once")
        try:
            pairs[name] = float(number)
        except ValueError:
            raise BadInput(f"{option} {text!r}: write name=number, for example {option} cpu=0.24") from None
        if not name or pairs[name] <= 0:
            raise BadInput(f"{option} {text!r}: write name=number with a number above 0")
    return pairs


def parse_precision(text: str) -> str | tuple[str, ...]:
    """`fp32`, or several: `fp32,bf16`."""
    names = split_names(text)
    for name in names:
        pick(name, dict.fromkeys(get_args(Precision)), "precision")
    return names[0] if len(names) == 1 else names


def parse_schedule(texts: list[str] | None) -> tuple[tuple[int, float], ...] | None:
    """`step=rate` in any order; None where nothing is given, a step given twice is bad input."""
    if not texts:
        return None
    rates = parse_pairs(texts, "--schedule")
    for step in rates:
        if not step.isdecimal():
            raise BadInput(f"--schedule: {step!r} is no step; write step=rate, for example 40000=0.01")
    return tuple(sorted((int(step), rate) for step, rate in rates.items()))


def make_study(**fields: Any) -> Study:
    """The study with these fields; a value outside its range is bad input that names the option."""
    import msgspec

    try:
        return msgspec.convert(fields, Study)
    except msgspec.ValidationError as error:
        text = str(error)
        field = re.search(r"\$\.(\w+)", text)
        option = f"--{field[1].replace('_', '-')}" if field else "the study"
        raise BadInput(f"{option}: {text.partition(' - at')[0]}") from error


_WHAT = "What is measured"
_HOW = "How it is measured"
_OUT = "What comes out"


def _option(panel: str, *names: str, help: str, **more: Any) -> Any:
    return typer.Option(*names, help=help, rich_help_panel=panel, **more)


Engines = Annotated[
    str, _option(_WHAT, "--engines", help="Names and variants: torch,tf,torch+compile. Repeats are allowed.")
]
Devices = Annotated[
    str | None, _option(_WHAT, "--devices", help="cpu,cuda,cuda:1", show_default="all that the machine has")
]
ModelName = Annotated[str, _option(_WHAT, "--model", help="The network.")]
Data = Annotated[
    str,
    _option(
        _WHAT,
        "--data",
        help="auto (CIFAR-10 if it is on disk, else synthetic), synthetic, cifar10, the path of an"
        " official archive or of the folder that it unpacks to, or of a folder of images, one class a"
        " subfolder.",
    ),
]
BatchSize = Annotated[
    int | None, _option(_WHAT, "--batch-size", help="Images a step.", show_default="the model's own")
]
OptimizerName = Annotated[
    str | None,
    _option(_WHAT, "--optimizer", help=f"{', '.join(OPTIMIZERS)}.", show_default="the model's own"),
]
LearningRate = Annotated[
    float | None, _option(_WHAT, "--learning-rate", help="For the optimizer.", show_default="the model's own")
]
Momentum = Annotated[
    float | None, _option(_WHAT, "--momentum", help="For the optimizer.", show_default="the model's own")
]
WeightDecay = Annotated[
    float | None,
    _option(
        _WHAT,
        "--weight-decay",
        help="Times the weights, added to the gradient.",
        show_default="the model's own",
    ),
]
Schedule = Annotated[
    list[str] | None,
    _option(
        _WHAT,
        "--schedule",
        help="Another rate from a step on: --schedule 40000=0.01 --schedule 60000=0.001",
        show_default="the model's own",
    ),
]
PrecisionName = Annotated[
    str, _option(_WHAT, "--precision", help="fp32, tf32 (cuda only) or bf16; several: fp32,bf16.")
]
InputName = Annotated[
    str,
    _option(
        _WHAT,
        "--input",
        help="preload: all data is on the device before a step is timed; pipeline: each engine's own input"
        " pipeline prepares batches during training.",
    ),
]
Workers = Annotated[
    int | None,
    _option(
        _WHAT,
        "--workers",
        help="Of the input pipeline; 0 prepares batches in the thread that trains.",
        show_default="as many as threads",
    ),
]
Augment = Annotated[
    bool,
    _option(_WHAT, "--augment", help="Flip and shift the images, in an input pipeline."),
]
Threads = Annotated[
    int | None,
    _option(
        _WHAT, "--threads", help="Of every pool of every engine.", show_default="the usable physical cores"
    ),
]
Seed = Annotated[int, _option(_WHAT, "--seed", help="Draws initial weights and batches.")]

Processes = Annotated[
    int, _option(_HOW, "--processes", help="Fresh processes for each cell: the unit of every interval.")
]
Quick = Annotated[
    bool, _option(_HOW, "--quick", help="One process and a timed part of 10 s at most: no verdict.")
]
Rounds = Annotated[
    int | None,
    _option(
        _HOW, "--rounds", help="In each process.", show_default="as many as the target and the budget ask for"
    ),
]
Steps = Annotated[
    int | None, _option(_HOW, "--steps", help="Timed steps in a round.", show_default="about half a second")
]
Epochs = Annotated[
    int | None,
    _option(
        _HOW, "--epochs", help="Also train for this many whole epochs, once a seed.", show_default="none"
    ),
]
Accuracy = Annotated[
    bool, _option(_HOW, "--accuracy", help="Evaluate on the test images after each epoch (1 by default).")
]
Until = Annotated[
    str | None,
    _option(_HOW, "--until", help="accuracy=0.60: train until then, and tell how long it took."),
]
Target = Annotated[
    float,
    _option(
        _HOW, "--target", parser=parse_fraction, metavar="PERCENT", help="Half width of a ratio's interval."
    ),
]
Budget = Annotated[
    float,
    _option(_HOW, "--budget", parser=parse_duration, metavar="TIME", help="Of the whole study's timed part."),
]
Timeout = Annotated[
    float,
    _option(_HOW, "--timeout", parser=parse_duration, metavar="TIME", help="Of one request to a worker."),
]
ParitySteps = Annotated[
    int, _option(_HOW, "--parity-steps", help="Training steps that the identity check follows.")
]
NoParity = Annotated[
    bool, _option(_HOW, "--no-parity", help="Skip the identity check; no row is then called identical.")
]
Metrics = Annotated[
    bool,
    _option(
        _HOW, "--metrics/--no-metrics", help="Look at allocations, memory, utilization and energy as well."
    ),
]
DryRun = Annotated[bool, _option(_HOW, "--dry-run", help="Print the cells and a time; run nothing.")]
Strict = Annotated[
    bool,
    _option(_HOW, "--strict", help="Exit with 3 when an engine or device is missing, measuring nothing."),
]

Baseline = Annotated[
    str | None,
    _option(
        _OUT,
        "--baseline",
        help="The cell that others are compared with.",
        show_default="torch/cpu, else the first",
    ),
]
Prices = Annotated[
    list[str] | None, _option(_OUT, "--price", help="Dollars an hour: --price cpu=0.24 --price cuda=3.06")
]
Columns = Annotated[
    str | None,
    _option(
        _OUT,
        "--columns",
        help=f"Metrics to show, in this order: {', '.join(METRICS)}; or a group: {', '.join(GROUPS)}.",
        show_default="the important ones that fit; every one in csv",
    ),
]
Published = Annotated[
    bool,
    _option(_OUT, "--published", help="Show the author's numbers below the table, where a file has any."),
]
Format = Annotated[str, _option(_OUT, "--format", help="table, markdown, csv, json or latex.")]
Output = Annotated[Path | None, _option(_OUT, "--output", help="Write to a file instead of standard output.")]
Results = Annotated[
    Path | None,
    _option(
        _OUT,
        "--results",
        help="Folder of saved studies.",
        show_default="$POLYBENCH_RESULTS, else the user's data",
    ),
]
Save = Annotated[bool, _option(_OUT, "--save/--no-save", help="Keep the study.")]
Quiet = Annotated[bool, _option(_OUT, "--quiet", "-q", help="Only warnings and results.")]
Verbose = Annotated[
    bool, _option(_OUT, "--verbose", "-v", help="One line for each stage, even on a terminal.")
]
