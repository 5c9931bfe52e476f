"""What is held to the float64 reference on the CPU: network x optimizer x engine.

The tests of `tests/engines` take their cases from here, and so does the README (`make readme`). Every engine
and every network of polybench's tables is here by itself; written down is what else is checked, or less.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from polybench.core.model import Model
from polybench.core.optimizers import Optimizer
from polybench.engines import ENGINES
from polybench.models import MODELS, find_model
from polybench.models.char_lstm import CHAR_LSTM
from polybench.models.imdb import IMDB_BILSTM, fasttext
from polybench.models.lenet import LENET
from polybench.models.mnist import MNIST_CNN
from polybench.models.smallvgg import smallvgg
from tests.networks import BIASED, EVERYTHING, RESNET8, SEQUENCES

TESTED = tuple(name for name, row in ENGINES.items() if row.does_arithmetic and name != "reference")

CHAINED = ("torch+channels_last+compile", "tf+eager+keras_fit", "tf+keras_fit+xla")
"""Variants together; alone, each is checked by itself."""

_BY_HAND = ("keras+jax", "tf+nofuse", "tf+unrolled")
"""With JAX, Keras compiles each operation that makes a weight: here the network of all layers is enough. And
`lenet` has no LSTM."""

WRITTEN_ONLY = ("flux+enzyme", "flux+mkl", "flux+reactant")
"""Tests train them where their packages are, and nobody has seen that yet."""

LENET_CELLS = (
    *TESTED,
    *(
        f"{engine}+{name}"
        for engine in TESTED
        for name, variant in ENGINES[engine].variants.items()
        if not variant.cuda_only
        and f"{engine}+{name}" not in _BY_HAND
        and not (variant.pools and name != "default_threads")
    ),
    *CHAINED,
)
"""With lenet and its own optimizer, in test_identity.py. Of pools of threads one size stands for all."""
SLOW_CELLS = (
    "torch+compile",
    *(cell for cell in LENET_CELLS if cell.startswith("flux+")),  # each starts a Julia of its own
    *CHAINED,
)

OPTIMIZERS = {
    "sgd": Optimizer("sgd", 0.05, schedule=((1, 0.02), (2, 0.004))),
    "momentum": Optimizer("momentum", 0.05, 0.8, schedule=((1, 0.02), (2, 0.004))),
    "momentum+decay": Optimizer("momentum", 0.05, weight_decay=0.1),
    "nesterov": Optimizer("nesterov", 0.05, 0.8),
    "nesterov+decay": Optimizer("nesterov", 0.05, weight_decay=0.1, schedule=((1, 0.02), (2, 0.004))),
    "rmsprop": Optimizer("rmsprop", 0.001),
    "rmsprop+decay": Optimizer("rmsprop", 0.001, weight_decay=0.1, schedule=((1, 0.0001),)),
    "adam": Optimizer("adam", 0.001),
    "adam+decay": Optimizer("adam", 0.001, weight_decay=0.1, schedule=((1, 0.0001),)),
}
# Each costs these seconds of compilation; weight decay is a rule before the others, which stay the same.
FEWER_OPTIMIZERS = {
    "flux": ("sgd", "momentum", "nesterov+decay", "rmsprop+decay", "adam+decay"),
    "lux": ("sgd", "momentum", "nesterov+decay", "rmsprop+decay", "adam+decay"),
    "jax": ("nesterov+decay", "rmsprop+decay", "adam+decay"),
    "keras": (),  # those of tf, which is Keras on TensorFlow, too
}
OPTIMIZER_CASES = (
    *(
        (engine, case)
        for case in OPTIMIZERS
        for engine in TESTED
        if case in FEWER_OPTIMIZERS.get(engine, OPTIMIZERS)
    ),
    *((f"tf+{variant}", "adam+decay") for variant in ("eager", "xla")),
    *(("tf+keras_fit", case) for case in ("momentum", "adam+decay")),
    # On PyTorch Keras updates all variables at once.
    *(("keras+torch", case) for case in ("nesterov+decay", "rmsprop+decay", "adam+decay")),
)
"""With lenet, in test_optimizers.py."""

_EVERY_NETWORK = tuple(engine for engine in TESTED if engine != "keras")
"""What Keras's layers compute with each backend, the network of all layers shows; they are those of tf."""

