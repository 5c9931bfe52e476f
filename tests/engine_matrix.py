"""The checks against the float64 reference on the CPU: network x optimizer x engine.

The tests of `tests/engines` take their cases from here, and so do the docs (`make readme`). Every engine
and every network of polybench's tables is included automatically; this file lists exceptions and further cases.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from polybench.engines import ENGINES
from polybench.networks import MODELS, find_model
from polybench.networks.article_cnns import small_vgg
from polybench.networks.keras_examples import MNIST_CNN, fasttext
from polybench.networks.layers import LSTM, Layer, walk
from polybench.networks.lenet import LENET
from polybench.networks.model import Model
from polybench.networks.optimizers import Optimizer
from tests.example_networks import BIASED, EVERYTHING, PATCHED, RESNET8, SEQUENCES, TEXT

MISSING_LAYERS: dict[str, tuple[type[Layer], ...]] = {
    "flux": (),
    "lux": (LSTM,),
    "torch": (),
    "tf": (),
    "jax": (),
    "keras": (),
}
"""Layers that an engine lacks; the matrix leaves out its checks of networks with them.

An engine without a row is new: its checks of networks that it does not support are skipped.
"""

TESTED = tuple(name for name, row in ENGINES.items() if row.computes and name != "reference")

CHAINED = ("torch+channels_last+compile", "tf+eager+keras_fit", "tf+keras_fit+xla")
"""Combinations of variants; single variants are always checked."""

_BY_HAND = ("keras+jax", "tf+no_fusion", "tf+unrolled")
"""With JAX, Keras compiles each operation that creates a weight, so the network with all layers is enough. `lenet` has
no LSTM.
"""

NEVER_RUN = ("flux+enzyme", "flux+mkl", "flux+reactant")
"""Variants that tests train if their packages are installed, which has never happened."""

LENET_CELLS = (
    *TESTED,
    *(
        f"{engine}+{name}"
        for engine in TESTED
        for name, variant in ENGINES[engine].variants.items()
        if not variant.cuda_only
        and f"{engine}+{name}" not in _BY_HAND
        and not (variant.changes_thread_pools and name != "framework_threads")
    ),
    *CHAINED,
)
"""Cases with lenet and its own optimizer, in test_parity.py. One variant stands for all that change thread pools."""

OPTIMIZERS = {
    "sgd": Optimizer("sgd", 0.05, lr_schedule=((1, 0.02), (2, 0.004))),
    "momentum": Optimizer("momentum", 0.05, 0.8, lr_schedule=((1, 0.02), (2, 0.004))),
    "momentum+decay": Optimizer("momentum", 0.05, weight_decay=0.1),
    "nesterov": Optimizer("nesterov", 0.05, 0.8),
    "nesterov+decay": Optimizer("nesterov", 0.05, weight_decay=0.1, lr_schedule=((1, 0.02), (2, 0.004))),
    "rmsprop": Optimizer("rmsprop", 0.001),
    "rmsprop+decay": Optimizer("rmsprop", 0.001, weight_decay=0.1, lr_schedule=((1, 0.0001),)),
    "adam": Optimizer("adam", 0.001),
    "adam+decay": Optimizer("adam", 0.001, weight_decay=0.1, lr_schedule=((1, 0.0001),)),
    "adamw": Optimizer(
        "adamw",
        0.001,
        weight_decay=0.1,
        betas=(0.9, 0.99),
        gradient_clip=0.5,
        warmup_steps=2,
        cosine_steps=50,
        min_learning_rate=1e-4,
    ),
    "clipped": Optimizer("momentum", 0.05, weight_decay=0.1, gradient_clip=0.5, warmup_steps=2),
}
# Each takes seconds of compilation. Weight decay precedes the other rules, which stay the same.
FEWER_OPTIMIZERS = {
    "flux": ("sgd", "momentum", "nesterov+decay", "rmsprop+decay", "adam+decay", "adamw", "clipped"),
    "lux": ("sgd", "momentum", "nesterov+decay", "rmsprop+decay", "adam+decay", "adamw", "clipped"),
    "jax": ("nesterov+decay", "rmsprop+decay", "adam+decay", "adamw", "clipped"),
    "keras": (),  # those of tf as well, which is Keras on TensorFlow
}
OPTIMIZER_CASES = (
    *((engine, case) for case in OPTIMIZERS for engine in TESTED if case in FEWER_OPTIMIZERS.get(engine, OPTIMIZERS)),
    *((f"tf+{variant}", "adam+decay") for variant in ("eager", "xla")),
    *(("tf+keras_fit", case) for case in ("momentum", "adam+decay")),
    # On PyTorch, Keras updates all variables at once.
    *(("keras+torch", case) for case in ("nesterov+decay", "rmsprop+decay", "adam+decay", "adamw", "clipped")),
)
"""Cases with lenet, in test_optimizers.py."""

_EVERY_NETWORK = tuple(engine for engine in TESTED if engine != "keras")
"""The network with all layers covers Keras's layers on each backend; they are those of tf."""


