"""XLA's own compilation of the jax engine's training step for real cards, without a card or a driver.

The tests install JAX's CUDA plugin and NVIDIA's libraries, 5 GB, into `build/jax-cuda`, once.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.wide, pytest.mark.timeout(1800)]

ROOT = Path(__file__).parents[3]
NETWORKS = ("lenet",)
WITHOUT_GPU = {
    "JAX_SKIP_CUDA_CONSTRAINTS_CHECK": "1",
    "CUDA_VISIBLE_DEVICES": "-1",
    "XLA_FLAGS": "--xla_gpu_autotune_level=0",  # it would time algorithms on the card
}


@pytest.fixture(scope="module")
def plugin() -> Path:
    """Folder with the plugin of this JAX; skips the tests if pip cannot install it."""
    try:
        version = metadata.version("jax")
    except metadata.PackageNotFoundError:
        pytest.skip("jax is not installed")
    folder = ROOT / "build" / "jax-cuda" / version
    installed = folder / "installed"
    if not installed.exists():
        requirement = f"jax-cuda12-plugin[with-cuda]=={version}"
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(folder), requirement]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.skip(f"pip cannot install {requirement}: {done.stderr.strip().splitlines()[-1]}")
        installed.touch()
    return folder


def compiled(plugin: Path, card: str) -> list[dict[str, Any]]:
    """Compile all networks for a card; return the records of `compile_for_card`."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.engines.jax.compile_for_card", card, *NETWORKS],
        cwd=ROOT,
        env=os.environ | WITHOUT_GPU | {"PYTHONPATH": os.pathsep.join((str(ROOT), str(plugin)))},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.cuda_level("jax", "compiled for a card")
@pytest.mark.parametrize("card", ["h100", "a100"])
def test_the_step_is_compiled_for_a_card_in_the_requested_precision(plugin: Path, card: str) -> None:
    records = compiled(plugin, card)
    assert len(records) == 3 * len(NETWORKS)
    for record in records:
        case = record["network"], record["precision"]
        assert "f64" not in record["types"], case
        assert ("bf16" in record["types"]) == (record["precision"] == "bf16"), case
        if record["precision"] != "bf16":
            assert set(record["products"]) == {"highest" if record["precision"] == "fp32" else "high"}, case
        assert record["reused_bytes"] >= record["state_bytes"], case  # every donated buffer
        if record["network"] == "lenet":
            cudnn = {name: n for name, n in record["calls"].items() if name.startswith("__cudnn$conv")}
            # Two convolutions forward; the first one needs no gradient of the images.
            assert cudnn == {
                "__cudnn$convBiasActivationForward": 2,
                "__cudnn$convBackwardFilter": 2,
                "__cudnn$convBackwardInput": 1,
            }
