"""The levels at which CUDA code is tested, as `doctor` and studies use them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from polybench.engines.cuda_levels import LEVELS, highest_level, was_never_run
from polybench.machine import host
from polybench.planning.plan import resolve
from polybench.runner import prepare
from polybench.schema.options import Study


def test_the_highest_level_of_an_engine_is_its_last() -> None:
    levels = list(LEVELS)
    for engine in ("torch", "tf", "jax"):
        highest = highest_level(engine)
        assert highest is not None
        assert was_never_run(engine) == (highest.level != levels[-1])
    assert str(highest_level("tf")).startswith("computed on a stand-in (tests/engines/tf/")
    assert "NVIDIA H200" in str(highest_level("torch"))
    assert highest_level("fake") is None
    assert not was_never_run("fake")


def test_a_study_on_a_gpu_names_the_engines_that_never_ran_there(monkeypatch: pytest.MonkeyPatch) -> None:
    warnings: list[str] = []
    plan = resolve(Study(engines=("torch", "tf", "tf+xla"), devices=("cpu", "cuda"), threads=1))
    state: Any = SimpleNamespace(plan=plan, runs=(), observer=None, warn=warnings.append)
    for gpus in ((), ("NVIDIA H100",)):
        monkeypatch.setattr(host, "gpu_names", lambda gpus=gpus: gpus)
        prepare._warn_before_measuring(state, exclusive=True)
    (text,) = [text for text in warnings if "on a GPU" in text]
    assert text == (
        "polybench's tests have never run tf on a GPU: please open an issue with this study, saved with --anonymous"
    )
