"""polybench from Python: the same options and meanings as on the command line."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypedDict, Unpack

import msgspec

from polybench.api.results import (
    DiffResult,
    ExplanationResult,
    HistoryResult,
    LayersResult,
    LimitResult,
    MergeResult,
    OverheadResult,
    SweepResult,
)
from polybench.api.saved import diff, explain, history, html_report, load, load_sweep, merge
from polybench.api.study_results import ParityResult, StudyResult
from polybench.core.errors import BadInput, said
from polybench.core.model import Model
from polybench.core.names import pick, split_names
from polybench.core.spec import Study, refuse_unused_environments
from polybench.machine.host import usable_threads
from polybench.measuring.layers import run_layers
from polybench.measuring.limit import run_limit
from polybench.measuring.progress import Progress, Silent, Told
from polybench.measuring.study import new_context, run_study
from polybench.measuring.sweep import run_sweep
from polybench.measuring.sweep_checkpoint import Series
from polybench.models.single_layer import row_of, single_layer
from polybench.planning.grid import BATCH_SIZES
from polybench.planning.network_file import with_network
from polybench.report.overhead import summarize as summarize_overhead
from polybench.report.sweep import summarize as summarize_sweep

__all__ = [
    "DiffResult",
    "ExplanationResult",
    "HistoryResult",
    "LayersResult",
    "LimitResult",
    "MergeResult",
    "Options",
    "OverheadResult",
    "ParityResult",
    "StudyResult",
    "SweepResult",
    "compare",
    "diff",
    "explain",
    "history",
    "html_report",
    "layers",
    "limit",
    "load",
    "load_sweep",
    "merge",
    "overhead",
    "parity",
    "sweep",
]


class Options(TypedDict, total=False):
    """The fields of core.spec.Study, which has their meanings and defaults.

    Written out, because type checkers know no computed TypedDict; a test holds that fields and types are
    Study's.
    """

    engines: Sequence[str]
    devices: Sequence[str] | None
    env: dict[str, str]
    model: str | Model
    data: str
    batch_size: int | None
    optimizer: str | None
    learning_rate: float | None
    momentum: float | None
    weight_decay: float | None
    schedule: Sequence[tuple[int, float]] | None
    precision: str | Sequence[str]
    input: str
    workers: int | None
    augment: bool
    threads: int | None
    replicas: int | Sequence[int]
    heap: str
    pin: bool
    seed: int
    processes: int
    rounds: int | None
    steps: int | None
    target: float
    epochs: int | None
    accuracy: bool
    until: dict[str, float]
    budget: float
    patience: float
    timeout: float
    parity: bool
    parity_steps: int
    baseline: str | None
    prices: dict[str, float]
    metrics: bool
    handicaps: dict[str, float]


Tell = Callable[[str], object]
"""Called with each line of progress, between measurements: `print`, or a logger's `info`."""

_LISTS = ("engines", "devices", "precision")
"""Also as text, as on the command line: "torch,tf"."""


def compare(
    *,
    strict: bool = False,
    quick: bool = False,
    recheck: bool = False,
    progress: Tell | None = None,
    **options: Unpack[Options],
) -> StudyResult:
    """Train the identical network in several engines and compare what it costs.

    Nothing is saved before `save()`.

    Args:
        strict: raise when an engine or device is unavailable.
        quick: one process, a timed part of at most 10 s, no verdict.
        recheck: check identity again, whatever has passed before on this machine.
        progress: called with what runs and with warnings, `print` for one; by default nobody is told.
        options: the fields of `Study`.

    Raises:
        BadInput: an option that no machine could run.
        StrictlyUnavailable: with `strict`.
    """
    study = _study(options)
    if quick:
        study = study.quick()
    return StudyResult(
        run_study(
            study,
            _told(progress),
            store=None,
            context=new_context(sys.argv),
            strict=strict,
            check="all" if recheck else "new",
        )
    )


