"""Studies on several machines as files and groups say them, judged on a machine that is none of them."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

from polybench.cli import app
from polybench.core.errors import BadInput
from polybench.core.machines import MachineGroup
from polybench.planning.study_file import read
from tests.fleet.fleets import study


def test_the_study_file_of_the_docs_can_be_read_on_a_machine_without_a_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("polybench.machine.host.gpus", list)
    page = (Path(__file__).parents[2] / "docs" / "clusters.md").read_text()
    (tmp_path / "study.toml").write_text(page.partition("```toml\n")[2].partition("```")[0])
    found = read(tmp_path / "study.toml")
    small, v100 = (group.study(found.study) for group in found.machines)
    assert (small.baseline, v100.devices, v100.baseline) == ("torch/cpu", ("cuda",), None)
    planned = CliRunner().invoke(app, ["run", str(tmp_path / "study.toml"), "--dry-run"])
    assert planned.exit_code == 0, planned.output
    assert planned.stdout.split() == ["small:torch/cpu", "small:tf/cpu", "v100:torch/cuda", "v100:tf/cuda"]


@pytest.mark.parametrize(
    "line",
    [
        'baseline = "x:fake/cuda"',
        'precision = "tf32"',
        "replicas = 64\nbatch_size = 64",
        "prices = {cuda = 3}",
    ],
)
def test_what_only_this_machine_lacks_is_no_reason_to_refuse(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("polybench.machine.host.gpus", list)
    file = tmp_path / "study.toml"
    file.write_text(f'engines = ["fake"]\n{line}\n[[machines]]\nlabel = "x"\n')
    assert read(file).machines[0].label == "x"
    file.write_text('engines = ["fake"]\nbaseline = "x:fake/tpu"\n[[machines]]\nlabel = "x"\n')
    with pytest.raises(BadInput, match="fake/tpu"):
        read(file)


def test_replicas_elsewhere_are_not_counted_by_the_threads_of_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("polybench.machine.host.usable_threads", lambda: 2)
    file = tmp_path / "study.toml"
    file.write_text('engines = ["fake"]\ndevices = ["cpu"]\nreplicas = [2, 3]\nbatch_size = 60\n')
    plain = ["compare", "--engines", "fake", "--devices", "cpu", "--replicas", "2,3", "--batch-size", "60"]
    for command in (["run", str(file)], plain):
        here = CliRunner().invoke(app, [*command, "--dry-run"])
        assert "share 2 threads evenly" in str(here.exception)
        there = CliRunner().invoke(app, [*command, "--dry-run", "--on", "ray://head"])
        assert there.exit_code == 0, there.exception
        assert there.stdout.split() == ["fake/cpu/2x", "fake/cpu/3x"]
        assert "threads 6" in there.stderr


def test_what_is_not_measured_elsewhere_says_what_to_do(tmp_path: Path) -> None:
    file = tmp_path / "sweep.toml"
    file.write_text('engines = ["fake"]\n[sweep]\nthreads = [1, 2]\n')
    swept = CliRunner().invoke(app, ["run", str(file), "--on", "local"])
    assert "start it there without --on" in str(swept.exception)
    explained = CliRunner().invoke(app, ["compare", "--engines", "fake", "--on", "local", "--explain"])
    assert "ask afterwards: polybench explain ID" in str(explained.exception)


def test_groups_say_what_is_measured_where(tmp_path: Path) -> None:
    asked = study(tmp_path, devices=("cpu", "cuda"), prices={"cpu": 1.0, "cuda": 2.0}, baseline="x:fake/cuda")
    there = MachineGroup(label="x", devices=("cuda",), price=3.0).study(asked)
    assert (there.devices, there.prices, there.baseline) == (("cuda",), {"cuda": 3.0}, "fake/cuda")
    other = MachineGroup(label="y", devices=("cpu",)).study(asked)
    assert (other.prices, other.baseline) == ({"cpu": 1.0}, None)
    by_threads = msgspec.structs.replace(asked, prices={"cpu-2": 1.0, "cuda-2": 2.0})
    assert MachineGroup(label="y", devices=("cpu",)).study(by_threads).prices == {"cpu-2": 1.0}
