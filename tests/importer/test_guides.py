"""The guides about a user's own model: their programs and commands run."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path

import numpy as np
import pytest

import polybench
from polybench.planning.study_file import read_network
from tests.commands import printed
from tests.lazy import needs

ROOT = Path(__file__).parents[2]
GUIDES = ROOT / "docs" / "guides"
EXAMPLE = ROOT / "examples" / "my_model.py"

pytestmark = needs("torch", "jax", "tensorflow")


def commands(guide: str) -> list[list[str]]:
    """Return the commands of a guide's code blocks, in order."""
    blocks = re.findall(r"^```\n(polybench .+?)^```", (GUIDES / guide).read_text("utf-8"), re.MULTILINE | re.DOTALL)
    return [shlex.split(line)[1:] for block in blocks for line in block.splitlines()]


@pytest.fixture(autouse=True)
def folder_with_the_example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copy(EXAMPLE, tmp_path)
    monkeypatch.chdir(tmp_path)


def test_the_guide_has_the_example() -> None:
    (program,) = re.findall(r"```python\n(\"\"\".+?)```", (GUIDES / "own_model.md").read_text("utf-8"), re.S)
    assert program == EXAMPLE.read_text("utf-8")


@pytest.mark.wide  # test_torch.py runs every command with an imported network
def test_the_commands_of_the_guide_run() -> None:
    steps = [command for command in commands("own_model.md") if command[0] in ("import", "parity")]
    assert [command[:2] for command in steps] == [
        ["import", "my_model.py:Net"],
        ["parity", "--model"],
        ["import", "chain.jl:net"],
    ]
    assert "identical" in printed(*steps[0])
    assert ": same" in printed(*steps[1])


@pytest.mark.wide  # scripts/test_network_code.py exports and imports in both frameworks
def test_a_port_is_proven_and_has_the_same_weights() -> None:
    for command in commands("port_a_model.md"):
        printed(*command)
    assert read_network("again.toml").layers == read_network("net.toml").layers
    with np.load("net.npz") as first, np.load("again.npz") as second:
        assert [(name, first[name].tobytes()) for name in first] == [(name, second[name].tobytes()) for name in second]
    port = (GUIDES / "port_a_model.md").read_text("utf-8")
    (shown,) = re.findall(r"```python\n(.+?)```", port, re.S)
    assert shown in Path("port.py").read_text("utf-8")


def test_a_module_is_compared_without_a_file() -> None:
    import runpy

    import torch

    module = runpy.run_path(str(EXAMPLE))["Net"]().eval()
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    network = polybench.import_model(module, input_shape=(3, 16, 16))
    assert network.input_shape == (3, 16, 16)
    assert not module.training
    assert all(torch.equal(before[name], tensor) for name, tensor in module.state_dict().items())
    result = polybench.parity(model=module, engines=["torch"], devices=["cpu"], data="synthetic", batch_size=4)
    assert result.document.results[0].parity.status == "pass"
