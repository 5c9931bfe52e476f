"""The optimizers: names, formulas, constants, and the learning rate schedule.

All engines are brought to the same formulas, those of FORMULAS; `apply_update` has them in NumPy.
w are weights, g is the gradient of the loss plus weight_decay w, for every trainable tensor including biases. AdamW
decays outside of g, and only weights with several axes. Clipping multiplies the gradients of all tensors before that.
The state (m, s, v) never contains the learning rate, so a change of the rate does not affect earlier steps.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from math import cos, pi
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from polybench.errors import BadInput

ADAM_BETAS = (0.9, 0.999)
ADAM_EPSILON = 1e-8
CLIP_EPSILON = 1e-6
RMSPROP_DECAY = 0.9
RMSPROP_EPSILON = 1e-7

Rate = Annotated[float, Meta(gt=0, le=1e30)]
Momentum = Annotated[float, Meta(ge=0, lt=1)]
WeightDecay = Annotated[float, Meta(ge=0, le=1e30)]
Beta = Annotated[float, Meta(ge=0, lt=1)]
Steps = Annotated[int, Meta(ge=0, le=10**12)]
LearningRateSchedule = tuple[tuple[Annotated[int, Meta(ge=1, le=10**12)], Rate], ...]
"""(first step, learning rate), ascending: the rate from this step on. Steps count from 0."""

Array = Any
"""A NumPy array; this module is imported before NumPy."""

State = Mapping[str, Array]
"""State of an optimizer for one tensor between steps; empty before the first step, which means all zeros."""

_WITH_MOMENTUM = ("momentum", "nesterov")
_WITH_BETAS = ("adam", "adamw")
OptimizerName = Literal["sgd", "momentum", "nesterov", "adam", "adamw", "rmsprop"]


class Optimizer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An optimizer and its settings; the formulas are in FORMULAS.

    `momentum` defaults to 0.9, and is None for optimizers without momentum; `betas` default to ADAM_BETAS.
    `learning_rate` is the rate before the schedule's first change. With `warmup_steps` W, step t < W has the rate
    learning_rate (t + 1) / (W + 1). With `cosine_steps` C, the rate then follows half a cosine from `learning_rate` at
    step W to `min_learning_rate` at step C, and stays there. `gradient_clip` multiplies all gradients by
    min(1, gradient_clip / (norm + 1e-6)), where norm is that of all of them together; 0 is no clipping.
    """

    name: OptimizerName = "momentum"
    learning_rate: Rate = 0.01
    momentum: Momentum | None = None
    weight_decay: WeightDecay = 0.0
    lr_schedule: LearningRateSchedule = ()
    betas: tuple[Beta, Beta] | None = None
    gradient_clip: WeightDecay = 0.0
    warmup_steps: Steps = 0
    cosine_steps: Steps = 0
    min_learning_rate: WeightDecay = 0.0

    def __post_init__(self) -> None:
        if self.name in _WITH_MOMENTUM and self.momentum is None:
            msgspec.structs.force_setattr(self, "momentum", 0.9)
        if self.name not in _WITH_MOMENTUM and self.momentum is not None:
            raise BadInput(f"optimizer {self.name} has no momentum; drop --momentum, or use --optimizer momentum")
        if self.name in _WITH_BETAS and self.betas is None:
            msgspec.structs.force_setattr(self, "betas", ADAM_BETAS)
        if self.name not in _WITH_BETAS and self.betas is not None:
            raise BadInput(f"optimizer {self.name} has no betas: expected adam or adamw")
        if self.cosine_steps and self.cosine_steps <= self.warmup_steps:
            raise BadInput(f"cosine_steps is {self.cosine_steps}: expected more than warmup_steps, {self.warmup_steps}")
        if self.min_learning_rate and not self.cosine_steps:
            raise BadInput("min_learning_rate needs cosine_steps, the step where the rate reaches it")
        if self.lr_schedule and (self.warmup_steps or self.cosine_steps):
            raise BadInput("lr_schedule excludes warmup_steps and cosine_steps: expected one of them")
        steps = [step for step, _ in self.lr_schedule]
        if steps != sorted(set(steps)):
            raise BadInput(f"--lr-schedule: expected ascending steps, got {', '.join(map(str, steps))}")

    @property
    def has_schedule(self) -> bool:
        """True if the learning rate changes."""
        return bool(self.changes)

    @property
    def changes(self) -> list[int]:
        """Steps at which the rate changes, or with a cosine its characteristic ones: the end of the warm-up, half of
        the cosine, and its end.
        """
        if not self.warmup_steps and not self.cosine_steps:
            return [step for step, _ in self.lr_schedule]
        half = (self.warmup_steps + self.cosine_steps) // 2
        return sorted({self.warmup_steps, half, self.cosine_steps} - {0}) if self.cosine_steps else [self.warmup_steps]

    def clip_factor(self, norm: float) -> float:
        """Return the factor of all gradients, whose norm together is `norm`."""
        return min(1.0, self.gradient_clip / (norm + CLIP_EPSILON)) if self.gradient_clip else 1.0

    def learning_rate_at(self, step: int) -> float:
        """Return the learning rate of a step; the first step is 0."""
        if step < self.warmup_steps:
            return self.learning_rate * (step + 1) / (self.warmup_steps + 1)
        if self.cosine_steps:
            progress = min(1.0, (step - self.warmup_steps) / (self.cosine_steps - self.warmup_steps))
            range_of_rates = self.learning_rate - self.min_learning_rate
            return self.min_learning_rate + 0.5 * (1 + cos(pi * progress)) * range_of_rates
        return [self.learning_rate, *(rate for start, rate in self.lr_schedule if start <= step)][-1]

    def constant_rate_segments(self, first: int, n: int) -> list[tuple[range, float]]:
        """Split the n steps from `first` on where the rate changes; return each segment with its rate."""
        moving = range(first + 1, min(first + n, max(self.warmup_steps, self.cosine_steps) + 1))
        changes = moving or (step for step, _ in self.lr_schedule if first < step < first + n)
        return [
            (range(start, end), self.learning_rate_at(start)) for start, end in pairwise([first, *changes, first + n])
        ]


