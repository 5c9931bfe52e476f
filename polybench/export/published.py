"""The block of an author's own numbers, kept apart from everything that was measured."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, get_args

from polybench.core import units
from polybench.core.document.circumstances import Compared, Published
from polybench.core.document.result import Result
from polybench.core.document.sweep import SweepPoint, SweptCell
from polybench.core.spec import Workload
from polybench.metrics import METRICS

TITLE = "published (not measured here)"
HEADER = ["what", "hardware", "quantity", "value"]
BESIDE = ["here", "ratio"]
"""What this study found of the same, and how many times as much the author's is."""

_WORDS: dict[Compared, tuple[Callable[[float], str], str]] = {
    "epoch_time": (units.seconds, "times as long"),
    "step_time": (units.seconds, "times as long"),
    "throughput": (units.count, "times as many"),
    "steps_per_second": (units.count, "times as many"),
    "device_speedup": (units.number, "times"),
    "accuracy": (units.number, "times as high"),
}
"""How our own value is shown, and what the ratio is called."""


class Measured(NamedTuple):
    """One cell that was measured here."""

    cell: str
    workload: Workload
    values: Mapping[str, float | str | None]
    """Metric -> value, of those that an author's number can be compared with."""
    epochs: int | None = None
    """After which the accuracy was measured; None where trainings took different numbers of them."""


def of_study(results: Sequence[Result]) -> list[Measured]:
    """Its ranked cells."""
    return [
        Measured(
            result.cell,
            result.workload,
            {name: METRICS[name].value(result) for name in get_args(Compared)},
            _epochs(result),
        )
        for result in results
        if result.ranked
    ]


def _epochs(result: Result) -> int | None:
    numbers = {len(training.epochs) for training in result.trainings if training.complete}
    return numbers.pop() if len(numbers) == 1 else None


def of_sweep(points: Sequence[SweepPoint]) -> list[Measured]:
    """The ranked cells of all points, the fastest first: the best point that does the same counts."""
    cells = [
        Measured(cell.cell, point.workload, _swept(cell))
        for point in points
        if point.workload is not None
        for cell in point.cells
        if cell.speedup is not None
    ]
    return sorted(cells, key=lambda one: -float(one.values["throughput"] or 0))


def _swept(cell: SweptCell) -> dict[str, float | str | None]:
    seconds = cell.seconds_per_step
    return {
        "epoch_time": cell.epoch_seconds,
        "step_time": seconds,
        "throughput": cell.samples_per_second,
        "steps_per_second": 1 / seconds if seconds else None,
    }


def header(published: Sequence[Published], here: Sequence[Measured] = ()) -> list[str]:
    """Of `rows`: with our own numbers where one of the cells repeats what an author measured."""
    return [*HEADER, *BESIDE] if any(_ours(number, here) for number in published) else HEADER


def rows(published: Sequence[Published], here: Sequence[Measured] = ()) -> list[list[str]]:
    """One row a number, in the order of the study file; `here` is what was measured here."""
    beside = len(header(published, here)) > len(HEADER)
    return [
        [number.label, number.hardware, number.quantity, f"{_digits(number.value)} {number.unit}".rstrip()]
        + (_beside(number, here) if beside else [])
        for number in published
    ]


def _beside(number: Published, here: Sequence[Measured]) -> list[str]:
    ours = _ours(number, here)
    if not ours:
        return ["", ""]
    theirs = number.value if isinstance(number.value, tuple) else (number.value,)
    ratios = sorted(one / other for one in (min(theirs), max(theirs)) for other in (min(ours), max(ours)))
    show, times = _WORDS[number.metric]
    who = number.cell or units.plural(len(ours), "cell")
    return [f"{who} {_span(show, ours)}", f"{_span(units.number, ratios)} {times}"]


def _span(show: Callable[[float], str], values: Sequence[float]) -> str:
    """The least and the greatest, or the only one."""
    return " to ".join(dict.fromkeys((show(min(values)), show(max(values)))))


def _ours(number: Published, here: Sequence[Measured]) -> list[float]:
    """What the cells that repeat the author's have of the same metric, for as many epochs or steps.

    Of a named cell the first that was measured.
    """
    values = (one.values.get(number.metric) for one in here if _repeats(number, one))
    found = [number.times * value for value in values if isinstance(value, float) and value]
    return found[:1] if number.cell else found


def _repeats(number: Published, here: Measured) -> bool:
    """Whether it is the cell, and trains the same network, batches and images, as far as the author says."""
    return _of_network(number, here) and not _differences(number, here)


def _of_network(number: Published, here: Measured) -> bool:
    of_all = number.cell is None and number.metric == "accuracy"
    return (of_all or number.cell == here.cell) and number.model in (None, here.workload.model)


def _differences(number: Published, here: Measured) -> list[str]:
    done = here.workload
    found = []
    if number.metric == "accuracy" and here.values.get("accuracy") and here.epochs != number.epochs:
        epochs = "different numbers of epochs" if here.epochs is None else units.plural(here.epochs, "epoch")
        found.append(f"accuracy after {epochs}, the author's after {number.epochs}")
    if number.batch_size not in (None, done.batch_size):
        found.append(f"batch size {done.batch_size}, the author's is {number.batch_size}")
    if number.augment not in (None, done.augment):
        found.append(f"images {'' if done.augment else 'not '}augmented, the author's otherwise")
    return found


def notes(published: Sequence[Published], here: Sequence[Measured] = ()) -> list[str]:
    """Each publication once, and why a cell that trained an author's network has no ratio."""
    why = [
        f"no ratio for {one.cell}: {difference}"
        for number in published
        if number.cell is None or not _ours(number, here)
        for one in here
        if _of_network(number, one)
        for difference in _differences(number, one)
    ]
    return [
        *(f"source: {source}" for source in dict.fromkeys(n.source for n in published)),
        *dict.fromkeys(why),
    ]


def _digits(value: float | tuple[float, float]) -> str:
    """All digits that the author printed, not rounded to what we print of our own."""
    if isinstance(value, tuple):
        return " to ".join(map(_digits, value))
    return f"{value:,.12g}"
