"""The proof sees what a training step of a user does, in every mode, size and scale."""

from __future__ import annotations

import math
import random
from typing import Any

import numpy as np
import pytest

import polybench
from polybench.errors import BadInput, ConfigurationFailed
from polybench.importer.proof import batch_sizes, omitted
from polybench.networks import find_model, layers
from polybench.networks.model import Model
from polybench.networks.optimizers import OPTIMIZERS

torch = pytest.importorskip("torch")
functional, nn = torch.nn.functional, torch.nn


class Usual(nn.Module):  # type: ignore[misc]
    """A network whose subclasses differ where a short proof does not look."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.dense = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Linear(4, 5)

    def forward(self, x: Any) -> Any:
        return self.dense(functional.relu(self.norm(self.conv(x))).mean([2, 3]))


class Chunks(Usual):
    def forward(self, x: Any) -> Any:
        return torch.cat([super(Chunks, self).forward(part) for part in x.chunk(math.ceil(len(x) / 32))])


class LargeBatch(Usual):
    def forward(self, x: Any) -> Any:
        return super().forward(x) if len(x) <= 64 else 2 * super().forward(x)


class FirstRows(Usual):
    def forward(self, x: Any) -> Any:
        y = super().forward(x)
        return y if len(x) <= 100 else torch.cat([y[:1], y[1:].detach()])


class SmallBatch(Usual):
    def forward(self, x: Any) -> Any:
        return super().forward(x) if len(x) in (2, 128) else super().forward(x.abs().sqrt())


class NegativeInEvaluation(Usual):
    def forward(self, x: Any) -> Any:
        return super().forward(x) if self.training else -super().forward(x)


class SeveralOutputsInEvaluation(Usual):
    def forward(self, x: Any) -> Any:
        y = super().forward(x)
        return y if self.training else (y, x)


class BatchStatisticsInEvaluation(Usual):
    def train(self, mode: bool = True) -> Any:
        super().train(mode)
        self.norm.train()
        return self


class OtherDropoutInEvaluation(Usual):
    def forward(self, x: Any) -> Any:
        y = super().forward(x)
        return y if self.training else functional.relu(y)


def with_gradient(tensor: Any, factor: Any) -> Any:
    """Return the same values, whose gradient is `factor` times as large; the exported program is the usual one."""
    return tensor if torch.compiler.is_exporting() else tensor.detach() + factor * (tensor - tensor.detach())


class ZeroWeights(Usual):
    def __init__(self) -> None:
        super().__init__()
        for parameter in self.parameters():
            nn.init.zeros_(parameter)

    def forward(self, x: Any) -> Any:
        x = functional.conv2d(x, with_gradient(self.conv.weight, 1.001), self.conv.bias)
        return self.dense(functional.relu(self.norm(x)).mean([2, 3]))


class Capped(Usual):
    """Differs only for large activations, which the model's own weights do not have."""

    def forward(self, x: Any) -> Any:
        x = self.conv(x)
        return self.dense(functional.relu(self.norm(with_gradient(x, x.detach() < 9))).mean([2, 3]))


class ScaledAtTheEnd(Usual):
    """Changes the gradient after `backward` has computed it, which `autograd.grad` does not show."""

    def __init__(self) -> None:
        super().__init__()
        self.dense.weight.register_post_accumulate_grad_hook(self.scale)

    def scale(self, parameter: Any) -> None:
        parameter.grad.mul_(1.001)


class PythonDraws(Usual):
    def forward(self, x: Any) -> Any:
        return super().forward(x) if random.random() < 0.999 else -super().forward(x)


class NumpyDraws(Usual):
    def forward(self, x: Any) -> Any:
        return super().forward(x) if np.random.random() < 0.999 else -super().forward(x)  # noqa: NPY002


class DrawsInEvaluation(Usual):
    def forward(self, x: Any) -> Any:
        return super().forward(x) if self.training or torch.rand(1).item() < 0.999 else -super().forward(x)


class DropoutInEvaluation(Usual):
    def forward(self, x: Any) -> Any:
        return functional.dropout(super().forward(x), 0.5)


class FixedBatch(Usual):
    def forward(self, x: Any) -> Any:
        return self.dense(functional.relu(self.norm(self.conv(x))).mean([2, 3]).reshape(2, 4))


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


