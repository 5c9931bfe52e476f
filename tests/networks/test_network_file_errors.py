"""Invalid network files: each error names the file and the line."""

from __future__ import annotations

import contextlib
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tomli_w
from hypothesis import given, settings
from hypothesis import strategies as st

from polybench.errors import BadInput
from polybench.networks import MODELS
from polybench.networks.model import Model
from polybench.networks.network_file import network_of, network_toml
from polybench.networks.toml_text import TomlText
from polybench.planning.study_file import read_network
from tests.networks.test_network_file import BLOCKS, IMAGES, LAYERS, TOKENS, parsed

BAD = {
    "layres = 1": "3: unknown key 'layres'; did you mean 'layers'",
    '[[layers]]\ntype = "convv"': "4: unknown type of layer 'convv'; did you mean 'conv'",
    "[[layers]]\noutputs = 3": "3: the layer needs a type: conv, max_pool,",
    '[[layers]]\ntype = "conv"\n\nkernal = 3': "6: unknown option of conv 'kernal'; did you mean 'kernel'",
    '[[layers]]\ntype = "conv"\noutputs = 4': "3: kernel is missing: required are",
    '[[layers]]\ntype = "conv"\nkernel = 3\noutputs = -4': "6: outputs is -4: Expected `int` >= 1",
    '[[layers]]\ntype = "conv"\nkernel = 3\noutputs = "4"': "6: outputs is '4': Expected `int`, got `str`",
    '[[layers]]\ntype = "conv"\nkernel = 3\noutputs = 999999999': "6: outputs is 999999999: Expected",
    '[[layers]]\ntype = "flatten"\n\n[[layers]]\ntype = "max_pool"\nsize = 2': (
        "6: expected (channels, height, width), got (192,) (max_pool; its input is 192)"
    ),
    '[[layers]]\ntype = "conv"\nkernel = 9\noutputs = 4': "3: windows of 9 x 9 with padding 0 do not",
    '[[layers]]\ntype = "conv"\nkernel = 3\noutputs = 4\ninputs = 1': "3: conv1: expected 1 channels",
    '[[layers]]\ntype = "conv"\nkernel = 2\npadding = "same"\noutputs = 4': '3: conv1: padding "same"',
    '[[layers]]\ntype = "conv"\nkernel = 2\npadding = "sam"\noutputs = 4': "6: unknown padding 'sam'; did",
    '[[layers]]\ntype = "conv"\nkernel = 3\noutputs = 4\nstride = 2\npadding = "same"': (
        '3: conv1: padding "same" requires stride 1 and an odd kernel, got stride 2 and kernel 3; give the number of'
        " zeros instead, on all sides, or on each as [[top, bottom], [left, right]]"
    ),
    '[[layers]]\ntype = "conv"\nkernel = 2\noutputs = 4\npadding = [0, 1]': (
        "7: padding is [0, 1]: expected a number of pixels, or [[top, bottom], [left, right]]"
    ),
    '[[layers]]\ntype = "conv"\nkernel = 2\noutputs = 4\npadding = [[0, 1], [0, -1]]': (
        "7: padding is [[0, 1], [0, -1]]: expected a number of pixels, or [[top, bottom], [left, right]]"
    ),
    '[[layers]]\ntype = "max_pool"\nsize = 2\npadding = 2': "3: max_pool: padding 2 has windows without pixels",
    '[[layers]]\ntype = "max_pool"\nsize = 2\ncount_padding = true': "6: unknown option of max_pool 'count_padding'",
    '[[layers]]\ntype = "conv"\nkernel = 2\noutputs = "$n"': "6: '$n' is a placeholder, which only works",
    '[[layers]]\ntype = "dropout"\nrate = 1.0': "5: rate is 1.0: Expected `float` < 1.0",
    '[[layers]]\ntype = "batch_norm"\nepsilon = nan': "5: epsilon is nan: ",
    '[[layers]]\ntype = "lstm"\nunits = 3\nbiases = 3': "6: biases is 3: write 1 or 2",
    '[[layers]]\ntype = "lstm"\nunits = 3': "3: lstm1: expected (time, 8), got (3, 8, 8); add a patches layer before",
    '[[layers]]\ntype = "embedding"\nfeatures = 3': "3: an embedding needs tokens: it must be the first layer",
    '[[layers]]\ntype = "residual"': "3: a residual block needs a body",
    '[[layers]]\ntype = "residual"\nbody = []': "5: expected a list of layers, got []",
    '[[layers]]\ntype = "residual"\nbody = [\n{ type = "relu" },\n# why\n{ type = "relux" },\n]': (
        "8: unknown type of layer 'relux'; did you mean 'relu'"
    ),
    '[[layers]]\ntype = "residual"\nbody = [{ type = "conv", outputs = 4, kernel = 1 }]': (
        "3: residual block: body and shortcut have different shapes, (4, 8, 8) and (3, 8, 8)"
    ),
    '[[layers]]\ntype = "block"\nblock = "a"': "5: unknown block 'a'",
    '[[layers]]\ntype = "relu"\nname = "x"': "5: unknown option of relu 'name'",
    'layers = [\n{ type = "relu" },\n{ type = "relu", x = 1 },\n]': "5: unknown option of relu 'x'",
    'layers = [\n{ type = "relu" },\n3,\n]': "5: expected a table with keys and values, got 3",
    "layers = []": "3: expected a list of layers, got []",
    "layers = 3": "3: layers is 3: Expected `array`, got `int`",
    'layers = [{ type = "flatten" }]': "3: the last layer has 192 outputs, but there are 2 classes: end with",
    'layers = [{ type = "flatten" }, { type = "dense", outputs = 99999999 }]': "3: outputs is 99999999: ",
    'layers = [{ type = "conv", outputs = 16000000, kernel = 1 }]': "3: this layer has 16000000 x 8",
    "input = 3": "not valid TOML: Cannot overwrite a value",
    "name = '../x'\nlayers = [1]": "3: name is '../x': expected a short name of letters",
    "initialization = 'he_normal'\nlayers = [1]": "3: unknown initialization 'he_normal'",
}  # fmt: skip


