"""Warnings about results that cannot be true, or are not worth a comparison; each names its configuration."""

from __future__ import annotations

import math
from collections.abc import Iterator

from polybench.networks.layers import walk, weight_shapes
from polybench.networks.model import Model
from polybench.schema import units
from polybench.schema.result import Result

_NOISE = 1.1
"""Factor by which peak and step may differ from what they are at another time."""
_WINOGRAD = 4.0
"""Factor by which Winograd's F(4x4, 3x3) reduces the multiplications of a convolution (Lavin and Gray,
https://arxiv.org/abs/1509.09308), which FLOP do not count."""
_CHANCE = 1.1
"""Accuracies up to this multiple of chance count as chance: three standard errors for 10,000 images of ten classes."""
_UNMOVED = 1e-3
"""Relative change of the loss over a whole training below which it does not move; batches alone differ by more."""


def implausible_results(results: list[Result], model: Model, cache_bytes: int | None) -> Iterator[str]:
    """Yield a sentence for each implausible number; `cache_bytes` is the size of the last-level cache."""
    for result in results:
        for text in (
            _above_peak(result, model),
            _below_memory_traffic(result, model, cache_bytes),
            _above_slower_stage(result),
            _at_chance(result, model),
            _unmoved_loss(result),
        ):
            if text is not None:
                yield f"{result.configuration}: {text}"


def _above_peak(result: Result, model: Model) -> str | None:
    """Report more FLOP per second than the machine's peak, unless an algorithm with fewer of them explains it."""
    if result.peak is None or result.peak.fraction is None:
        return None
    has_fast_algorithm = any(layer.has_fast_algorithm for layer in walk(model.layers))
    if result.peak.fraction <= _NOISE * (_WINOGRAD if has_fast_algorithm else 1):
        return None
    return (
        f"above the machine's peak: {result.peak.fraction:.0%} of {result.peak.flops_per_second / 1e9:.3g} GFLOP/s:"
        " either the step leaves out work, or the peak is outdated: polybench peak --remeasure"
    )


def _below_memory_traffic(result: Result, model: Model, cache_bytes: int | None) -> str | None:
    """Report a step that is shorter than it takes to move the weights that no cache holds.

    A forward pass reads each weight once; a training step also writes it.
    """
    bandwidth = result.peak.bytes_per_second if result.peak else None
    if bandwidth is None or cache_bytes is None or result.device != "cpu" or result.step_time is None:
        return None
    passes = 1 if result.workload.is_forward_pass else 2
    dense = weight_shapes([layer for layer in model.layers if not layer.is_lookup])  # it reads a few rows
    traffic = passes * max(0, 4 * sum(map(math.prod, dense.values())) - cache_bytes)
    seconds = traffic / bandwidth
    if _NOISE * result.step_time.mean >= seconds:
        return None
    return (
        f"a step of {units.format_seconds(result.step_time.mean)} is shorter than its memory traffic allows:"
        f" {units.format_bytes(traffic)} of weights take {units.format_seconds(seconds)}:"
        " either the step leaves out work, or the peak is outdated: polybench peak --remeasure"
    )


def _above_slower_stage(result: Result) -> str | None:
    """Report a training with an input pipeline that is faster than the pipeline alone, or than training alone."""
    stage = result.pipeline.slower_stage if result.pipeline else None
    if stage is None or result.items_per_second is None or result.items_per_second <= _NOISE * stage:
        return None
    return (
        f"impossible: {result.items_per_second / stage:.0%} of the rate of its slower stage: other programs slowed down"
        " the stage while it was measured alone; measure again on an idle machine: --wait-idle 60s"
    )


def _at_chance(result: Result, model: Model) -> str | None:
    """Report trainings that learned nothing."""
    if result.accuracy is None or result.accuracy > _CHANCE / model.classes:
        return None
    return (
        f"accuracy at chance: {result.accuracy:.1%} with {model.classes} classes: it has learned nothing;"
        " try another --learning-rate, or more --epochs"
    )


def _unmoved_loss(result: Result) -> str | None:
    """Report a training whose loss ends where it began."""
    last = [training.epochs[-1].loss for training in result.trainings if training.complete and training.epochs]
    if not last or not result.losses:
        return None
    first = result.losses[0]
    if any(not math.isclose(loss, first, rel_tol=_UNMOVED) for loss in last):
        return None
    return (
        f"the loss does not move: {units.format_number(first)} in the first step, {units.format_number(last[0])} in"
        " the last: try another --learning-rate"
    )
