"""The proof sees what a training step of a user does, in every mode, size and scale."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import polybench
from polybench.errors import BadInput, ConfigurationFailed
from polybench.importer.proof import _batches, _drawn_weights, batch_sizes, omitted
from polybench.networks import find_model, layers
from polybench.networks.model import Model
from polybench.networks.optimizers import OPTIMIZERS
from tests.lazy import Lazy, needs

torch: Any = Lazy("torch", "torch")
modules: Any = Lazy("tests.importer.proof_modules", "torch")
pytestmark = needs("torch")


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


def test_the_usual_network_is_proven_and_stays_as_it_was() -> None:
    module = modules.Usual()
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
        ("Chunks", "own weights, batches of 16, 128, 16, 16"),
        ("LargeBatch", "own weights, .*: the logits differ"),
        ("FirstRows", "own weights, .* differ"),
        ("SmallBatch", "own weights, .* differ"),
        ("NegativeInEvaluation", "own weights, .*: step 0: the logits differ|logits error of logits is 2 "),
        ("BatchStatisticsInEvaluation", "the logits differ"),
        ("OtherDropoutInEvaluation", "the logits differ"),
        ("ZeroWeights", "from drawn weights, batches of 128, 16: .* the gradient differs"),
        ("Capped", "from drawn weights, .* the gradient differs"),
    ],
)
def test_a_program_that_differs_anywhere_is_not_the_same(kind: str, message: str) -> None:
    with pytest.raises(ConfigurationFailed, match=message):
        polybench.import_model(getattr(modules, kind)(), (3, 9, 9))


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("PythonDraws", "evaluation with a batch of 16 draws random numbers from Python: expected none"),
        ("NumpyDraws", "draws random numbers from NumPy"),
        ("DrawsInEvaluation", "evaluation .* draws random numbers from PyTorch"),
        ("DropoutInEvaluation", "evaluation .* draws random numbers from PyTorch"),
        ("SeveralOutputsInEvaluation", r"2 outputs, \[0\], \[1\]: expected one, the logits"),
        ("ScaledAtTheEnd", "dense.weight: a hook of register_post_accumulate_grad_hook"),
        ("FixedBatch", r"proof_modules\.py:\d+: RuntimeError: "),
    ],
)
def test_a_program_that_draws_or_fails_is_refused(kind: str, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        polybench.import_model(getattr(modules, kind)(), (3, 9, 9))


@pytest.mark.parametrize("token", [None, 0, 1717, 2999])
def test_the_proof_sees_every_token(token: int | None) -> None:
    if token is None:
        assert polybench.import_model(modules.Reviews(token), (7,)).vocabulary_size == 3000
        return
    with pytest.raises(ConfigurationFailed, match=r"gradient error of embedding1\.weight"):
        polybench.import_model(modules.Reviews(token), (7,))


def test_every_class_is_a_label_of_the_proof() -> None:
    model = find_model("lenet")
    first, *_ = _batches(model, np.random.default_rng(0), (model.batch_size,), 0.0)
    assert {*first.labels.tolist()} == {*range(model.classes)}


def test_no_drawn_tensor_is_constant() -> None:
    for name, value in _drawn_weights(find_model("resnet32")).items():
        assert value.min() < value.max(), name


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
