"""polybench from Python: the same options and meanings as on the command line."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Unpack, overload

from polybench.api.elsewhere import MachineKeys, MachinesResult, groups_of, on_each, on_one
from polybench.api.options import Options, Tell, study_of, told
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
from polybench.api.saved import diff, explain, history, html_report, load, load_overhead, load_sweep, merge
from polybench.api.study_results import ParityResult, StudyResult
from polybench.core.errors import BadInput
from polybench.core.machines import ONE_MACHINE
from polybench.machine.host import usable_threads
from polybench.measuring.fleet_checkpoint import Fleet
from polybench.measuring.layers import run_layers
from polybench.measuring.limit import run_limit
from polybench.measuring.study import new_context, run_study
from polybench.measuring.sweep import run_sweep
from polybench.measuring.sweep_checkpoint import Series
from polybench.models.single_layer import row_of, single_layer
from polybench.planning.grid import BATCH_SIZES
from polybench.report.experience import Check
from polybench.report.overhead import summarize as summarize_overhead
from polybench.report.sweep import summarize as summarize_sweep

__all__ = [
    "DiffResult",
    "ExplanationResult",
    "HistoryResult",
    "LayersResult",
    "LimitResult",
    "MachineKeys",
    "MachinesResult",
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
    "load_overhead",
    "load_sweep",
    "merge",
    "overhead",
    "parity",
    "sweep",
]


@overload
def compare(
    *,
    on: str | None = None,
    ship: bool = False,
    strict: bool = False,
    quick: bool = False,
    recheck: bool = False,
    progress: Tell | None = None,
    **options: Unpack[Options],
) -> StudyResult: ...


@overload
def compare(
    *,
    on: str,
    machines: Sequence[MachineKeys],
    ship: bool = False,
    strict: bool = False,
    quick: bool = False,
    recheck: bool = False,
    progress: Tell | None = None,
    **options: Unpack[Options],
) -> MachinesResult: ...


def compare(
    *,
    on: str | None = None,
    machines: Sequence[MachineKeys] | None = None,
    ship: bool = False,
    strict: bool = False,
    quick: bool = False,
    recheck: bool = False,
    progress: Tell | None = None,
    **options: Unpack[Options],
) -> StudyResult | MachinesResult:
    """Train the identical network in several engines and compare what it costs.

    Nothing is saved before `save()`.

    Args:
        on: where else, as `--on`: "ray://HOST:PORT", "auto", "slurm", "local".
        machines: measure on each of these, with the keys of `[[machines]]`; needs `on`.
        ship: send this polybench there, as `--ship`.
        strict: raise when an engine or device is unavailable.
        quick: one process, a timed part of at most 10 s, no verdict.
        recheck: check identity again, whatever has passed before on this machine.
        progress: called with what runs and with warnings, `print` for one; by default nobody is told.
        options: the fields of `Study`.

    Returns:
        A study, wherever it was measured; of `machines` a table of them, with a study for each.

    Raises:
        BadInput: an option that no machine could run; with `on`, nobody is there, or is of another version.
        StrictlyUnavailable: with `strict`.
        PolybenchError: with `on`, nothing came of it.
    """
    study, tell = study_of(options), told(progress)
    if quick:
        study = study.quick()
    check: Check = "all" if recheck else "new"
    if on is None:
        if machines is not None or ship:
            raise BadInput('say where the machines are, for example on="ray://HOST:PORT"')
        context = new_context(sys.argv)
        return StudyResult(run_study(study, tell, store=None, context=context, strict=strict, check=check))
    groups = ONE_MACHINE if machines is None else groups_of(machines)
    fleet = Fleet(study=study, groups=groups, on=on, ship=ship, argv=sys.argv, strict=strict, check=check)
    return on_one(fleet, tell) if machines is None else on_each(fleet, tell)


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
    study, tell = study_of(options), told(progress)
    context = new_context(sys.argv)
    return ParityResult(run_study(study, tell, store=None, context=context, strict=strict, check="only"))


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
    study = study_of(options)
    return LayersResult(
        run_layers(
            study.quick() if quick else study,
            told(progress),
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
    swept = run_sweep(Series(study_of(options), axes), told(progress), store=None, argv=sys.argv)
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
    series = Series(study_of(options), {"batch_size": batch_sizes}, "overhead")
    swept = run_sweep(series, told(progress), store=None, argv=sys.argv)
    documents = {one.point.values["batch_size"]: one.document for one in swept.finished}
    return OverheadResult(summarize_overhead(documents, sys.argv, batch_sizes))


def limit(*, recheck: bool = False, progress: Tell | None = None, **options: Unpack[Options]) -> LimitResult:
    """Measure the most that this machine does, or take what is kept of it.

    Args:
        recheck: measure again what is kept.
        progress: as of `compare`.
        options: of `Study`: engines, devices, precision, threads, heap, pin, model, batch_size, budget.

    Raises:
        BadInput: an option that no machine could run.
    """
    return LimitResult(run_limit(study_of(options), told(progress), argv=sys.argv, recheck=recheck))
