"""Known causes of slow operations, each with its text in docs/upstream. ADD A FINDING: a row in `_FINDINGS`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from polybench.errors import BadInput
from polybench.networks import find_model
from polybench.networks.layers import Attention, Conv, Layer, Operation
from polybench.networks.timed_layers import split_layers
from polybench.schema.result import Result
from polybench.schema.study import StudyDocument


class _Finding(NamedTuple):
    """A cause that was found in operations of a type of layer, on the CPU.

    Attributes:
        engines: the engines that use the package.
        layer: the type of layer; grouped convolutions take other paths.
        operations: the slow operations of this layer.
        text: the cause.
        file: its text in docs/upstream.
        needs_threads: only a study with several threads shows it.
    """

    engines: tuple[str, ...]
    layer: type[Layer]
    operations: tuple[Operation, ...]
    text: str
    file: str
    needs_threads: bool = False


_FINDINGS = (
    _Finding(
        ("flux", "lux"),
        Conv,
        ("weight gradient",),
        "NNlib's weight gradient runs on one thread",
        "nnlib_conv_filter.md",
        needs_threads=True,
    ),
    _Finding(
        ("flux", "lux"),
        Conv,
        ("input gradient",),
        "NNlib's input gradient tests each pixel for the image's edges",
        "nnlib_col2im.md",
    ),
    _Finding(
        ("flux", "lux"),
        Attention,
        ("forward", "input gradient", "weight gradient"),
        "NNlib's attention copies its inputs and computes the softmax on one thread",
        "nnlib_attention.md",
    ),
)


def describe_findings(study: StudyDocument, slow: Result, causes: Sequence[tuple[str, str, float]]) -> str | None:
    """Return the findings that explain these operations of the slower configuration, with their files.

    `causes` are operations, their layers, and seconds. The finding that explains most comes first.
    """
    if slow.device != "cpu":
        return None
    types = _layer_types(study.settings.model)
    explained: dict[_Finding, float] = {}
    for operation, layer, seconds in causes:
        for finding in _FINDINGS:
            if (
                slow.engine in finding.engines
                and operation in finding.operations
                and types.get(layer) == {finding.layer}
                and (study.settings.threads > 1 or not finding.needs_threads)
            ):
                explained[finding] = explained.get(finding, 0.0) + seconds
    if not explained:
        return None
    ordered = sorted(explained, key=lambda finding: -explained[finding])
    return "; ".join(f"{finding.text}: docs/upstream/{finding.file}" for finding in ordered)


def _layer_types(model: str) -> dict[str, set[type]]:
    """Return the types of the layers with products, by the names that they and their blocks have in layer times.

    Products make up most of the time of a block that contains them.
    """
    try:
        layers = split_layers(find_model(model))
    except BadInput:  # a network file
        return {}
    types: dict[str, set[type]] = {}
    for timed in layers:
        if timed.layer.has_product:
            is_grouped = isinstance(timed.layer, Conv) and timed.layer.groups > 1
            for name in {timed.name, timed.block}:
                types.setdefault(name, set()).add(object if is_grouped else type(timed.layer))
    return types
