"""polybench from Python: the same options and meanings as on the command line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Unpack, overload

from polybench.api.options import Options, ProgressCallback, build_study, make_progress
from polybench.api.remote import MachineKeys, MachinesResult, parse_machine_groups, run_on_each
from polybench.api.results import (
    DiffResult,
    ExplanationResult,
    HistoryResult,
    LayersResult,
    MergeResult,
    OverheadResult,
    ParityResult,
    PeakResult,
    StudyResult,
    SweepResult,
)
from polybench.api.saved import diff, explain, history, load, load_overhead, load_sweep, merge, report
from polybench.cluster.run import run_on_cluster
from polybench.errors import BadInput
from polybench.experiments.layers import run_layers
from polybench.experiments.peak import run_peak
from polybench.experiments.sweep import run_sweep
from polybench.importer import import_model
from polybench.networks.single_layer import single_layer
from polybench.planning.grid import BATCH_SIZES, SweepSpec
from polybench.run import run, run_study
from polybench.runner.checkpoint import ClusterRun
from polybench.runner.prepare import new_header, new_log
from polybench.schema.options import SINGLE_MACHINE, CheckScope
from polybench.trace.recorder import record

__all__ = [
    "DiffResult",
    "ExplanationResult",
    "HistoryResult",
    "LayersResult",
    "MachineKeys",
    "MachinesResult",
    "MergeResult",
    "Options",
    "OverheadResult",
    "ParityResult",
    "PeakResult",
    "StudyResult",
    "SweepResult",
    "compare",
    "diff",
    "explain",
    "history",
    "import_model",
    "layers",
    "load",
    "load_overhead",
    "load_sweep",
    "merge",
    "overhead",
    "parity",
    "peak",
    "record",
    "report",
    "sweep",
]


@overload
def compare(
    *,
    on: str | None = None,
    upload: bool = False,
    strict: bool = False,
    quick: bool = False,
    recheck: bool = False,
    progress: ProgressCallback | None = None,
    **options: Unpack[Options],
) -> StudyResult: ...


@overload
def compare(
    *,
    on: str,
    machines: Sequence[MachineKeys],
    upload: bool = False,
    strict: bool = False,
    quick: bool = False,
    recheck: bool = False,
    progress: ProgressCallback | None = None,
    **options: Unpack[Options],
) -> MachinesResult: ...


def compare(
    *,
    on: str | None = None,
    machines: Sequence[MachineKeys] | None = None,
    upload: bool = False,
    strict: bool = False,
    quick: bool = False,
    recheck: bool = False,
    progress: ProgressCallback | None = None,
    **options: Unpack[Options],
) -> StudyResult | MachinesResult:
    """Train the identical network in several engines and compare their performance.

    Results are not saved before `save()`.

    Args:
        on: target of a remote run, as `--on`: "ray://HOST:PORT", "auto", "slurm", "local".
        machines: machines to measure on, with the keys of `[[machines]]`; requires `on`.
        upload: send this installation of polybench to the machines, as `--upload`.
        strict: raise if an engine or device is unavailable.
        quick: one process, at most 10 s of timed steps; inconclusive.
        recheck: repeat the parity check even if a check on this machine is cached.
        progress: called with progress messages and warnings, for example `print`; silent by default.
        options: the fields of `Study`.

    Returns:
        A study; with `machines` a table of several studies.

    Raises:
        BadInput: an option is invalid on every machine; with `on`, the target is unreachable, or has another
            version of polybench.
        RequiredEngineMissing: with `strict`.
        PolybenchError: with `on`, no machine returned a result.
    """
    study, progress_display = build_study(options), make_progress(progress)
    if quick:
        study = study.quick()
    check: CheckScope = "all" if recheck else "new"
    if on is None:
        if machines is not None or upload:
            raise BadInput('machines and upload require `on`, for example on="ray://HOST:PORT"')
        with new_log(study, new_header(), None) as log:
            document = run(study, log, progress_display, store=None, strict=strict, parity_check=check)
            return StudyResult(document, log.text)
    groups = SINGLE_MACHINE if machines is None else parse_machine_groups(machines)
    cluster_run = ClusterRun(study=study, groups=groups, on=on, upload=upload, strict=strict, parity_check=check)
    if machines is None:
        cluster_result = run_on_cluster(cluster_run, progress_display, store=None)
        return StudyResult(cluster_result.only_document, cluster_result.machines[0].log)
    return run_on_each(cluster_run, progress_display)


def parity(
    *, strict: bool = False, progress: ProgressCallback | None = None, **options: Unpack[Options]
) -> ParityResult:
    """Check that engines compute the same as the float64 reference, tensor by tensor, without timing.

    The arguments are those of `compare`.
    """
    study, progress_display = build_study(options), make_progress(progress)
    header = new_header()
    return ParityResult(
        run_study(study, progress_display, store=None, header=header, strict=strict, parity_check="only")
    )


def layers(
    *,
    strict: bool = False,
    quick: bool = False,
    expand_blocks: bool = False,
    layer: str | None = None,
    progress: ProgressCallback | None = None,
    **options: Unpack[Options],
) -> LayersResult:
    """Time every layer of a network separately, in several engines, together with whole steps.

    Args:
        expand_blocks: list the layers of residual blocks in separate rows.
        layer: a single layer instead of a network, such as "conv 64->64 3x3 pad 1 on 56x56".

    The other arguments are those of `compare`.
    """
    if layer is not None:
        options["model"] = single_layer(layer).name
    study = build_study(options)
    outcome = run_layers(
        study.quick() if quick else study, make_progress(progress), strict=strict, expand_blocks=expand_blocks
    )
    return LayersResult(outcome.document, outcome.log)


def sweep(
    *,
    axes: Mapping[str, Sequence[int]],
    quick: bool = False,
    progress: ProgressCallback | None = None,
    **options: Unpack[Options],
) -> SweepResult:
    """Measure every combination of values as a separate study, in random order.

    Args:
        axes: values of `batch_size`, `threads`, `depth`, `resolution`, `length`, `loader_workers`, `augment` (0 or 1).
        quick: one process, at most 10 s of timed steps for all points together; inconclusive.
        options: the fields of `Study` that all points share; `budget` applies to all points together.
    """
    study = build_study(options)
    spec = SweepSpec(study.quick() if quick else study, axes)
    return SweepResult(*_measure(spec, progress))


def overhead(
    *,
    batch_sizes: Sequence[int] = BATCH_SIZES,
    quick: bool = False,
    progress: ProgressCallback | None = None,
    **options: Unpack[Options],
) -> OverheadResult:
    """Fit the fixed overhead of a step and the cost of an item over at least two batch sizes, which share `budget`.

    `quick` is that of `sweep`.
    """
    if len(set(batch_sizes)) < 2:
        raise BadInput("overhead requires two or more batch sizes, for example [8, 128]")
    study = build_study(options)
    spec = SweepSpec(study.quick() if quick else study, {"batch_size": batch_sizes}, "overhead")
    return OverheadResult(*_measure(spec, progress))


def _measure(spec: SweepSpec, progress: ProgressCallback | None) -> tuple[Any, bytes]:
    """Return the document of a sweep or overhead, and its log."""
    outcome = run_sweep(spec, make_progress(progress), store=None)
    if outcome.document is None:
        raise KeyboardInterrupt
    return outcome.document, outcome.log


def peak(
    *,
    quick: bool = False,
    remeasure: bool = False,
    progress: ProgressCallback | None = None,
    **options: Unpack[Options],
) -> PeakResult:
    """Measure the machine's peak compute and memory throughput, or return cached values.

    Args:
        quick: at most 10 s of timing, whose result is not cached.
        remeasure: ignore cached values.
        options: of `Study`: engines, devices, precision, threads, malloc, pin_cpus, model, batch_size,
            budget.
    """
    outcome = run_peak(build_study(options), make_progress(progress), quick=quick, remeasure=remeasure)
    return PeakResult(outcome.document)
