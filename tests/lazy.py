"""Modules that tests import when they first use them: collecting the tests imports no framework."""

from __future__ import annotations

import functools
import importlib
from importlib.util import find_spec
from typing import Any

import pytest


class Lazy:
    """A module, such as `Lazy("torch.nn")`; its first use skips the test if `framework` is missing."""

    def __init__(self, module: str, framework: str) -> None:
        self._name, self._framework = module, framework

    @functools.cached_property
    def _module(self) -> Any:
        pytest.importorskip(self._framework)
        return importlib.import_module(self._name)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # pytest looks for __test__ and _mock_name when it collects
            raise AttributeError(name)
        return getattr(self._module, name)


def needs(*frameworks: str) -> pytest.MarkDecorator:
    """Return a mark that skips tests without these frameworks, and does not import them."""
    missing = [name for name in frameworks if find_spec(name) is None]
    return pytest.mark.skipif(bool(missing), reason=f"{', '.join(missing)} is not installed")
