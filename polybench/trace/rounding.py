"""What rounding explains: the errors of two trainings with the same arithmetic.

`python -m tests.trace.rounding` measures them: the same training in two orders of summation, for dense, convolutional,
residual and attention networks with and without batch norm, SGD and Adam, float64, float32, float16 and bfloat16. u is
the unit of rounding, 1.2e-7 in float32, plus the error of the weights before the step.

| error of a tensor | largest measured | bound |
|---|---|---|
| loss | 2 u | 16 u |
| gradient of the tensor that agrees best, such as the last bias | 6 u | 64 u |
| other gradients: ReLUs and max-pools switch | 9 sqrt(u) | 10 sqrt(u) |
| the same in a small batch, in which a single switch counts | 2.2 % | 5 %, "cannot tell" |
| running statistics, beyond their error before the step | 3 u | 4 u |
| update, beyond twice the error of the gradients | 2 sqrt(u), and 0.6 units of the weight | 10 sqrt(u), 2 units |
| movement of the weights in seven steps that are not recorded | 4.3 % | 5 %, "cannot tell" |

Switches change a share of about u of all activations, and gradients by its square root: 10 sqrt(u) is 0.3 % in float32,
and 31 % in float16. Rounding that can do more than 5 % hides any difference, so there only nearly equal numbers agree.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Literal, NamedTuple, get_args

from polybench.schema.trace import DifferenceKind
from polybench.trace.comparison import CEILING, Compared, Comparison, Errors, norm_error, squares, squares_of_movements

Outcome = Literal["agrees", "cannot tell", "differs"]

STORED = 4
"""Numbers that no training has computed, such as initial weights, in units of rounding."""

_LOSS = 16
_CONTINUOUS = 64
_STATISTIC = 4
_UPDATE = 2
"""In units of rounding."""

_WANDER = 2
"""Running means in units of the differences of biases before batch norm, which Adam moves at random."""

_SWITCHES = 10
"""In square roots of a unit."""

_GROWTH = 1.5
"""Factor by which the error of the weights may grow in a step."""

_NEGLIGIBLE = 1e-3
"""Error that agrees even if rounding could do much more."""

_LARGEST = 1e3
"""Error that rounding never explains."""

_SMALL = 1e-3
"""Norm of a small tensor, relative to all of its kind: its error counts relative to this norm."""


class Limits(NamedTuple):
    """The largest error that agrees, and the largest one that rounding may explain."""

    agrees: float
    explains: float


class Judgement(NamedTuple):
    """The outcome for a kind of tensors in a step, that of its worst tensor.

    Attributes:
        tensor: the name in A.
        error: relative; weights after unrecorded steps are compared by what these steps have added.
        explains: the largest error that rounding may explain.
    """

    step: int
    kind: DifferenceKind
    outcome: Outcome = "agrees"
    tensor: str = ""
    error: float = 0.0
    explains: float = 0.0


class _Tensor(NamedTuple):
    """A tensor's error, its rounding unit, and the norm of the stored weight relative to what is compared."""

    name: str
    error: float
    unit: float
    stored: float = 0.0


_Rule = Callable[[_Tensor, float], Limits]
"""Limits of a tensor for a rounding unit."""


