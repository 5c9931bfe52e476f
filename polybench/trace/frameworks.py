"""Tensors and settings of models in PyTorch, Keras and JAX. ADD A FRAMEWORK: a class, and its line in `find_source`.

No framework is imported here: a user's program has imported its own.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, Protocol

import numpy as np

from polybench.errors import BadInput
from polybench.schema.trace import TensorKind
from polybench.trace.file import Array


class Tensor(NamedTuple):
    """A tensor in NumPy, and the type that it has in its framework."""

    values: Array
    dtype: str


Named = Iterator[tuple[str, Tensor]]


class Source(Protocol):
    """The facts and the tensors of a training, for a recorder."""

    def header(self) -> dict[str, Any]:
        """Return the fields of the trace's header that a framework knows."""

    def tensors(self, kind: TensorKind) -> Named:
        """Iterate over the tensors that the framework itself has; gradients have the names of their weights."""


def find_source(model: Any, optimizer: Any) -> Source:
    """Return the source for a model of any framework; raises BadInput."""
    if _is_a(model, "torch", "nn.Module") and not _is_a(model, "keras", "Layer"):
        return _Torch(model, optimizer)
    if _is_a(model, "keras", "Layer"):
        return _Keras(model, optimizer)
    if isinstance(model, Mapping | list | tuple) or _leaves(model):
        return _Tree(model)
    raise BadInput(f"model is a {type(model).__name__}: expected a torch.nn.Module, a Keras model or a tree of arrays")


def to_numpy(tensor: Any) -> Tensor:
    """Return a tensor of any framework in NumPy; numbers that NumPy lacks (bfloat16, float8) become float32."""
    if hasattr(tensor, "detach"):
        dtype = str(tensor.dtype).removeprefix("torch.")
        tensor = tensor.detach().cpu()
        lacks = tensor.is_floating_point() and dtype not in ("float16", "float32", "float64")
        return Tensor(np.asarray(tensor.float() if lacks else tensor), dtype)
    array = np.asarray(tensor)
    lacks = array.dtype.kind == "V" or array.dtype.name == "bfloat16"
    return Tensor(array.astype("float32") if lacks else array, array.dtype.name)


def named_tensors(tree: Any, prefix: str = "") -> Named:
    """Iterate over the arrays of nested mappings, sequences and, with JAX, of every registered tree."""
    if tree is None:
        return
    if isinstance(tree, Mapping):
        children: Iterator[tuple[Any, Any]] = iter(tree.items())
    elif isinstance(tree, list | tuple):
        names = getattr(tree, "_fields", range(len(tree)))
        children = zip(names, tree, strict=True)
    elif leaves := _leaves(tree):
        children = iter(leaves)
    else:
        yield prefix, to_numpy(tree)
        return
    for name, child in children:
        yield from named_tensors(child, f"{prefix}/{name}" if prefix else str(name))


def _leaves(tree: Any) -> list[tuple[str, Any]]:
    """Return names and leaves of a tree that JAX knows, such as a module of Equinox; empty for other values."""
    jax = sys.modules.get("jax")
    if jax is None or hasattr(tree, "shape"):
        return []
    leaves = jax.tree_util.tree_flatten_with_path(tree)[0]
    return [(jax.tree_util.keystr(path).strip(".[]'\""), leaf) for path, leaf in leaves if leaf is not tree]


def _is_a(value: Any, module: str, name: str) -> bool:
    """Return True if `value` is an instance of this class of a module that the program has imported."""
    kind: Any = sys.modules.get(module)
    for part in name.split("."):
        kind = getattr(kind, part, None)
    return kind is not None and isinstance(value, kind)


