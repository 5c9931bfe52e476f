"""Upload of this polybench to nodes of a Ray cluster that have another version."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from polybench.cluster.executor import make_executor
from polybench.cluster.messages import current_fingerprint
from polybench.cluster.package_upload import package_copy
from polybench.cluster.run import run_on_cluster
from polybench.errors import BadInput
from tests.cluster.cluster_runs import cluster_run
from tests.cluster.ray_nodes import ray_nodes
from tests.runner.test_study import RecordingProgress

PROGRAM = (
    "import json; from polybench.cluster.messages import current_fingerprint; p = current_fingerprint();"
    "print(json.dumps([p.source_sha256, p.version, __import__('polybench').__file__]))"
)


def test_package_copy_has_the_fingerprint_of_this_program() -> None:
    with package_copy() as folder:
        variables = os.environ | {"PYTHONPATH": str(folder.parent)}
        run = subprocess.run(
            [sys.executable, "-c", PROGRAM], env=variables, cwd="/", capture_output=True, text=True, check=True
        )
        julia = folder / "engines" / "flux" / "julia" / "PolyBench"
        assert (julia / "Project.toml").is_file()
        assert [*julia.glob("models/*")]
    source_sha256, version, file = json.loads(run.stdout)
    assert (source_sha256, version) == (current_fingerprint().source_sha256, current_fingerprint().version)
    assert Path(file) == folder / "__init__.py"
    assert not folder.exists()


def test_upload_needs_ray() -> None:
    with pytest.raises(BadInput, match="--on local already runs the polybench of this machine"):
        make_executor("local", upload=True)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # Ray's processes and sockets cause warnings
def test_node_with_another_polybench_is_rejected_unless_uploaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("ray")
    pytest.importorskip("grpc")
    with package_copy() as folder:
        installed = Path(shutil.copytree(folder, tmp_path / "installed" / "polybench"))
    version = installed / "distribution.py"
    version.write_text(version.read_text().replace(current_fingerprint().version, "0.0.1"))
    monkeypatch.setenv("PYTHONPATH", str(installed.parent))
    with ray_nodes("one") as nodes:
        cluster = msgspec.structs.replace(cluster_run(tmp_path, processes=1), on=nodes.client)
        message = r"it has polybench 0\.0\.1, but the driver .*; or --upload sends the driver's polybench to it"
        with pytest.raises(BadInput, match=message):
            run_on_cluster(cluster, RecordingProgress(), store=None)
        (machine,) = run_on_cluster(
            msgspec.structs.replace(cluster, upload=True), RecordingProgress(), store=None
        ).machines
    assert machine.document is not None
    assert machine.document.polybench.version == current_fingerprint().version
    assert [result.status for result in machine.document.results] == ["ok"]
