"""The roofs of a machine, and below them what they allow each convolution and dense layer of a network."""

from __future__ import annotations

from collections.abc import Iterator

from polybench.core.document.limit import LimitDocument
from polybench.core.pieces import pieces
from polybench.models import find_model
from polybench.plots.ceilings import HEIGHT, Ceilings, axes, extent, lines, prefix
from polybench.plots.plot import NothingToDraw, Plot, rounded, text
from polybench.plots.style import look


def draw(document: LimitDocument) -> Plot:
    """A line for each roof, and a mark for each layer on the lowest above it.

    Raises:
        NothingToDraw: no roof was measured.
    """
    ceilings = list(_ceilings_in(document))
    if not ceilings:
        raise NothingToDraw("no roof was measured: there is nothing to draw")
    layers = [
        (piece.name, flop / moved)
        for piece in pieces(document.network or find_model(document.model))
        if (flop := piece.flop("forward", document.batch_size))
        and (moved := piece.compulsory_bytes("forward", document.batch_size))
    ]
    across = extent((intensity for _, intensity in layers), ceilings)
    allowed = [
        {
            "type": "scatter", "mode": "markers", "name": f"{text(prefix(one, ceilings))}allowed to a layer",
            "x": [rounded(intensity) for _, intensity in layers],
            "y": [rounded(one.allowed(intensity)) for _, intensity in layers],
            "text": [text(name) for name, _ in layers],
            "marker": {
                "color": look(number).colour, "symbol": f"{look(number).symbol}-open", "size": 9,
                "line": {"width": 1.5},
            },
            "hovertemplate": "%{text}: %{x:.3~g} FLOP/B, at most %{y:.3~s}FLOP/s<extra></extra>",
        }
        for number, one in enumerate(ceilings)
    ]  # fmt: skip
    rates = [one.allowed(intensity) for one in ceilings for _, intensity in layers]
    return Plot(
        title=f"What the machine allows {document.model}",
        note=(
            f"Roofs are the most that was measured on this machine. A layer's forward pass with"
            f" {document.batch_size} inputs reaches at most its mark: to the left of the bend memory is the"
            " limit, to the right the product."
        ),
        traces=[*lines(ceilings, across), *allowed],
        layout=axes(across, layers, rates, ceilings),
        height=HEIGHT,
    )


def _ceilings_in(document: LimitDocument) -> Iterator[Ceilings]:
    found = {(roof.device, roof.precision, roof.kind): roof.value for roof in document.roofs}
    for device, precision, kind in found:
        if kind == "gemm":
            product, convolution = (found.get((device, precision, one)) for one in ("gemm", "convolution"))
            assert product is not None
            yield Ceilings(f"{device}, {precision}", product, convolution, found.get((device, None, "triad")))
