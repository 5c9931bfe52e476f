"""Finds arrays of float64 in what a training in float32 holds, in any Python framework, by their shapes and types."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType, NoneType
from typing import Any

import numpy as np

_MAX_DEPTH = 8
"""Containers within containers; deeper ones are a framework's own."""

_OPAQUE = (
    *(str, bytes, int, float, complex, type, NoneType),
    *(ModuleType, FunctionType, MethodType, BuiltinFunctionType),
    *(np.random.Generator, np.random.RandomState, np.random.BitGenerator),
)
"""Types of objects that hold no arrays of a training."""


def float64_tensors(**held: object) -> list[str]:
    """Return the names of arrays of float64: `state.model.conv1.weight`, `batch[0]`, and of a loss that is one.

    A single number in float64 takes no time, and Python's own numbers do not change the type of an array. But a loss of
    a framework's type in float64 shows that the layers before it have computed in it.
    """
    search = _Search()
    names = [name for key, value in held.items() for name in search.names(value, key, 0)]
    loss = held.get("loss")
    is_promoted = _is_float64(loss) and not isinstance(loss, np.generic) and "loss" not in names
    return [*names, "loss"] if is_promoted else names


class _Search:
    """A walk through objects that visits each once."""

    def __init__(self) -> None:
        self._seen: dict[int, object] = {}
        self._parameters: dict[int, str] = {}

    def names(self, value: Any, name: str, depth: int) -> Iterator[str]:
        """Yield the names of arrays of float64 in this value, which has this name."""
        if isinstance(value, _OPAQUE) or id(value) in self._seen or depth > _MAX_DEPTH:
            return
        self._seen[id(value)] = value  # keeps it alive, so that no other object gets its ID
        if hasattr(value, "dtype") and hasattr(value, "shape"):
            if _is_float64(value) and len(value.shape) > 0:
                yield name
            return
        for part, one in self._parts(value, name):
            yield from self.names(one, part, depth + 1)

    def _parts(self, value: Any, name: str) -> Iterator[tuple[str, Any]]:
        """Yield what an object consists of, by name; for models and optimizers by the names that users gave."""
        if hasattr(value, "named_parameters"):  # PyTorch's modules
            for part, tensor in (*value.named_parameters(), *value.named_buffers()):
                self._parameters[id(tensor)] = part
                yield f"{name}.{part}", tensor
        elif isinstance(variables := getattr(value, "variables", None), list | tuple):  # TensorFlow and Keras
            for variable in variables:
                yield f"{name}.{getattr(variable, 'path', None) or variable.name}", variable
        elif isinstance(value, Mapping):
            for key, one in value.items():
                yield f"{name}[{self._parameters.get(id(key)) or _key(key)}]", one
        elif isinstance(value, list | tuple | set | frozenset):
            fields = getattr(value, "_fields", None)
            for index, one in enumerate(value):
                yield f"{name}.{fields[index]}" if fields else f"{name}[{index}]", one
        else:
            for part, one in getattr(value, "__dict__", {}).items():
                yield f"{name}.{part}", one


def _key(key: object) -> str:
    return repr(key) if isinstance(key, str | int) else type(key).__name__


def _is_float64(value: Any) -> bool:
    dtype = getattr(value, "dtype", None)
    return str(getattr(dtype, "name", dtype)).endswith("float64")
