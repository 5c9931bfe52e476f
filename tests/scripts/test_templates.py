"""Parts of the templates that no CPU runs, or only a network for which another one stands."""

from __future__ import annotations

import ast
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from polybench.networks.layers import BatchNorm, GroupNorm, LayerNorm, Named, walk
from polybench.scripts import render
from tests.example_networks import EVERYTHING, PATCHED, TEXT


@pytest.mark.parametrize(("template", "engine"), [(f"train_{network}keras.py", "tf") for network in ("", "any_")])
def test_on_a_gpu_all_steps_are_timed_between_two_synchronizations(template: str, engine: str) -> None:
    tree = ast.parse(render(template, {engine, "images", "lenet", "sgd"}, {}))
    (timed,) = [
        node.orelse
        for node in tree.body
        if isinstance(node, ast.If) and node.orelse and "DEVICE" in ast.unparse(node.test)
    ]
    order: list[str] = []
    seconds: list[float] = []

    def record(name: str, result: Any = None) -> Callable[..., Any]:
        return lambda *_: (order.append(name), result)[1]

    names: dict[str, Any] = {
        "time": SimpleNamespace(perf_counter=record("clock", 0.0)),
        "tf": SimpleNamespace(test=SimpleNamespace(experimental=SimpleNamespace(sync_devices=record("synchronize")))),
        "train_step": record("step", ("state", "loss")),
    }  # fmt: skip
    constants: dict[str, Any] = {
        "DEVICE": "cuda",
        "UNTIMED_STEPS": 2,
        "STEPS": 2,
        "timed": range(2, 4),
        "batches": [()] * 4,
    }
    exec(ast.unparse(timed), names | constants | {"losses": [], "seconds": seconds, "state": (), "training": ()})
    assert order == ["synchronize", "clock", "step", "step", "synchronize", "clock"]
    assert len(seconds) == 1


def test_adamw_in_keras_decays_no_tensor_with_one_axis() -> None:
    """The names are those of Keras's layers."""
    script = render("train_any_keras.py", {"tf", "images", "adamw"}, {})
    (call,) = [
        node for node in ast.walk(ast.parse(script))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "optimizer.exclude_from_weight_decay"
    ]  # fmt: skip
    (names,) = [ast.literal_eval(keyword.value) for keyword in call.keywords]
    norms = {"weight": "gamma", "bias": "beta"}
    named = [layer for model in (EVERYTHING, TEXT, PATCHED) for layer in walk(model.layers) if isinstance(layer, Named)]
    one_axis = {
        norms.get(tensor, tensor) if isinstance(layer, BatchNorm | LayerNorm | GroupNorm) else tensor.rpartition("_")[2]
        for layer in named
        for tensor, shape in layer.weight_shapes().items()
        if len(shape) == 1
    }
    assert {*names} == one_axis
