"""TOML -> Model: what can be written down, that it comes back, and the line of everything that cannot."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings

from polybench.core.errors import BadInput
from polybench.core.layers import (
    AveragePool,
    BatchNorm,
    Conv,
    Dense,
    Dropout,
    Flatten,
    GlobalAveragePool,
    Layer,
    MaxPool,
    ReLU,
    Residual,
)
from polybench.core.model import Model
from polybench.core.optimizers import OPTIMIZERS, Optimizer
from polybench.core.pieces import pieces
from polybench.core.sequence_layers import LSTM, Embedding, MeanOverTime
from polybench.models import MODELS, find_model
from polybench.planning.network_file import IDENTITY, network_of, place_of, read_network
from polybench.planning.network_table import network_table, network_toml
from polybench.planning.toml_text import TomlText
from tests.planning.networks import networks


def parsed(text: str) -> Model:
    content = TomlText("x.toml", text)
    return network_of(content, content.load())


def same(read: Model, model: Model) -> bool:
    return msgspec.structs.replace(read, name=model.name) == model


@pytest.mark.parametrize("name", [*MODELS, "catdog-7", "catdog-2@96", "conv 3x3 8->8 pad 1 on 9x9"])
def test_every_network_comes_back_from_its_file(name: str) -> None:
    model = find_model(name)
    read = parsed(network_toml(model))
    assert same(read, model)
    assert parsed(network_toml(read)) == read


@settings(max_examples=40)
@given(networks())
def test_any_network_comes_back_from_its_file_and_from_a_study(model: Model) -> None:
    assert same(parsed(network_toml(model)), model)
    table = network_table(model)
    assert same(network_of(TomlText("x", ""), table), model)


@settings(max_examples=40)
@given(networks())
def test_no_two_pieces_of_any_network_are_called_the_same(model: Model) -> None:
    names = [piece.name for piece in pieces(model)]
    assert len(set(names)) == len(names)


IMAGES = "input = { channels = 3, height = 8, width = 8 }\nclasses = 2\n"
TOKENS = "input = { vocabulary = 50, length = 6 }\nclasses = 2\n"
LAYERS = """
[[layers]]
type = "conv"
outputs = 4
kernel = 3

[[layers]]
type = "flatten"

[[layers]]
type = "dense"
outputs = 2
"""


def test_what_follows_from_what_comes_in_may_be_left_out() -> None:
    model = parsed(IMAGES + LAYERS)
    assert model.layers == (Conv("conv1", 3, 4, 3), Flatten(), Dense("dense1", 144, 2))
    assert (model.batch_size, model.optimizer) == (128, OPTIMIZERS["momentum"])
    assert 2 <= model.parity_batch_size <= 16
    sequence = parsed(
        TOKENS
        + """layers = [
  { type = "embedding", features = 5 },
  { type = "lstm", units = 3, bidirectional = true, sequence = true },
  { type = "lstm", name = "lstm1", units = 4 },
  { type = "dense", outputs = 2 },
]"""
    )
    table, first, second, last = sequence.layers
    assert table == Embedding("embedding1", 50, 5)
    assert first == LSTM("lstm2", 5, 3, bidirectional=True, sequence=True)  # lstm1 is another's name
    assert second == LSTM("lstm1", 6, 4)
    assert last == Dense("dense1", 4, 2)


BLOCKS = (
    IMAGES
    + """
