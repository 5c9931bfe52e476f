"""Transformers: a decoder that predicts the next character, and a vision transformer for CIFAR-10.

Sources: `char-gpt` is nanoGPT's network for a laptop's CPU (https://github.com/karpathy/nanoGPT, README, "I only have a
macbook"), with its training; initial weights are those of polybench's other networks. `vit-cifar` has the width and
heads of DeiT-Ti (Touvron et al., 2020: https://arxiv.org/abs/2012.12877) at half its depth, for images of 32 x 32.
"""

from collections.abc import Iterator

from polybench.networks.layers import (
    GELU,
    Attention,
    ClassToken,
    Dense,
    Embedding,
    FirstPosition,
    Layer,
    LayerNorm,
    Patches,
    Positions,
    Residual,
)
from polybench.networks.model import Model
from polybench.networks.optimizers import Optimizer


def _blocks(count: int, width: int, heads: int, *, causal: bool, bias: bool) -> Iterator[Layer]:
    """Yield pre-norm blocks: attention, then two dense layers with a GELU, each added to its input."""
    for number in range(1, count + 1):
        name = f"block{number}"
        yield Residual(
            (LayerNorm(f"{name}.norm1", width, bias=bias), Attention(f"{name}.attention", width, heads, causal, bias))
        )
        yield Residual(
            (
                LayerNorm(f"{name}.norm2", width, bias=bias),
                Dense(f"{name}.dense1", width, 4 * width, bias),
                GELU(),
                Dense(f"{name}.dense2", 4 * width, width, bias),
            )
        )


CHAR_GPT = Model(
    name="char-gpt",
    summary="nanoGPT's character-level GPT for a CPU: 4 blocks, 4 heads, width 128",
    input_shape=(64,),
    classes=65,
    layers=(
        Embedding("tokens", 65, 128),
        Positions("positions", 64, 128),
        *_blocks(4, 128, 4, causal=True, bias=False),
        LayerNorm("norm", 128, bias=False),
        Dense("head", 128, 65, bias=False, tied="tokens"),
    ),
    batch_size=12,
    optimizer=Optimizer(
        "adamw",
        learning_rate=1e-3,
        weight_decay=0.1,
        betas=(0.9, 0.99),
        gradient_clip=1.0,
        warmup_steps=100,
        cosine_steps=2000,
        min_learning_rate=1e-4,
    ),
    parity_batch_size=3,
    published_parameters=795_904 + 64 * 128,  # nanoGPT prints 0.80 M, without the positions
)

VIT_CIFAR = Model(
    name="vit-cifar",
    summary="a vision transformer for CIFAR-10: patches of 4 x 4, 6 blocks, 3 heads, width 192",
    input_shape=(3, 32, 32),
    classes=10,
    layers=(
        Patches("patches", 3, 192, 4),
        ClassToken("class_token", 192),
        Positions("positions", 65, 192),
        *_blocks(6, 192, 3, causal=False, bias=True),
        FirstPosition(),
        LayerNorm("norm", 192),
        Dense("head", 192, 10),
    ),
    batch_size=128,
    optimizer=Optimizer("adamw", learning_rate=1e-3, weight_decay=0.05),
    parity_batch_size=2,
    published_parameters=2_693_578,  # 444,864 a block
    label_smoothing=0.1,
)
