"""What is held to the float64 reference on the CPU: network x optimizer x engine.

The tests of `tests/engines` take their cases from here, and so does the README: `python -m tests.matrix`
writes its table, and a test fails where that was forgotten.

ADD A NETWORK: its row in NETWORKS. ADD AN ENGINE: its name in TESTED, and what else is to be checked of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from polybench.core.model import Model
from polybench.core.optimizers import Optimizer
from polybench.models import MODELS, NAMES, find_model
from polybench.models.lenet import LENET
from polybench.models.smallvgg import smallvgg
from tests.networks import EVERYTHING

TESTED = ("torch", "tf", "flux")

LENET_CELLS = (
    "flux",
    "flux+default_threads",
    "torch",
    "torch+channels_last",
    "torch+compile",
    "torch+channels_last+compile",
    "tf",
    "tf+xla",
    "tf+keras_fit",
    "tf+keras_fit+xla",
)
"""With lenet and its own optimizer, in test_identity.py."""
SLOW_CELLS = ("torch+compile", "torch+channels_last+compile", "tf+keras_fit+xla")

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
OPTIMIZER_CASES = (
    *(("torch", case) for case in OPTIMIZERS),
    *(("tf", case) for case in OPTIMIZERS),
    *(("tf+xla", case) for case in ("adam+decay",)),
    *(("tf+keras_fit", case) for case in ("momentum", "adam+decay")),
    # Each costs seconds of compilation; weight decay is a rule before the others, which stay the same.
    *(("flux", case) for case in ("sgd", "momentum", "nesterov+decay", "rmsprop+decay", "adam+decay")),
)
"""With lenet, in test_optimizers.py."""

EVERYTHING_CELLS = (*TESTED, "torch+channels_last")
"""With a network of every layer and option, in test_networks.py."""


class Network(NamedTuple):
    """How a published network is checked, with its own optimizer; the batch is small, for time and memory."""

    model: Model
    batch_size: int
    engines: tuple[str, ...] = TESTED


NETWORKS = {
    row.model.name: row
    for row in (
        Network(find_model("keras-cnn"), 2),
        Network(find_model("rosetta"), 1),
        Network(find_model("resnet32"), 2),
        # With its own images of 256 x 256 it takes gigabytes, and is checked by hand.
        Network(smallvgg(36), 4),
        Network(find_model("catdog-3"), 2),
        Network(find_model("catdog-5"), 1),
    )
}
"""In test_networks.py."""
NETWORK_CASES = tuple((network, cell) for network, row in NETWORKS.items() for cell in row.engines)


class Check(NamedTuple):
    """One entry of the matrix; `cell` is an engine with its variants."""

    network: str
    optimizer: Optimizer
    cell: str


def checks() -> Iterator[Check]:
    """All of them; some say the same as others to the README."""
    yield from (Check("lenet", OPTIMIZERS[case], cell) for cell, case in OPTIMIZER_CASES)
    yield from (Check("lenet", LENET.optimizer, cell) for cell in LENET_CELLS)
    yield from (Check(network, NETWORKS[network].model.optimizer, cell) for network, cell in NETWORK_CASES)
    yield from (Check(EVERYTHING.name, EVERYTHING.optimizer, cell) for cell in EVERYTHING_CELLS)


# The README's table ------------------------------------------------------------------------------------

README = Path(__file__).parents[1] / "README.md"
BEGIN, END = "<!-- written by python -m tests.matrix -->", "<!-- end of what tests.matrix wrote -->"

NOT_CHECKED, PLAIN = "-", "✓"
_EVERYTHING = "every layer and option"


def table() -> str:
    """In Markdown: a row for each network and optimizer, a column for each engine.

    A network that may be asked for and is not checked has a row that says so.
    """
    cells: dict[tuple[str, str], set[str]] = {}
    for network, optimizer, cell in checks():
        cells.setdefault((network, _words(optimizer)), set()).add(cell)
    for network in {name for name in NAMES if name in MODELS} - {network for network, _ in cells}:
        cells[network, _words(MODELS[network].optimizer)] = set()

    columns = [f"`{engine}`" for engine in TESTED]
    lines = [("network", "optimizer", *columns)]
    order = [*NAMES, *NETWORKS, EVERYTHING.name]
    for network, optimizer in sorted(cells, key=lambda key: order.index(key[0])):
        found = cells[network, optimizer]
        lines.append((_name(network), optimizer, *(_in_words(engine, found) for engine in TESTED)))
    header, *body = (f"| {' | '.join(line)} |" for line in lines)
    return "\n".join([header, "|---" * len(lines[0]) + "|", *body])


def with_table(text: str) -> str:
    """The text with the table between its two markers."""
    before, _, rest = text.partition(f"{BEGIN}\n")
    _, _, after = rest.partition(f"{END}\n")
    return f"{before}{BEGIN}\n{table()}\n{END}\n{after}"


def _name(network: str) -> str:
    """With the size of its images where it is checked with others than its own."""
    if network == EVERYTHING.name:
        return _EVERYTHING
    checked = NETWORKS[network].model if network in NETWORKS else find_model(network)
    _, height, width = checked.input_shape
    own = checked.input_shape == find_model(network).input_shape
    return f"`{network}`" if own else f"`{network}`, for {height} x {width}"


def _words(optimizer: Optimizer) -> str:
    return f"`{optimizer.name}`" + (", weight decay" if optimizer.weight_decay else "")


def _in_words(engine: str, cells: set[str]) -> str:
    """How the engine is checked: plain, and with which variants."""
    variants = sorted(cell.removeprefix(engine) for cell in cells if cell.startswith(f"{engine}+"))
    return ", ".join([PLAIN] * (engine in cells) + [f"`{name}`" for name in variants]) or NOT_CHECKED


if __name__ == "__main__":
    README.write_text(with_table(README.read_text("utf-8")), "utf-8")
