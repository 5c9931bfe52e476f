"""Every argument of a user's Keras layers, calls, models and losses: mapped, without effect, or refused by its value.

Keras's `get_config` has all arguments, because a saved model is built from it again. Those that no layer of polybench
has keep their defaults.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from typing import Any

import keras
from keras.losses import CategoricalCrossentropy, SparseCategoricalCrossentropy
from keras.src.models.functional import Functional

from polybench.importer.errors import one_line
from polybench.importer.graph import Source

_HARMLESS = {"name", "seed", "unroll", "unit_forget_bias", "zero_output_for_mask"}
"""Arguments without effect on a training from given weights, as all initializers are; no imported model has a mask."""

_ACCEPTED = {"data_format": ("channels_last",), "dtype": ("float32", "float64")}
"""Values by argument, instead of the default. The precision of a benchmark is an option of polybench."""

_DATA = {"inputs", "sequences", "query", "value", "key", "x", "x1", "x2"}
"""Parameters of Keras's `call` for the values that flow through the model."""

_METHODS = {"build", "quantize", "loss", "get_config", "from_config", "summary", "metrics", "compute_metrics"}
"""Methods without effect on a training step; Keras itself sets the first three in its instances."""

_KINDS = {*Functional.__mro__, *keras.Sequential.__mro__}

_CROSS_ENTROPIES = {
    keras.losses.sparse_categorical_crossentropy: SparseCategoricalCrossentropy,
    keras.losses.categorical_crossentropy: CategoricalCrossentropy,
}


def check_arguments(source: Source, part: Any, mapped: Iterable[str]) -> None:
    """Raise BadInput at the first argument of a layer or loss that is not in `mapped` and has an effect."""
    for name, found in part.get_config().items():
        is_idle = name == "trainable" and not part.weights
        if name in mapped or name in _HARMLESS or name.endswith("_initializer") or is_idle:
            continue
        value, default = _value(part, name, found), _default(type(part), name)
        accepted = _ACCEPTED.get(name, (default,))
        is_unset = default is None and value is False
        if value not in accepted and not is_unset:
            raise source.error(f"{name}={show(value)}: expected {' or '.join(map(str, accepted))}")


def _value(part: Any, name: str, found: Any) -> Any:
    """Return the value of an argument, given that of `get_config`, which has a user's functions by name only."""
    if name == "dtype":
        return part.dtype_policy.name
    function = getattr(part, name, None)
    if inspect.isfunction(function) and isinstance(found, str) and function is not keras.activations.get(found):
        return function
    return found


def _default(kind: type[Any], name: str) -> Any:
    """Return the default of an argument; the class passes those of its bases on."""
    for one in kind.__mro__:
        parameter = inspect.signature(vars(one).get("__init__", object.__init__)).parameters.get(name)
        if parameter is not None and parameter.default is not parameter.empty:
            return parameter.default
    return None


def show(value: Any) -> str:
    """Return an argument as a user writes it: `L2(l2=0.01)` for Keras's record of an object."""
    if inspect.isfunction(value):
        return f"{value.__module__}.{value.__qualname__}"
    if hasattr(value, "get_config"):
        return type(value).__name__
    if not isinstance(value, dict) or "class_name" not in value:
        return str(value)
    config = value["config"]
    if not isinstance(config, dict):
        return str(config)
    return f"{value['class_name']}({', '.join(f'{name}={show(one)}' for name, one in config.items())})"


def check_call(source: Source, operation: Any, node: Any) -> None:
    """Raise BadInput at the first argument of a call, other than the values that flow, without its default."""
    signature = inspect.signature(operation.call)
    given = signature.bind(*node.arguments.args, **node.arguments.kwargs).arguments
    for name, value in given.items():
        is_symbolic = any(isinstance(one, keras.KerasTensor) for one in keras.tree.flatten(value))
        text = "a value of the model" if is_symbolic else one_line(str(value))
        if name in _DATA:
            if not all(isinstance(one, keras.KerasTensor) for one in keras.tree.flatten(value)):
                raise source.error(f"called with {name}={text}: expected values that depend on the input")
        elif value is not None and (is_symbolic or value != signature.parameters[name].default):
            raise source.error(f"called with {name}={text}: expected {signature.parameters[name].default}")


def check_methods(source: Source, part: Any) -> None:
    """Raise BadInput if a layer or model, or a class between the model's and Keras's, has methods of its own."""
    own = {name for name, value in vars(part).items() if callable(value) and callable(getattr(type(part), name, None))}
    if isinstance(part, keras.Model):
        known = {name for kind in _KINDS for name in vars(kind) if not name.startswith("__") or name == "__call__"}
        own |= {name for kind in type(part).__mro__ if kind not in _KINDS for name in vars(kind) if name in known}
    if own := own - _METHODS:
        raise source.error(f"your own {', '.join(sorted(own))}: expected the training step of Keras")


def check_losses(model: Any, *, from_logits: bool) -> None:
    """Raise BadInput unless the model's loss is the mean cross-entropy; a model without `compile` has none yet."""
    source = Source("compile", model.name)
    if model.losses:
        raise Source("add_loss", model.name).error(f"{len(model.losses)} losses: expected only the cross-entropy")
    compiled = getattr(model, "loss", None)
    losses = [compiled] if isinstance(compiled, dict) and "class_name" in compiled else keras.tree.flatten(compiled)
    if losses == [None]:
        return
    weights = keras.tree.flatten(model._compile_loss._user_loss_weights)
    if len(losses) > 1 or any(weight not in (None, 1) for weight in weights):
        raise source.error(f"loss={show(model.loss)}, loss_weights={weights}: expected one loss without a weight")
    loss = keras.losses.get(losses[0])
    if inspect.isfunction(loss) and loss in _CROSS_ENTROPIES:
        loss = _CROSS_ENTROPIES[loss]()
    if type(loss) not in _CROSS_ENTROPIES.values():
        kinds = " or ".join(kind.__name__ for kind in _CROSS_ENTROPIES.values())
        raise source.error(f"loss={show(losses[0])}: expected {kinds}")
    check_arguments(Source(type(loss).__name__, source.place), loss, {"from_logits"})
    if loss.get_config()["from_logits"] != from_logits:
        end = "in logits" if from_logits else "in a softmax"
        raise source.error(f"from_logits={not from_logits}: expected {from_logits}, because the model ends {end}")