def _plain(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Keep numbers, texts, and lists of numbers."""

    def is_plain(value: Any) -> bool:
        if isinstance(value, list | tuple):
            return all(isinstance(one, int | float) for one in value)
        return value is None or isinstance(value, bool | int | float | str)

    return {name: value for name, value in settings.items() if is_plain(value)}


class _Torch:
    """A `torch.nn.Module` and a `torch.optim.Optimizer`."""

    def __init__(self, model: Any, optimizer: Any) -> None:
        self._torch = sys.modules["torch"]
        self._model, self._optimizer = model, optimizer

    def header(self) -> dict[str, Any]:
        torch = self._torch
        layers = [
            (name, type(layer).__name__, f"{layer.extra_repr()}, training={layer.training}")
            for name, layer in self._model.named_modules()
            if not list(layer.children())
        ]
        flags = {
            "float32_matmul_precision": torch.get_float32_matmul_precision(),
            "cudnn.allow_tf32": torch.backends.cudnn.allow_tf32,
        }
        fields = {"framework": "torch", "versions": {"torch": str(torch.__version__)}, "layers": layers, "flags": flags}
        if self._optimizer is not None:
            groups = self._optimizer.param_groups
            decays = {group.get("weight_decay", 0) for group in groups}
            settings = _plain(groups[0]) | ({"weight_decay": max(decays)} if len(decays) > 1 else {})
            fields |= {"optimizer_name": type(self._optimizer).__name__, "optimizer": settings}
        return fields

    def tensors(self, kind: TensorKind) -> Named:
        weights = dict(self._model.named_parameters())
        match kind:
            case "weight":
                yield from ((name, to_numpy(weight)) for name, weight in weights.items())
            case "gradient":
                yield from ((name, to_numpy(one.grad)) for name, one in weights.items() if one.grad is not None)
            case "statistic":
                buffers = self._model.named_buffers()
                yield from ((name, to_numpy(buffer)) for name, buffer in buffers if buffer.is_floating_point())
            case "optimizer" if self._optimizer is not None:
                for name, weight in weights.items():
                    state = self._optimizer.state.get(weight, {})
                    yield from ((f"{name}/{key}", to_numpy(one)) for key, one in state.items() if one is not None)


class _Keras:
    """A Keras model and a `keras.optimizers.Optimizer`."""

    def __init__(self, model: Any, optimizer: Any) -> None:
        self._keras = sys.modules["keras"]
        self._model, self._optimizer = model, optimizer or getattr(model, "optimizer", None)

    def header(self) -> dict[str, Any]:
        fields = {
            "framework": f"keras on {self._keras.backend.backend()}",
            "versions": {"keras": str(self._keras.__version__)},
            "layers": [
                (layer.name, type(layer).__name__, str(_plain(layer.get_config())))
                for layer in getattr(self._model, "layers", ())
            ],
            "flags": {"floatx": self._keras.config.floatx(), "dtype_policy": self._model.dtype_policy.name},
        }
        if self._optimizer is not None:
            settings = _plain(self._optimizer.get_config())
            fields |= {"optimizer_name": type(self._optimizer).__name__, "optimizer": settings}
        return fields

    def tensors(self, kind: TensorKind) -> Named:
        match kind:
            case "weight":
                variables = self._model.trainable_variables
            case "statistic":
                variables = [one for one in self._model.non_trainable_variables if "float" in str(one.dtype)]
            case "optimizer" if self._optimizer is not None:
                variables = self._optimizer.variables
            case _:
                variables = []
        for variable in variables:
            yield str(variable.path), to_numpy(self._keras.ops.convert_to_numpy(variable))


class _Tree:
    """Trees of arrays: JAX, and every framework whose user has them as nested dictionaries."""

    def __init__(self, weights: Any) -> None:
        self._initial = weights

    def header(self) -> dict[str, Any]:
        jax = sys.modules.get("jax")
        if jax is None:
            return {"framework": "numpy", "versions": {"numpy": np.__version__}}
        flags = {"default_matmul_precision": str(jax.config.jax_default_matmul_precision)}
        return {"framework": "jax", "versions": {"jax": str(jax.__version__)}, "flags": flags}

    def tensors(self, kind: TensorKind) -> Named:
        initial, self._initial = self._initial, None
        if kind == "weight" and initial is None:
            raise BadInput("step needs weights=..., the tree after the update: this training's model is a tree")
        yield from named_tensors(initial if kind == "weight" else None)
