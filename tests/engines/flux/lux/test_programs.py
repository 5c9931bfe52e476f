"""The program of Lux in Julia: losses, gradients and weights of a few steps are those of the reference."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from polybench.engines.flux.lux.emitter import emit
from polybench.networks import MODELS
from polybench.networks.layers import LSTM, Attention, Dense, Residual, walk
from polybench.networks.optimizers import Optimizer
from tests.engine_matrix import NETWORKS
from tests.engines.emitted_programs import EXAMPLES
from tests.engines.flux.flux_programs import check_programs
from tests.engines.flux.test_programs import (
    BLOCKS,
    OPTIMIZERS,
    SCHEDULED,
    SMOOTHED,
    TIED,
    TIED_IN_BLOCK,
    TINY,
    forward_pass,
    of,
)

SHARED = Optimizer("momentum", 0.1, 0.8, gradient_clip=0.3, lr_schedule=((1, 0.02), (3, 0.005)))
_FIRST = Residual((Dense("zero", 4, 4), Dense("one", 4, 4)), (Attention("causal", 4, 2, causal=True),))
_OTHERS = {"three": Dense("three", 4, 4), "lstm": Dense("lstm", 4, 6)}


def without_lstm(*layers: object) -> tuple[object, ...]:
    """Return the layers of Flux's tests with a dense layer in place of each LSTM."""
    kept = [one for one in layers if getattr(one, "name", "") != "of_lstm"]
    return tuple(_OTHERS.get(getattr(one, "name", ""), one) for one in kept)


TIED_PARAMETERS = msgspec.structs.replace(TIED, layers=(_FIRST, *without_lstm(*TIED.layers[1:])))
TIED_BLOCKS = msgspec.structs.replace(TIED_IN_BLOCK, layers=without_lstm(*TIED_IN_BLOCK.layers))


@pytest.mark.wide  # test_parity trains lenet
@pytest.mark.timeout(3600)  # compiles each layer
def test_every_layer_and_optimizer_computes_what_the_reference_computes(tmp_path: Path) -> None:
    jobs = {name: of(TINY, optimizer) for name, optimizer in OPTIMIZERS.items()}
    jobs |= {name: of(model) for name, model in EXAMPLES.items() if name != "sequences"}
    jobs["text"] = of(EXAMPLES["text"], SHARED)
    jobs["smoothed"] = of(SMOOTHED)
    jobs["text-smoothed"] = of(msgspec.structs.replace(EXAMPLES["text"], label_smoothing=0.1))
    jobs |= {"tied": of(TIED_PARAMETERS), "tied-in-block": of(TIED_BLOCKS), "blocks": of(BLOCKS, SCHEDULED)}
    jobs |= {f"{name}-forward": forward_pass(EXAMPLES[name]) for name in ("everything", "text")}
    check_programs(jobs, tmp_path, emit, "Lux")


@pytest.mark.wide
@pytest.mark.timeout(3600)
def test_every_network_computes_what_the_reference_computes(tmp_path: Path) -> None:
    rows = {name: row for name, row in NETWORKS.items() if name in MODELS}
    lstms = {name for name, row in rows.items() if any(isinstance(one, LSTM) for one in walk(row.model.layers))}
    jobs = {name: of(row.model, size=row.batch_size) for name, row in rows.items() if name not in lstms}
    check_programs(jobs, tmp_path, emit, "Lux")