@pytest.mark.parametrize("content", BAD, ids=lambda content: content[-40:])
def test_an_error_names_the_line_and_the_input_shape(content: str, tmp_path: Path) -> None:
    file = tmp_path / "bad.toml"
    file.write_text(IMAGES + content)
    with pytest.raises(BadInput) as caught:
        read_network(file)
    assert f"{file}:{BAD[content]}" in str(caught.value) or BAD[content] in str(caught.value).partition(":3: ")[2]


AROUND = {
    "channels = 3": ("channels = 2", "1: channels is 2: write 1 or 3"),
    "height = 8, width = 8": ("height = 9999, width = 9999", "1: 3 x 9999 x 9999 are 299,940,003 values"),
    "height = 8": ("heigth = 8", "1: unknown key of input 'heigth'; did you mean 'height'"),
    "input = { channels = 3, height = 8, width = 8 }": (
        "input = { size = 8 }", "1: unknown input: expected channels, height and width of images; vocabulary"
    ),
    "classes = 2": ("classes = 1000", "2: classes is 1000: Expected `int` <= 256"),
    "classes = 2\n": ("", "1: classes is missing: required are classes, input, layers"),
    "outputs = 2\n": ("outputs = 3\n", "12: the last layer has 3 outputs, but there are 2 classes"),
    'type = "flatten"\n': ('type = "relu"\n', "12: dense1: expected features or a sequence, got (4, 6, 6)"),
    "outputs = 4": ("outputs = 4\nname = 'a b'", "7: name is 'a b': expected a short name of letters"),
}  # fmt: skip
TRAINING = {
    "batchsize = 3": "16: unknown key of training 'batchsize'; did you mean 'batch_size'",
    "batch_size = 0": "16: batch_size is 0: Expected `int` >= 1",
    'optimizer = "adm"': "16: unknown optimizer 'adm'; did you mean 'adam'",
    "learning_rate = inf": "16: learning_rate is inf: Expected `float` <= 1e+30",
    'optimizer = "adam"\nmomentum = 0.5': "17: optimizer adam has no momentum",
    "lr_schedule = [[10, 0.1], [5, 0.2]]": "16: --lr-schedule: ",
    "\nbetas = [0.9, 0.99]": "17: optimizer momentum has no betas: expected adam or adamw",
    'optimizer = "adamw"\nbetas = [0.9, 1.0]': "17: betas is [0.9, 1.0]: [1]: Expected `float` < 1.0",
    "warmup_steps = 5\ncosine_steps = 5": "17: cosine_steps is 5: expected more than warmup_steps, 5",
    "min_learning_rate = 0.1": "16: min_learning_rate needs cosine_steps",
    "warmup_steps = 5\nlr_schedule = [[9, 0.1]]": "17: lr_schedule excludes warmup_steps and cosine_steps",
    "gradient_clip = -1": "16: gradient_clip is -1: Expected",
    "label_smoothing = 1": "16: label_smoothing is 1: Expected",
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
    "with = { channels = 4 }": ("times = 1", "18: unknown value of block wide 'channels'"),
    "{ channels = 4 }": ("{ channels = 4, width = 3 }", "5: block wide has no '$width'; it has $channels"),
    'block = "plain", times = 2': ('block = "plan"', "6: unknown block 'plan'; did you mean 'plain'"),
    "times = 2": ("times = 0", "6: times is 0: Expected `int` >= 1"),
    '{ type = "conv", outputs = 4': (
        '{ type = "conv", outputs = 5',
        "12: residual block: body and shortcut have different shapes, (5, 8, 8) and (4, 8, 8)"
        " (residual; its input is 4 x 8 x 8)"
        " (in block plain, used in line 19)",
    ),
    "wide = [": ("idle = [\n]\nwide = [", "17: block idle is not used: remove it"),
}


