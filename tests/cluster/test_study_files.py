"""Study files with several machines, planned on a machine that is not one of them."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

import polybench
from polybench.cli import app
from polybench.errors import BadInput
from polybench.planning.study_file import read
from polybench.schema.options import MachineGroup
from tests.cluster.cluster_runs import study


def test_study_file_of_the_docs_can_be_read_without_a_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("polybench.machine.host.gpu_names", list)
    page = (Path(__file__).parents[2] / "docs" / "clusters.md").read_text()
    (tmp_path / "study.toml").write_text(page.partition("```toml\n")[2].partition("```")[0])
    found = read(tmp_path / "study.toml")
    small, v100 = (group.study(found.study) for group in found.machines)
    assert (small.baseline, v100.devices, v100.baseline) == ("torch/cpu", ("cuda",), None)
    planned = CliRunner().invoke(app, ["run", str(tmp_path / "study.toml"), "--dry-run"])
    assert planned.exit_code == 0, planned.output
    assert planned.stdout.split() == ["small:torch/cpu", "small:tf/cpu", "v100:torch/cuda", "v100:tf/cuda"]


@pytest.mark.parametrize(
    "line", ['baseline = "x:fake/cuda"', 'precision = "tf32"', "replicas = 64\nbatch_size = 64", "prices = {cuda = 3}"]
)
def test_resources_that_only_this_machine_lacks_are_accepted(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("polybench.machine.host.gpu_names", list)
    file = tmp_path / "study.toml"
    file.write_text(f'engines = ["fake"]\n{line}\n[[machines]]\nlabel = "x"\n')
    assert read(file).machines[0].label == "x"
    file.write_text('engines = ["fake"]\nbaseline = "x:fake/tpu"\n[[machines]]\nlabel = "x"\n')
    with pytest.raises(BadInput, match="fake/tpu"):
        read(file)


@pytest.mark.parametrize("field", ["label", "accelerator", "resources", "partition", "constraint"])
@pytest.mark.parametrize(
    "text", ["\n#SBATCH --account=x", "\r", "\u2028", "\0", ";reboot", "$(x)", "`x`", "'", '"', "\\", " --x", ""]
)
def test_a_value_of_a_machine_that_is_more_than_a_name_is_rejected(field: str, text: str, tmp_path: Path) -> None:
    machine = {"label": "x"} | {field: text and f"a{text}"}
    file = tmp_path / "study.toml"
    file.write_bytes(msgspec.toml.encode({"engines": ["fake"], "machines": [machine]}))
    with pytest.raises(BadInput, match=rf"study.toml:\d+: .*{field}"):
        read(file)
    with pytest.raises(BadInput, match=field):
        polybench.compare(engines=["fake"], on="slurm", machines=[machine])


def test_values_with_the_syntax_of_slurm_and_ray_are_accepted() -> None:
    for constraint in ("intel&gpu", "[rack1|rack2]", "(a&b)|c", "graphics*4", "!slow"):
        MachineGroup(
            constraint=constraint, partition="main,long", accelerator="NVIDIA-A100_80.g", resources="node:10.0.0.1"
        )


def test_remote_replicas_are_not_limited_by_local_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("polybench.machine.host.usable_threads", lambda: 2)
    file = tmp_path / "study.toml"
    file.write_text('engines = ["fake"]\ndevices = ["cpu"]\nreplicas = [2, 3]\nbatch_size = 60\n')
    plain = ["compare", "--engines", "fake", "--devices", "cpu", "--replicas", "2,3", "--batch-size", "60"]
    for command in (["run", str(file)], plain):
        local = CliRunner().invoke(app, [*command, "--dry-run"])
        assert "does not divide 2 threads evenly" in str(local.exception)
        remote = CliRunner().invoke(app, [*command, "--dry-run", "--on", "ray://head"])
        assert remote.exit_code == 0, remote.exception
        assert remote.stdout.split() == ["fake/cpu/2x", "fake/cpu/3x"]
        assert "threads 6" in remote.stderr


def test_unsupported_remote_run_is_rejected_with_a_fix(tmp_path: Path) -> None:
    file = tmp_path / "sweep.toml"
    file.write_text('engines = ["fake"]\n[sweep]\nthreads = [1, 2]\n')
    swept = CliRunner().invoke(app, ["run", str(file), "--on", "local"])
    assert "start it on that machine, without --on" in str(swept.exception)
    explained = CliRunner().invoke(app, ["compare", "--engines", "fake", "--on", "local", "--explain"])
    assert "run polybench explain ID afterwards" in str(explained.exception)


def test_group_selects_devices_prices_and_baseline(tmp_path: Path) -> None:
    spec = study(tmp_path, devices=("cpu", "cuda"), prices={"cpu": 1.0, "cuda": 2.0}, baseline="x:fake/cuda")
    group_study = MachineGroup(label="x", devices=("cuda",), price=3.0).study(spec)
    assert (group_study.devices, group_study.prices, group_study.baseline) == (("cuda",), {"cuda": 3.0}, "fake/cuda")
    other = MachineGroup(label="y", devices=("cpu",)).study(spec)
    assert (other.prices, other.baseline) == ({"cpu": 1.0}, None)
    by_threads = msgspec.structs.replace(spec, prices={"cpu-2": 1.0, "cuda-2": 2.0})
    assert MachineGroup(label="y", devices=("cpu",)).study(by_threads).prices == {"cpu-2": 1.0}