def test_the_usual_network_is_proven_and_stays_as_it_was() -> None:
    module = Usual()
    module.dense.weight.grad = torch.ones(5, 4)
    module.eval()
    before = {name: value.clone() for name, value in module.state_dict().items()}
    state = torch.get_rng_state()
    polybench.import_model(module, (3, 9, 9))
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())
    assert torch.equal(module.dense.weight.grad, torch.ones(5, 4))
    assert module.conv.weight.grad is None
    assert (module.training, module.norm.training) == (False, False)
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (Chunks, "own weights, batches of 16, 128, 16, 16"),
        (LargeBatch, "own weights, .*: the logits differ"),
        (FirstRows, "own weights, .* differ"),
        (SmallBatch, "own weights, .* differ"),
        (NegativeInEvaluation, "own weights, .*: step 0: the logits differ|logits error of logits is 2 "),
        (BatchStatisticsInEvaluation, "the logits differ"),
        (OtherDropoutInEvaluation, "the logits differ"),
        (ZeroWeights, "from drawn weights, batches of 128, 16: .* the gradient differs"),
        (Capped, "from drawn weights, .* the gradient differs"),
    ],
)
def test_a_program_that_differs_anywhere_is_not_the_same(kind: type[Any], message: str) -> None:
    with pytest.raises(ConfigurationFailed, match=message):
        polybench.import_model(kind(), (3, 9, 9))


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (PythonDraws, "evaluation with a batch of 16 draws random numbers from Python: expected none"),
        (NumpyDraws, "draws random numbers from NumPy"),
        (DrawsInEvaluation, "evaluation .* draws random numbers from PyTorch"),
        (DropoutInEvaluation, "evaluation .* draws random numbers from PyTorch"),
        (SeveralOutputsInEvaluation, r"2 outputs, \[0\], \[1\]: expected one, the logits"),
        (ScaledAtTheEnd, "dense.weight: a hook of register_post_accumulate_grad_hook"),
        (FixedBatch, r"test_proof\.py:\d+: RuntimeError: "),
    ],
)
def test_a_program_that_draws_or_fails_is_refused(kind: type[Any], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        polybench.import_model(kind(), (3, 9, 9))


class Reviews(nn.Module):  # type: ignore[misc]
    """Marks one token of many, which has no gradient."""

    def __init__(self, padding: int | None) -> None:
        super().__init__()
        self.embedding, self.dense = nn.Embedding(3000, 4), nn.Linear(4, 3)
        self.padding = padding

    def forward(self, x: Any) -> Any:
        if self.padding is None:
            return self.dense(self.embedding(x).mean(1))
        others = (torch.arange(3000) != self.padding)[:, None]
        return self.dense(functional.embedding(x, with_gradient(self.embedding.weight, others)).mean(1))


@pytest.mark.parametrize("token", [None, 0, 1717, 2999])
def test_the_proof_sees_every_token(token: int | None) -> None:
    if token is None:
        assert polybench.import_model(Reviews(token), (7,)).vocabulary_size == 3000
        return
    with pytest.raises(ConfigurationFailed, match=r"gradient error of embedding1\.weight"):
        polybench.import_model(Reviews(token), (7,))


def network(side: int, channels: int) -> Model:
    """Return a convolutional network of images with these sides."""
    convolutions = tuple(
        layers.Conv(f"conv{number}", channels if number else 3, channels, 3, 1, 1, True, 1) for number in range(16)
    )
    head = (layers.GlobalAveragePool(), layers.Dense("dense", channels, 10))
    return Model("net", "", (3, side, side), 10, (*convolutions, *head), 128, OPTIMIZERS["momentum"], 2)


def test_batches_are_as_large_as_the_file_says_unless_they_take_too_long() -> None:
    assert batch_sizes(find_model("lenet")).large == find_model("lenet").batch_size
    assert batch_sizes(network(32, 16)) == (2, 128, [])
    assert omitted(network(32, 16)) == []
    small, large, _ = batch_sizes(network(96, 32))
    assert small == 2 < large < 128
    assert omitted(network(96, 32)) == [f"the proof has batches of {large}: 128 would take too long"]
    *_, vocabulary = batch_sizes(find_model("imdb-bilstm"))
    model = find_model("imdb-bilstm")
    assert sum(vocabulary) * model.input_shape[0] >= (model.vocabulary_size or 0)
    assert batch_sizes(find_model("char-gpt")).vocabulary
