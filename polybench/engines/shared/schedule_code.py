"""Writes the learning rate of a step as a function in Python."""

from __future__ import annotations

from collections.abc import Iterator

from polybench.networks.optimizers import Optimizer


def schedule(optimizer: Optimizer) -> Iterator[str]:
    """Yield the lines of `learning_rate(step)`, which is `optimizer.learning_rate_at`; a cosine needs `math`."""
    rate = optimizer.learning_rate
    yield "def learning_rate(step):"
    if optimizer.warmup_steps:
        yield f"    if step < {optimizer.warmup_steps}:"
        yield f"        return {rate!r} * (step + 1) / {optimizer.warmup_steps + 1}"
    if optimizer.cosine_steps:
        low, warmup = optimizer.min_learning_rate, optimizer.warmup_steps
        since = f"(step - {warmup})" if warmup else "step"
        yield f"    progress = min(1.0, {since} / {optimizer.cosine_steps - warmup})"
        start, span = (f"{low!r} + ", f"({rate!r} - {low!r})") if low else ("", f"{rate!r}")
        yield f"    return {start}0.5 * (1 + math.cos(math.pi * progress)) * {span}"
        return
    for before, later in optimizer.lr_schedule:
        yield f"    if step < {before}:"
        yield f"        return {rate!r}"
        rate = later
    yield f"    return {rate!r}"
