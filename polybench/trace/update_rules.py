"""The update rules of optimizers, and which of them a recorded training follows.

A rule is linear in the learning rate, which is therefore fitted, for all steps or for each. Steps are evaluated one
by one from the recorded weights and gradients, so errors do not accumulate.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import msgspec
import numpy as np

from polybench.networks.optimizers import ADAM_BETAS, CLIP_EPSILON, Beta
from polybench.trace.dtypes import NO_GRADIENT
from polybench.trace.file import Array, Trace

_SAMPLES = 2048
"""Values per tensor on which rules are compared. All rules work value by value, except for the norm of clipping."""

_CONSTANT_RATE = 1e-3
"""Largest relative spread of the learning rates of a constant one."""

_MAX_STEPS = 16
"""Recorded steps up to which a schedule of the learning rate is fitted."""

_EXPLAINED = 2e-4
"""Largest relative error of an update that a rule explains. float32 leaves up to 1e-5, wrong rules 1e-3 and more."""


EpsilonPlace = Literal["outside", "inside", "before correction"]


ClipForm = Literal["all", "tensor", "value"]


class Clip(msgspec.Struct, frozen=True):
    """Clipping of gradients: the largest norm of all of them together or of each tensor, or the largest value."""

    limit: float
    form: ClipForm = "all"

    def __str__(self) -> str:
        return f"{self.limit:.4g}{_CLIP_WORDS[self.form]}"

    def apply(self, gradients: Array, norms: Array, tensors: Array) -> Array:
        """Clip gradients (..., values); `norms` are those of tensors (..., tensors), `tensors` as in `Samples`."""
        if self.form == "value":
            return np.clip(gradients, -self.limit, self.limit)
        if self.form == "all":
            norms = np.broadcast_to(np.linalg.norm(norms, axis=-1, keepdims=True), norms.shape)
        return gradients * np.minimum(1.0, self.limit / (norms + CLIP_EPSILON))[..., tensors]


_CLIP_WORDS: Mapping[ClipForm, str] = {"all": "", "tensor": " for the norm of each tensor", "value": " for each value"}


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """A step of an optimizer, g the gradient and w the weights.

    "sgd": v = momentum v + (1 - dampening) g, from v = g; the step is v, or g + momentum v with `nesterov`.
    "adam": m and v with `betas`, corrected for their start at zero if `bias_correction`; the step is
    m / (sqrt(v) + epsilon), where `epsilon_place` has other forms. "rmsprop": g / (sqrt(s) + epsilon).
    `weight_decay` is added to g, or with `decoupled` decay to the step; `decays` are all weights or those with
    several axes. `clip` comes before all of that.
    `learning_rates` has that of each step if they differ. Then the form of momentum counts: `scaled_velocity` is
    v = momentum v + learning_rate g, and the step is v, as in Keras.
    """

    family: Literal["sgd", "adam", "rmsprop"]
    learning_rate: float = 1.0
    momentum: float = 0.0
    dampening: float = 0.0
    nesterov: bool = False
    betas: tuple[float, float] = (0.9, 0.999)
    epsilon: float = 1e-8
    epsilon_place: EpsilonPlace = "outside"
    bias_correction: bool = True
    amsgrad: bool = False
    rho: float = 0.9
    weight_decay: float = 0.0
    decoupled: bool = False
    decays: Literal["all weights", "matrices"] = "all weights"
    clip: Clip | None = None
    learning_rates: tuple[float, ...] = ()
    scaled_velocity: bool = False


WORDS = {
    "family": "kind of optimizer",
    "learning_rate": "learning rate",
    "learning_rates": "schedule of the learning rate",
    "scaled_velocity": "form of momentum",
    "momentum": "momentum",
    "dampening": "dampening of the momentum",
    "nesterov": "Nesterov momentum",
    "betas": "betas",
    "epsilon": "epsilon of the optimizer",
    "epsilon_place": "place of epsilon",
    "bias_correction": "bias correction",
    "amsgrad": "AMSGrad",
    "rho": "decay of RMSprop",
    "weight_decay": "weight decay",
    "decoupled": "kind of weight decay",
    "decays": "decayed weights",
    "clip": "gradient clipping",
}
"""Field of a rule -> how a message names it."""

VALUES: Mapping[str, Mapping[object, str]] = {
    "nesterov": {True: "on", False: "off"},
    "bias_correction": {True: "on", False: "off"},
    "amsgrad": {True: "on", False: "off"},
    "decoupled": {True: "decoupled", False: "coupled (added to the gradient)"},
    "epsilon_place": {
        "outside": "outside of the square root",
        "inside": "inside of the square root",
        "before correction": "added before the bias correction",
    },
    "clip": {None: "none"},
    "learning_rates": {(): "constant"},
    "scaled_velocity": {True: "v = m v + rate g, step v", False: "v = m v + g, step rate v"},
}
"""Values of a field in words; other values are printed as they are."""


class Samples(NamedTuple):
    """Values of all weights in consecutive steps from the first one.

    Attributes:
        weights, gradients, updates: (steps, values), float64; updates are weights after minus weights before.
        tensors: (values,) index of the tensor of each value.
        matrices: (values,) True for weights with several axes.
        norms: (steps, tensors) norm of the gradients of each tensor.
        rounding: (steps, tensors) norm of what rounding the weights leaves of an update.
    """

    weights: Array
    gradients: Array
    updates: Array
    tensors: Array
    matrices: Array
    norms: Array
    rounding: Array


class Fit(NamedTuple):
    """A rule with its fitted learning rate.

    Attributes:
        error: the largest relative error that it leaves of a tensor's update.
        excess: the same without what rounding the weights can do.
        step: the first step that it does not explain, or 0.
    """

    rule: Rule
    error: float
    excess: float
    step: int = 0

    @property
    def explains(self) -> bool:
        """True if only rounding remains."""
        return self.excess <= _EXPLAINED


def take_samples(trace: Trace) -> Samples | None:
    """Sample weights, gradients and updates of the recorded steps 0, 1, 2, ...; None without gradients or updates."""
    steps = list(itertools.takewhile(lambda step: step in trace.steps, itertools.count()))
    sizes = {name: np.linalg.norm(gradient) for name, gradient in trace.tensors(0, "gradient").items()}
    least = NO_GRADIENT * np.linalg.norm(list(sizes.values()))
    names = [name for name in trace.names(0, "weight") if sizes.get(name, 0.0) > least]
    if not steps or not names:
        return None
    random = np.random.default_rng(0)
    epsilon = trace.epsilon()
    columns: list[tuple[Array, Array, Array, Array]] = []
    norms, tensors, matrices = np.zeros((len(steps), len(names))), [], []
    for index, name in enumerate(names):
        weights = np.stack([trace.tensor(step, "weight", name).ravel() for step in [*steps, steps[-1] + 1]])
        gradients = np.stack([trace.tensor(step, "gradient", name).ravel() for step in steps])
        norms[:, index] = np.linalg.norm(gradients, axis=1)
        size = weights.shape[1]
        chosen = np.arange(size) if size <= _SAMPLES else random.choice(size, _SAMPLES, replace=False)
        weights, gradients = weights[:, chosen], gradients[:, chosen]
        rounding = epsilon * np.linalg.norm(weights[:-1], axis=1)
        columns.append((weights[:-1], gradients, np.diff(weights, axis=0), rounding))
        tensors += [index] * len(chosen)
        matrices += [len(trace.shapes(0, "weight")[name]) > 1] * len(chosen)
    before, gradients, updates = (np.concatenate([one[part] for one in columns], axis=1) for part in range(3))
    if not updates.any():
        return None  # any rule explains them, with the learning rate 0
    rounding = np.stack([one[3] for one in columns], axis=1)
    return Samples(before, gradients, updates, np.array(tensors), np.array(matrices), norms, rounding)


def updates(rule: Rule, samples: Samples, rates: Array | None = None) -> Array:
    """Return the update of each step for these learning rates (steps,), by default 1: (steps, values)."""
    gradients = samples.gradients
    rates = np.ones((len(gradients), 1)) if rates is None else rates[:, None]
    if rule.clip is not None:
        gradients = rule.clip.apply(gradients, samples.norms, samples.tensors)
    decay = rule.weight_decay * samples.weights
    if rule.decays == "matrices":
        decay = decay * samples.matrices
    gradients = gradients if rule.decoupled else gradients + decay
    compute = _STEPS[rule.family]
    step = compute(rule, rates * gradients) if rule.scaled_velocity else rates * compute(rule, gradients)
    return -(step + rates * decay if rule.decoupled else step)


def _sgd(rule: Rule, gradients: Array) -> Array:
    steps, velocity = [], None
    for g in gradients:
        velocity = g if velocity is None else rule.momentum * velocity + (1 - rule.dampening) * g
        steps.append(g + rule.momentum * velocity if rule.nesterov else velocity)
    return np.stack(steps)


def _adam(rule: Rule, gradients: Array) -> Array:
    beta1, beta2 = rule.betas
    m = v = largest = np.zeros(gradients.shape[1])
    steps = []
    for t, g in enumerate(gradients, 1):
        m, v = beta1 * m + (1 - beta1) * g, beta2 * v + (1 - beta2) * g**2
        largest = np.maximum(largest, v) if rule.amsgrad else v
        bias1, bias2 = (1 - beta1**t, 1 - beta2**t) if rule.bias_correction else (1.0, 1.0)
        match rule.epsilon_place:
            case "outside":
                steps.append(m / bias1 / (np.sqrt(largest / bias2) + rule.epsilon))
            case "inside":
                steps.append(m / bias1 / np.sqrt(largest / bias2 + rule.epsilon))
            case "before correction":
                steps.append(m / bias1 * np.sqrt(bias2) / (np.sqrt(largest) + rule.epsilon))
    return np.stack(steps)


def _rmsprop(rule: Rule, gradients: Array) -> Array:
    square, velocity, steps = np.zeros(gradients.shape[1]), np.zeros(gradients.shape[1]), []
    for g in gradients:
        square = rule.rho * square + (1 - rule.rho) * g**2
        inside = rule.epsilon_place == "inside"
        step = g / np.sqrt(square + rule.epsilon) if inside else g / (np.sqrt(square) + rule.epsilon)
        velocity = rule.momentum * velocity + step
        steps.append(velocity)
    return np.stack(steps)


_STEPS = {"sgd": _sgd, "adam": _adam, "rmsprop": _rmsprop}


def fit(rule: Rule, samples: Samples) -> Fit:
    """Fit the learning rate of a rule to all steps, or that of each step, and return the error that remains."""
    with np.errstate(all="ignore"):
        if rule.learning_rates:
            rates = _fit_rates(rule, samples)
            if np.ptp(rates) > _CONSTANT_RATE * np.abs(rates).max():
                rule = msgspec.structs.replace(
                    rule, learning_rate=float(rates[0]), learning_rates=tuple(rates.tolist())
                )
                return _fit_with(rule, samples, updates(rule, samples, rates))
            rule = msgspec.structs.replace(rule, learning_rates=())
        predicted = updates(rule, samples)
        square = float(np.vdot(predicted, predicted))
        rate = float(np.vdot(predicted, samples.updates)) / square if square else 0.0
        return _fit_with(msgspec.structs.replace(rule, learning_rate=rate), samples, rate * predicted)


def _fit_rates(rule: Rule, samples: Samples) -> Array:
    """Fit the learning rate of one step after the other; a step depends on its own linearly."""
    rates = np.zeros(len(samples.updates))
    for step, update in enumerate(samples.updates):
        without = updates(rule, samples, rates)[step]
        rates[step] = 1.0
        slope = updates(rule, samples, rates)[step] - without
        square = float(np.vdot(slope, slope))
        rates[step] = float(np.vdot(slope, update - without)) / square if square else 0.0
    return rates


def _fit_with(rule: Rule, samples: Samples, predicted: Array) -> Fit:
    if not np.isfinite(predicted).all():
        return Fit(rule, np.inf, np.inf)
    count = int(samples.tensors[-1]) + 1
    errors, excesses = [], []
    for step, (update, guess) in enumerate(zip(samples.updates, predicted, strict=True)):
        size = np.sqrt(np.bincount(samples.tensors, update**2, count))
        missed = np.sqrt(np.bincount(samples.tensors, (update - guess) ** 2, count))
        scale = np.maximum(size, 1e-3 * size.max()) + np.finfo(float).tiny
        errors.append(float(np.max(missed / scale)))
        excesses.append(float(np.max((missed - samples.rounding[step]) / scale)))
    wrong = (step for step, excess in enumerate(excesses) if excess > _EXPLAINED)
    return Fit(rule, max(errors), max(0.0, *excesses), next(wrong, 0))


KERAS_EPSILON: Mapping[str, EpsilonPlace] = {"adam": "before correction", "rmsprop": "inside"}
"""Family -> the place of epsilon in Keras, which no setting changes."""


def declared_rule(trace: Trace) -> Rule | None:
    """Return the rule that the optimizer's own settings describe; None if they are unknown."""
    settings = trace.header.optimizer
    name = str(settings.get("name") or trace.header.optimizer_name or "").lower()
    family = "rmsprop" if "rms" in name else "adam" if "adam" in name else "sgd" if name else None
    if family is None:
        return None

    def number(*names: str, default: float = 0.0) -> float:
        values = (settings[one] for one in names if isinstance(settings.get(one), int | float))
        return float(next(values, default))

    keras = trace.header.framework.startswith("keras")
    return Rule(
        family=family,  # type: ignore[arg-type]  # mypy infers str
        learning_rate=number("lr", "learning_rate", default=1.0),
        momentum=number("momentum"),
        dampening=number("dampening"),
        nesterov=bool(settings.get("nesterov")),
        betas=_betas(settings),
        epsilon=number("eps", "epsilon", default=1e-7 if keras else 1e-8),
        epsilon_place=KERAS_EPSILON.get(family, "outside") if keras else "outside",
        amsgrad=bool(settings.get("amsgrad")),
        rho=number("rho", "alpha", default=0.9),
        weight_decay=number("weight_decay"),
        decoupled="adamw" in name or (keras and bool(settings.get("weight_decay"))),
        clip=_declared_clip(settings),
        scaled_velocity=keras,
    )


