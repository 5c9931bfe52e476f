"""Modules of PyTorch with one argument varied: each is refused by the argument's name and value, or trains as it does.

Everything runs in the test's own process. Whatever is not refused takes a training step of its own, and the network has
to arrive at the same weights.
"""

from __future__ import annotations

import copy
import functools
import math
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from polybench.engines.reference.network import loss_and_gradients
from polybench.errors import BadInput
from polybench.importer import translate_model
from polybench.importer.graph import Translation
from polybench.importer.proof import canonical_weights
from tests.lazy import Lazy

torch: Any = Lazy("torch", "torch")
nn: Any = Lazy("torch.nn", "torch")
F: Any = Lazy("torch.nn.functional", "torch")
parametrizations: Any = Lazy("torch.nn.utils.parametrizations", "torch")
parametrize: Any = Lazy("torch.nn.utils.parametrize", "torch")
prune: Any = Lazy("torch.nn.utils.prune", "torch")
graph: Any = Lazy("polybench.importer.torch_graph", "torch")
operations: Any = Lazy("polybench.importer.torch_operations", "torch")
own: Any = Lazy("tests.importer.torch_modules", "torch")

_IMAGE, _TEXT, _VOCABULARY = (3, 10, 10), (6,), 20
_RATE = 0.1


def embedded(**arguments: Any) -> Any:
    return own.Text(nn.Embedding(_VOCABULARY, 8, **arguments), nn.Identity())


def text(part: Any) -> Any:
    return own.Text(nn.Embedding(_VOCABULARY, 8), part)


