"""Dropout and batch norm in the code of a network in JAX; tests/scripts/test_network_code.py runs networks."""

from __future__ import annotations

import ast
import re
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import msgspec
import numpy as np
import pytest

from polybench.networks import find_model
from polybench.networks.initial_weights import initial_weights
from polybench.networks.layers import Dense, Dropout, MeanOverTime
from polybench.scripts.network_code import write_code
from tests.example_networks import FEATURES


def test_running_variances_in_jax_are_those_of_samples() -> None:
    model = find_model("resnet32")
    code = write_code(model, initial_weights(model, 0), "jax").network
    function = next(node for node in ast.parse(code).body if getattr(node, "name", "") == "batch_norm")
    names: dict[str, Any] = {"jnp": np}
    exec(ast.unparse(function), names)
    x = np.random.default_rng(0).normal(size=(4, 2, 3, 3))
    before = {"running_mean": np.zeros(2), "running_variance": np.ones(2), "weight": np.ones(2), "bias": np.zeros(2)}
    statistics: dict[str, Any] = {}
    names["batch_norm"]({f"n.{name}": value for name, value in before.items()}, "n", x, statistics, 1e-5, 0.1, True)
    assert statistics["n.running_mean"] == pytest.approx(0.1 * x.mean((0, 2, 3)))
    assert statistics["n.running_variance"] == pytest.approx(0.9 + 0.1 * x.var((0, 2, 3), ddof=1))


def test_each_dropout_layer_in_jax_has_a_key_of_its_own() -> None:
    layers = (Dropout("first", 0.25), Dropout("second", 0.25), MeanOverTime(), Dense("dense", 4, 4))
    model = msgspec.structs.replace(FEATURES, layers=layers)
    code = write_code(model, initial_weights(model, 0), "jax").network
    function = next(node for node in ast.parse(code).body if getattr(node, "name", "") == "dropout")
    random, where = Mock(fold_in=lambda *parts: parts), Mock()
    names: dict[str, Any] = {"jax": SimpleNamespace(random=random), "jnp": SimpleNamespace(where=where)}
    exec(ast.unparse(function), names)
    numbers = [int(number) for number in re.findall(r"dropout\(key, (\d+), x, 0.25\)", code)]
    for number in numbers:
        names["dropout"]("key", number, np.ones(2), 0.25)
    assert [call.args[0] for call in random.bernoulli.call_args_list] == [("key", number) for number in numbers]
    assert len({*numbers}) == 2
