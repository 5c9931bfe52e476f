"""The optimizers: names, formulas, constants, and the rate's schedule.

Every engine is brought to one formula each, those of FORMULAS; `core.optimizer_formulas` has them in NumPy.
w are weights, g is the gradient of the loss plus weight_decay w, for every trainable tensor, biases included.
The state (m, s, v) never contains the rate, so a rate that changes does not rewrite the past.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from polybench.core.errors import BadInput

ADAM_BETAS = (0.9, 0.999)
ADAM_EPSILON = 1e-8
RMSPROP_DECAY = 0.9
RMSPROP_EPSILON = 1e-7

Rate = Annotated[float, Meta(gt=0)]
Momentum = Annotated[float, Meta(ge=0, lt=1)]
WeightDecay = Annotated[float, Meta(ge=0)]
Schedule = tuple[tuple[Annotated[int, Meta(ge=1)], Rate], ...]
"""(from step, learning rate), ascending: the rate of this step and of those after it. Steps count from 0."""

_WITH_MOMENTUM = ("momentum", "nesterov")


class Optimizer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An optimizer and its settings; the formulas are in FORMULAS.

    `momentum` is 0.9 where it is not given, and None for the optimizers that have none. `learning_rate` is
    the rate before the schedule's first change.
    """

    name: Literal["sgd", "momentum", "nesterov", "adam", "rmsprop"] = "momentum"
    learning_rate: Rate = 0.01
    momentum: Momentum | None = None
    weight_decay: WeightDecay = 0.0
    schedule: Schedule = ()

    def __post_init__(self) -> None:
        if self.name in _WITH_MOMENTUM and self.momentum is None:
            msgspec.structs.force_setattr(self, "momentum", 0.9)
        if self.name not in _WITH_MOMENTUM and self.momentum is not None:
            raise BadInput(
                f"optimizer {self.name} takes no momentum; leave --momentum out, or use --optimizer momentum"
            )
        steps = [step for step, _ in self.schedule]
        if steps != sorted(set(steps)):
            raise BadInput(f"--schedule: the steps must ascend, they are {', '.join(map(str, steps))}")

    def rate_at(self, step: int) -> float:
        """The learning rate of a step, the first of which is 0."""
        return [self.learning_rate, *(rate for start, rate in self.schedule if start <= step)][-1]

    def stretches(self, first: int, n: int) -> list[tuple[range, float]]:
        """The n steps from `first` on, cut where the rate changes; each stretch with its rate."""
        changes = (step for step, _ in self.schedule if first < step < first + n)
        return [
            (range(start, end), self.rate_at(start)) for start, end in pairwise([first, *changes, first + n])
        ]


OPTIMIZERS: dict[str, Optimizer] = {
    optimizer.name: optimizer
    for optimizer in (
        Optimizer("sgd", 0.01),
        Optimizer("momentum", 0.01),
        Optimizer("nesterov", 0.01),
        Optimizer("adam", 0.001),
        Optimizer("rmsprop", 0.001),
    )
}
"""What `--optimizer` starts from where it is not the model's own."""

FORMULAS: dict[str, str] = {
    "sgd": "w ← w - rate g",
    "momentum": "v ← momentum v + g, w ← w - rate v",
    "nesterov": "v ← momentum v + g, w ← w - rate (g + momentum v)",
    "rmsprop": "s ← 0.9 s + 0.1 g², w ← w - rate g / (√s + 1e-7)",
    "adam": (
        "m ← 0.9 m + 0.1 g, v ← 0.999 v + 0.001 g²,"
        " w ← w - rate m/(1 - 0.9ᵗ) / (√(v/(1 - 0.999ᵗ)) + 1e-8), in step t = 1, 2, ..."
    ),
}
"""The same for all engines; what they keep (v, s, m) starts at zero."""
