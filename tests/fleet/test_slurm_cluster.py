"""SLURM's own commands. What needs a cluster is skipped where there is none; its nodes share `--basetemp`."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from polybench.core.document.study import from_json
from polybench.core.errors import BadInput
from polybench.core.machines import MachineGroup
from polybench.fleet.messages import Finished, Hello, Saved
from polybench.fleet.slurm import SlurmExecutor
from polybench.fleet.slurm_cluster import (
    JobState,
    Partition,
    SlurmCluster,
    _flag,
    _last_words,
    _minutes,
    _not_overruled,
)
from tests.fleet.test_slurm import is_last, met, task
from tests.plain.test_plain import folder

__all__ = ["folder"]


@pytest.mark.parametrize(
    ("limit", "minutes"),
    [("1:00:00", 60), ("30:00", 30), ("2-12:00:00", 3600), ("infinite", None), ("n/a", None)],
)
def test_slurm_writes_limits_with_days_and_hours(limit: str, minutes: int | None) -> None:
    assert _minutes(limit) == minutes


def test_of_what_sbatch_says_the_last_line_counts() -> None:
    said = "sbatch: error: invalid partition specified: x\nsbatch: error: Invalid partition name specified\n"
    assert _last_words(said) == "Invalid partition name specified"
    assert _last_words("\n") == "it does not say why"


def flags_of(group: MachineGroup, near: str | None = None) -> list[str]:
    cluster = SlurmCluster()
    cluster._partitions = {"main": Partition(True, True, 45), "long": Partition(False, True, None)}
    return [_flag(name, value) for name, value in cluster._flags(group, near).items()]


def test_a_group_is_a_whole_node_with_what_it_asks_for() -> None:
    plain = flags_of(MachineGroup())
    assert "--job-name=polybench-local" in plain
    assert {"--exclusive", "--mem=0", "--nodes=1", "--time=45", "--requeue"} <= set(plain)
    assert not any(flag.startswith(("--partition", "--gres", "--constraint", "--nodelist")) for flag in plain)
    group = MachineGroup(label="v100", partition="long", constraint="ib", accelerator="v100", minutes=7)
    asked = {"--partition=long", "--constraint=ib", "--gres=gpu:v100:1", "--time=7", "--nodelist=n1"}
    assert asked <= set(flags_of(group, "n1"))
    assert asked <= set(flags_of(group, "n1.cluster.example"))
    assert "--time=120" in flags_of(MachineGroup(partition="long"))


def test_a_users_variables_replace_only_what_a_group_leaves_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SBATCH_TIMELIMIT", "1")
    monkeypatch.setenv("SBATCH_ACCOUNT", "physics")
    with _not_overruled(["time", "mem"]):
        assert "SBATCH_TIMELIMIT" not in os.environ
        assert os.environ["SBATCH_ACCOUNT"] == "physics"
    assert os.environ["SBATCH_TIMELIMIT"] == "1"


def test_a_node_of_each_partition_that_is_up_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    found = {
        "main": Partition(True, True, 5),
        "long": Partition(False, True, None),
        "old": Partition(False, False, 9),
    }
    monkeypatch.setattr("polybench.fleet.slurm_cluster._partitions", lambda: found)
    places = SlurmExecutor("slurm").machines()
    assert [(one.group.label, one.group.partition, one.group.minutes) for one in places] == [
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
        pytest.skip(f"SLURM does not answer: {up.stdout.strip() or up.stderr.strip()}")
    return SlurmCluster()


def test_a_partition_that_is_not_there_is_named(cluster: SlurmCluster) -> None:
    with pytest.raises(BadInput, match=r"SLURM has no partition 'nowhere'; partitions are: \w+"):
        cluster.check([MachineGroup(partition="nowhere")])


def test_a_feature_that_no_node_has_is_refused(cluster: SlurmCluster) -> None:
    with pytest.raises(BadInput, match="machine odd: SLURM refuses the job: Invalid feature specification"):
        cluster.check([MachineGroup(label="odd", constraint="no-node-has-this")])


def test_a_job_that_nobody_knows_is_gone(cluster: SlurmCluster) -> None:
    assert cluster.states(["987654321"]) == {"987654321": JobState("GONE")}


@pytest.fixture
def executor(cluster: SlurmCluster, tmp_path: Path) -> Iterator[SlurmExecutor]:
    executor = SlurmExecutor(f"slurm:{tmp_path / 'shared'}", cluster)
    yield executor
    executor.close()


@pytest.mark.slow
def test_a_study_runs_on_a_node(executor: SlurmExecutor, folder: Path, tmp_path: Path) -> None:
    executor.check([MachineGroup()])
    executor.start(MachineGroup(), task(folder))
    queue = subprocess.run(["squeue", "--format=%j"], capture_output=True, text=True, check=True).stdout
    assert "polybench-local" in queue
    said = met(executor, is_last, seconds=120)
    assert isinstance(said[-1], Finished), said
    assert any(isinstance(one, Hello) for one in said)
    document = from_json([one for one in said if isinstance(one, Saved)][-1].document)
    assert [result.status for result in document.results] == ["ok"]
    executor.close()
    assert not (tmp_path / "shared").exists()


def test_without_sbatch_it_says_where_to_start(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, folder: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BadInput, match="there is no sbatch on this machine"):
        SlurmExecutor(f"slurm:{tmp_path}").check([MachineGroup()])


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(BadInput, match=r"cannot write to .*file/shared: Not a directory"):
        SlurmExecutor(f"slurm:{tmp_path / 'file' / 'shared'}").check([MachineGroup()])
