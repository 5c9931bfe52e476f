"""PyTorch: what a module does in training that the graph of `torch.export` does not show, which is refused."""

from __future__ import annotations

import contextlib
import re
import sysconfig
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.nn.utils import parametrize
from torch.overrides import TorchFunctionMode

from polybench.errors import BadInput
from polybench.importer.graph import not_tokens, several_outputs

_MODULE_HOOKS = {
    "_backward_hooks": "register_full_backward_hook",
    "_backward_pre_hooks": "register_full_backward_pre_hook",
}
"""Hooks of a module that change gradients, and how they are added. The graph has what forward hooks compute."""

_TENSOR_HOOKS = {
    "_backward_hooks": "register_hook",
    "_post_accumulate_grad_hooks": "register_post_accumulate_grad_hook",
}
_ARGUMENTS: tuple[tuple[type, str, Callable[[Any], bool], str], ...] = (
    (nn.Embedding, "max_norm", lambda value: value is None, "None"),
    (nn.modules.batchnorm._NormBase, "momentum", lambda value: value is not None, "a number"),
)
"""Arguments of modules that the graph does not show as such: the class, the name, which values exist, their name."""

_FLOATS = (torch.float32, torch.float64)
_OTHER_CODE = (str(Path(torch.__file__).parent), str(Path(__file__).parents[1]), sysconfig.get_path("stdlib"), "<")
"""Where the files of code that is not the user's begin."""

_CHANGED = "the forward pass changes this weight in place: expected weights that only the optimizer changes"
_IN_PLACE = re.compile(r".*[^_]_|__setitem__|__i\w+__")
"""Names of functions that overwrite their first argument."""


@contextlib.contextmanager
def explained(step: str, module: Any, file: Path | None) -> Iterator[None]:
    """Turn an exception of the user's code in this step of the import into BadInput with its line."""
    try:
        yield
    except (BadInput, KeyboardInterrupt):
        raise
    except BaseException as error:
        raise BadInput(f"{_place(error, file) or type(module).__name__}: {step}: {_problem(error)}") from error


def _place(error: BaseException, file: Path | None) -> str:
    """Return the last line of the user's file that led to an exception, or else of other code than PyTorch's."""
    frames = [(one.filename, str(one.lineno)) for one in traceback.extract_tb(error.__traceback__)]
    frames += re.findall(r'File "([^"]+)", line (\d+)', str(error))
    own = [frame for frame in frames if file is not None and Path(frame[0]) == file]
    others = [frame for frame in frames if not frame[0].startswith(_OTHER_CODE)]
    name, line = (own or others or [("", "")])[-1]
    return f"{Path(name).name}:{line}" if name else ""


def _problem(error: BaseException) -> str:
    text, kind = str(error).strip().partition("\n")[0], type(error).__name__
    if "data-dependent" in str(error) or "GuardOnDataDependent" in kind:
        return "control flow or a shape depends on the values of a tensor: expected the same operations for all inputs"
    return text if isinstance(error, RuntimeError | NotImplementedError) and text else f"{kind}: {text}".rstrip(": ")


def check_module(module: Any) -> None:
    """Raise BadInput for parts of a module that train in a way of their own: modes, hooks, parametrizations, dtypes."""
    model = type(module).__name__
    for name, one in module.named_modules():
        _check_part(name or model, one)
        if one.training != module.training:
            raise BadInput(
                f"{name}: training={one.training}, but {model} has training={module.training}: expected one mode for"
                " all modules, because polybench trains every layer"
            )
    dtypes: dict[Any, str] = {}
    for name, parameter in module.named_parameters():
        kind = str(parameter.dtype).removeprefix("torch.")
        dtypes.setdefault(parameter.dtype, name)
        if parameter.dtype not in _FLOATS:
            raise BadInput(f"{name} is {kind}: expected weights of real numbers, float32 or float64")
        if len(dtypes) > 1:
            raise BadInput(f"{name} is {kind}, but {next(iter(dtypes.values()))} is not: expected one dtype")
        if type(parameter) is not nn.Parameter:
            raise BadInput(f"{name} is of type {type(parameter).__name__}: expected torch.nn.Parameter")
        if parameter.device.type != "cpu":
            raise BadInput(f"{name} is on the device {parameter.device}: expected cpu")
        _check_hooks(name, parameter, _TENSOR_HOOKS)


def _check_part(name: str, module: Any) -> None:
    _check_hooks(name, module, _MODULE_HOOKS)
    for kind, argument, exists, expected in _ARGUMENTS:
        if isinstance(module, kind) and not exists(value := getattr(module, argument)):
            raise BadInput(f"{name}: {type(module).__name__}: {argument}={value}: expected {expected}")
    if parametrize.is_parametrized(module):
        for tensor, functions in module.parametrizations.items():
            raise BadInput(
                f"{name}.{tensor}: parametrized by {type(functions[0]).__name__}: expected a parameter: use"
                " torch.nn.utils.parametrize.remove_parametrizations"
            )
    for hook in module._forward_pre_hooks.values():
        if type(hook).__module__.startswith("torch.nn.utils."):  # the older spectral_norm and weight_norm, and prune
            raise BadInput(
                f"{name}: {type(hook).__name__} of {type(hook).__module__} computes a weight before each step:"
                " expected a parameter: remove it"
            )


