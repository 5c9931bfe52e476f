"""The warning of a study on a GPU about engines whose CUDA code has never run there."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from polybench.machine import host
from polybench.planning.plan import resolve
from polybench.runner import prepare
from polybench.schema.options import Study


def test_a_study_on_a_gpu_names_the_engines_that_never_ran_there(monkeypatch: pytest.MonkeyPatch) -> None:
    warnings: list[str] = []
    plan = resolve(Study(engines=("torch", "tf", "tf+xla"), devices=("cpu", "cuda"), threads=1))
    state: Any = SimpleNamespace(plan=plan, own_runs=(), observer=None, warn=warnings.append)
    for gpus in ((), ("NVIDIA H100",)):
        monkeypatch.setattr(host, "gpu_names", lambda gpus=gpus: gpus)
        prepare._warn_before_measuring(state, exclusive=True)
    (text,) = [text for text in warnings if "on a GPU" in text]
    assert text == (
        "polybench's tests have never run tf on a GPU: please open an issue with this study, saved with --anonymous"
    )
