"""Dropout in the code of a network in JAX; tests/scripts/test_network_code.py runs networks without it."""

from __future__ import annotations

import ast
import re
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import msgspec
import numpy as np

from polybench.networks.initial_weights import initial_weights
from polybench.networks.layers import Dense, Dropout, MeanOverTime
from polybench.scripts.network_code import write_code
from tests.example_networks import FEATURES


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
