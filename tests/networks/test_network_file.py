"""Network files: every network can be written and read back."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from polybench.errors import BadInput
from polybench.networks import MODELS, find_model
from polybench.networks.layers import LSTM, Conv, Dense, Embedding, Flatten, ReLU, Residual
from polybench.networks.model import Model
from polybench.networks.network_file import FINGERPRINT_MARK, network_of, network_table, network_toml
from polybench.networks.optimizers import OPTIMIZERS, Optimizer
from polybench.networks.toml_text import TomlText
from polybench.planning.study_file import read_network
from tests.example_networks import DROPOUTS, EVERYTHING, FEATURES, PADDED, PATCHED, SEQUENCES, TEXT


def parsed(text: str) -> Model:
    content = TomlText("x.toml", text)
    return network_of(content, content.load())


OTHERS = (
    find_model(name) for name in ("catdog-7", "catdog-2@96", "conv 3x3 8->8 pad 1 on 9x9", "attention 2 heads 6 on 5")
)


@pytest.mark.parametrize(
    "model",
    [*MODELS.values(), *OTHERS, EVERYTHING, DROPOUTS, SEQUENCES, FEATURES, TEXT, PATCHED, PADDED],
    ids=lambda model: model.name,
)
def test_every_network_reads_back_from_its_file_and_from_a_study(model: Model) -> None:
    read = parsed(network_toml(model))
    assert msgspec.structs.replace(read, name=model.name) == model
    assert parsed(network_toml(read)) == network_of(TomlText("x", ""), network_table(model)) == read


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


def test_options_that_follow_from_the_input_may_be_omitted() -> None:
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


def test_blocks_expand_to_layers_with_their_own_names_and_values() -> None:
    block = Residual((Conv("first.inner.conv1", 4, 4, 3, padding="same"),)), ReLU()
    model = parsed(BLOCKS)
    assert model.layers[:3] == (Conv("first.conv1", 3, 4, 1), *block)
    named = [layer.name for layer, _ in model.activations() if isinstance(layer, Conv | Dense)]
    assert named == [
        "first.conv1", "first.inner.conv1", "plain1.1.conv1", "plain1.2.conv1", "dense1"
    ]  # fmt: skip
    assert parsed(network_toml(model)) == model


def test_a_network_is_named_by_its_file_and_fingerprint(tmp_path: Path) -> None:
    one, two = tmp_path / "my net.toml", tmp_path / "other.toml"
    one.write_text(IMAGES + LAYERS)
    two.write_text(f"summary = 'said'\n{IMAGES}{LAYERS}")
    first, second = read_network(one), read_network(two)
    assert first.name.partition(FINGERPRINT_MARK)[0] == "my-net"
    assert second.name.partition(FINGERPRINT_MARK)[0] == "other"
    assert first.name.partition(FINGERPRINT_MARK)[2] == second.name.partition(FINGERPRINT_MARK)[2] != ""
    two.write_text((IMAGES + LAYERS).replace("outputs = 4", "outputs = 5"))
    assert read_network(two).name.partition(FINGERPRINT_MARK)[2] != second.name.partition(FINGERPRINT_MARK)[2]
    assert first.without_name() == second.without_name()


def test_repeated_names_are_rejected() -> None:
    twice = '{ type = "dropout", name = "x", rate = 0.5 },'
    layers = f"layers = [\n{twice}\n{twice}\n]"
    with pytest.raises(BadInput, match=r"x\.toml:5: the layer in line 4 already has the name x"):
        parsed(IMAGES + layers)


def test_names_that_an_engine_cannot_distinguish_are_rejected() -> None:
    layers = LAYERS.replace('type = "conv"', 'type = "conv"\nname = "a.b"', 1)
    with pytest.raises(BadInput, match=r"the layer in line \d+ already has the name a_b"):
        parsed(IMAGES + layers.replace('type = "dense"', 'type = "dense"\nname = "a_b"', 1))


def test_a_name_is_one_line() -> None:
    with pytest.raises(BadInput, match=r"x\.toml:1"):
        parsed('name = "mine\\n"\n' + IMAGES + LAYERS)


def test_an_invalid_file_name_is_reported(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"cannot read ~nobody-of-this-name/net\.toml"):
        read_network("~nobody-of-this-name/net.toml")
    with pytest.raises(BadInput, match=r"cannot read .*null byte"):
        read_network(tmp_path / "a\0.toml")


def test_the_expected_number_of_parameters_is_checked() -> None:
    assert parsed(f"parameters = 402\n{IMAGES}{LAYERS}").published_parameters == 402
    with pytest.raises(BadInput, match=r"x.toml:1: the network has 402 parameters: expected 403"):
        parsed(f"parameters = 403\n{IMAGES}{LAYERS}")


def test_training_settings_come_from_the_file() -> None:
    training = '[training]\nbatch_size = 8\noptimizer = "nesterov"\nlr_schedule = [[10, 0.1]]\nparity_batch_size = 4'
    model = parsed(f"{IMAGES}{LAYERS}{training}")
    assert model.optimizer == Optimizer("nesterov", 0.01, lr_schedule=((10, 0.1),))
    assert (model.batch_size, model.parity_batch_size) == (8, 4)