OPTIMIZERS: dict[str, Optimizer] = {
    optimizer.name: optimizer
    for optimizer in (
        Optimizer("sgd", 0.01),
        Optimizer("momentum", 0.01),
        Optimizer("nesterov", 0.01),
        Optimizer("adam", 0.001),
        Optimizer("adamw", 0.001, weight_decay=0.01),
        Optimizer("rmsprop", 0.001),
    )
}
"""Defaults of each `--optimizer` that is not the model's own."""

FORMULAS: dict[str, str] = {
    "sgd": "w ← w - rate g",
    "momentum": "v ← momentum v + g, w ← w - rate v",
    "nesterov": "v ← momentum v + g, w ← w - rate (g + momentum v)",
    "rmsprop": "s ← 0.9 s + 0.1 g², w ← w - rate g / (√s + 1e-7)",
    "adam": (
        "m ← 0.9 m + 0.1 g, v ← 0.999 v + 0.001 g²,"
        " w ← w - rate m/(1 - 0.9ᵗ) / (√(v/(1 - 0.999ᵗ)) + 1e-8), in step t = 1, 2, ..."
    ),
    "adamw": "w ← (1 - rate decay) w, then `adam` without decay in g; only weights with several axes decay",
}
"""The same for all engines; the state (v, s, m) starts at zero."""


def apply_update(
    optimizer: Optimizer, rate: float, w: Array, gradient: Array, state: State
) -> tuple[Array, dict[str, Array]]:
    """Return the weights, in float64, and the optimizer's state after one step at this learning rate.

    `state` is that after the previous step.
    """
    import numpy as np

    decoupled = optimizer.name == "adamw"
    g = gradient if decoupled else gradient + optimizer.weight_decay * w
    mu = optimizer.momentum or 0.0
    zero = np.zeros(())
    match optimizer.name:
        case "sgd":
            return w - rate * g, {}
        case "momentum":
            v = mu * state.get("v", zero) + g
            return w - rate * v, {"v": v}
        case "nesterov":
            v = mu * state.get("v", zero) + g
            return w - rate * (g + mu * v), {"v": v}
        case "rmsprop":
            s = RMSPROP_DECAY * state.get("s", zero) + (1 - RMSPROP_DECAY) * g**2
            return w - rate * g / (np.sqrt(s) + RMSPROP_EPSILON), {"s": s}
        case "adam" | "adamw":
            beta1, beta2 = optimizer.betas or ADAM_BETAS
            w = w * (1 - rate * optimizer.weight_decay) if decoupled and w.ndim > 1 else w
            t = state.get("t", zero) + 1
            m = beta1 * state.get("m", zero) + (1 - beta1) * g
            v = beta2 * state.get("v", zero) + (1 - beta2) * g**2
            unbiased_m, unbiased_v = m / (1 - beta1**t), v / (1 - beta2**t)
            return w - rate * unbiased_m / (np.sqrt(unbiased_v) + ADAM_EPSILON), {"t": t, "m": m, "v": v}
