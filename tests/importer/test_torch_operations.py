"""Operations of PyTorch whose arguments are easily confused: the layers, and the outputs of the float64 reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from polybench.engines.reference.network import logits
from polybench.errors import BadInput
from polybench.importer.graph import Translation
from polybench.importer.proof import canonical_weights
from polybench.networks import layers as spec
from polybench.networks.layers import Shape
from tests.lazy import Lazy

torch: Any = Lazy("torch", "torch")
graph: Any = Lazy("polybench.importer.torch_graph", "torch")
operations: Any = Lazy("polybench.importer.torch_operations", "torch")
modules: Any = Lazy("tests.importer.torch_modules", "torch")


def translated(module: Any, shape: Shape) -> Translation:
    """Translate a module, and check that the network has its outputs in evaluation."""
    module.double().eval()
    translation = graph.translate(module, shape, None, operations.OPERATIONS)
    tensors = dict(module.named_parameters()) | dict(module.named_buffers())
    weights = canonical_weights(translation, {name: tensor.detach().numpy() for name, tensor in tensors.items()})
    x = np.random.default_rng(0).random((2, *shape))
    expected = module.eval()(torch.from_numpy(x)).detach().numpy()
    np.testing.assert_allclose(logits(translation.model, weights, x), expected, rtol=1e-9, atol=1e-12)
    return translation


def test_images() -> None:
    layers = translated(modules.ConfusedImages(), (3, 8, 8)).model.layers
    assert layers == (
        spec.Conv("conv", 3, 4, 3, 1, ((3, 0), (1, 2))),
        spec.BatchNorm("norm", 4, 0.02, 0.3),
        spec.ReLU(),
        spec.AveragePool(2, 2, 1),
        spec.Flatten(),
        spec.Dense("first", 100, 5),
        spec.Dense("second", 5, 6),
    )


def test_sequences() -> None:
    token, attention, *_ = translated(modules.ConfusedSequences(), (5, 4)).model.layers
    assert isinstance(token, spec.ClassToken)
    assert isinstance(attention, spec.Attention)
    assert attention.causal


@pytest.mark.parametrize("arguments", [{"diagonal": 1}, {"is_last": True}])
def test_another_mask_or_place_of_the_token_is_refused(arguments: dict[str, Any]) -> None:
    with pytest.raises(BadInput, match=r"the lower triangle|expected a class token before a sequence"):
        graph.translate(modules.ConfusedSequences(**arguments), (5, 4), None, operations.OPERATIONS)


def test_modes_are_restored_after_a_translation() -> None:
    module = modules.ConfusedImages()
    module.norm.eval()
    modes = [one.training for one in module.modules()]
    with Lazy("polybench.importer.torch_module", "torch").training(module):
        assert all(one.training for one in module.modules())
    assert [one.training for one in module.modules()] == modes
