"""The columns of `times` by the means of blocks instead of their medians: with every pause in them."""

from __future__ import annotations

from polybench.core import units
from polybench.core.document.result import Result
from polybench.metrics.base import Metric

_OF_BLOCKS = "by the means of blocks: with the pauses of a garbage collector, which medians may leave out"
_OLDER = "no source: the study was saved by an older polybench"


def _step_in_words(result: Result) -> str:
    if (means := result.block_means) is None:
        return ""
    return units.seconds_within(means.seconds_per_step, means.interval95)


def _speedup_in_words(result: Result) -> str:
    if (means := result.block_means) is None or means.speedup is None:
        return ""
    return units.with_interval(means.speedup, means.speedup_interval95)


MEANS = (
    Metric(
        name="mean_step_time",
        title="mean step time",
        unit="s",
        better="lower",
        value=lambda result: result.block_means.seconds_per_step if result.block_means else None,
        in_words=_step_in_words,
        interval=lambda result: result.block_means.interval95 if result.block_means else None,
        note=_OF_BLOCKS,
        needs=_OLDER,
    ),
    Metric(
        name="mean_throughput",
        title="images per s, by means",
        unit="images/s",
        better="higher",
        value=lambda result: result.block_means.samples_per_second if result.block_means else None,
        show=units.count,
        needs=_OLDER,
    ),
    Metric(
        name="mean_epoch_time",
        title="epoch time, by means",
        unit="s",
        better="lower",
        value=lambda result: result.block_means.epoch_seconds if result.block_means else None,
        show=units.seconds,
        needs=_OLDER,
    ),
    Metric(
        name="mean_speedup",
        title="speedup, by means",
        unit="",
        better="higher",
        value=lambda result: result.block_means.speedup if result.block_means else None,
        in_words=_speedup_in_words,
        interval=lambda result: result.block_means.speedup_interval95 if result.block_means else None,
        needs=_OLDER,
    ),
)
