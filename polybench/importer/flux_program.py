"""A user's Flux chain in float64, for the proof."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from polybench.engines.base import Array
from polybench.engines.flux.engine import addresses
from polybench.engines.job import NumericalConventions
from polybench.importer.flux_graph import FluxModel, FluxTranslation, user_call
from polybench.importer.proof import Result
from polybench.networks.layers import MaxPool, walk


class FluxProgram:
    """A copy of the chain, whose dropout has given masks; its arrays are flat, in the order of Julia's memory."""

    def __init__(self, model: FluxModel, translated: FluxTranslation) -> None:
        translation = translated.translation
        self._python, self._dropouts = model.polybench.Python, translated.dropouts
        self._program = user_call(model.polybench.UserProgram, model.model, translation.returns_probabilities)
        self._sizes = dict(
            zip(map(str, self._program.names), map(int, model.polybench.variable_sizes(self._program)), strict=True)
        )
        self._label_shape = translation.model.label_shape
        has_max_pool = any(isinstance(layer, MaxPool) for layer in walk(translation.model.layers))
        within = float(model.polybench.max_pool_within("float64")) if has_max_pool else 0.0
        self.conventions = NumericalConventions(max_pool_within=within, sources={})

    def variables(self) -> dict[str, Array]:  # noqa: D102 - of the protocol
        values = self._empty()
        self._python.read_variables_b(addresses(values), self._program)
        return values

    def assign(self, values: Mapping[str, Array]) -> None:  # noqa: D102
        ordered = {name: np.ascontiguousarray(values[name], np.float64) for name in self._sizes}
        self._python.assign_variables_b(self._program, addresses(ordered))

    def train(self, inputs: Array, labels: Array, masks: Mapping[str, Array]) -> Result:  # noqa: D102
        tokens = inputs.dtype == np.int32
        x, y = np.ascontiguousarray(inputs), np.ascontiguousarray(labels, np.int64)
        given = {name: np.ascontiguousarray(mask, np.float64) for name, mask in masks.items()}
        gradients = self._empty()
        (x_address,), (y_address,) = addresses({"x": x}), addresses({"y": y})
        loss = user_call(
            self._python.train_program_b, addresses(gradients), self._program, x_address, x.shape, tokens, y_address,
            y.shape, tuple(self._dropouts[name] for name in given), addresses(given),
            tuple(mask.shape for mask in given.values()),
        )  # fmt: skip
        return Result(float(loss), gradients)

    def close(self) -> None:
        """Leave the user's chain, which is unchanged."""

    def _empty(self) -> dict[str, Array]:
        return {name: np.empty(size) for name, size in self._sizes.items()}
