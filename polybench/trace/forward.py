"""Known causes in the forward pass and the loss: variants of the network, computed by the float64 reference."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from typing import Any, NamedTuple

import numpy as np
from msgspec.structs import replace

from polybench.engines.job import NO_DEVIATIONS, NumericalConventions
from polybench.engines.reference.network import loss_and_gradients
from polybench.errors import BadInput
from polybench.networks import layers as spec
from polybench.networks.model import Model
from polybench.networks.padding import NO_PADDING, Sides, same_in_tensorflow
from polybench.schema.trace import TensorKind
from polybench.trace.batches import decode_labels, with_shape, without_single_axes
from polybench.trace.file import Array, Trace
from polybench.trace.pairing import Pair, relative_error

SUMMED = "adds up the loss over the batch"
SCALED = "scales its gradients"

_ROUNDING = 1e-5
_EXPLAINED = 1e-3
"""Errors of the gradients: what float32 leaves of a network without normalization, and with switched ReLUs."""


class Recorded(NamedTuple):
    """Step 0 of a trace in the canonical layout."""

    loss: float
    weights: Mapping[str, Array]
    gradients: Mapping[str, Array]
    images: Array
    labels: Array


class Variant(NamedTuple):
    """A network with one or several known mistakes.

    Attributes:
        words: what it does, as in "{trace} lacks the ReLU after conv1"; empty for the network itself.
        flipped: names of convolutions whose kernels are flipped.
        is_summed: True if the loss is the sum over the batch.
        is_scaled: True if all gradients are multiplied by a number, which is fitted.
        softmax_twice: True if softmax comes before the cross-entropy, which has its own.
    """

    words: tuple[str, ...]
    model: Model
    flipped: frozenset[str] = frozenset()
    conventions: NumericalConventions = NO_DEVIATIONS
    is_summed: bool = False
    softmax_twice: bool = False
    is_scaled: bool = False


class Explained(NamedTuple):
    """The nearest variant of a trace, and the error of its gradients and loss."""

    variant: Variant
    error: float

    @property
    def explains(self) -> bool:
        """True if only rounding remains."""
        return self.error <= _EXPLAINED


def read_step(trace: Trace, model: Model, pairs: Sequence[Pair], *, is_b: bool) -> Recorded:
    """Read step 0 in the canonical layout; the weights of A must have it.

    Raises:
        BadInput: the trace has no batch, or its weights or inputs are not those of the network.
    """
    shapes = model.weight_shapes()
    weights: dict[str, Array] = {}
    gradients: dict[str, Array] = {}
    for name, pair in zip(shapes, _in_model_order(model, pairs, trace, is_b=is_b), strict=True):
        parts: tuple[tuple[TensorKind, dict[str, Array]], ...] = (("weight", weights), ("gradient", gradients))
        for kind, tensors in parts:
            own_name = pair.b if is_b else pair.a
            if own_name in trace.names(0, kind):
                tensor = trace.tensor(0, kind, own_name)
                tensors[name] = pair.layout.apply(tensor) if is_b else tensor
    names = trace.names(0, "batch")
    if len(names) < 2:
        raise BadInput(f"{trace.path} has no batch: pass batch=(inputs, labels) to `step`")
    images, labels = (trace.tensor(0, "batch", name) for name in names[:2])
    shape = (len(images) if images.ndim else 0, *model.input_shape)
    moved = with_shape(without_single_axes(images), (shape[0], *(length for length in shape[1:] if length != 1)))
    if (found := next(moved, None)) is None:
        raise BadInput(f"{trace.path}: inputs have the shape {images.shape}: expected (batch, {model.input_shape})")
    images, labels = found.reshape(shape), decode_labels(labels).astype("int64")
    loss = trace.steps[0].loss
    return Recorded(np.nan if loss is None else loss, weights, gradients, images, labels)


def _in_model_order(model: Model, pairs: Sequence[Pair], trace: Trace, *, is_b: bool) -> list[Pair]:
    shapes = model.weight_shapes()
    by_name = {pair.a: pair for pair in pairs}
    ordered = [by_name[name] for name in shapes] if {*by_name} == {*shapes} else list(pairs)
    weights = trace.shapes(0, "weight")
    found = [weights[pair.a] if not is_b else shape for pair, shape in zip(ordered, shapes.values(), strict=False)]
    if found != list(shapes.values()) or len(ordered) != len(shapes):
        raise BadInput(
            f"the weights of {trace.path} are not those of {model.name} in their order and layout:"
            " expected A to be a trace of PyTorch or JAX of this network"
        )
    return ordered


def explain(recorded: Recorded, model: Model) -> Explained:
    """Find the variant that computes the recorded loss and gradients: none, one, or two mistakes together.

    One more mistake is accepted if it leaves less than a tenth of the error.
    """
    base = Variant((), model)
    near = [Explained(base, _error(base, recorded))]
    best = near[0]
    for _ in range(2):
        if best.error <= _ROUNDING:
            break
        tried = [Explained(one, _error(one, recorded)) for start in near[:3] for one in variants(start.variant)]
        near = sorted([*near, *tried], key=lambda one: one.error)
        if near[0].error < 0.1 * best.error:
            best = near[0]
    return best


def _error(variant: Variant, recorded: Recorded) -> float:
    """Return the larger one of the errors of the loss and of all gradients together; infinity if it cannot run."""
    weights = dict(recorded.weights)
    for name in variant.flipped:
        weights[f"{name}.weight"] = np.flip(weights[f"{name}.weight"], (2, 3))
    masks = {
        layer.name: np.ones((len(recorded.images), *shape))
        for layer, shape in variant.model.activations()
        if isinstance(layer, spec.Dropout)
    }
    state = {name: np.zeros(shape) for name, shape in variant.model.state_shapes().items()}
    try:
        with np.errstate(all="ignore"):
            computed = loss_and_gradients(
                variant.model,
                weights | state,
                recorded.images,
                recorded.labels,
                variant.conventions,
                masks,
                softmax_twice=variant.softmax_twice,
            )
    except (ValueError, KeyError, IndexError, FloatingPointError):
        return np.inf
    factor = recorded.labels.size if variant.is_summed else 1
    guesses = {
        name: factor * (np.flip(one, (2, 3)) if name.removesuffix(".weight") in variant.flipped else one)
        for name, one in computed.gradients.items()
    }
    found = np.concatenate([np.zeros(0), *(one.ravel() for one in recorded.gradients.values())])
    guess = np.concatenate([np.zeros(0), *(guesses[name].ravel() for name in recorded.gradients)])
    if variant.is_scaled and guess.any():
        guess *= np.vdot(guess, found) / np.vdot(guess, guess)
    error = max(relative_error(recorded.loss, factor * computed.loss), relative_error(found, guess))
    return float(error) if np.isfinite(error) else np.inf


def variants(of: Variant) -> Iterator[Variant]:
    """Iterate over networks with one more known mistake. ADD A CAUSE in the forward pass: a generator, and its row."""
    for mistakes in _MISTAKES:
        yield from mistakes(of)


def _more(of: Variant, words: str, layers: Sequence[spec.Layer]) -> Iterator[Variant]:
    try:
        yield of._replace(words=(*of.words, words), model=replace(of.model, layers=tuple(layers)))
    except ValueError:  # shapes that do not fit
        return


def _activations(of: Variant) -> Iterator[Variant]:
    """Activations that are missing, or are another one."""
    layers, name = of.model.layers, "the input"
    others = (spec.ReLU(), spec.GELU(), spec.GELU("tanh"), spec.SiLU(), spec.ReLU6())
    for index, layer in enumerate(layers):
        after = layers[index + 1] if index + 1 < len(layers) else None
        if isinstance(layer, spec.Named):
            name = layer.name
        if type(layer) in map(type, others):
            words = f"lacks the {_kind(layer)} after {name}"
            yield from _more(of, words, [*layers[:index], *layers[index + 1 :]])
            for other in others:
                if other != layer:
                    words = f"has {_kind(other)} for {_kind(layer)} after {name}"
                    yield from _more(of, words, [*layers[:index], other, *layers[index + 1 :]])
        elif isinstance(layer, spec.Conv | spec.Dense) and type(after) not in map(type, others):
            words = f"has a ReLU after {name}"
            yield from _more(of, words, [*layers[: index + 1], spec.ReLU(), *layers[index + 1 :]])


def _kind(layer: spec.Layer) -> str:
    match layer:
        case spec.GELU(approximate="tanh"):
            return "GELU by tanh"
        case spec.GELU():
            return "exact GELU"
        case _:
            return type(layer).__name__


_Padded = spec.Conv | spec.MaxPool | spec.AveragePool


def _padding(of: Variant) -> Iterator[Variant]:
    """Convolutions and pools with other padding: each alone, or all that have padding by one rule."""
    layers = spec.layer_shapes(of.model.layers, of.model.input_shape)
    rules = [(layer, _usual_padding(layer, shape)) for layer, shape, _ in layers if isinstance(layer, _Padded)]
    for layer, usual in rules:
        for pads in dict.fromkeys(usual.values()):
            yield from _with_padding(of, [(layer, pads)])
    for rule in ("half", "same", "mirrored"):
        changed = [(layer, usual[rule]) for layer, usual in rules if any(layer.pads) and usual[rule] != layer.pads]
        if len(changed) > 1:
            yield from _with_padding(of, changed)


def _usual_padding(layer: _Padded, shape: spec.Shape) -> dict[str, Sides]:
    """Return what is meant by padding: "same" is TensorFlow's, and Flux's is "mirrored" if the window is even."""
    size, pads = layer.kernel if isinstance(layer, spec.Conv) else layer.size, layer.pads
    return {
        "none": NO_PADDING,
        "half": Sides(*[size // 2] * 4),
        "full": Sides(*[size - 1] * 4),
        "same": same_in_tensorflow(shape, size, layer.stride),
        "mirrored": Sides(pads.bottom, pads.top, pads.right, pads.left),
    }


def _with_padding(of: Variant, changed: Sequence[tuple[_Padded, Sides]]) -> Iterator[Variant]:
    layers: Sequence[spec.Layer] = of.model.layers
    for layer, pads in changed:
        layers = _replaced(layers, layer, replace(layer, padding=pads.axes))
    layer, pads = changed[0]
    if pads != layer.pads:
        first, *others = [_name_in(of.model, layer) for layer, _ in changed]
        words = f"pads {first} with {pads} {'zeros' if isinstance(layer, spec.Conv) else 'pixels'}, not {layer.pads}"
        value = ", value=-torch.inf" if isinstance(layer, spec.MaxPool) else ""
        words += "" if pads.symmetric else f", as F.pad(x, {pads.width_first}{value}) before it"
        yield from _more(of, words + (f", and likewise {', '.join(others)}" if others else ""), layers)


def _name_in(model: Model, layer: _Padded) -> str:
    """Return the name of a convolution, or the number of a pool."""
    if isinstance(layer, spec.Conv):
        return layer.name
    pools = [one for one in spec.walk(model.layers) if isinstance(one, spec.MaxPool | spec.AveragePool)]
    return f"pool {_index(pools, layer) + 1}"


def _pooling(of: Variant) -> Iterator[Variant]:
    """Average for maximum in one pool or all, and the reverse; padding that counts in an average, or does not."""
    for kind, other in ((spec.MaxPool, spec.AveragePool), (spec.AveragePool, spec.MaxPool)):
        pools = [layer for layer in spec.walk(of.model.layers) if isinstance(layer, kind)]
        for chosen in [pools, *([one] for one in pools)] if len(pools) > 1 else [pools] if pools else []:
            which = "" if len(chosen) == len(pools) else f" in pool {_index(pools, chosen[0]) + 1}"
            layers: Sequence[spec.Layer] = of.model.layers
            for pool in chosen:
                layers = _replaced(layers, pool, other(pool.size, pool.stride, pool.padding))
            yield from _more(of, f"has {other.__name__} for {kind.__name__}{which}", layers)
    for layer in spec.walk(of.model.layers):
        if isinstance(layer, spec.AveragePool) and any(layer.pads):
            counting = replace(layer, count_padding=not layer.count_padding)
            verb = "counts" if counting.count_padding else "does not count"
            words = f"{verb} the padding of {_name_in(of.model, layer)}"
            yield from _more(of, words, _replaced(of.model.layers, layer, counting))


def _index(layers: Sequence[spec.Layer], layer: spec.Layer) -> int:
    return next(index for index, one in enumerate(layers) if one is layer)


def _epsilon(of: Variant) -> Iterator[Variant]:
    """Another epsilon in all normalizations."""
    norms = [
        one for one in spec.walk(of.model.layers) if isinstance(one, spec.BatchNorm | spec.LayerNorm | spec.GroupNorm)
    ]
    for epsilon in (1e-3, 1e-5, 1e-6, 1e-7, 1e-8, 1e-12) if norms else ():
        if epsilon != norms[0].epsilon:
            layers: Sequence[spec.Layer] = of.model.layers
            for norm in norms:
                layers = _replaced(layers, norm, replace(norm, epsilon=epsilon))
            yield from _more(of, f"has epsilon {epsilon:g} in its normalization, not {norms[0].epsilon:g}", layers)


def _kernels(of: Variant) -> Iterator[Variant]:
    """Convolutions, which flip the kernel, in place of cross-correlations."""
    names = [layer.name for layer in spec.walk(of.model.layers) if isinstance(layer, spec.Conv) and layer.kernel > 1]
    if names and not of.flipped:
        yield of._replace(words=(*of.words, "flips the kernels of all convolutions"), flipped=frozenset(names))
        for name in names if len(names) > 1 else ():
            yield of._replace(words=(*of.words, f"flips the kernel of {name}"), flipped=frozenset([name]))


def _loss(of: Variant) -> Iterator[Variant]:
    """Sum for mean, gradients that are clipped or scaled, label smoothing, and a softmax before the cross-entropy."""
    if not of.is_summed:
        yield of._replace(words=(*of.words, SUMMED), is_summed=True)
    if not of.is_scaled:
        yield of._replace(words=(*of.words, SCALED), is_scaled=True)
    if not of.softmax_twice:
        words = "applies softmax before the cross-entropy, which applies it again"
        yield of._replace(words=(*of.words, words), softmax_twice=True)
    for smoothing in {0.0, 0.05, 0.1, 0.2} - {of.model.label_smoothing}:
        words = f"has label smoothing {smoothing:g}, not {of.model.label_smoothing:g}"
        yield of._replace(words=(*of.words, words), model=replace(of.model, label_smoothing=smoothing))


def _attention(of: Variant) -> Iterator[Variant]:
    """A causal mask that is missing, or too much."""
    blocks = [layer for layer in spec.walk(of.model.layers) if isinstance(layer, spec.Attention)]
    layers: Sequence[spec.Layer] = of.model.layers
    for block in blocks:
        layers = _replaced(layers, block, replace(block, causal=not block.causal))
    if blocks:
        words = "has no causal mask" if blocks[0].causal else "has a causal mask"
        yield from _more(of, words, layers)


def _arithmetic(of: Variant) -> Iterator[Variant]:
    """Ties of max-pools, and products with fewer bits."""
    kinds = {type(layer) for layer in spec.walk(of.model.layers)}
    for words, needed, changes in _ARITHMETIC:
        if kinds & needed and all(getattr(of.conventions, name) == getattr(NO_DEVIATIONS, name) for name in changes):
            yield of._replace(words=(*of.words, words), conventions=replace(of.conventions, **changes))


FIRST_NEAR_MAXIMUM = "gives a max-pool's gradient to the first value near the maximum, as NNlib does on the CPU"
"""A convention of Flux and Lux."""
_PRODUCTS = {spec.Conv, spec.Dense}
_ARITHMETIC: tuple[tuple[str, Set[type], Mapping[str, Any]], ...] = (
    ("shares a max-pool's gradient among equal maxima", {spec.MaxPool}, {"max_pool_ties": "shared"}),
    ("gives a max-pool's gradient to each of several equal maxima", {spec.MaxPool}, {"max_pool_ties": "all"}),
    (FIRST_NEAR_MAXIMUM, {spec.MaxPool}, {"max_pool_within": 2**-11.5}),
    ("computes products in TF32, whose operands have 11 significant bits", _PRODUCTS, {"operand_bits": 11}),
    ("computes products of operands in bfloat16, which has 8 significant bits", _PRODUCTS, {"operand_bits": 8}),
)
"""Words, the layers of which a network needs one, and the conventions. The tolerance is that of NNlib in float32."""


def _replaced(layers: Sequence[spec.Layer], old: spec.Layer, new: spec.Layer) -> list[spec.Layer]:
    """Replace a layer, also inside of residual blocks."""
    return [
        new
        if layer is old
        else replace(
            layer, body=tuple(_replaced(layer.body, old, new)), shortcut=tuple(_replaced(layer.shortcut, old, new))
        )
        if isinstance(layer, spec.Residual)
        else layer
        for layer in layers
    ]


_MISTAKES: tuple[Callable[[Variant], Iterator[Variant]], ...] = (
    _loss,
    _activations,
    _padding,
    _pooling,
    _epsilon,
    _kernels,
    _attention,
    _arithmetic,
)

FORWARD_CAUSES = (
    "a missing or other activation",
    "padding",
    "kind of pooling",
    "epsilon of normalization",
    "flipped kernels",
    "label smoothing",
    "softmax twice",
    "causal mask",
    "ties of max-pools",
    "TF32",
)
"""The causes of this module in words, for messages about what was tried."""