def _with_all_layers(model: Model, engines: tuple[str, ...] = _EVERY_NETWORK) -> tuple[str, ...]:
    """Return the engines that have all layers of the network, as far as is known."""
    kinds = {type(layer) for layer in walk(model.layers)}
    return tuple(engine for engine in engines if not kinds & {*MISSING_LAYERS.get(engine, ())})


EVERYTHING_CELLS = (*_with_all_layers(EVERYTHING), "torch+channels_last", "keras+jax", "keras+torch")
"""Cases with the network of every layer and option for images, in test_networks.py."""

SEQUENCES_CELLS = (*_with_all_layers(SEQUENCES), "tf+no_fusion", "tf+unrolled", "keras+jax", "keras+torch")
"""Cases with the network of every layer for sequences."""


TEXT_CELLS = (*_with_all_layers(TEXT), "torch+math_attention", "keras+jax", "keras+torch")
PATCHED_CELLS = (*_with_all_layers(PATCHED), "torch+channels_last", "keras+jax", "keras+torch")
"""Cases with the networks of the layers of transformers and mobile networks."""


class Network(NamedTuple):
    """A network's check with its own optimizer; the batch is small to save time and memory."""

    model: Model
    batch_size: int = 2
    engines: tuple[str, ...] = _EVERY_NETWORK


COMPILING = ("flux", "lux", "jax")
"""Engines that compile every network again, layer by layer, in both precisions: half a minute, minutes for a deep
one."""
IN_CI = "dlframeworks-cnn"
"""The published network that CI trains in engines that do not compile it for minutes (`tests/rings.py`). The networks
of all layers cover the layers of the others, which `make test-all` trains.
"""
_NOT_COMPILING = tuple(engine for engine in _EVERY_NETWORK if engine not in COMPILING)

_OTHERWISE = {
    "resnet32": Network(find_model("resnet32"), engines=_NOT_COMPILING),
    "dlframeworks-cnn": Network(find_model("dlframeworks-cnn"), 1),
    # Its own images of 256 x 256 need gigabytes, so that is checked by hand.
    "small-vgg": Network(small_vgg(36), 4),
    # These add dropout, and convolutions between poolings.
    "catdog-2": Network(find_model("catdog-3")),
    "mnist-cnn": Network(MNIST_CNN, 1),
    # A few buckets only: with its own number, weights and gradients need gigabytes.
    "imdb-fasttext": Network(fasttext(5)),
}
_MORE = (
    Network(RESNET8, engines=COMPILING),
    Network(BIASED, 8, _NOT_COMPILING),
    Network(find_model("catdog-5"), 1, _NOT_COMPILING),  # three more of catdog-3's layers
)
NETWORKS = {
    row.model.name: row
    for row in (*(_OTHERWISE.get(name, Network(model)) for name, model in MODELS.items() if model is not LENET), *_MORE)
}
"""Cases in test_networks.py."""
NETWORK_CASES = tuple(
    (network, engine) for network, row in NETWORKS.items() for engine in _with_all_layers(row.model, row.engines)
)


class Check(NamedTuple):
    """An entry of the matrix; `configuration` is an engine with its variants."""

    network: str
    optimizer: Optimizer
    configuration: str


def checks() -> Iterator[Check]:
    """Return all cases; some are the same for the docs."""
    yield from (Check("lenet", OPTIMIZERS[case], configuration) for configuration, case in OPTIMIZER_CASES)
    yield from (
        Check("lenet", LENET.optimizer, configuration)
        for configuration in LENET_CELLS
        if configuration not in NEVER_RUN
    )
    yield from (
        Check(network, NETWORKS[network].model.optimizer, configuration) for network, configuration in NETWORK_CASES
    )
    yield from (Check(EVERYTHING.name, EVERYTHING.optimizer, configuration) for configuration in EVERYTHING_CELLS)
    yield from (Check(SEQUENCES.name, SEQUENCES.optimizer, configuration) for configuration in SEQUENCES_CELLS)
    yield from (Check(TEXT.name, TEXT.optimizer, configuration) for configuration in TEXT_CELLS)
    yield from (Check(PATCHED.name, PATCHED.optimizer, configuration) for configuration in PATCHED_CELLS)