def _declared_clip(settings: Mapping[str, Any]) -> Clip | None:
    """Return the clipping of a Keras optimizer, which has at most one form of it."""
    limits = {name: settings.get(name) for name in _KERAS_CLIPS}
    found = (Clip(float(one), _KERAS_CLIPS[name]) for name, one in limits.items() if isinstance(one, int | float))
    return next((one for one in found if one.limit > 0), None)


_KERAS_CLIPS: Mapping[str, ClipForm] = {"clipnorm": "tensor", "global_clipnorm": "all", "clipvalue": "value"}
"""Setting of a Keras optimizer -> what it clips."""


def _betas(settings: Mapping[str, Any]) -> tuple[float, float]:
    """Return the betas of PyTorch or Keras, or the usual ones if the trace has no valid ones."""
    try:
        return msgspec.convert(settings.get("betas") or [settings["beta_1"], settings["beta_2"]], tuple[Beta, Beta])
    except (KeyError, msgspec.ValidationError):
        return ADAM_BETAS


_ALTERNATIVES: Mapping[str, Sequence[Any]] = {
    "momentum": (0.0, 0.5, 0.8, 0.9, 0.95, 0.99),
    "dampening": (0.0, 0.1, 0.9),
    "nesterov": (False, True),
    "betas": tuple(itertools.product((0.0, 0.5, 0.8, 0.9, 0.95, 0.99), (0.9, 0.95, 0.98, 0.99, 0.999))),
    "epsilon": (1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-10, 0.0),
    "epsilon_place": ("outside", "inside", "before correction"),
    "bias_correction": (True, False),
    "amsgrad": (False, True),
    "rho": (0.9, 0.95, 0.99, 0.999, 0.5),
    "weight_decay": (0.0, 1e-5, 1e-4, 5e-4, 1e-3, 5e-3, 1e-2, 5e-2, 1e-1),
    "decoupled": (False, True),
    "decays": ("all weights", "matrices"),
    "clip": (
        None,
        *(Clip(limit, form) for form in ("all", "tensor") for limit in (0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0)),
        *(Clip(limit, "value") for limit in (0.01, 0.1, 0.5, 1.0, 5.0)),
    ),
}
_FIELDS = {
    "sgd": ("momentum", "dampening", "nesterov"),
    "adam": ("betas", "epsilon", "epsilon_place", "bias_correction", "amsgrad"),
    "rmsprop": ("rho", "epsilon", "epsilon_place", "momentum"),
}
_DECAY = ("weight_decay", "decoupled", "decays")


