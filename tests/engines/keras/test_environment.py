"""Which backend a worker of Keras gets, decided before Keras is there."""

from __future__ import annotations

import pytest

from polybench.core.errors import Unavailable
from polybench.engines import ENGINES
from polybench.wire.environment import worker_environment


@pytest.mark.parametrize(
    ("variants", "backend", "pool"),
    [
        ((), "tensorflow", None),
        (("torch",), "torch", None),
        (("jax",), "jax", "3"),
        (("systemheap", "torch"), "torch", None),
    ],
)
def test_a_backend_is_a_variable_of_the_process(
    variants: tuple[str, ...], backend: str, pool: str | None
) -> None:
    environment = worker_environment(ENGINES["keras"], "cpu", 3, variants)
    assert environment["KERAS_BACKEND"] == backend
    assert environment.get("NPROC") == pool


def test_two_backends_are_one_too_many() -> None:
    with pytest.raises(Unavailable, match="jax and torch") as refused:
        worker_environment(ENGINES["keras"], "cpu", 2, ("jax", "torch"))
    assert refused.value.remedy == "ask for keras+jax or keras+torch"


def test_the_users_backend_does_not_reach_tensorflows_engine() -> None:
    assert worker_environment(ENGINES["tf"], "cpu", 2)["KERAS_BACKEND"] == "tensorflow"
