"""Reads a user's program without running it: its functions, and the constants at its top."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import NamedTuple

from polybench.errors import BadInput
from polybench.schema.options import JULIA_SUFFIX, PROGRAM_SUFFIXES

_DTYPE = re.compile(r"^((?:const )?DTYPE\b[^=\n]*=[^\n]*?\b[fF]loat)(?:32|64)\b", re.MULTILINE)
_DEVICE = re.compile(r"""^((?:const )?DEVICE\b[^=\n]*=\s*)(["'])(?:cpu|cuda(?::\d+)?)\2""", re.MULTILINE)


class Source(NamedTuple):
    """A program: its path, its text, and the names of its functions and their numbers of parameters."""

    path: Path
    text: str
    functions: dict[str, int]

    @property
    def is_julia(self) -> bool:
        return self.path.suffix == JULIA_SUFFIX

    @property
    def has_dtype(self) -> bool:
        """True if the program can run in another precision: `DTYPE = torch.float32` at its top."""
        return bool(_DTYPE.search(self.text))

    @property
    def takes_weights(self) -> bool:
        """True if its training starts from given weights, so that its losses are those of the reference."""
        return self.functions["setup"] > 0

    def adapted(self, dtype: str, device: str) -> str:
        """Return the text with another `DTYPE`, `float32` or `float64`, and another `DEVICE`, if it has them."""
        text = _DTYPE.sub(rf"\g<1>{dtype.removeprefix('float')}", self.text, count=1)
        name = "cuda:0" if device == "cuda" else device
        return _DEVICE.sub(lambda found: f"{found[1]}{found[2]}{name}{found[2]}", text, count=1)

    @property
    def has_device(self) -> bool:
        """True if the program can run on another device: `DEVICE = "cpu"` at its top."""
        return bool(_DEVICE.search(self.text))


def read_source(path: Path) -> Source:
    """Read a program; raises BadInput if it cannot be read, is no Python, or lacks a function.

    The syntax of a program in Julia is checked when Julia runs it.
    """
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        problem = getattr(error, "strerror", None) or "not UTF-8"
        raise BadInput(
            f"{path}: {problem}: expected a program, a file ending in {' or '.join(PROGRAM_SUFFIXES)}"
        ) from None
    is_julia = path.suffix == JULIA_SUFFIX
    functions = _julia_functions(text) if is_julia else dict(_functions(_parse(path, text)))
    step = f"train_step{'!' if is_julia else ''}"
    if missing := [name for name in ("setup", "load", step) if name not in functions]:
        raise BadInput(
            f"{path} lacks {' and '.join(f'{name}()' for name in missing)}: expected the functions setup(weights),"
            f" load(images, labels) and {step}(state, batch); polybench export ID prints programs that have them"
        )
    return Source(path, text, functions)


def _parse(path: Path, text: str) -> ast.Module:
    try:
        return ast.parse(text)
    except SyntaxError as error:
        raise BadInput(f"{path}, line {error.lineno}: {error.msg}: expected a program in Python") from None


_JULIA_FUNCTION = re.compile(r"^(?:function\s+)?(?P<name>\w+!?)\((?P<parameters>[^)]*)", re.MULTILINE)


def _julia_functions(text: str) -> dict[str, int]:
    """Return what lines at the left margin define or call, with the parameters of its longest method."""
    found: dict[str, int] = {}
    for match in _JULIA_FUNCTION.finditer(text):
        positional = match["parameters"].partition(";")[0]
        parameters = len([one for one in positional.split(",") if one.strip()])
        found[match["name"]] = max(parameters, found.get(match["name"], 0))
    return found


def _functions(tree: ast.Module) -> list[tuple[str, int]]:
    """Return the functions that the module defines or imports; an imported or assigned one may have any parameters."""
    found: list[tuple[str, int]] = []
    for node in tree.body:
        match node:
            case ast.FunctionDef():
                arguments = node.args
                several = 1 if arguments.vararg or arguments.kwarg else 0
                found.append((node.name, len(arguments.posonlyargs) + len(arguments.args) + several))
            case ast.Import() | ast.ImportFrom():
                found += [(alias.asname or alias.name, 1) for alias in node.names]
            case ast.Assign():
                found += [(target.id, 1) for target in node.targets if isinstance(target, ast.Name)]
            case _:
                pass
    return found
