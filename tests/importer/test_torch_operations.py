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

torch = pytest.importorskip("torch")

from polybench.importer.torch_graph import translate  # noqa: E402
from polybench.importer.torch_module import training  # noqa: E402
from polybench.importer.torch_operations import OPERATIONS  # noqa: E402

F, nn = torch.nn.functional, torch.nn


def translated(module: Any, shape: Shape) -> Translation:
    """Translate a module, and check that the network has its outputs in evaluation."""
    module.double().eval()
    translation = translate(module, shape, None, OPERATIONS)
    tensors = dict(module.named_parameters()) | dict(module.named_buffers())
    weights = canonical_weights(translation, {name: tensor.detach().numpy() for name, tensor in tensors.items()})
    x = np.random.default_rng(0).random((2, *shape))
    expected = module.eval()(torch.from_numpy(x)).detach().numpy()
    np.testing.assert_allclose(logits(translation.model, weights, x), expected, rtol=1e-9, atol=1e-12)
    return translation


class Images(nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)
        self.norm = nn.BatchNorm2d(4, eps=0.02, momentum=0.3)
        self.first, self.second = nn.Linear(4 * 5 * 5, 5), nn.Linear(5, 6)

    def forward(self, x: Any) -> Any:
        x = F.relu(self.norm(self.conv(F.pad(x, (1, 2, 3, 0)))))
        x = F.avg_pool2d(x, 2, 2, padding=1)
        x = self.first(F.dropout(x.flatten(1), 0.5, training=False))
        return self.second(torch.cat([x[:, 3:], x[:, :3]], 1))


def test_images() -> None:
    layers = translated(Images(), (3, 8, 8)).model.layers
    assert layers == (
        spec.Conv("conv", 3, 4, 3, 1, ((3, 0), (1, 2))),
        spec.BatchNorm("norm", 4, 0.02, 0.3),
        spec.ReLU(),
        spec.AveragePool(2, 2, 1),
        spec.Flatten(),
        spec.Dense("first", 100, 5),
        spec.Dense("second", 5, 6),
    )


class Sequences(nn.Module):  # type: ignore[misc]
    def __init__(self, diagonal: int = 0, *, is_last: bool = False) -> None:
        super().__init__()
        self.token = nn.Parameter(torch.ones(1, 1, 4))
        self.projections, self.output, self.head = nn.Linear(4, 12), nn.Linear(4, 4), nn.Linear(4, 3)
        self.mask, self.is_last = torch.ones(6, 6).tril(diagonal).bool(), is_last

    def forward(self, x: Any) -> Any:
        parts = [self.token.expand(2, 1, 4), x]
        x = torch.cat(parts[::-1] if self.is_last else parts, 1)
        q, k, v = (part.view(2, 6, 2, 2).transpose(1, 2) for part in self.projections(x).chunk(3, 2))
        x = F.scaled_dot_product_attention(q, k, v, attn_mask=self.mask)
        return self.head(self.output(x.transpose(1, 2).reshape(2, 6, 4))[:, 0])


def test_sequences() -> None:
    token, attention, *_ = translated(Sequences(), (5, 4)).model.layers
    assert isinstance(token, spec.ClassToken)
    assert isinstance(attention, spec.Attention)
    assert attention.causal


@pytest.mark.parametrize("module", [Sequences(1), Sequences(is_last=True)])
def test_another_mask_or_place_of_the_token_is_refused(module: Any) -> None:
    with pytest.raises(BadInput, match=r"the lower triangle|expected a class token before a sequence"):
        translate(module, (5, 4), None, OPERATIONS)


def test_modes_are_restored_after_a_translation() -> None:
    module = Images()
    module.norm.eval()
    modes = [one.training for one in module.modules()]
    with training(module):
        assert all(one.training for one in module.modules())
    assert [one.training for one in module.modules()] == modes
