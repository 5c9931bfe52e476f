"""Which dropout layers are checked; tests/engines/test_injected_bugs.py has a wrong rate."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from polybench.networks.layers import Dense, Dropout, Flatten, Layer
from polybench.networks.lenet import LENET
from polybench.parity_check.own_dropout import own_dropout_errors
from polybench.protocol import calls
from tests import small_datasets


def test_dropout_is_checked_for_each_rate_on_images_and_on_features(tmp_path: Path) -> None:
    of_images = (Dropout("first", 0.25), Dropout("second", 0.25), Dropout("third", 0.5))
    model = msgspec.structs.replace(
        LENET, layers=(*of_images, Flatten(), Dropout("features", 0.25), Dense("dense", 3072, 10))
    )
    checked: list[tuple[Layer, ...]] = []

    def ask(request: calls.Request[Any]) -> None:
        if request.call is calls.prepare:
            checked.append(request.arguments.job.model.layers[:2])
        if request.call is calls.take_snapshot:
            np.savez(request.arguments.weights, **{"dense.weight": np.zeros((32, 4096))})

    errors = list(own_dropout_errors(ask, small_datasets.job(model), tmp_path / "files"))
    found = [
        (type(first), layer.rate)
        for first, second in checked
        for layer in (first, second)
        if isinstance(layer, Dropout)
    ]
    assert found == [(Dropout, 0.25), (Dropout, 0.5), (Flatten, 0.25)]
    assert [error.kind for error in errors] == 3 * ["kept share", "dropout scale"]
