"""`polybench import` of PyTorch modules: plain programs are proven, and what has no layer is refused by its line."""

from __future__ import annotations

import re
import runpy
import warnings
from pathlib import Path
from textwrap import dedent
from typing import Any

import numpy as np
import pytest

from polybench.data import synthetic
from polybench.engines.job import Job
from polybench.engines.torch.emitter import emit
from polybench.errors import BadInput
from polybench.networks import find_model
from polybench.planning.study_file import read_network
from polybench.schema.options import Workload
from tests.commands import invoke, printed, printed_json, refused
from tests.lazy import Lazy, needs

graph: Any = Lazy("polybench.importer.torch_graph", "torch")
operations: Any = Lazy("polybench.importer.torch_operations", "torch")
pytestmark = needs("torch")

_HEADER = """
import torch
import torch.nn.functional as F
from torch import nn

"""


def program(folder: Path, body: str) -> Path:
    """Write a file whose class Net has this constructor and forward pass."""
    file = folder / "model.py"
    file.write_text(_HEADER + dedent(body), "utf-8")
    return file


def plain_program(folder: Path, network: str) -> Path:
    """Write the program of the torch engine."""
    file, model = folder / "plain.py", find_model(network)
    workload = Workload(network, "", model.batch_size, model.optimizer, "fp32", 1)
    file.write_text(emit(Job(model, workload, "cpu", "float32")), "utf-8")
    return file


@pytest.mark.parametrize("network", ["lenet", "resnet32", "dlframeworks-cnn", "imdb-bilstm"])
def test_every_plain_program_is_proven_and_is_its_network(network: str, tmp_path: Path) -> None:
    model, net = find_model(network), tmp_path / "net.toml"
    shape = "x".join(map(str, model.input_shape))
    file = plain_program(tmp_path, network)
    document = printed_json("import", f"{file}:Network", "--input", shape, "-o", net, "--format", "json")
    assert document["proof"]["failure"] is None
    assert document["proof"]["steps"] == (4 if model.vocabulary_size is None else 5)
    assert document["proof"]["omitted"] == []
    imported = read_network(net)
    assert [*imported.weight_shapes().values()] == [*model.weight_shapes().values()]
    assert imported.parameters() == model.parameters()
    assert [type(layer) for layer, _ in imported.activations()] == [type(layer) for layer, _ in model.activations()]
    with np.load(net.with_suffix(".npz")) as weights:
        assert {name: weights[name].shape for name in weights} == imported.tensor_shapes()