def find_rule(samples: Samples, candidates: Sequence[Rule]) -> Fit:
    """Return the first rule that explains the updates: a candidate, then one with one change, then with two or three.

    Several changes are tried of those rules that come nearest. A schedule of the learning rate is tried last. Without
    an explanation, it is the nearest rule.

    A rule with the learning rate of a candidate comes first: clipping in all steps can make up for any other rate.
    """

    def has_own_rate(one: Fit) -> bool:
        return not any(_is_same_rate(one.rule, candidate) for candidate in candidates)

    best = [fit(rule, samples) for rule in candidates]
    if explaining := [one for one in best if one.explains]:
        return explaining[0]
    for _ in range(3):
        changed = (fit(rule, samples) for one in best[:12] for rule in _with_one_change(one.rule, candidates))
        best = sorted([*best, *changed], key=lambda one: one.excess)[:40]
        if explaining := [one for one in best if one.explains]:
            return min(explaining, key=has_own_rate)
    if 1 < len(samples.updates) <= _MAX_STEPS:
        with_schedule = [fit(rule, samples) for rule in _with_schedule(candidates)]
        best = sorted([*best, *with_schedule], key=lambda one: one.excess)
    return best[0]


def _with_schedule(candidates: Sequence[Rule]) -> Iterator[Rule]:
    """Iterate over the candidates and their single changes, with a learning rate for each step."""
    changed = [rule for one in candidates for rule in _with_one_change(one, candidates)]
    for rule in dict.fromkeys([*candidates, *changed]):
        for scaled in (False, True) if rule.family == "sgd" else (False,):
            yield msgspec.structs.replace(rule, learning_rates=(1.0,), scaled_velocity=scaled)