def _check_hooks(name: str, owner: Any, kinds: dict[str, str]) -> None:
    for attribute, method in kinds.items():
        if getattr(owner, attribute, None):
            raise BadInput(f"{name}: a hook of {method} sees or changes its gradients: expected no hook: remove it")


@contextlib.contextmanager
def training(module: Any) -> Iterator[None]:
    """Put the module into training; its modes, weights and buffers are restored afterwards."""
    parts = [(one, one.training, dict(one._buffers)) for one in module.modules()]
    values = [(tensor, tensor.detach().clone()) for tensor in (*module.parameters(), *module.buffers())]
    module.train()
    try:
        yield
    finally:
        for one, mode, buffers in parts:
            one.training = mode
            one._buffers.update(buffers)
        for tensor, value in values:
            tensor.data.copy_(value)


class Forward(NamedTuple):
    """A forward pass of the module itself: its output, and the names of the buffers that it changed."""

    output: Any
    changed: set[str]


def run_forward(module: Any, example: Any) -> Forward:
    """Run the module in training; BadInput if it changes its weights, or its gradients are code of the user's own."""
    buffers = {name: buffer.clone() for name, buffer in module.named_buffers()}
    weights = {name: weight.detach().clone() for name, weight in module.named_parameters()}
    with torch.random.fork_rng(devices=()), _RefusedCalls(module):
        output = only_tensor(module(example))
    for name, weight in module.named_parameters():
        if not _equal(weight, weights[name]):
            raise BadInput(f"{name}: {_CHANGED}")
    _check_autograd(output)
    return Forward(output, {name for name, one in module.named_buffers() if not _equal(one, buffers.get(name))})


def run_on_tokens(module: Any, tokens: Any, features: Any) -> Forward:
    """Run the module on tokens; BadInput if it runs on features only."""
    try:
        return run_forward(module, tokens)
    except Exception as error:
        try:
            run_forward(module, features)
        except Exception:  # the module fails in any case
            raise error from None
        raise not_tokens(type(module).__name__, tokens.shape[1]) from error


def check_backward(module: Any, output: Any) -> None:
    """Compute gradients from the output of a forward pass; raises what PyTorch raises."""
    if not output.requires_grad:
        raise RuntimeError("the output has no gradient: remove torch.no_grad() and torch.set_grad_enabled(False)")
    trained = [one for one in module.parameters() if one.requires_grad]
    torch.autograd.grad(output.sum(), trained, allow_unused=True)


def only_tensor(output: Any) -> Any:
    """Return the model's output, the logits, or None; TypeError if it has several. Parts that are None do not count."""
    parts = [(path, one) for path, one in torch.utils._pytree.tree_flatten_with_path(output)[0] if one is not None]
    for _, one in parts:
        if not isinstance(one, torch.Tensor):
            raise TypeError(f"the output is of type {type(one).__name__}: expected a tensor, the logits")
    if len(parts) > 1:
        raise TypeError(several_outputs([torch.utils._pytree.keystr(path) for path, _ in parts]))
    return parts[0][1] if parts else None


class _RefusedCalls(TorchFunctionMode):  # type: ignore[misc]
    """Refuses calls that add a hook to a tensor or overwrite a weight."""

    def __init__(self, module: Any) -> None:
        super().__init__()
        self._weights = {_storage(weight): name for name, weight in module.named_parameters() if weight.numel()}

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = str(getattr(function, "__name__", ""))
        if name in _TENSOR_HOOKS.values():
            raise NotImplementedError(f"a hook of {name} sees or changes gradients: remove it")
        overwrites = _IN_PLACE.fullmatch(name) and args and isinstance(args[0], torch.Tensor)
        if overwrites and (weight := self._weights.get(_storage(args[0]))):
            raise NotImplementedError(f"{name} of {weight}: {_CHANGED}")
        return function(*args, **(kwargs or {}))


def _equal(tensor: Any, other: Any) -> bool:
    """Return True for tensors of equal values; a new tensor is not equal to None."""
    return other is not None and bool(((tensor == other) | (other != other)).all())  # noqa: PLR0124 - NaN is equal


def _storage(tensor: Any) -> int:
    return int(tensor.untyped_storage().data_ptr())


def _check_autograd(output: Any) -> None:
    """Raise BadInput for a gradient that the user's code computes; the exported program has only the forward pass."""
    pending, seen = [getattr(output, "grad_fn", None)], set()
    while pending:
        function = pending.pop()
        if function is None or function in seen:
            continue
        seen.add(function)
        if isinstance(function, torch.autograd.function.BackwardCFunction):
            owner = type(function)._forward_cls
            code = owner.forward.__code__
            place = f"{Path(code.co_filename).name}:{code.co_firstlineno}"
            raise BadInput(f"{place}: {owner.__name__}: a torch.autograd.Function has a gradient of its own: remove it")
        pending += [one for one, _ in function.next_functions]