layers = [
  { type = "block", block = "wide", name = "first", with = { channels = 4 } },
  { type = "block", block = "plain", times = 2 },
  { type = "global_average_pool" },
  { type = "dense", outputs = 2 },
]
[blocks]
plain = [
  { type = "residual", body = [
    { type = "conv", outputs = 4, kernel = 3, padding = "same" },
  ] },
  { type = "relu" },
]
wide = [
  { type = "conv", outputs = "$channels", kernel = 1 },
  { type = "block", block = "plain", name = "inner" },
]
"""
)


def test_blocks_stand_for_layers_with_names_and_values_of_their_own() -> None:
    block = Residual((Conv("first.inner.conv1", 4, 4, 3, padding="same"),)), ReLU()
    model = parsed(BLOCKS)
    assert model.layers[:3] == (Conv("first.conv1", 3, 4, 1), *block)
    named = [layer.name for layer, _ in model.activations() if isinstance(layer, Conv | Dense)]
    assert named == [
        "first.conv1", "first.inner.conv1", "plain1.1.conv1", "plain1.2.conv1", "dense1"
    ]  # fmt: skip
    assert parsed(network_toml(model)) == model


def test_a_network_is_called_by_its_file_and_by_what_it_is(tmp_path: Path) -> None:
    one, two = tmp_path / "my net.toml", tmp_path / "other.toml"
    one.write_text(IMAGES + LAYERS)
    two.write_text(f"summary = 'said'\n{IMAGES}{LAYERS}")
    first, second = read_network(one), read_network(two)
    assert first.name.partition(IDENTITY)[0] == "my-net"
    assert second.name.partition(IDENTITY)[0] == "other"
    assert first.name.partition(IDENTITY)[2] == second.name.partition(IDENTITY)[2] != ""
    two.write_text((IMAGES + LAYERS).replace("outputs = 4", "outputs = 5"))
    assert read_network(two).name.partition(IDENTITY)[2] != second.name.partition(IDENTITY)[2]
    assert first.unnamed() == second.unnamed()


def test_no_name_is_given_twice() -> None:
    twice = '{ type = "dropout", name = "x", rate = 0.5 },'
    layers = f"layers = [\n{twice}\n{twice}\n]"
    with pytest.raises(BadInput, match=r"x\.toml:5: x is the name of the layer in line 4 already"):
        parsed(IMAGES + layers)


def test_names_that_one_of_the_engines_does_not_tell_apart_are_one() -> None:
    layers = LAYERS.replace('type = "conv"', 'type = "conv"\nname = "a.b"', 1)
    with pytest.raises(BadInput, match=r"a_b is the name of the layer in line \d+ already"):
        parsed(IMAGES + layers.replace('type = "dense"', 'type = "dense"\nname = "a_b"', 1))


def test_a_name_is_one_line() -> None:
    with pytest.raises(BadInput, match=r"x\.toml:1"):
        parsed('name = "mine\\n"\n' + IMAGES + LAYERS)


def test_a_name_that_no_file_can_have_is_said(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"cannot read ~nobody-of-this-name/net\.toml"):
        place_of("~nobody-of-this-name/net.toml")
    with pytest.raises(BadInput, match=r"cannot read .*null byte"):
        read_network(tmp_path / "a\0.toml")


def test_a_number_of_parameters_is_held_to() -> None:
    assert parsed(f"parameters = 402\n{IMAGES}{LAYERS}").published_parameters == 402
    with pytest.raises(BadInput, match=r"x.toml:1: the network has 402 parameters, not 403"):
        parsed(f"parameters = 403\n{IMAGES}{LAYERS}")


def test_training_is_what_the_file_says() -> None:
    training = (
        '[training]\nbatch_size = 8\noptimizer = "nesterov"\nschedule = [[10, 0.1]]\nparity_batch_size = 4'
    )
    model = parsed(f"{IMAGES}{LAYERS}{training}")
    assert model.optimizer == Optimizer("nesterov", 0.01, schedule=((10, 0.1),))
    assert (model.batch_size, model.parity_batch_size) == (8, 4)


def test_every_kind_of_layer_is_drawn() -> None:
    drawn = {AveragePool, BatchNorm, Conv, Dense, Dropout, Embedding, Flatten, GlobalAveragePool, LSTM}
    assert drawn | {MaxPool, MeanOverTime, ReLU, Residual} == set(Layer.__args__)
