"""Job scripts of `examples/slurm`."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from polybench.cluster.slurm_cluster import END_STATES, SlurmCluster
from polybench.planning.study_file import read
from polybench.schema.options import MachineGroup
from polybench.schema.study import from_json
from tests.cluster.test_slurm_cluster import cluster
from tests.scripts.test_plain import folder

__all__ = ["cluster", "folder"]

EXAMPLES = Path(__file__).parents[2] / "examples" / "slurm"
SCRIPTS = sorted(EXAMPLES.glob("*.sbatch"))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_script_has_valid_shell_syntax(script: Path) -> None:
    bash = shutil.which("bash")
    assert bash is not None
    assert subprocess.run([bash, "-n", str(script)], capture_output=True, check=False).stderr == b""


def test_study_has_two_classes_of_nodes() -> None:
    machines = read(EXAMPLES / "two_machines.toml").machines
    assert [machine.label for machine in machines] == ["small", "large"]
    assert all(isinstance(machine, MachineGroup) and machine.constraint for machine in machines)


@pytest.mark.parametrize("has_checkpoint", [True, False])
def test_restarted_job_resumes_if_there_is_a_checkpoint(has_checkpoint: bool, tmp_path: Path) -> None:
    program = tmp_path / "polybench"
    program.write_text(
        f'#!/bin/bash\n[[ "$*" == *--dry-run* ]] && exit {0 if has_checkpoint else 2}\necho "arguments: $*"\n'
    )
    program.chmod(0o755)
    variables = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "SLURM_RESTART_COUNT": "1"}
    command = ["bash", str(EXAMPLES / "one_node.sbatch"), "study.toml"]
    output = subprocess.run(command, env=variables, capture_output=True, text=True, check=True).stdout
    assert output == f"arguments: run study.toml {'--resume ' if has_checkpoint else ''}--verbose\n"


@pytest.mark.slow
def test_study_runs_in_a_job(
    cluster: SlurmCluster, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    study, log, results = (tmp_path / name for name in ("study.toml", "log", "results"))
    study.write_text(f'engines = ["fake"]\ndevices = ["cpu"]\ndata = "{folder}"\nparity = false\n')
    options = [
        "--quick",
        "--batch-size",
        "16",
        "--rounds-per-process",
        "1",
        "--steps-per-round",
        "3",
        "--results",
        str(results),
    ]
    command = ["sbatch", "--parsable", f"--output={log}", str(EXAMPLES / "one_node.sbatch"), str(study)]
    id = subprocess.run([*command, *options], capture_output=True, text=True, check=True).stdout.strip()
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and cluster.states([id])[id].state not in END_STATES:
        time.sleep(0.5)
    (saved,) = results.glob("*.json")
    assert from_json(saved.read_bytes()).finished
    assert "fake/cpu" in log.read_text()
