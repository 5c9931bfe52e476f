"""Backend selection of Keras workers, without importing Keras."""

from __future__ import annotations

import pytest

from polybench.engines import ENGINES
from polybench.errors import EngineUnavailable
from polybench.protocol.environment import worker_environment


@pytest.mark.parametrize(
    ("variants", "backend", "pool"),
    [
        ((), "tensorflow", None),
        (("torch",), "torch", None),
        (("jax",), "jax", "3"),
        (("system_malloc", "torch"), "torch", None),
    ],
)
def test_a_variant_sets_the_backend_variable(variants: tuple[str, ...], backend: str, pool: str | None) -> None:
    environment = worker_environment(ENGINES["keras"], "cpu", 3, variants)
    assert environment["KERAS_BACKEND"] == backend
    assert environment.get("NPROC") == pool


def test_two_backends_are_rejected() -> None:
    with pytest.raises(EngineUnavailable, match="jax and torch") as error:
        worker_environment(ENGINES["keras"], "cpu", 2, ("jax", "torch"))
    assert error.value.hint == "use keras+jax or keras+torch"


def test_the_users_backend_does_not_affect_the_tensorflow_engine() -> None:
    assert worker_environment(ENGINES["tf"], "cpu", 2)["KERAS_BACKEND"] == "tensorflow"