def _with_one_change(rule: Rule, candidates: Sequence[Rule]) -> Iterator[Rule]:
    for field in (*_FIELDS[rule.family], *_DECAY, "clip"):
        if field in ("decoupled", "decays") and not rule.weight_decay:
            continue
        values = dict.fromkeys([*(getattr(one, field) for one in candidates), *_ALTERNATIVES[field]])
        yield from (
            msgspec.structs.replace(rule, **{field: value}) for value in values if value != getattr(rule, field)
        )
    if not rule.weight_decay:
        for value, decoupled in itertools.product(_ALTERNATIVES["weight_decay"][1:], (False, True)):
            yield msgspec.structs.replace(rule, weight_decay=value, decoupled=decoupled)


class Rules(NamedTuple):
    """The rules of two trainings that explain their updates: A's, A's on the updates of B, and B's.

    `fields` are those in which B's rule differs, that with the largest effect on its updates first. `step` is the first
    one in which B's update is not that of A's rule.
    """

    a: Fit
    a_on_b: Fit
    b: Fit
    fields: list[str]
    step: int


def find_rules(a: Trace, b: Trace) -> Rules | None:
    """Find the rules of two optimizers; None if a trace lacks gradients, or follows no known rule."""
    samples_a, samples_b = take_samples(a), take_samples(b)
    if samples_a is None or samples_b is None:
        return None
    declared = [rule for trace in (a, b) if (rule := declared_rule(trace)) is not None]
    fit_a = find_rule(samples_a, [*declared, *DEFAULTS])
    a_on_b = fit(fit_a.rule, samples_b)
    if (fit_b := _confirmed_rule(b, samples_b, a_on_b)) is None:
        fit_b = a_on_b if a_on_b.explains else find_rule(samples_b, [fit_a.rule, *declared[::-1], *DEFAULTS])
    if not (fit_a.explains and fit_b.explains):
        return None

    def effect(field: str) -> float:
        return fit(msgspec.structs.replace(fit_b.rule, **{field: getattr(fit_a.rule, field)}), samples_b).error

    with np.errstate(all="ignore"):
        same_rates = _with_rates_of(fit_a, samples_b)
    # Rates fitted to rounded updates differ a little.
    different = [] if same_rates.explains else differences(fit_a.rule, fit_b.rule)
    fields = sorted(different, key=effect, reverse=True)
    return Rules(fit_a, a_on_b, fit_b, fields, same_rates.step)


