"""This polybench, sent to nodes of a Ray cluster that have another one."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from polybench.core.errors import BadInput
from polybench.fleet.executor import executor
from polybench.fleet.program import this_program
from polybench.fleet.run import run_fleet
from polybench.fleet.shipped import shipped
from tests.fleet.fleets import fleet
from tests.fleet.ray_nodes import ray_nodes
from tests.measuring.test_study import Listener

ASK = (
    "import json; from polybench.fleet.program import this_program; p = this_program();"
    "print(json.dumps([p.sources, p.version, __import__('polybench').__file__]))"
)


def test_what_is_sent_is_this_program() -> None:
    with shipped() as folder:
        variables = os.environ | {"PYTHONPATH": str(folder.parent)}
        run = subprocess.run(
            [sys.executable, "-c", ASK], env=variables, cwd="/", capture_output=True, text=True, check=True
        )
        julia = folder / "engines" / "flux" / "julia" / "PolyBench"
        assert (julia / "Project.toml").is_file()
        assert [*julia.glob("models/*")]
    sources, version, file = json.loads(run.stdout)
    assert (sources, version) == (this_program().sources, this_program().version)
    assert Path(file) == folder / "__init__.py"
    assert not folder.exists()


def test_only_ray_can_be_sent_it() -> None:
    with pytest.raises(BadInput, match="--on local runs the polybench of this machine"):
        executor("local", ship=True)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # what Ray's own processes and sockets leave behind is Ray's
def test_a_node_with_another_polybench_is_refused_or_sent_this_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("ray")
    pytest.importorskip("grpc")
    with shipped() as folder:
        there = Path(shutil.copytree(folder, tmp_path / "there" / "polybench"))
    version = there / "core" / "version.py"
    version.write_text(version.read_text().replace(this_program().version, "0.0.1"))
    monkeypatch.setenv("PYTHONPATH", str(there.parent))
    with ray_nodes("one") as nodes:
        asked = msgspec.structs.replace(fleet(tmp_path, processes=1), on=nodes.client)
        says = r"it has polybench 0\.0\.1, the driver .*; or --ship sends the driver's polybench there"
        with pytest.raises(BadInput, match=says):
            run_fleet(asked, Listener(), store=None)
        (machine,) = run_fleet(msgspec.structs.replace(asked, ship=True), Listener(), store=None).machines
    assert machine.document is not None
    assert machine.document.polybench.version == this_program().version
    assert [result.status for result in machine.document.results] == ["ok"]
