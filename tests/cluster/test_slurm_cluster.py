"""SLURM's own commands. Tests that need a cluster are skipped without one; its nodes must share `--basetemp`."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from polybench.cluster.messages import Finished, Saved, Started
from polybench.cluster.slurm_cluster import (
    JobState,
    Partition,
    SlurmCluster,
    _error_text,
    _flag,
    _parse_minutes,
    _without_overrides,
)
from polybench.cluster.slurm_executor import SlurmExecutor
from polybench.errors import BadInput
from polybench.schema.options import MachineGroup
from polybench.schema.study import from_json
from tests.cluster.test_slurm_executor import is_last, messages_until, task
from tests.scripts.test_plain import folder

__all__ = ["folder"]


@pytest.mark.parametrize(
    ("limit", "minutes"),
    [("1:00:00", 60), ("30:00", 30), ("2-12:00:00", 3600), ("infinite", None), ("n/a", None)],
)
def test_time_limits_with_days_and_hours_are_parsed(limit: str, minutes: int | None) -> None:
    assert _parse_minutes(limit) == minutes


def test_error_is_the_last_line_of_the_output() -> None:
    output = "sbatch: error: invalid partition specified: x\nsbatch: error: Invalid partition name specified\n"
    assert _error_text(output) == "Invalid partition name specified"
    assert _error_text("\n") == "no reason given"


def flags_of(group: MachineGroup, preferred_host: str | None = None) -> list[str]:
    cluster = SlurmCluster()
    cluster._partitions = {"main": Partition(True, True, 45), "long": Partition(False, True, None)}
    return [_flag(name, value) for name, value in cluster._flags(group, preferred_host).items()]


def test_group_gets_a_whole_node_with_its_requested_resources() -> None:
    plain = flags_of(MachineGroup())
    assert "--job-name=polybench-local" in plain
    assert {"--exclusive", "--mem=0", "--nodes=1", "--time=45", "--requeue"} <= set(plain)
    assert not any(flag.startswith(("--partition", "--gres", "--constraint", "--nodelist")) for flag in plain)
    group = MachineGroup(label="v100", partition="long", constraint="ib", accelerator="v100", minutes=7)
    requested = {"--partition=long", "--constraint=ib", "--gres=gpu:v100:1", "--time=7", "--nodelist=n1"}
    assert requested <= set(flags_of(group, "n1"))
    assert requested <= set(flags_of(group, "n1.cluster.example"))
    assert "--time=120" in flags_of(MachineGroup(partition="long"))


def test_users_variables_apply_only_to_options_that_a_group_leaves_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SBATCH_TIMELIMIT", "1")
    monkeypatch.setenv("SBATCH_ACCOUNT", "physics")
    with _without_overrides(["time", "mem"]):
        assert "SBATCH_TIMELIMIT" not in os.environ
        assert os.environ["SBATCH_ACCOUNT"] == "physics"
    assert os.environ["SBATCH_TIMELIMIT"] == "1"


def test_one_node_of_each_partition_that_is_up_is_diagnosed(monkeypatch: pytest.MonkeyPatch) -> None:
    found = {
        "main": Partition(True, True, 5),
        "long": Partition(False, True, None),
        "old": Partition(False, False, 9),
    }
    monkeypatch.setattr("polybench.cluster.slurm_cluster._partitions", lambda: found)
    nodes = SlurmExecutor("slurm").nodes()
    assert [(one.group.label, one.group.partition, one.group.minutes) for one in nodes] == [
        ("main", "main", 5),
        ("long", "long", 10),
    ]


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> SlurmCluster:
    for name in [name for name in os.environ if name.startswith("SBATCH_")]:
        monkeypatch.delenv(name)
    if shutil.which("sbatch") is None:
        pytest.skip("no sbatch on this machine")
    up = subprocess.run(["scontrol", "ping"], capture_output=True, text=True, check=False, timeout=60)
    if " is UP" not in up.stdout:
        pytest.skip(f"SLURM does not respond: {up.stdout.strip() or up.stderr.strip()}")
    return SlurmCluster()


def test_unknown_partition_is_named(cluster: SlurmCluster) -> None:
    with pytest.raises(BadInput, match=r"SLURM has no partition 'nowhere'; partitions are: \w+"):
        cluster.check([MachineGroup(partition="nowhere")])


def test_missing_feature_is_rejected(cluster: SlurmCluster) -> None:
    with pytest.raises(BadInput, match="machine odd: SLURM rejects the job: Invalid feature specification"):
        cluster.check([MachineGroup(label="odd", constraint="no-node-has-this")])


def test_unknown_job_has_its_own_state(cluster: SlurmCluster) -> None:
    assert cluster.states(["987654321"]) == {"987654321": JobState("GONE")}


@pytest.fixture
def executor(cluster: SlurmCluster, tmp_path: Path) -> Iterator[SlurmExecutor]:
    executor = SlurmExecutor(f"slurm:{tmp_path / 'shared'}", cluster)
    yield executor
    executor.close()


@pytest.mark.slow
def test_study_runs_on_a_node(executor: SlurmExecutor, folder: Path, tmp_path: Path) -> None:
    executor.check([MachineGroup()])
    executor.start(MachineGroup(), task(folder))
    queue = subprocess.run(["squeue", "--format=%j"], capture_output=True, text=True, check=True).stdout
    assert "polybench-local" in queue
    messages = messages_until(executor, is_last, seconds=120)
    assert isinstance(messages[-1], Finished), messages
    assert any(isinstance(one, Started) for one in messages)
    document = from_json([one for one in messages if isinstance(one, Saved)][-1].document)
    assert [result.status for result in document.results] == ["ok"]
    executor.close()
    assert not (tmp_path / "shared").exists()


def test_missing_sbatch_is_reported_with_a_fix(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, folder: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BadInput, match="sbatch not found on this machine"):
        SlurmExecutor(f"slurm:{tmp_path}").check([MachineGroup()])


def test_folder_that_is_not_writable_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(BadInput, match=r"cannot write to .*file/shared: Not a directory"):
        SlurmExecutor(f"slurm:{tmp_path / 'file' / 'shared'}").check([MachineGroup()])