@pytest.mark.parametrize("old", IN_BLOCKS)
def test_an_error_in_a_block_names_both_lines(old: str) -> None:
    new, message = IN_BLOCKS[old]
    with pytest.raises(BadInput) as caught:
        parsed(BLOCKS.replace(old, new, 1))
    assert f"x.toml:{message}" in str(caught.value)


def test_blocks_that_multiply_without_limit_are_rejected() -> None:
    blocks = [f'b{n} = [{{ type = "block", block = "b{n + 1}", times = 1000 }}]' for n in range(9)]
    last = 'b9 = [{ type = "relu" }]'
    use = 'layers = [{ type = "block", block = "b0" }]'
    with pytest.raises(BadInput, match="more than 2,000 layers"):
        parsed("\n".join([IMAGES, use, "[blocks]", *blocks, last]))
    chain = [f'b{n} = [{{ type = "block", block = "b{n + 1}" }}]' for n in range(30)]
    with pytest.raises(BadInput, match="more than 16 nested blocks"):
        parsed("\n".join([IMAGES, use, "[blocks]", *chain, 'b30 = [{ type = "relu" }]']))


@pytest.mark.parametrize(
    ("layers", "message"),
    [
        ('{ type = "embedding", vocabulary = 49, features = 2 }', "the input has 50 tokens, this layer 49"),
        ('{ type = "relu" }', "the input is tokens, so the first layer must be an embedding"),
        ('{ type = "residual", body = [{ type = "relu" }] }', "so the first layer must be an embedding"),
    ],
)
def test_token_inputs_need_a_matching_embedding(layers: str, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        parsed(f"{TOKENS}layers = [{layers}]")


def test_files_that_are_not_network_files_are_rejected(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"cannot read .*none\.toml: No such file"):
        read_network(tmp_path / "none.toml")
    with pytest.raises(BadInput, match="Is a directory"):
        read_network(tmp_path)
    (tmp_path / "study.toml").write_text("engines = ['torch']")
    with pytest.raises(BadInput, match=r"study\.toml is not a network file: it has no layers"):
        read_network(tmp_path / "study.toml")
    (tmp_path / "broken.toml").write_text("layers = [\n")
    with pytest.raises(BadInput, match=r"broken\.toml:1: not valid TOML"):
        read_network(tmp_path / "broken.toml")


@pytest.mark.parametrize(
    ("content", "line"),
    [
        ("classes = 2\ninput = {\n  height = 8,\n}", 2),
        ("input = { height = 8, # pixels\n width = 8 }", 1),
        ("input = { height = 8\n}", 1),
        ("input = { height = 8, }", 1),
        ('layers = [\n{ type = "relu" },\n{ type = "residual", body = [\n{ type = "relu" },\n],\n},\n]', 5),
    ],
)
def test_an_inline_table_over_several_lines_gets_a_hint(content: str, line: int) -> None:
    with pytest.raises(BadInput) as caught:
        parsed(content)
    hint = "an inline table must be on one line, without a last comma: write { height = 32, width = 32 }, or a [table]"
    assert str(caught.value) == f"x.toml:{line}: not valid TOML: {hint}"


@pytest.mark.parametrize("content", ["input = { height = 8 width = 8 }", "input = { $ = 8 }", "[input,\n]"])
def test_other_errors_in_a_table_get_no_hint_about_lines(content: str) -> None:
    with pytest.raises(BadInput, match=r"x.toml:1: not valid TOML: .*, at column \d+$"):
        parsed(content)


_JUNK = st.one_of(
    st.sampled_from([0, -1, 2**70, 1.5, float("nan"), float("inf"), "", "$x", "conv", True, [], {}, [[]], [{}], [1]]),
    st.text(max_size=3),
)


def _key_paths(value: Any, above: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Key paths of all values in a table."""
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in parts:
        yield (*above, key)
        yield from _key_paths(part, (*above, key))


@settings(max_examples=60)
@given(st.data())
def test_any_file_content_is_a_network_or_bad_input(data: st.DataObject) -> None:
    table = tomllib.loads(data.draw(st.sampled_from([BLOCKS, IMAGES + LAYERS, network_toml(MODELS["imdb-bilstm"])])))
    *above, key = data.draw(st.sampled_from(list(_key_paths(table))))
    inside: Any = table
    for step in above:
        inside = inside[step]
    inside[key] = data.draw(_JUNK)
    text = TomlText("x.toml", tomli_w.dumps(table))
    with contextlib.suppress(BadInput):
        assert isinstance(network_of(text, text.load()), Model)
