"""Arrays of float64 are found in whatever a program holds, with the names that its author gave."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pytest

from polybench.engines.shared.float64 import float64_tensors
from tests.engines.engine_fixtures import EngineFixture, in_process_of

WIDE, NARROW = np.zeros(3), np.zeros(3, np.float32)


@dataclass
class State:
    """A state as programs have it."""

    model: object
    rate: float = 0.1


class Pair(NamedTuple):
    """A batch with names."""

    images: object
    labels: object


@pytest.mark.parametrize(
    ("held", "names"),
    [
        ({"state": {"weights": {"a": WIDE, "b": NARROW}}}, ["state['weights']['a']"]),
        ({"state": [NARROW, (NARROW, WIDE)]}, ["state[1][1]"]),
        ({"state": State({1: WIDE})}, ["state.model[1]"]),
        ({"batch": Pair(WIDE, np.zeros(3, np.int64))}, ["batch.images"]),
        ({"state": WIDE, "batch": WIDE}, ["state"]),  # the same array
        ({"state": [np.float64(0.1), np.array(0.1), 0.1, None, "float64", np.float64]}, []),
        ({"state": np.random.default_rng(0)}, []),
        ({"state": NARROW, "loss": np.float64(2.3)}, []),
        ({"state": NARROW, "loss": np.array(2.3)}, ["loss"]),
        ({"state": NARROW, "loss": WIDE}, ["loss"]),
    ],
)
def test_arrays_are_named_and_numbers_are_not(held: dict[str, Any], names: list[str]) -> None:
    assert float64_tensors(**held) == names


def test_a_state_that_contains_itself_ends() -> None:
    state: list[Any] = [WIDE]
    state.append(state)
    assert float64_tensors(state=state) == ["state[0]"]


@in_process_of("torch")
def test_modules_and_optimizers_of_pytorch_have_their_own_names(fixture: EngineFixture) -> None:
    import torch

    model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2))
    model[0].double()
    optimizer = torch.optim.Adam(model.parameters())
    (model[0](torch.ones(4, 3, dtype=torch.float64)).float().sum() + model[1](torch.ones(4, 2)).sum()).backward()
    optimizer.step()
    model[1].running_mean = model[1].running_mean.double()
    names = float64_tensors(state=State((model, optimizer)), loss=torch.zeros((), dtype=torch.float64))
    parameters = ["0.weight", "0.bias"]
    assert {"state.model[0].0.weight", "state.model[0].0.bias", "state.model[0].1.running_mean"} < {*names}
    moments = {f"state.model[1].state[{one}]['{key}']" for one in parameters for key in ("exp_avg", "exp_avg_sq")}
    assert moments < {*names}
    assert names[-1] == "loss"
    assert len(names) == 8
    assert float64_tensors(state=torch.nn.Linear(3, 2), loss=torch.zeros(())) == []