def lstm(units: int = 8, **arguments: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # dropout of a single layer
        return text(nn.LSTM(8, units, **{"batch_first": True, **arguments}))


def attention(**arguments: Any) -> Any:
    return text(nn.MultiheadAttention(8, 2, **{"batch_first": True, **arguments}))


def images(function: Callable[[Any], Any]) -> Any:
    return own.Images(own.Call(function))


def padded(value: float, part: Any) -> Any:
    return own.Images(nn.Sequential(nn.ConstantPad2d((0, 1, 0, 1), value), part))


def ending(function: Callable[[Any], Any]) -> Any:
    return own.Images(nn.Identity(), own.Call(function))


def shape_of(module: Any) -> tuple[int, ...]:
    return _TEXT if isinstance(module, own.Text) else _IMAGE


def translated(module: Any, file: Path | None = None) -> Translation:
    return graph.translate(module, shape_of(module), file, operations.OPERATIONS)


def refusal(module: Any, file: Path | None = None) -> str:
    with pytest.raises(BadInput) as error:
        translated(module, file)
    assert "\n" not in str(error.value)
    return str(error.value)


def variables(module: Any) -> dict[str, Any]:
    return {name: tensor.detach().numpy().copy() for name, tensor in module.state_dict().items()}


def step_difference(module: Any, translation: Translation) -> float:
    """Return the largest difference of a weight or a statistic between module and network after a step of SGD."""
    own = copy.deepcopy(module).double().train()
    generator = np.random.default_rng(0)
    shape, size = shape_of(module), 8
    inputs = (
        generator.integers(_VOCABULARY, size=(size, *shape)) if shape == _TEXT else generator.random((size, *shape))
    )
    labels = generator.integers(5, size=size)
    before = canonical_weights(translation, variables(own))
    output = own(torch.from_numpy(inputs))
    if translation.returns_probabilities:
        loss = F.nll_loss(output.log(), torch.from_numpy(labels))
    else:
        loss = (F.nll_loss if translation.returns_log_probabilities else F.cross_entropy)(
            output, torch.from_numpy(labels)
        )
    loss.backward()
    torch.optim.SGD(own.parameters(), _RATE).step()
    after = canonical_weights(translation, variables(own))
    expected = loss_and_gradients(translation.model, before, inputs, labels)
    assert loss.item() == pytest.approx(expected.loss, abs=1e-9)
    stepped = {name: before[name] - _RATE * gradient for name, gradient in expected.gradients.items()}
    return max(float(abs(after[name] - value).max()) for name, value in (stepped | dict(expected.state)).items())


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "conv dilation": (lambda: own.Images(nn.Conv2d(8, 8, 3, dilation=2)), "conv2d: dilation=[2, 2]: expected"),
    "conv padding_mode": (
        lambda: own.Images(nn.Conv2d(8, 8, 3, padding=1, padding_mode="circular")),
        "pad: mode=circular: expected the default, constant",
    ),
    "pad reflect": (lambda: own.Images(nn.ReflectionPad2d(1)), "pad: mode=reflect: expected the default, constant"),
    "pad of ones": (lambda: padded(1.0, nn.Conv2d(8, 8, 3)), "pad: pads with 1: expected 0 before the next layer"),
    "pad of zeros before a maximum": (
        lambda: padded(0.0, nn.MaxPool2d(2)),
        "pad: pads with 0: expected -inf or, after a ReLU, 0 before the next layer",
    ),
    "pad of -inf before an average": (lambda: padded(-math.inf, nn.AvgPool2d(2)), "pad: pads with -inf: expected 0"),
    "pad less than nothing": (lambda: images(lambda x: F.pad(x, (0, -1))), "expected an image, and 0 or more pixels"),
    "pad channels": (
        lambda: images(lambda x: F.pad(x, (0, 0, 0, 0, 0, 1))[:, :8]),
        "pad: pads 3 axes: expected height",
    ),
    "pad at the end": (
        lambda: own.Images(nn.ZeroPad2d(1)),
        "pad: padding is only supported right before a convolution or",
    ),
    "pad of windows": (lambda: padded(-math.inf, nn.MaxPool2d(1)), "has windows without pixels: expected less than 1"),
    "batch norm affine": (lambda: own.Images(nn.BatchNorm2d(8, affine=False)), "batch_norm: affine=False"),
    "batch norm track_running_stats": (
        lambda: own.Images(nn.BatchNorm2d(8, track_running_stats=False)),
        "batch_norm: track_running_stats=False",
    ),
    "batch norm momentum": (lambda: own.Images(nn.BatchNorm2d(8, momentum=None)), "part: BatchNorm2d: momentum=None"),
    "batch norm training": (
        lambda: images(lambda x: F.batch_norm(x, torch.zeros(8), torch.ones(8))),
        "batch_norm: training=False: expected True",
    ),
    "group norm affine": (lambda: own.Images(nn.GroupNorm(2, 8, affine=False)), "group_norm: affine=False"),
    "layer norm elementwise_affine": (
        lambda: text(nn.LayerNorm(8, elementwise_affine=False)),
        "elementwise_affine=False",
    ),
    "max pool dilation": (lambda: own.Images(nn.MaxPool2d(2, dilation=2)), "max_pool2d: dilation=[2, 2]: expected"),
    "max pool return_indices": (
        lambda: images(lambda x: F.max_pool2d(x, 2, return_indices=True)[0]),
        "max_pool2d_with_indices: no layer",
    ),
    "average pool divisor_override": (
        lambda: images(lambda x: F.avg_pool2d(x, 2, divisor_override=7)),
        "avg_pool2d: divisor_override=7: expected the default, None",
    ),
    "average pool ceil_mode": (
        lambda: own.Images(nn.AvgPool2d(4, padding=1, ceil_mode=True)),
        "avg_pool2d: counts some of its padding: expected all of it, or none",
    ),
    "adaptive pool output_size": (
        lambda: own.Images(nn.AdaptiveAvgPool2d((2, 4))),
        "adaptive_avg_pool2d: output (2, 4)",
    ),
    "adaptive pool of no divisor": (
        lambda: own.Images(nn.AdaptiveAvgPool2d(3)),
        "adaptive_avg_pool2d: output (3, 3) of 8 x 8: expected 1 x 1, or a divisor",
    ),
    "hardtanh min_val": (lambda: own.Images(nn.Hardtanh(-1, 6)), "hardtanh: min_val=-1: expected 0"),
    "hardtanh max_val": (lambda: own.Images(nn.Hardtanh(0, 5)), "hardtanh: max_val=5: expected 6"),
    "hardtanh by default": (lambda: images(torch.ops.aten.hardtanh), "hardtanh: min_val=-1"),
    "dropout p": (lambda: own.Images(nn.Dropout(1.0)), "dropout: p=1"),
    "dropout of channels": (lambda: own.Images(nn.Dropout2d(0.5)), "feature_dropout: no layer"),
    "leaky slope": (lambda: own.Images(nn.LeakyReLU(0.2)), "leaky_relu: no layer"),
    "add alpha": (lambda: images(lambda x: torch.add(x, F.relu(x), alpha=2)), "add: alpha=2: expected the default, 1"),
    "mean dtype": (
        lambda: images(lambda x: x.mean((2, 3), keepdim=True, dtype=torch.float32)),
        "mean: dtype=torch.float32: expected the default, None",
    ),
    "view dtype": (lambda: images(lambda x: x.view(torch.float32)), "view: an argument is a dtype"),
    "softmax dtype": (
        lambda: ending(lambda x: F.softmax(x, 1, dtype=torch.float32)),
        "dtype=torch.float32: expected the default",
    ),
    "softmax dim": (lambda: ending(lambda x: F.softmax(x, 0)), "softmax: expected one softmax, over the classes"),
    "log_softmax dtype": (lambda: ending(lambda x: F.log_softmax(x, 1, dtype=torch.float64)), "dtype=torch.float64"),
    "two softmax": (lambda: ending(lambda x: F.log_softmax(x.softmax(1), 1)), "expected one log_softmax"),
    "embedding padding_idx": (lambda: embedded(padding_idx=0), "embedding: padding_idx=0: expected"),
    "embedding padding_idx from the end": (lambda: embedded(padding_idx=-2), "embedding: padding_idx=18: expected"),
    "embedding max_norm": (lambda: embedded(max_norm=1.0), "embedding: Embedding: max_norm=1.0: expected None"),
    "embedding scale_grad_by_freq": (lambda: embedded(scale_grad_by_freq=True), "scale_grad_by_freq=True: expected"),
    "embedding sparse": (lambda: embedded(sparse=True), "embedding: sparse=True: expected"),
    "lstm num_layers": (lambda: lstm(num_layers=2), "lstm: num_layers=2: expected 1"),
    "lstm bias": (lambda: lstm(bias=False), "lstm: has_biases=False: expected True"),
    "lstm batch_first": (lambda: lstm(batch_first=False), "lstm: batch_first=False: expected True"),
    "lstm proj_size": (lambda: lstm(12, proj_size=8), "lstm: proj_size: expected 0"),
    "rnn nonlinearity": (lambda: text(nn.RNN(8, 8, nonlinearity="relu", batch_first=True)), "rnn_relu: no layer"),
    "attention dropout": (lambda: attention(dropout=0.1), "scaled_dot_product_attention: dropout_p=0.1: expected"),
    "attention mask that lowers scores": (
        lambda: text(own.Masked(lambda time: torch.full((time, time), -1.0).triu(1))),
        "scaled_dot_product_attention: expected no mask, or the lower triangle",
    ),
    "attention mask that adds to scores": (
        lambda: text(own.Masked(lambda time: torch.full((time, time), -math.inf).triu(1) + torch.eye(time))),
        "scaled_dot_product_attention: expected no mask, or the lower triangle",
    ),
    "attention scale": (
        lambda: text(own.Masked(None, scale=0.4)),
        "scaled_dot_product_attention: scale 0.4: expected 1 / sqrt(4)",
    ),
    "attention add_zero_attn": (lambda: attention(add_zero_attn=True), "cat: "),
    "attention add_bias_kv": (lambda: attention(add_bias_kv=True), "repeat: no layer"),
}
ACCEPTED: dict[str, Callable[[], Any]] = {
    "conv groups": lambda: own.Images(nn.Conv2d(8, 8, 3, groups=2)),
    "conv stride": lambda: own.Images(nn.Conv2d(8, 8, 3, stride=2, padding=1)),
    "conv padding of two axes": lambda: own.Images(nn.Conv2d(8, 8, 3, padding=(2, 0))),
    "conv padding same, even": lambda: own.Images(nn.Conv2d(8, 8, 4, padding="same")),
    "conv padding on the other side": lambda: own.Images(
        nn.Sequential(nn.ZeroPad2d((0, 1, 0, 1)), nn.Conv2d(8, 8, 3, 2))
    ),
    "conv padding twice": lambda: padded(0.0, nn.Sequential(nn.ZeroPad2d((0, 2, 1, 0)), nn.Conv2d(8, 8, 3, padding=1))),
    "conv padding same": lambda: own.Images(nn.Conv2d(8, 8, 3, padding="same")),
    "conv bias": lambda: own.Images(nn.Conv2d(8, 8, 3, bias=False)),
    "batch norm eps": lambda: own.Images(nn.BatchNorm2d(8, eps=0.1)),
    "batch norm momentum": lambda: own.Images(nn.BatchNorm2d(8, momentum=0.7)),
    "group norm eps": lambda: own.Images(nn.GroupNorm(2, 8, eps=0.1)),
    "layer norm eps": lambda: text(nn.LayerNorm(8, eps=0.1)),
    "layer norm bias": lambda: text(nn.LayerNorm(8, bias=False)),
    "max pool stride": lambda: own.Images(nn.MaxPool2d(3, stride=1)),
    "max pool padding": lambda: own.Images(nn.MaxPool2d(3, 2, padding=1)),
    "max pool padding of a side": lambda: padded(-math.inf, nn.MaxPool2d(2, 1)),
    "max pool padding of zeros": lambda: own.Images(
        nn.Sequential(nn.ReLU(), nn.ZeroPad2d((0, 1, 0, 1)), nn.MaxPool2d(3, 2))
    ),
    "max pool ceil_mode": lambda: own.Images(nn.MaxPool2d(3, ceil_mode=True)),
    "max pool ceil_mode and padding": lambda: own.Images(nn.MaxPool2d(4, 4, 1, ceil_mode=True)),
    "max pool ceil_mode beyond the padding": lambda: own.Images(nn.MaxPool2d(3, 3, 1, ceil_mode=True)),
    "average pool padding": lambda: own.Images(nn.AvgPool2d(2, padding=1)),
    "average pool padding of a side": lambda: padded(0.0, nn.AvgPool2d(3, 2, padding=(1, 0))),
    "average pool count_include_pad": lambda: own.Images(nn.AvgPool2d(3, 1, 1, count_include_pad=False)),
    "average pool ceil_mode": lambda: own.Images(nn.AvgPool2d(3, 2, ceil_mode=True)),
    "average pool ceil_mode and padding": lambda: own.Images(
        nn.AvgPool2d(4, 4, 1, ceil_mode=True, count_include_pad=False)
    ),
    "relu inplace": lambda: own.Images(nn.ReLU(inplace=True)),
    "hardtanh limits": lambda: own.Images(nn.Hardtanh(0.0, 6.0)),
    "gelu approximate": lambda: own.Images(nn.GELU(approximate="tanh")),
    "dropout p": lambda: own.Images(nn.Dropout(0.0)),
    "dropout training": lambda: images(lambda x: F.dropout(x, 0.5, training=False)),
    "add alpha": lambda: images(lambda x: torch.add(x, F.relu(x), alpha=1)),
    "adaptive pool output_size": lambda: own.Images(nn.AdaptiveAvgPool2d(4)),
    "adaptive pool of one": lambda: own.Images(nn.Identity(), pool=lambda x: F.adaptive_avg_pool2d(x, 1)[:, :, 0, 0]),
    "mean with the axes": lambda: own.Images(nn.Identity(), pool=lambda x: x.mean((2, 3), keepdim=True)[:, :, 0, 0]),
    "linear bias": lambda: text(nn.Linear(8, 8, bias=False)),
    "lstm bidirectional": lambda: lstm(4, bidirectional=True),
    "lstm dropout": lambda: lstm(dropout=0.5),
    "attention bias": lambda: attention(bias=False),
    "attention kdim": lambda: attention(kdim=8, vdim=8),
    "attention scale": lambda: text(own.Masked(None, scale=0.5)),
    "attention mask": lambda: text(own.Masked(lambda time: torch.full((time, time), -1e9).triu(1))),
    "attention mask of booleans": lambda: text(own.Masked(lambda time: torch.ones(time, time).tril().bool())),
    "softmax": lambda: ending(lambda x: F.softmax(x, 1)),
    "log_softmax": lambda: ending(lambda x: F.log_softmax(x, 1)),
    "log_softmax module": lambda: own.Images(nn.Identity(), nn.LogSoftmax(-1)),
    "forward hook": lambda: hooked("register_forward_hook", lambda module, inputs, output: output.relu()),
    "dtype": lambda: own.Images(nn.Identity()).double(),
    "memory format": lambda: own.Images(nn.Conv2d(8, 8, 3)).to(memory_format=torch.channels_last),
}