EVERYTHING_CELLS = (*_EVERY_NETWORK, "torch+channels_last", "keras+jax", "keras+torch")
"""With a network of every layer and option for images, in test_networks.py."""

_OF_SEQUENCES = tuple(engine for engine in _EVERY_NETWORK if engine != "lux")
"""It has no LSTM here."""

SEQUENCES_CELLS = (
    *_OF_SEQUENCES,
    "tf+nofuse",
    "tf+unrolled",
    "keras+jax",
    "keras+torch",
)
"""With one of all for sequences."""


class Network(NamedTuple):
    """How a network is checked, with its own optimizer; the batch is small, for time and memory."""

    model: Model
    batch_size: int = 2
    engines: tuple[str, ...] = _EVERY_NETWORK


COMPILING = ("flux", "lux", "jax")
"""Each compiles every network anew, layer by layer, in both precisions: half a minute, a deep one minutes."""
COMPILED = ("resnet8", "rosetta")
"""Of the networks those that they compile in CI. The network of all layers has every layer of the others, and
engines that do not compile train those; all of them is for `make test-all`.
"""
_NOT_COMPILING = tuple(engine for engine in _EVERY_NETWORK if engine not in COMPILING)

_OTHERWISE = {
    "resnet32": Network(find_model("resnet32"), engines=_NOT_COMPILING),
    "rosetta": Network(find_model("rosetta"), 1),
    # With its own images of 256 x 256 it takes gigabytes, and is checked by hand.
    "smallvgg": Network(smallvgg(36), 4),
    # Those that add dropout, and convolutions between the poolings.
    "catdog-2": Network(find_model("catdog-3")),
    "mnist-cnn": Network(MNIST_CNN, 1),
    "imdb-bilstm": Network(IMDB_BILSTM, engines=_OF_SEQUENCES),
    # With few buckets: with its own, weights and gradients take gigabytes.
    "imdb-fasttext": Network(fasttext(5), engines=_OF_SEQUENCES),
    "char-lstm": Network(CHAR_LSTM, engines=_OF_SEQUENCES),
}
_MORE = (
    Network(RESNET8, engines=COMPILING),
    Network(BIASED, 8, _NOT_COMPILING),
    Network(find_model("catdog-5"), 1, _NOT_COMPILING),  # three more of the layers that catdog-3 has
)
NETWORKS = {
    row.model.name: row
    for row in (
        *(_OTHERWISE.get(name, Network(model)) for name, model in MODELS.items() if model is not LENET),
        *_MORE,
    )
}
"""In test_networks.py."""
NETWORK_CASES = tuple((network, engine) for network, row in NETWORKS.items() for engine in row.engines)


class Check(NamedTuple):
    """One entry of the matrix; `cell` is an engine with its variants."""

    network: str
    optimizer: Optimizer
    cell: str


def checks() -> Iterator[Check]:
    """All that somebody has run; some say the same as others to the README."""
    yield from (Check("lenet", OPTIMIZERS[case], cell) for cell, case in OPTIMIZER_CASES)
    yield from (Check("lenet", LENET.optimizer, cell) for cell in LENET_CELLS if cell not in WRITTEN_ONLY)
    yield from (Check(network, NETWORKS[network].model.optimizer, cell) for network, cell in NETWORK_CASES)
    yield from (Check(EVERYTHING.name, EVERYTHING.optimizer, cell) for cell in EVERYTHING_CELLS)
    yield from (Check(SEQUENCES.name, SEQUENCES.optimizer, cell) for cell in SEQUENCES_CELLS)
