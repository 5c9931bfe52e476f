"""The README's table of what the tests check."""

from __future__ import annotations

from polybench.core.optimizers import Optimizer
from polybench.models import MODELS, NAMES, find_model
from tests import matrix as cases
from tests.networks import BIASED, EVERYTHING, RESNET8, SEQUENCES

NOT_CHECKED, PLAIN = "-", "✓"
_SAID = {
    BIASED.name: "biases before batch norm",
    EVERYTHING.name: "every layer and option for images",
    SEQUENCES.name: "every layer for sequences",
    RESNET8.name: "`resnet32`, with one block a stage",
}


def matrix() -> str:
    """In Markdown: a row for each network and optimizer, a column for each engine.

    A network that may be asked for and is not checked has a row that says so.
    """
    cells: dict[tuple[str, str], set[str]] = {}
    for network, optimizer, cell in cases.checks():
        cells.setdefault((network, _words(optimizer)), set()).add(cell)
    for network in {name for name in NAMES if name in MODELS} - {network for network, _ in cells}:
        cells[network, _words(MODELS[network].optimizer)] = set()

    columns = [f"`{engine}`" for engine in cases.TESTED]
    lines = [("network", "optimizer", *columns)]
    order = [*NAMES, *cases.NETWORKS, EVERYTHING.name, SEQUENCES.name]
    order.insert(order.index("resnet32") + 1, RESNET8.name)
    for network, optimizer in sorted(cells, key=lambda key: order.index(key[0])):
        found = cells[network, optimizer]
        lines.append((_name(network), optimizer, *(_in_words(engine, found) for engine in cases.TESTED)))
    header, *body = (f"| {' | '.join(line)} |" for line in lines)
    return "\n".join([header, "|---" * len(lines[0]) + "|", *body])


def _name(network: str) -> str:
    """With the size of its images where it is checked with others than its own."""
    if network in _SAID:
        return _SAID[network]
    checked = cases.NETWORKS[network].model if network in cases.NETWORKS else find_model(network)
    own = find_model(network)
    if checked.vocabulary != own.vocabulary:
        return f"`{network}`, with {checked.vocabulary:,} tokens"
    if checked.input_shape != own.input_shape:
        return f"`{network}`, for {' x '.join(map(str, checked.input_shape[1:]))}"
    return f"`{network}`"


def _words(optimizer: Optimizer) -> str:
    return f"`{optimizer.name}`" + (", weight decay" if optimizer.weight_decay else "")


def _in_words(engine: str, cells: set[str]) -> str:
    """How the engine is checked: plain, and with which variants."""
    variants = sorted(cell.removeprefix(engine) for cell in cells if cell.startswith(f"{engine}+"))
    return ", ".join([PLAIN] * (engine in cells) + [f"`{name}`" for name in variants]) or NOT_CHECKED
