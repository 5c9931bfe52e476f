"""Computes means per step of what timing blocks have counted. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from polybench.log import BlockTimed
from polybench.schema.options import WARMUP_STEPS_PER_BLOCK
from polybench.schema.resources import BlockCounters, BlockMeasured

_SUFFIX = "_per_step"


def means_per_step(record: type[msgspec.Struct], blocks: Sequence[Sequence[BlockTimed]]) -> dict[str, float | None]:
    """Return the fields of a record that are means of what the blocks, [process][round], have: its `NAME_per_step`.

    NAME is what the worker measures in its timed steps, or one of the kernel's counters, which also cover the untimed
    steps of a block. A mean is None if one of the blocks lacks the number.
    """
    each = [block for process in blocks for block in process]
    timed = sum(len(block.step_seconds) * block.steps_per_value for block in each)
    names = [field.removesuffix(_SUFFIX) for field in record.__struct_fields__ if field.endswith(_SUFFIX)]
    measured = [name for name in names if name in BlockMeasured.__struct_fields__]
    counted = [name for name in names if name in BlockCounters.__struct_fields__]
    all_steps = timed + WARMUP_STEPS_PER_BLOCK * len(each)
    return {
        **{f"{name}{_SUFFIX}": _mean([getattr(block, name) for block in each], timed) for name in measured},
        **{f"{name}{_SUFFIX}": _mean([getattr(block.counters, name) for block in each], all_steps) for name in counted},
    }


def _mean(numbers: Sequence[float | None], steps: int) -> float | None:
    known = [number for number in numbers if number is not None]
    return sum(known) / steps if known and len(known) == len(numbers) else None
