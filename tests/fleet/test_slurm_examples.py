"""The job scripts of `examples/slurm`."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from polybench.core.document.study import from_json
from polybench.core.machines import MachineGroup
from polybench.fleet.slurm_cluster import ENDED, SlurmCluster
from polybench.planning.study_file import read
from tests.fleet.test_slurm_cluster import cluster
from tests.plain.test_plain import folder

__all__ = ["cluster", "folder"]

EXAMPLES = Path(__file__).parents[2] / "examples" / "slurm"
SCRIPTS = sorted(EXAMPLES.glob("*.sbatch"))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_a_shell_can_read_it(script: Path) -> None:
    bash = shutil.which("bash")
    assert bash is not None
    assert subprocess.run([bash, "-n", str(script)], capture_output=True, check=False).stderr == b""


def test_the_study_has_two_classes_of_nodes() -> None:
    machines = read(EXAMPLES / "two_machines.toml").machines
    assert [machine.label for machine in machines] == ["small", "large"]
    assert all(isinstance(machine, MachineGroup) and machine.constraint for machine in machines)


@pytest.mark.slow
def test_a_study_runs_in_a_job(
    cluster: SlurmCluster, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    study, log, results = (tmp_path / name for name in ("study.toml", "log", "results"))
    study.write_text(f'engines = ["fake"]\ndevices = ["cpu"]\ndata = "{folder}"\nparity = false\n')
    options = ["--quick", "--batch-size", "16", "--rounds", "1", "--steps", "3", "--results", str(results)]
    command = ["sbatch", "--parsable", f"--output={log}", str(EXAMPLES / "one_node.sbatch"), str(study)]
    id = subprocess.run([*command, *options], capture_output=True, text=True, check=True).stdout.strip()
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and cluster.states([id])[id].state not in ENDED:
        time.sleep(0.5)
    (saved,) = results.glob("*.json")
    assert from_json(saved.read_bytes()).finished
    assert "fake/cpu" in log.read_text()
