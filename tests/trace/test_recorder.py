"""`polybench.record`: what enters a trace, and when."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import polybench
from polybench.errors import BadInput
from polybench.trace.file import Trace

WEIGHTS = {"layer": {"weight": np.ones((2, 3), "f4"), "bias": np.zeros(2, "f4")}}


def record(file: Path, **options: Any) -> None:
    with polybench.record(file, model=WEIGHTS, **options) as trace:
        for step in range(4):
            weights = {"layer": {name: one - step for name, one in WEIGHTS["layer"].items()}}
            trace.step(loss=1 / (step + 1), batch=(np.full(3, step), np.arange(3)), gradients=WEIGHTS, weights=weights)


def test_only_chosen_steps_are_recorded_with_the_weights_before_and_after(tmp_path: Path) -> None:
    record(tmp_path / "a.trace", steps=(0, 3))
    with Trace(tmp_path / "a.trace") as trace:
        assert {step: one.loss for step, one in trace.steps.items()} == {0: 1, 3: 0.25}
        assert [step for step in range(9) if trace.names(step, "weight")] == [0, 1, 3, 4]
        assert [step for step in range(9) if trace.names(step, "gradient")] == [0, 3]
        assert trace.names(0, "weight") == ["layer/weight", "layer/bias"]
        assert trace.tensor(4, "weight", "layer/bias").tolist() == [-3, -3]
        assert trace.tensor(3, "batch", "batch/0").tolist() == [3, 3, 3]
        assert trace.steps[0].batch_sha256 != trace.steps[3].batch_sha256


def test_an_older_trace_remains_until_the_context_ends(tmp_path: Path) -> None:
    file = tmp_path / "a.trace"
    record(file)
    before = file.read_bytes()
    with polybench.record(file, model=WEIGHTS) as trace:
        trace.step(loss=2.0, weights=WEIGHTS)
        assert file.read_bytes() == before
    assert file.read_bytes() != before
    assert [one.name for one in tmp_path.iterdir()] == ["a.trace"]


def test_an_exception_in_the_training_keeps_the_recorded_steps(tmp_path: Path) -> None:
    with contextlib.suppress(ZeroDivisionError), polybench.record(tmp_path / "a", model=WEIGHTS) as trace:
        for step in range(3):
            trace.step(loss=2 / (1 - step), weights=WEIGHTS)
    with Trace(tmp_path / "a") as read:
        assert list(read.steps) == [0]


def test_a_loss_that_is_not_finite_is_null(tmp_path: Path) -> None:
    with polybench.record(tmp_path / "a", model=WEIGHTS) as trace:
        trace.step(loss=np.float32("nan"), weights=WEIGHTS)
    with Trace(tmp_path / "a") as read:
        assert read.steps[0].loss is None


def test_mistakes_are_explained(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"expected a torch.nn.Module, a Keras model or a tree"):
        polybench.record(tmp_path / "a", model=object())
    with pytest.raises(BadInput, match="expected step numbers from 0 on"):
        polybench.record(tmp_path / "a", model=WEIGHTS, steps=[-1])
    with pytest.raises(BadInput, match="cannot write the trace"):
        polybench.record(tmp_path / "missing" / "a", model=WEIGHTS)
    with pytest.raises(BadInput, match="expected real numbers"):
        polybench.record(tmp_path / "b", model={"w": np.ones(2, "complex64")})
    assert not list(tmp_path.glob("b*"))
    with polybench.record(tmp_path / "a", model=WEIGHTS) as trace:
        with pytest.raises(BadInput, match=r"step needs weights=\.\.\."):
            trace.step(loss=1.0)
        with pytest.raises(BadInput, match="expected real numbers"):
            trace.step(loss=1.0, weights={"w": np.ones(2, "complex64")})


def test_torch_has_its_own_gradients_statistics_and_settings(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.25, betas=(0.5, 0.75))
    with polybench.record(tmp_path / "a", model=model, optimizer=optimizer) as trace:
        loss = model(torch.ones(4, 3)).square().sum()
        loss.backward()
        optimizer.step()
        trace.step(loss=loss, batch=torch.ones(4, 3, dtype=torch.bfloat16))
    with Trace(tmp_path / "a") as read:
        assert read.header.framework == "torch"
        assert (read.header.optimizer_name, read.header.optimizer["lr"]) == ("AdamW", 0.25)
        assert read.header.optimizer["betas"] == [0.5, 0.75]
        assert read.names(0, "gradient") == ["0.weight", "0.bias", "1.weight", "1.bias"]
        assert read.names(1, "statistic") == ["1.running_mean", "1.running_var"]
        assert "0.weight/exp_avg" in read.names(1, "optimizer")
        assert read.tensor(0, "batch", "batch").tolist() == np.ones((4, 3)).tolist()


@pytest.mark.parametrize(("name", "stored"), [("bfloat16", "float32"), ("float16", "float16"), ("float64", "float64")])
def test_a_trace_has_the_type_of_each_tensor(name: str, stored: str, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    model = torch.nn.Linear(3, 2, dtype=getattr(torch, name))
    optimizer = torch.optim.SGD(model.parameters(), 0.5)
    with polybench.record(tmp_path / "a", model=model, optimizer=optimizer, steps=(0, 3)) as trace:
        for _ in range(4):
            loss = model(torch.ones(4, 3, dtype=getattr(torch, name))).square().sum()
            loss.backward()
            optimizer.step()
            trace.step(loss=loss, batch=torch.ones(4, 3))
    with Trace(tmp_path / "a") as read:
        assert [read.dtype(step, "weight", "weight") for step in (0, 1, 3, 4)] == [name] * 4
        assert (read.dtype(3, "gradient", "bias"), read.dtype(0, "batch", "batch")) == (name, "float32")
        assert read.epsilon() == torch.finfo(getattr(torch, name)).eps
        assert ("weight/bias" in read.steps[0].dtypes) == (name != stored)


def test_bfloat16_of_jax_has_its_type(tmp_path: Path) -> None:
    jnp = pytest.importorskip("jax.numpy")
    weights = {"w": jnp.ones((2, 3), "bfloat16"), "b": jnp.ones(2, "float32")}
    with polybench.record(tmp_path / "a", model=weights) as trace:
        trace.step(loss=jnp.ones((), "bfloat16"), weights=weights, gradients=weights)
    with Trace(tmp_path / "a") as read:
        assert [read.dtype(0, "gradient", name) for name in ("w", "b")] == ["bfloat16", "float32"]
        assert read.epsilon() == 2**-7