class Judge:
    """Judges the steps of two traces in their order: what a step may differ by follows from the steps before.

    Attributes:
        judgements: of all compared kinds, in the order in which a training computes them.
    """

    def __init__(self, comparison: Comparison, errors: Mapping[int, Errors]) -> None:
        self.judgements: list[Judgement] = []
        self._comparison = comparison
        self._step = -1
        self._rules_hold = comparison.rules is not None and not comparison.rules.fields
        self._weights = self._movement = self._statistics = 0.0
        """Errors of the weights before the step, of their unrecorded movements, and of the running statistics."""
        self._wander = 0.0
        """The largest difference until now of the weights without a gradient."""
        self._gradients: dict[str, float] = {}
        """The largest error of each gradient until now."""
        for step, one in errors.items():
            self._judge_step(step, one)

    def _judge_step(self, step: int, errors: Errors) -> None:
        tensors = errors.tensors
        self._rules_hold &= step == self._step + 1
        self._judge_weights(step, tensors["weight"])
        if errors.batch is not None:
            limit = self._comparison.inputs.limits[step]
            self._judge(step, "batch", [(_Tensor("", errors.batch, 0.0), lambda *_: Limits(limit, limit))])
        if errors.loss is not None:
            unit = min((one.unit for one in tensors["weight"].values() if one), default=0.0)
            self._judge(step, "loss", [(_Tensor("", errors.loss, unit), self._loss)])
        self._judge_gradients(step, tensors["gradient"])
        self._judge_statistics(step, tensors["statistic"])
        self._judge_updates(step, tensors)
        self._step = step

    def _judge(self, step: int, kind: DifferenceKind, cases: Iterable[tuple[_Tensor, _Rule]]) -> None:
        """Add the judgement of the worst tensor."""
        judged = [_decide(step, kind, tensor, rule, self._comparison.unit) for tensor, rule in cases]
        if judged:
            self.judgements.append(max(judged, key=lambda one: (_OUTCOMES.index(one.outcome), one.error)))

    def _judge_weights(self, step: int, tensors: Compared) -> None:
        if step == 0:
            self._judge(step, "weight", [(one, _stored) for one in _tensors(tensors)])
        elif step == self._step + 1:  # they follow from the update
            before = [one.outcome for one in self.judgements if (one.step, one.kind) == (step - 1, "update")]
            self.judgements += [Judgement(step, "weight", outcome) for outcome in before]
        else:
            moved = squares_of_movements(self._comparison, self._step + 1, step)
            self._judge(step, "weight", [(one, self._unrecorded(step)) for one in _tensors(moved, tensors)])
            self._movement = max(self._movement, norm_error(moved.values()) or 0.0)
        self._weights = norm_error(tensors.values()) or 0.0

    def _unrecorded(self, step: int) -> _Rule:
        """Return the rule for what steps from the last recorded one to before `step` have added."""
        count = step - self._step - 1
        before = self._weights

        def limits(tensor: _Tensor, unit: float) -> Limits:
            rounded = _UPDATE * unit * tensor.stored * math.sqrt(count)
            switched = _SWITCHES * math.sqrt(unit + before)
            return Limits(rounded + switched, rounded + max(CEILING, switched * _GROWTH ** min(count, 100)))

        return limits

    def _loss(self, _: _Tensor, unit: float) -> Limits:
        limit = _LOSS * (unit + self._weights)
        return Limits(limit, limit)

    def _judge_gradients(self, step: int, tensors: Compared) -> None:
        found = list(_tensors(tensors))
        best = min((one.error / (one.unit + self._weights) for one in found if one.unit), default=0.0)

        def limits(_: _Tensor, unit: float) -> Limits:
            continuous = _CONTINUOUS * (unit + self._weights)
            if best > _CONTINUOUS:  # a switch does not change the gradients of the layers after it
                return Limits(continuous, continuous)
            switched = max(continuous, _SWITCHES * math.sqrt(unit + self._weights))
            return Limits(switched, max(switched, CEILING))

        self._judge(step, "gradient", [(one, limits) for one in found])
        self._gradients |= {one.name: max(one.error, self._gradients.get(one.name, 0.0)) for one in found}

    def _judge_statistics(self, step: int, after: Compared) -> None:
        before = squares(self._comparison, step - 1, "statistic")
        known, last, unrecorded = norm_error(before.values()) or 0.0, self._statistics, self._unrecorded(step)

        def limits_before(tensor: _Tensor, unit: float) -> Limits:
            computed, added = last + self._computed(unit), unrecorded(tensor, unit)
            return Limits(computed + added.agrees, computed + added.explains)

        def limits(_: _Tensor, unit: float) -> Limits:
            return Limits(known + self._computed(unit), known + self._computed(unit))

        self._wander = max(self._wander, *(self._moved_by_rounding(one) for one in (step, step + 1)))
        cases: list[tuple[_Tensor, _Rule]] = [(one, limits) for one in _joint(after, self._wander)]
        if step != self._step + 1:
            cases += [(one, limits_before) for one in _joint(before, self._wander)]
        elif step == 0:
            cases += [(one, _stored) for one in _joint(before)]
        self._judge(step, "statistic", cases)
        self._statistics = norm_error(after.values()) or 0.0

    def _computed(self, unit: float) -> float:
        return _STATISTIC * (unit + self._weights)

    def _moved_by_rounding(self, step: int) -> float:
        """Return the norm of the differences of weights without a gradient: running means follow such a bias."""
        weights = squares(self._comparison, step, "weight", with_rounding=True)
        names = self._comparison.without_gradient
        return math.sqrt(sum(one.difference for name, one in weights.items() if name in names and one is not None))

    def _judge_updates(self, step: int, tensors: Mapping[DifferenceKind, Compared]) -> None:
        def limits(tensor: _Tensor, unit: float) -> Limits:
            gradient = self._gradients.get(tensor.name, 0.0)
            rounded = 2 * (gradient + self._movement) + _UPDATE * unit * tensor.stored
            switched = _SWITCHES * math.sqrt(unit + self._weights)
            is_known = tensor.name in self._gradients
            return Limits(rounded + switched, rounded + (switched if is_known else max(CEILING, switched)))

        found = _tensors(tensors["update"], tensors["weight"])
        if self._rules_hold:  # both follow one rule, by which Adam makes full updates of gradients that are rounding
            ruled = {name for name, one in tensors["gradient"].items() if one and one.scale}
            found = (
                one._replace(error=min(one.error, limits(one, one.unit).agrees)) if one.name in ruled else one
                for one in found
            )
        self._judge(step, "update", [(one, limits) for one in found])