def hooked(method: str, hook: Callable[..., Any]) -> Any:
    module = own.Images(nn.ReLU())
    getattr(module.conv, method)(hook)
    return module


@pytest.mark.parametrize("name", REFUSED)
def test_an_argument_without_a_layer_is_refused_by_name_and_value(name: str) -> None:
    make, message = REFUSED[name]
    assert message in refusal(make())


@pytest.mark.parametrize("name", ACCEPTED)
def test_a_step_with_an_accepted_argument_is_that_of_the_network(name: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    module = ACCEPTED[name]()
    assert step_difference(module, translated(module)) < 1e-9
    document, _ = translate_model(module, shape_of(module), tmp_path, None, name)
    assert document.proof.failure is None


@functools.cache
def net_class() -> Any:
    class Net(nn.Module):
        """A convolution, a batch norm and a head; a subclass changes the part before the head."""

        def __init__(self) -> None:
            super().__init__()
            self.conv, self.norm, self.dense = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Linear(4, 5)
            self.register_buffer("count", torch.zeros((), dtype=torch.int64))

        def forward(self, x: Any) -> Any:
            return self.dense(self.change(self.norm(self.conv(x))).mean((2, 3)))

        def change(self, x: Any) -> Any:
            return x

        def head(self, x: Any) -> Any:
            return self.dense(self.norm(self.conv(x)).mean((2, 3)))

    return Net


class Outputs(NamedTuple):
    logits: Any
    auxiliary: Any


def prepared(prepare: Callable[[Any], Any]) -> Any:
    net = net_class()()
    prepare(net)
    return net


def never(*_: Any) -> None:
    """A hook that nothing calls."""


@pytest.mark.parametrize(
    ("prepare", "message"),
    [
        (lambda net: parametrizations.spectral_norm(net.conv), "conv.weight: parametrized by _SpectralNorm"),
        (lambda net: parametrizations.weight_norm(net.dense), "dense.weight: parametrized by _WeightNorm"),
        (
            lambda net: parametrize.register_parametrization(net.conv, "bias", nn.Tanh()),
            "conv.bias: parametrized by Tanh",
        ),
        (lambda net: prune.l1_unstructured(net.conv, "weight", 0.5), "conv: L1Unstructured of torch.nn.utils.prune"),
        (lambda net: nn.utils.spectral_norm(net.conv), "conv: SpectralNorm of torch.nn.utils.spectral_norm"),
        (lambda net: net.conv.register_full_backward_hook(never), "conv: a hook of register_full_backward_hook"),
        (lambda net: net.register_full_backward_pre_hook(never), "Net: a hook of register_full_backward_pre_hook"),
        (
            lambda net: net.conv.weight.register_hook(lambda gradient: 2 * gradient),
            "conv.weight: a hook of register_hook",
        ),
        (
            lambda net: net.dense.bias.register_post_accumulate_grad_hook(never),
            "dense.bias: a hook of register_post_accumulate_grad_hook",
        ),
        (lambda net: net.norm.eval(), "norm: training=False, but Net has training=True"),
        (lambda net: net.eval().norm.train(), "norm: training=True, but Net has training=False"),
        (lambda net: net.norm.requires_grad_(False), "norm.weight: requires_grad is False"),
        (lambda net: net.half(), "conv.weight is float16: expected weights of real numbers"),
        (lambda net: net.dense.double(), "dense.weight is float64, but conv.weight is not: expected one dtype"),
        (lambda net: net.to("meta"), "conv.weight is on the device meta: expected cpu"),
        (lambda net: setattr(net, "conv", nn.LazyConv2d(4, 3)), "conv.weight is of type UninitializedParameter"),
        (lambda net: setattr(net.conv, "weight", own.Weight(net.conv.weight.data)), "conv.weight is of type Weight"),
    ],
)
def test_what_changes_the_training_of_a_module_is_refused(prepare: Callable[[Any], Any], message: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the older functions
        net = prepared(prepare)
    assert message in refusal(net)


def without_gradient(net: Any, x: Any) -> Any:
    with torch.no_grad():
        return x.relu()


def with_autocast(net: Any, x: Any) -> Any:
    with torch.autocast("cpu", torch.bfloat16):
        return x.relu()


def without_gradient_of_the_weight(net: Any, x: Any) -> Any:
    with torch.no_grad():
        net.conv.weight.mul_(0.5)
    return x


def with_a_view_in_place(net: Any, x: Any) -> Any:
    x[:, 0].relu_()
    return x


def with_a_shape_of_values(net: Any, x: Any) -> Any:
    return x[:, :, : int(x.abs().max())]


@pytest.mark.parametrize(
    ("change", "line", "message"),
    [
        (without_gradient, 2, "wrap_with_set_grad_enabled: no layer computes this block: its weights have no gradient"),
        (with_autocast, 2, "wrap_with_autocast: no layer computes this block: remove torch.autocast"),
        (
            without_gradient_of_the_weight,
            2,
            "forward: mul_ of conv.weight: the forward pass changes this weight in place",
        ),
        (lambda net, x: (net.conv.weight.data.mul_(0.5), x)[1], 0, "forward: mul_ of conv.weight: the forward pass"),
        (
            lambda net, x: (net.dense.bias.detach().__setitem__(0, 1), x)[1],
            0,
            "forward: __setitem__ of dense.bias: the",
        ),
        (lambda net, x: (nn.init.zeros_(net.dense.bias), x)[1], 0, "forward: zero_ of dense.bias: the"),
        (with_a_view_in_place, 1, "relu: changes a view of a tensor in place"),
        (lambda net, x: (x.flatten(1).relu_(), x)[1], 0, "relu: changes a view of a tensor in place"),
        (lambda net, x: x.relu_().mul_(2), 0, "mul: no layer computes this operation"),
        (lambda net, x: (x.register_hook(lambda gradient: 2 * gradient), x)[1], 0, "forward: a hook of register_hook"),
        (lambda net, x: x + torch.randn(4, 8, 8), 0, "randn: draws random numbers: expected dropout only"),
        (lambda net, x: x if x.sum() > 0 else -x, 0, "torch.export: control flow or a shape depends on the values"),
        (with_a_shape_of_values, 1, "torch.export: control flow or a shape depends on the values"),
        (lambda net, x: x + net.conv.weight.sum(), 0, "sum: no layer computes this operation"),
        (lambda net, x: {}["missing"], 0, "forward: KeyError: 'missing'"),
        (lambda net, x: sys.exit(3), 0, "forward: SystemExit: 3"),
        (lambda net, x: torch.from_numpy(x.detach().numpy()), 0, "torch.export: "),
    ],
)
def test_what_fails_in_the_forward_pass_is_one_line_with_place_and_operation(
    change: Callable[[Any, Any], Any], line: int, message: str
) -> None:
    net = type("Changed", (net_class(),), {"change": change})()
    lines = (change.__code__.co_firstlineno + line, net_class().forward.__code__.co_firstlineno + 1)  # or forward
    assert refusal(net, Path(__file__)).startswith(tuple(f"{Path(__file__).name}:{one}: {message}" for one in lines))


def saved_and_overwritten(net: Any, x: Any) -> Any:
    y = F.silu(x)
    return x.relu_() + y


def without_any_gradient(net: Any, x: Any) -> Any:
    with torch.no_grad():
        return net_class().forward(net, x)


@pytest.mark.parametrize(
    ("forward", "message"),
    [
        (lambda net, x: {"count": 3, "logits": net.dense(net.conv(x).mean((2, 3)))}, "the output is of type int"),
        (lambda net, x: "logits", "forward: TypeError: the output is of type str"),
        (lambda net, x: (net.head(x), net.conv(x)), "2 outputs, [0], [1]: expected one, the logits, because a network"),
        (lambda net, x: [net.head(x), [x, x]], "3 outputs, [0], [1][0], [1][1]: expected one"),
        (lambda net, x: {"logits": net.head(x), "loss": x.sum()}, "2 outputs, ['logits'], ['loss']: expected one"),
        (lambda net, x: Outputs(net.head(x), net.head(x)), "2 outputs, .logits, .auxiliary: expected one"),
        (lambda net, x: torch.zeros(2, 5), "the output does not depend on the input"),
        (
            lambda net, x: net.dense(net.norm(saved_and_overwritten(net, net.conv(x))).mean((2, 3))),
            "backward: one of the variables",
        ),
        (without_any_gradient, "wrap_with_set_grad_enabled"),
    ],
)
def test_outputs_that_cannot_be_trained_are_refused(forward: Callable[[Any, Any], Any], message: str) -> None:
    assert message in refusal(type("Changed", (net_class(),), {"forward": forward})())


@pytest.mark.parametrize("form", [lambda y: (y, None), lambda y: [None, y], lambda y: {"logits": y, "loss": None}])
def test_an_output_that_is_none_is_no_output(form: Callable[[Any], Any]) -> None:
    net = type("Changed", (net_class(),), {"forward": lambda net, x: form(net.head(x))})()
    assert translated(net).model.classes == 5


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: nn.Sequential(nn.Linear(6, 4), nn.ReLU(), nn.Linear(4, 3)),
            "Sequential: the input has 6 numbers, which poly",
        ),
        (
            lambda: nn.Sequential(nn.LayerNorm(6), nn.Linear(6, 3)),
            "or features of shape (1, 6), --input 1x6, and a flatten",
        ),
        (lambda: nn.Sequential(nn.Linear(6, 3).double()), "takes for tokens: expected an embedding first"),
        (lambda: own.Mean(9), "forward: mat1 and mat2 shapes cannot be multiplied"),
    ],
)
def test_one_number_as_a_shape_means_tokens(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(BadInput) as error:
        graph.translate(make(), _TEXT, None, operations.OPERATIONS)
    assert message in str(error.value)
    assert graph.translate(own.Mean(8), _TEXT, None, operations.OPERATIONS).model.vocabulary_size == 9


def test_a_file_that_turns_gradients_off_is_refused() -> None:
    with torch.no_grad():
        assert "Net: backward: the output has no gradient: remove torch.no_grad()" in refusal(net_class()())


def test_an_operation_of_the_user_is_not_that_of_pytorch_with_its_name() -> None:
    library = torch.library.Library("polybench_test", "DEF")
    library.define("relu(Tensor x) -> Tensor")
    library.impl("relu", torch.sin, "CompositeExplicitAutograd")
    assert "polybench_test::relu: no layer computes this operation" in refusal(images(torch.ops.polybench_test.relu))


def test_a_buffer_that_the_forward_pass_changes_is_not_a_constant() -> None:
    assert "the forward pass changes part.places: expected a constant" in refusal(text(own.Rolling()))


def test_a_class_of_the_user_is_read_by_what_it_computes() -> None:
    """Its name and its base class say nothing."""

    class Dropout(nn.Dropout):
        def forward(self, x: Any) -> Any:
            return torch.sin(x)

    assert "sin: no layer computes this operation" in refusal(own.Images(Dropout()))
    kinds = [type("BatchNorm2d", (nn.Module,), {"forward": lambda self, x: F.relu(x)}), nn.ReLU]
    first, second = ([row.type for row in translated(own.Images(kind())).layers] for kind in kinds)
    assert first == second


def test_a_model_is_restored(tmp_path: Path) -> None:
    net = net_class()().eval()
    before = copy.deepcopy(net.state_dict())
    type(net).change, change = (lambda net, x: (net.count.add_(1), x)[1]), net_class().change
    try:
        translated(net)
    finally:
        type(net).change = change
    assert not any(one.training for one in net.modules())
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())
    assert all(one.grad is None for one in net.parameters())
