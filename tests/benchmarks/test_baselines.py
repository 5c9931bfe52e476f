"""A plain program repeats the same steps in each block, like a worker; imdb-bilstm has dropout, and Adam."""

from __future__ import annotations

import json
import os
import subprocess

import pytest
from _baselines import _plain
from _study import inputs

from polybench.errors import EngineUnavailable


@pytest.mark.parametrize("model", [pytest.param("lenet", marks=pytest.mark.wide), "imdb-bilstm"])
@pytest.mark.parametrize("engine", ["torch", "tf", "keras", "flux"])
def test_each_block_of_a_plain_program_ends_with_the_same_loss(engine: str, model: str) -> None:
    with inputs((engine,), 4, model, batch_size=8, threads=1) as given:
        try:
            command = _plain(given, given.configuration(engine), 4)
        except EngineUnavailable as missing:
            pytest.skip(missing.reason)
        quiet = {"TF_CPP_MIN_LOG_LEVEL": "2"}
        done = subprocess.run(
            command, input="\n\n\n", env={**os.environ, **quiet}, capture_output=True, text=True, check=False
        )
    assert done.returncode == 0, done.stderr
    outputs = [json.loads(line) for line in done.stdout.splitlines()]
    assert [len(one["step_seconds"]) for one in outputs] == [4, 4, 4]
    first, *again = (one["losses"][-1] for one in outputs)
    assert again == [pytest.approx(first, rel=1e-6)] * 2
    assert outputs[0]["losses"][0] != pytest.approx(first, rel=1e-5)  # imdb-bilstm learns slowly
