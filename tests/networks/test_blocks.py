"""Repeated blocks that are found in a network."""

from __future__ import annotations

from polybench.networks import find_model
from polybench.networks.blocks import Block, Stage, parts
from polybench.networks.layers import BatchNorm, Conv, Dense, Flatten, MaxPool, ReLU, Residual


def block(name: str, inputs: int, outputs: int, stride: int = 1) -> tuple[Conv, BatchNorm, ReLU]:
    return (
        Conv(f"{name}.conv", inputs, outputs, 3, stride=stride, padding=1),
        BatchNorm(f"{name}.norm", outputs),
        ReLU(),
    )


def test_blocks_of_a_structure_are_a_kind_with_the_numbers_in_which_they_differ() -> None:
    layers = (*block("block1", 3, 8), *block("block2", 8, 16, stride=2), Flatten(), Dense("dense", 64, 10))
    stage, *others = parts(layers, (3, 4, 4))
    assert isinstance(stage, Stage)
    assert (stage.parent, stage.base, stage.first) == ("", "block", 1)
    assert {one.kind.name for one in stage.blocks} == {"Block"}
    assert [one.arguments for one in stage.blocks] == [
        {"inputs": 3, "outputs": 8, "stride": 1},
        {"inputs": 8, "outputs": 16, "stride": 2},
    ]
    assert others == [*layers[6:]]
    assert stage.blocks[0].kind.layers == layers[:3]  # with the activation


def test_what_is_between_two_blocks_separates_them() -> None:
    layers = (*block("block1", 3, 8), MaxPool(2), *block("block2", 8, 16))
    first, pool, second = parts(layers, (3, 4, 4))
    assert isinstance(first, Block)
    assert isinstance(second, Block)
    assert (first.prefix, pool, second.prefix) == ("block1", MaxPool(2), "block2")
    assert first.kind is not None
    assert first.kind == second.kind


def test_a_single_numbered_name_or_another_kernel_is_no_repetition() -> None:
    layers = (*block("block1", 3, 8), Flatten(), Dense("dense", 128, 10))
    assert parts(layers, (3, 4, 4)) == layers
    other = (Conv("block2.conv", 8, 8, 1), BatchNorm("block2.norm", 8), ReLU())
    (stage,) = parts((*block("block1", 3, 8), *other), (3, 4, 4))
    assert isinstance(stage, Stage)
    assert [one.kind.name for one in stage.blocks] == ["Block", "BlockBlock2"]


def test_blocks_with_and_without_a_projection_have_names_of_the_literature() -> None:
    network = find_model("resnet32")
    stages = [part for part in parts(network.layers, network.input_shape) if isinstance(part, Stage)]
    assert [stage.parent for stage in stages] == ["stage1", "stage2", "stage3"]
    assert [one.kind.name for one in stages[1].blocks] == ["ProjectionBlock", *["ResidualBlock"] * 4]
    assert stages[2].blocks[0].arguments == {"inputs": 32, "outputs": 64}
    assert stages[2].blocks[1].arguments == {"channels": 64}


def test_a_name_is_never_one_that_is_taken() -> None:
    layers = (*block("f1", 3, 8), *block("f2", 8, 16))
    (stage,) = parts(layers, (3, 4, 4), taken=("F",))
    assert isinstance(stage, Stage)
    assert stage.blocks[0].kind.name == "FF1"


def test_a_layer_that_shares_a_weight_is_in_no_block() -> None:
    tied = Dense("block1.tied", 10, 10, bias=False, tied="block1.dense")
    layers = (Dense("block1.dense", 10, 10), tied, Dense("block2.dense", 10, 10))
    assert tied in parts(layers, (10,))


def test_nested_blocks_keep_their_residuals() -> None:
    layers = (Residual((Conv("a1.conv", 3, 3, 1), Residual((Conv("a1.inner.conv", 3, 3, 1),)))),)
    again = (Residual((Conv("a2.conv", 3, 3, 1), Residual((Conv("a2.inner.conv", 3, 3, 1),)))),)
    (stage,) = parts((*layers, *again), (3, 4, 4))
    assert isinstance(stage, Stage)
    assert stage.blocks[0].kind.layers == layers
    assert stage.blocks[0].arguments == {}
