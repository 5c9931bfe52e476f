"""The emitters of all frameworks. ADD A FRAMEWORK: its row."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from polybench.engines.flux import emitter as flux
from polybench.engines.flux.lux import emitter as lux
from polybench.engines.jax import emitter as jax
from polybench.engines.job import Job
from polybench.engines.keras import emitter as keras
from polybench.engines.tf import emitter as tf
from polybench.engines.torch import emitter as torch


class Emitter(Protocol):
    """Writes the program that an engine runs, with a main part. Raises EngineUnavailable for a layer that it lacks."""

    def emit_training(self, job: Job, steps: int, *, clock: bool = False) -> str:
        """Return the program that trains, and with `clock` prints when each phase of its start has ended."""

    def emit_network(self, job: Job) -> str:
        """Return the program that makes the network, with the weights of the .npz file beside it."""


EMITTERS: Mapping[str, Emitter] = {"torch": torch, "tf": tf, "jax": jax, "keras": keras, "flux": flux, "lux": lux}