_OUTCOMES = get_args(Outcome)


def _decide(step: int, kind: DifferenceKind, tensor: _Tensor, rule: _Rule, coarsest: float) -> Judgement:
    """Compare an error with what rounding does in the tensor's own type, and in the coarsest type of the trainings."""
    own = rule(tensor, tensor.unit)
    explains = max(own.explains, rule(tensor, coarsest).explains) if rule is not _stored else own.explains
    enough = own.agrees if explains <= CEILING else min(own.agrees, max(STORED * tensor.unit, _NEGLIGIBLE))
    outcome: Outcome = (
        "agrees" if tensor.error <= enough else "cannot tell" if tensor.error <= min(explains, _LARGEST) else "differs"
    )
    return Judgement(step, kind, outcome, tensor.name, tensor.error, explains)


def _stored(_: _Tensor, unit: float) -> Limits:
    """Return the limits of numbers that no training has computed."""
    return Limits(STORED * unit, STORED * unit)


def _tensors(tensors: Compared, stored: Compared | None = None) -> Iterator[_Tensor]:
    """Iterate over the compared tensors; `stored` are the weights whose rounding they have."""
    compared = {name: one for name, one in tensors.items() if one is not None}
    least = _SMALL * math.sqrt(sum(one.scale for one in compared.values()))
    for name, one in compared.items():
        size = max(math.sqrt(one.scale), least)
        weight = (stored or {}).get(name)
        difference = math.sqrt(one.difference)
        error = difference / size if size else math.inf if difference else 0.0
        yield _Tensor(name, error, one.unit, math.sqrt(weight.scale) / size if weight and size else 0.0)


def _joint(tensors: Compared, wander: float = 0.0) -> Iterator[_Tensor]:
    """Iterate over the tensors of each type together, named by the one with the largest difference.

    `wander` is the norm of recorded differences that they follow.
    """
    compared = {name: one for name, one in tensors.items() if one is not None}
    for unit in {one.unit for one in compared.values()}:
        of_type = {name: one for name, one in compared.items() if one.unit == unit}
        worst = max(of_type, key=lambda name: of_type[name].difference)
        scale = math.sqrt(sum(one.scale for one in of_type.values()))
        error = norm_error(of_type.values()) or 0.0
        follows = _WANDER * wander / scale if scale else 0.0
        yield _Tensor(worst, max(0.0, error - follows) if error < math.inf else error, unit)
