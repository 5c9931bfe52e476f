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
from polybench.planning.network_file import IDENTITY, network_of, read_network
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


BAD = {
    "layres = 1": "3: unknown key 'layres'; did you mean 'layers'",
    '[[layers]]\ntype = "convv"': "4: unknown type of layer 'convv'; did you mean 'conv'",
    "[[layers]]\noutputs = 3": "3: a layer has a type: conv, max_pool,",
    '[[layers]]\ntype = "conv"\n\nkernal = 3': "6: unknown option of conv 'kernal'; did you mean 'kernel'",
    '[[layers]]\ntype = "conv"\noutputs = 4': "3: kernel is missing here",
    '[[layers]]\ntype = "conv"\nkernel = 3\noutputs = -4': "6: outputs is -4: Expected `int` >= 1",
    '[[layers]]\ntype = "conv"\nkernel = 3\noutputs = "4"': "6: outputs is '4': Expected `int`, got `str`",
    '[[layers]]\ntype = "conv"\nkernel = 3\noutputs = 999999999': "6: outputs is 999999999: Expected",
    '[[layers]]\ntype = "conv"\nkernel = 9\noutputs = 4': "3: windows of 9 x 9 with 0 zeros around do not",
    '[[layers]]\ntype = "conv"\nkernel = 3\noutputs = 4\ninputs = 1': "3: conv1 takes 1 channels",
    '[[layers]]\ntype = "conv"\nkernel = 2\npadding = "same"\noutputs = 4': '3: conv1: padding "same"',
    '[[layers]]\ntype = "conv"\nkernel = 2\npadding = "sam"\noutputs = 4': "6: unknown padding 'sam'; did",
    '[[layers]]\ntype = "conv"\nkernel = 2\noutputs = "$n"': "6: '$n' belongs into a block",
    '[[layers]]\ntype = "dropout"\nrate = 1.0': "5: rate is 1.0: Expected `float` < 1.0",
    '[[layers]]\ntype = "batch_norm"\nepsilon = nan': "5: epsilon is nan: ",
    '[[layers]]\ntype = "lstm"\nunits = 3\nbiases = 3': "6: biases is 3: write 1 or 2",
    '[[layers]]\ntype = "lstm"\nunits = 3': "3: lstm1 takes (time, 8), and gets (3, 8, 8) (lstm1; 3 x 8 x 8",
    '[[layers]]\ntype = "embedding"\nfeatures = 3': "3: an embedding takes tokens: it is the first layer",
    '[[layers]]\ntype = "residual"': "3: a residual block has a body",
    '[[layers]]\ntype = "residual"\nbody = []': "5: a list of layers belongs here, and not []",
    '[[layers]]\ntype = "residual"\nbody = [\n{ type = "relu" },\n# why\n{ type = "relux" },\n]': (
        "8: unknown type of layer 'relux'; did you mean 'relu'"
    ),
    '[[layers]]\ntype = "residual"\nbody = [{ type = "conv", outputs = 4, kernel = 1 }]': (
        "3: a residual block cannot add (4, 8, 8) and (3, 8, 8)"
    ),
    '[[layers]]\ntype = "block"\nblock = "a"': "5: unknown block 'a'; there are no blocks",
    '[[layers]]\ntype = "relu"\nname = "x"': "5: unknown option of relu 'name'",
    'layers = [\n{ type = "relu" },\n{ type = "relu", x = 1 },\n]': "5: unknown option of relu 'x'",
    'layers = [\n{ type = "relu" },\n3,\n]': "5: a table belongs here, with keys and values, and not 3",
    "layers = []": "3: a list of layers belongs here, and not []",
    "layers = 3": "3: layers is 3: Expected `array`, got `int`",
    'layers = [{ type = "flatten" }]': "3: the last layer puts out 192, and there are 2 classes; end with",
    'layers = [{ type = "flatten" }, { type = "dense", outputs = 99999999 }]': "3: outputs is 99999999: ",
    'layers = [{ type = "conv", outputs = 16000000, kernel = 1 }]': "3: this layer puts out 16000000 x 8",
    "input = 3": "no TOML: Cannot overwrite a value",
    "name = '../x'\nlayers = [1]": "3: name is '../x': one line of letters",
    "initialization = 'he_normal'\nlayers = [1]": "3: unknown initialization 'he_normal'",
}  # fmt: skip


@pytest.mark.parametrize("content", BAD, ids=lambda content: content[-40:])
def test_an_error_names_the_line_and_what_comes_in(content: str, tmp_path: Path) -> None:
    file = tmp_path / "bad.toml"
    file.write_text(IMAGES + content)
    with pytest.raises(BadInput) as caught:
        read_network(file)
    assert (
        f"{file}:{BAD[content]}" in str(caught.value)
        or BAD[content] in str(caught.value).partition(":3: ")[2]
    )


