"""A user's Flux chain in float64, for the proof."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from polybench.engines.base import Array
from polybench.engines.flux.engine import addresses
from polybench.engines.job import NumericalConventions
from polybench.engines.shared.batches import is_tokens
from polybench.importer.flux_graph import FluxModel, FluxTranslation, user_call
from polybench.importer.proof import Result
from polybench.networks.layers import MaxPool, walk


class FluxProgram:
    """A copy of the chain, whose dropout has given masks; its arrays are flat, in the order of Julia's memory."""

    rounding = 0.0

    def __init__(self, model: FluxModel, translated: FluxTranslation) -> None:
        translation = translated.translation
        network = translation.model
        self._python, self._dropouts = model.polybench.Python, translated.dropouts
        optimizer = network.optimizer
        self._program = user_call(
            self._python.user_program, model.model, translation.returns_probabilities, optimizer.name,
            optimizer.learning_rate, optimizer.momentum or 0.0,
        )  # fmt: skip
        self._sizes = dict(
            zip(map(str, self._program.names), map(int, model.polybench.variable_sizes(self._program)), strict=True)
        )
        self._output_shape = (*network.label_shape, network.classes)
        has_max_pool = any(isinstance(layer, MaxPool) for layer in walk(network.layers))
        within = float(model.polybench.max_pool_within("float64")) if has_max_pool else 0.0
        self.conventions = NumericalConventions(max_pool_within=within, sources={})

    def variables(self) -> dict[str, Array]:  # noqa: D102 - of the protocol
        values = self._empty()
        self._python.read_variables_b(addresses(values), self._program)
        return values

    def start(self, values: Mapping[str, Array]) -> None:  # noqa: D102
        ordered = {name: np.ascontiguousarray(values[name], np.float64) for name in self._sizes}
        self._python.start_program_b(self._program, addresses(ordered))

    def train(self, inputs: Array, labels: Array, masks: Mapping[str, Array]) -> Result:  # noqa: D102
        x, y = np.ascontiguousarray(inputs), np.ascontiguousarray(labels, np.int64)
        given = {name: np.ascontiguousarray(mask, np.float64) for name, mask in masks.items()}
        gradients = self._empty()
        x_address, y_address = addresses({"x": x, "y": y})
        loss = user_call(
            self._python.train_program_b, addresses(gradients), self._program, x_address, x.shape, is_tokens(x),
            y_address, y.shape, tuple(self._dropouts[name] for name in given), addresses(given),
            tuple(mask.shape for mask in given.values()),
        )  # fmt: skip
        return Result(float(loss), gradients)

    def evaluate(self, inputs: Array) -> Array:  # noqa: D102
        x, output = np.ascontiguousarray(inputs), np.empty((len(inputs), *self._output_shape))
        x_address, address = addresses({"x": x, "output": output})
        user_call(
            self._python.evaluate_program_b, address, self._program, x_address, x.shape, is_tokens(x), output.shape
        )
        return output

    def generators(self) -> Mapping[str, bytes]:  # noqa: D102
        return {"Julia": str(self._python.generator_state()).encode()}

    def close(self) -> None:
        """Leave the user's chain, which is unchanged."""

    def _empty(self) -> dict[str, Array]:
        return {name: np.empty(size) for name, size in self._sizes.items()}