_TRANSFORMER = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.patches = nn.Conv2d(3, 12, 4, 4)
        self.token = nn.Parameter(torch.zeros(1, 1, 12))
        self.positions = nn.Parameter(torch.randn(1, 17, 12))
        self.norm = nn.LayerNorm(12)
        self.attention = nn.MultiheadAttention(12, 3, batch_first=True)
        self.up, self.down = nn.Linear(12, 24), nn.Linear(24, 12)
        self.head = nn.Linear(12, 5)

    def forward(self, x):
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(len(x), -1, -1), x], dim=1) + self.positions
        y = self.norm(x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        x = x + self.down(F.gelu(self.up(x), approximate="tanh"))
        return self.head(x[:, 0])
"""

_GPT = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.places = nn.Embedding(11, 8), nn.Embedding(20, 8)
        self.qkv, self.out = nn.Linear(8, 24, bias=False), nn.Linear(8, 8, bias=False)
        self.drop = nn.Dropout(0.2)
        self.head = nn.Linear(8, 11, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, tokens):
        batch, time = tokens.shape
        x = self.drop(self.tokens(tokens) + self.places(torch.arange(time)))
        q, k, v = (one.view(batch, time, 2, 4).transpose(1, 2) for one in self.qkv(x).split(8, dim=2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(batch, time, 8)
        return self.head(x + self.out(y))
"""

_MOBILE = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem, self.norm = nn.Conv2d(3, 8, 3, 2, 1, bias=False), nn.BatchNorm2d(8)
        self.depthwise = nn.Conv2d(8, 8, 3, padding=1, groups=8)
        self.group = nn.GroupNorm(2, 8)
        self.project = nn.Conv2d(8, 4, 1)
        self.head = nn.Linear(4, 5)

    def forward(self, x):
        x = F.relu6(self.norm(self.stem(x)))
        x = x + F.silu(self.group(self.depthwise(x)))
        return self.head(F.avg_pool2d(self.project(x), 2).mean([2, 3]))
"""


@pytest.mark.parametrize(
    ("body", "shape", "types"),
    [
        (_TRANSFORMER, "3x16x16", {"patches", "class_token", "positions", "attention", "layer_norm", "first_position"}),
        (_GPT, "12", {"embedding", "positions", "attention", "dropout", "dense"}),
        (_MOBILE, "3x12x12", {"conv", "batch_norm", "relu6", "silu", "group_norm", "average_pool", "residual"}),
    ],
    ids=["vision transformer", "gpt", "mobile"],
)
def test_layers_of_transformers_and_mobile_networks_are_recognized(
    body: str, shape: str, types: set[str], tmp_path: Path
) -> None:
    net = tmp_path / "net.toml"
    command = ("import", f"{program(tmp_path, body)}:Net", "--input", shape, "-o", net, "--format", "json")
    document = printed_json(*command)
    assert document["proof"]["failure"] is None
    assert types <= {layer["type"] for layer in document["layers"]}
    assert all(layer["place"].startswith("model.py:") for layer in document["layers"])


def network_with(line: str, setup: str = "pass") -> str:
    return f"""
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.dense = nn.Conv2d(3, 4, 3), nn.Linear(4, 5)
        {setup}

    def forward(self, x):
        x = self.conv(x)
        {line}
        return self.dense(x.mean([2, 3]))
"""


@pytest.mark.parametrize(
    ("line", "setup", "message"),
    [
        ("x = torch.sin(x)", "pass", "model.py:15: sin: no layer computes this operation"),
        ("x = x * 2", "pass", "model.py:15: mul: no layer"),
        ("x = x.detach()", "pass", "model.py:15: detach: no layer"),
        ("x = x.flip(1)", "pass", "model.py:15: flip: no layer"),
        ("x = x.transpose(2, 3) + x", "pass", "model.py:15: add: the program reorders"),
        ("x = F.pad(x, (0, 1)) + 1", "pass", "model.py:15: add: "),
        ("x = torch.cat([x[:, :2], F.relu(x)[:, 2:]], 1)", "pass", "model.py:15: cat: "),
        ("return self.dense(F.softmax(x.mean([2, 3]), 1))", "pass", "model.py:15: softmax: a softmax before the end"),
        ("x = x if x.sum() > 0 else -x", "pass", "model.py:15: torch.export: control flow"),
        ("pass", "self.unused = nn.Linear(2, 2)", "unused.weight: the output does not depend on this weight"),
        ("pass", "self.conv.weight.requires_grad_(False)", "conv.weight: requires_grad is False"),
        ("pass", "self.conv.to(torch.complex64)", "conv.weight is complex64: expected weights of real numbers"),
        ("x = x[..., : 1 + int(x.abs().max())]", "pass", "model.py:15: torch.export: control flow or a shape"),
        ("return None", "pass", "Net: the output does not depend on the input"),
        (
            "return self.dense(self.attention(*[x.flatten(2).transpose(1, 2)] * 3)[0].mean(1))",
            "self.conv, self.attention = nn.Conv2d(3, 4, 4, 4), nn.MultiheadAttention(4, 2, batch_first=True)",
            "model.py:15: mul: no layer computes this operation",
        ),
        ("x = Twice.apply(x)", "pass", "Twice: a torch.autograd.Function has a gradient of its own"),
    ],
)
def test_what_has_no_layer_is_refused_by_name_and_line(line: str, setup: str, message: str, tmp_path: Path) -> None:
    body = network_with(line, setup)
    if "Twice" in line:
        body += """
class Twice(torch.autograd.Function):
    @staticmethod
    def forward(context, x):
        return x.view_as(x)

    @staticmethod
    def backward(context, gradient):
        return 2 * gradient
"""
    file = program(tmp_path, body)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of complex modules
        net = runpy.run_path(str(file))["Net"]()
    with pytest.raises(BadInput, match=re.escape(message)) as error:
        graph.translate(net, (3, 12, 12), file, operations.OPERATIONS)
    assert error.value.exit_code == 2


@pytest.mark.parametrize(
    ("line", "setup", "message"),
    [
        ("x = torch.sin(x)", "pass", "model.py:15: sin: no layer computes this operation"),
        ("pass", "raise ValueError('no')", "model.py:11: ValueError: no"),
    ],
)
def test_nothing_is_written_of_a_refused_module(line: str, setup: str, message: str, tmp_path: Path) -> None:
    file, net = program(tmp_path, network_with(line, setup)), tmp_path / "net.toml"
    assert message in refused("import", f"{file}:Net", "--input", "3x12x12", "-o", net)
    assert not list(tmp_path.glob("*net*"))


def test_a_network_that_is_not_the_same_is_not_written(tmp_path: Path) -> None:
    """The exported program lacks a change of the gradient."""
    body = network_with("x = x if torch.compiler.is_exporting() else x + 1e-3 * (x - x.detach())")
    net = tmp_path / "net.toml"
    printed_text = printed("import", f"{program(tmp_path, body)}:Net", "--input", "3x12x12", "-o", net, code=1)
    assert "the gradient differs" in " ".join(printed_text.split())
    assert not list(tmp_path.glob("*net*"))


_SIZES = """
class MLP(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Flatten(), nn.Linear(113, 20), nn.ReLU(), nn.Linear(20, 3))

class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm, self.dense = nn.LSTM(14, 8, batch_first=True), nn.Linear(8, 2)

    def forward(self, x):
        return self.dense(self.lstm(x)[0])
"""


@pytest.mark.parametrize(("name", "shape"), [("MLP", "1x113"), pytest.param("Tagger", "20x14", marks=pytest.mark.wide)])
def test_every_command_takes_an_imported_network(
    name: str, shape: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(synthetic.IMAGES, "train", 2000)
    net = tmp_path / "net.toml"
    printed("import", f"{program(tmp_path, _SIZES)}:{name}", "--input", shape, "-o", net)
    options = (
        "--model",
        net,
        "--data",
        "synthetic",
        "--processes",
        "1",
        "--rounds-per-process",
        "1",
        "--steps-per-round",
        "3",
    )
    assert "torch/cpu: same" in printed("parity", "--model", net, "--engines", "torch", "--data", "synthetic")
    for command in (("compare", "--no-save"), ("layers",), ("sweep", "--batch-size", "8,16")):
        printed(*command, *options, "--engines", "fake")
    printed("export", net, "--framework", "torch", "-o", tmp_path / "code.py")


def test_a_file_that_does_not_end_is_stopped(tmp_path: Path) -> None:
    file = program(tmp_path, "while True: pass")
    result = invoke("import", f"{file}:Net", "--input", "3x12x12", "-o", tmp_path / "net.toml", "--timeout", "5")
    assert result.exit_code == 1
    assert "did not end within 5 s" in str(result.exception)


@pytest.mark.parametrize(
    ("model", "options", "message"),
    [
        ("model.py", ("--input", "3x12x12"), "expected FILE:NAME"),
        ("missing.py:Net", ("--input", "3x12x12"), "missing.py: no such file"),
        ("model.py:Missing", ("--input", "3x12x12"), "model.py: no Missing"),
        ("model.py:Net", (), "use --input"),
        ("model.py:Net", ("--input", "3,12"), "expected a shape such as 3x32x32"),
        ("model.py:torch", ("--input", "3x12x12"), "is not a model: expected a torch.nn.Module"),
    ],
)
def test_wrong_arguments_are_refused(
    model: str, options: tuple[str, ...], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(tmp_path, network_with("pass"))
    monkeypatch.chdir(tmp_path)
    assert message in refused("import", model, *options, "-o", "net.toml")