AROUND = {
    "channels = 3": ("channels = 2", "1: channels is 2: write 1 or 3"),
    "height = 8": ("heigth = 8", "1: unknown key of input 'heigth'; did you mean 'height'"),
    "input = { channels = 3, height = 8, width = 8 }": (
        "input = { size = 8 }", "1: the input says channels, height and width of images; vocabulary"
    ),
    "classes = 2": ("classes = 1000", "2: classes is 1000: Expected `int` <= 256"),
    "classes = 2\n": ("", "1: classes is missing here; needed are: classes, input, layers"),
    "outputs = 2\n": ("outputs = 3\n", "12: the last layer puts out 3, and there are 2 classes"),
    'type = "flatten"\n': ('type = "relu"\n', "12: dense1 takes features, and gets (4, 6, 6)"),
    "outputs = 4": ("outputs = 4\nname = 'a b'", "7: name is 'a b': one line of letters"),
}  # fmt: skip
TRAINING = {
    "batchsize = 3": "16: unknown key of training 'batchsize'; did you mean 'batch_size'",
    "batch_size = 0": "16: batch_size is 0: Expected `int` >= 1",
    'optimizer = "adm"': "16: unknown optimizer 'adm'; did you mean 'adam'",
    "learning_rate = inf": "16: learning_rate is inf; write a finite number",
    'optimizer = "adam"\nmomentum = 0.5': "17: optimizer adam takes no momentum",
    "schedule = [[10, 0.1], [5, 0.2]]": "16: --schedule: the steps must ascend",
}


@pytest.mark.parametrize("old", AROUND)
def test_an_error_around_a_layer_names_its_line(old: str) -> None:
    new, message = AROUND[old]
    with pytest.raises(BadInput) as caught:
        parsed((IMAGES + LAYERS).replace(old, new, 1))
    assert f"x.toml:{message}" in str(caught.value)


@pytest.mark.parametrize("training", TRAINING)
def test_an_error_of_the_training_names_its_line(training: str) -> None:
    with pytest.raises(BadInput) as caught:
        parsed(f"{IMAGES}{LAYERS}[training]\n{training}\n")
    assert f"x.toml:{TRAINING[training]}" in str(caught.value)


IN_BLOCKS = {
    'type = "block", block = "plain", name = "inner"': (
        'type = "block", block = "wide", with = { channels = 4 }',
        "19: block wide contains itself: wide > wide",
    ),
    "with = { channels = 4 }": (
        "times = 1",
        "18: unknown value of block wide 'channels'; there are no values",
    ),
    "{ channels = 4 }": ("{ channels = 4, width = 3 }", "5: block wide has no '$width'; it has $channels"),
    'block = "plain", times = 2': ('block = "plan"', "6: unknown block 'plan'; did you mean 'plain'"),
    "times = 2": ("times = 0", "6: times is 0: Expected `int` >= 1"),
    '{ type = "conv", outputs = 4': (
        '{ type = "conv", outputs = 5',
        "12: a residual block cannot add (5, 8, 8) and (4, 8, 8) (residual; 4 x 8 x 8 comes in)"
        " (in block plain, used in line 19)",
    ),
    "wide = [": ("idle = [\n]\nwide = [", "17: block idle is used by no layer; remove it"),
}


@pytest.mark.parametrize("old", IN_BLOCKS)
def test_an_error_in_a_block_names_both_lines(old: str) -> None:
    new, message = IN_BLOCKS[old]
    with pytest.raises(BadInput) as caught:
        parsed(BLOCKS.replace(old, new, 1))
    assert f"x.toml:{message}" in str(caught.value)


def test_blocks_that_multiply_without_end_are_refused() -> None:
    blocks = [f'b{n} = [{{ type = "block", block = "b{n + 1}", times = 1000 }}]' for n in range(9)]
    last = 'b9 = [{ type = "relu" }]'
    use = 'layers = [{ type = "block", block = "b0" }]'
    with pytest.raises(BadInput, match="more than 2,000 layers"):
        parsed("\n".join([IMAGES, use, "[blocks]", *blocks, last]))
    chain = [f'b{n} = [{{ type = "block", block = "b{n + 1}" }}]' for n in range(30)]
    with pytest.raises(BadInput, match="more than 16 blocks in each other"):
        parsed("\n".join([IMAGES, use, "[blocks]", *chain, 'b30 = [{ type = "relu" }]']))


@pytest.mark.parametrize(
    ("layers", "message"),
    [
        ('{ type = "embedding", vocabulary = 49, features = 2 }', "the input has 50 tokens, this 49"),
        ('{ type = "relu" }', "the input is tokens, so the first layer is an embedding"),
        ('{ type = "residual", body = [{ type = "relu" }] }', "so the first layer is an embedding"),
    ],
)
def test_tokens_are_known_to_an_embedding(layers: str, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        parsed(f"{TOKENS}layers = [{layers}]")


def test_a_file_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"cannot read .*none\.toml: No such file"):
        read_network(tmp_path / "none.toml")
    with pytest.raises(BadInput, match="Is a directory"):
        read_network(tmp_path)
    (tmp_path / "study.toml").write_text("engines = ['torch']")
    with pytest.raises(BadInput, match=r"study\.toml is no network: it has no layers"):
        read_network(tmp_path / "study.toml")
    (tmp_path / "broken.toml").write_text("layers = [\n")
    with pytest.raises(BadInput, match=r"broken\.toml:1: no TOML"):
        read_network(tmp_path / "broken.toml")


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
