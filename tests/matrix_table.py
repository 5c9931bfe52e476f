"""The docs' table of test coverage."""

from __future__ import annotations

from polybench.networks import MODEL_NAMES, MODELS, find_model
from polybench.networks.optimizers import Optimizer
from tests import engine_matrix as cases
from tests.example_networks import BIASED, EVERYTHING, RESNET8, SEQUENCES

NOT_CHECKED, PLAIN = "-", "✓"
_SAID = {
    BIASED.name: "biases before batch norm",
    EVERYTHING.name: "every layer and option for images",
    SEQUENCES.name: "every layer for sequences",
    RESNET8.name: "`resnet32`, with one block a stage",
}


def matrix() -> str:
    """Return Markdown with a row per network and optimizer, and a column per engine.

    Networks without a check have an empty row.
    """
    configurations: dict[tuple[str, str], set[str]] = {}
    for network, optimizer, configuration in cases.checks():
        configurations.setdefault((network, _words(optimizer)), set()).add(configuration)
    for network in {name for name in MODEL_NAMES if name in MODELS} - {network for network, _ in configurations}:
        configurations[network, _words(MODELS[network].optimizer)] = set()

    columns = [f"`{engine}`" for engine in cases.TESTED]
    lines = [("network", "optimizer", *columns)]
    order = [*MODEL_NAMES, *cases.NETWORKS, EVERYTHING.name, SEQUENCES.name]
    order.insert(order.index("resnet32") + 1, RESNET8.name)
    for network, optimizer in sorted(configurations, key=lambda key: order.index(key[0])):
        found = configurations[network, optimizer]
        lines.append((_name(network), optimizer, *(_in_words(engine, found) for engine in cases.TESTED)))
    header, *body = (f"| {' | '.join(line)} |" for line in lines)
    return "\n".join([header, "|---" * len(lines[0]) + "|", *body])


def _name(network: str) -> str:
    """Return the network's name, with the size of its images if the check uses another size."""
    if network in _SAID:
        return _SAID[network]
    checked = cases.NETWORKS[network].model if network in cases.NETWORKS else find_model(network)
    own = find_model(network)
    if checked.vocabulary_size != own.vocabulary_size:
        return f"`{network}`, with {checked.vocabulary_size:,} tokens"
    if checked.input_shape != own.input_shape:
        return f"`{network}`, for {' x '.join(map(str, checked.input_shape[1:]))}"
    return f"`{network}`"


def _words(optimizer: Optimizer) -> str:
    return f"`{optimizer.name}`" + (", weight decay" if optimizer.weight_decay else "")


def _in_words(engine: str, configurations: set[str]) -> str:
    """Describe the checks of an engine: plain, and its variants."""
    variants = sorted(
        configuration.removeprefix(engine) for configuration in configurations if configuration.startswith(f"{engine}+")
    )
    return ", ".join([PLAIN] * (engine in configurations) + [f"`{name}`" for name in variants]) or NOT_CHECKED