def parity(*, strict: bool = False, progress: Tell | None = None, **options: Unpack[Options]) -> ParityResult:
    """Check that engines compute what the float64 reference computes, tensor by tensor; measure nothing.

    Args:
        strict: raise when an engine or device is unavailable.
        progress: as of `compare`.
        options: the fields of `Study`.

    Raises:
        BadInput: an option that no machine could run.
        StrictlyUnavailable: with `strict`.
    """
    told, study = _told(progress), _study(options)
    context = new_context(sys.argv)
    return ParityResult(run_study(study, told, store=None, context=context, strict=strict, check="only"))


def layers(
    *,
    strict: bool = False,
    quick: bool = False,
    inside: bool = False,
    layer: str | None = None,
    progress: Tell | None = None,
    **options: Unpack[Options],
) -> LayersResult:
    """Time every layer of a network alone, in several engines, beside whole steps.

    Args:
        strict: raise when an engine or device is unavailable.
        quick: one process, a timed part of at most 10 s.
        inside: give every layer inside of residual blocks rows of its own.
        layer: instead of a network's, a layer by itself, "conv 3x3 64->64 pad 1 on 56x56".
        progress: as of `compare`.
        options: the fields of `Study`.

    Raises:
        BadInput: an option that no machine could run.
        StrictlyUnavailable: with `strict`.
    """
    only = None
    if layer is not None:
        options["model"], only = layer, row_of(single_layer(layer))
    study = _study(options)
    return LayersResult(
        run_layers(
            study.quick() if quick else study,
            _told(progress),
            context=new_context(sys.argv),
            strict=strict,
            inside=inside,
            only=only,
        )
    )


def sweep(
    *, axes: Mapping[str, Sequence[int]], progress: Tell | None = None, **options: Unpack[Options]
) -> SweepResult:
    """Measure every combination of values, each as a study of its own, in random order.

    Args:
        axes: of `batch_size`, `threads`, `depth`, `resolution`, `workers`, `augment` (0 or 1): the values
            of each.
        progress: as of `compare`.
        options: the fields of `Study` that all have in common; `budget` is for all together.

    Raises:
        BadInput: an option or a value that no machine could run.
    """
    swept = run_sweep(Series(_study(options), axes), _told(progress), store=None, argv=sys.argv)
    studies = [(one.point.values, one.document) for one in swept.finished]
    return SweepResult(summarize_sweep(axes, studies, sys.argv, usable_threads()))


def overhead(
    *, batch_sizes: Sequence[int] = BATCH_SIZES, progress: Tell | None = None, **options: Unpack[Options]
) -> OverheadResult:
    """Fit the fixed cost of a step and the cost of a sample over batch sizes.

    Args:
        batch_sizes: at least two.
        progress: as of `compare`.
        options: the fields of `Study`; `budget` is for all together.

    Raises:
        BadInput: an option that no machine could run, or one batch size only.
    """
    if len(set(batch_sizes)) < 2:
        raise BadInput("a line needs two batch sizes")
    series = Series(_study(options), {"batch_size": batch_sizes}, "overhead")
    swept = run_sweep(series, _told(progress), store=None, argv=sys.argv)
    documents = {one.point.values["batch_size"]: one.document for one in swept.finished}
    return OverheadResult(summarize_overhead(documents, sys.argv))


def limit(*, recheck: bool = False, progress: Tell | None = None, **options: Unpack[Options]) -> LimitResult:
    """Measure the most that this machine does, or take what is kept of it.

    Args:
        recheck: measure again what is kept.
        progress: as of `compare`.
        options: of `Study`: engines, devices, precision, threads, heap, pin, model, batch_size, budget.

    Raises:
        BadInput: an option that no machine could run.
    """
    return LimitResult(run_limit(_study(options), _told(progress), argv=sys.argv, recheck=recheck))


def _told(tell: Tell | None) -> Progress:
    return Silent() if tell is None else Told(tell)


def _study(options: Options) -> Study:
    public = dict.fromkeys(name for name in Study.__struct_fields__ if name != "handicaps")
    for name in options:
        if name not in Study.__struct_fields__:
            pick(name, public, "option")
    fields: dict[str, Any] = {
        name: split_names(value) if name in _LISTS and isinstance(value, str) else value
        for name, value in options.items()
    }
    try:
        study = msgspec.convert(fields, Study)
    except msgspec.ValidationError as error:
        raise BadInput(said(error)) from error
    study = with_network(study)
    refuse_unused_environments(study)
    return study