def _confirmed_rule(trace: Trace, samples: Samples, other: Fit) -> Fit | None:
    """Return the declared rule if the updates have its learning rate, while another rule needs a rate of its own."""
    declared = declared_rule(trace)
    if declared is None or _is_same_rate(other.rule, declared):
        return None
    fitted = fit(declared, samples)
    return fitted if fitted.explains and _is_same_rate(fitted.rule, declared) else None


def _is_same_rate(a: Rule, b: Rule) -> bool:
    return abs(a.learning_rate - b.learning_rate) < _CONSTANT_RATE * abs(b.learning_rate)


def _with_rates_of(a: Fit, samples: Samples) -> Fit:
    """Return the errors of A's rule with A's own learning rates on the updates of B."""
    count = len(samples.updates)
    rates = np.resize(a.rule.learning_rates or [a.rule.learning_rate], count)
    return _fit_with(a.rule, samples, updates(a.rule, samples, rates))


DEFAULTS = (Rule(family="sgd"), Rule(family="sgd", momentum=0.9), Rule(family="adam"), Rule(family="rmsprop"))
"""Rules to start from if the settings of an optimizer are unknown."""


def differences(a: Rule, b: Rule) -> list[str]:
    """Name the fields in which two rules differ, except those without effect."""
    fields = [name for name in WORDS if getattr(a, name) != getattr(b, name)]
    if a.family != b.family:
        return ["family"]
    is_scheduled = bool(a.learning_rates or b.learning_rates)
    if is_scheduled or _is_same_rate(a, b):
        fields = [name for name in fields if name != "learning_rate"]
    rates = a.learning_rates, b.learning_rates
    if all(rates) and len(rates[0]) == len(rates[1]) and np.allclose(*rates, rtol=_CONSTANT_RATE, atol=0):
        fields = [name for name in fields if name != "learning_rates"]
    if not all(rates) or not (a.momentum and b.momentum):
        fields = [name for name in fields if name != "scaled_velocity"]
    if not a.weight_decay and not b.weight_decay:
        fields = [name for name in fields if name not in _DECAY]
    elif not a.weight_decay or not b.weight_decay:
        fields = [name for name in fields if name not in ("decoupled", "decays")]
    used = {*_FIELDS[a.family], *_DECAY, "clip", "learning_rate", "learning_rates", "scaled_velocity"}
    return [name for name in fields if name in used]
