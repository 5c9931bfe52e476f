"""`polybench versions` on commits of a Julia package, Flux's optimizers, which one commit makes slower."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from polybench.engines.flux.julia.discovery import Julia, manifest
from tests.configured_julia import configured_julia
from tests.versioned_package import git

LOCATE = "print(Base.locate_package(Base.PkgId(Base.UUID(ARGS[1]), ARGS[2])))"
UPDATE = "  @.. mvel = "
"""Begin of the line that updates the velocity of momentum."""
WAIT = "  start = time_ns(); while time_ns() - start < 2_000_000 end # 2 ms for each of ten tensors\n"
OPTIONS = (
    "--data synthetic --batch-size 16 --threads 1 --no-metrics --no-parity --processes 3 --rounds-per-process 1"
    " --steps-per-round 20 --format json"
)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Return a repository with the installed Optimisers.jl and a slower version of it; without Julia, skip the test."""
    julia = configured_julia()
    folder = tmp_path / "Optimisers.jl"
    shutil.copytree(_source(julia, "Optimisers"), folder, copy_function=shutil.copyfile)
    git(folder, "init", "--quiet", "--initial-branch=main")
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "--message", "Release")
    rules = folder / "src" / "rules.jl"
    text = rules.read_text("utf-8")
    assert text.count(UPDATE) == 1
    rules.write_text(text.replace(UPDATE, WAIT + UPDATE), "utf-8")
    git(folder, "commit", "--quiet", "--all", "--message", "Wait in each update")
    return folder


def _source(julia: Julia, name: str) -> Path:
    """Return the folder of a package, which may be an indirect dependency."""
    uuid = manifest(julia)[name]["uuid"]
    command = [julia.executable, f"--project={julia.project}", "--startup-file=no", "-e", LOCATE, uuid, name]
    return Path(subprocess.run(command, check=True, capture_output=True, text=True).stdout).parents[1]


@pytest.mark.slow
@pytest.mark.exhaustive
@pytest.mark.timeout(1200)  # compiles Flux for each commit, 7 minutes on 2 busy cores
def test_a_slow_commit_of_a_julia_package_is_measured(checkout: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "polybench", "versions", "HEAD~1", "HEAD", "--checkout", str(checkout)]
    command += ["--engines", "flux", *OPTIONS.split(), "--fail-if", "slower=20%"]
    own = {"XDG_CACHE_HOME": str(tmp_path / "cache"), "POLYBENCH_RESULTS": str(tmp_path / "results")}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ | own, cwd=tmp_path)
    assert done.returncode == 1, done.stderr
    base, slow = json.loads(done.stdout)["results"]
    commits = [git(checkout, "rev-parse", "--short=12", name) for name in ("HEAD~1", "HEAD")]
    assert [base["configuration"], slow["configuration"]] == [f"flux@{commit}/cpu" for commit in commits]
    assert slow["vs_baseline"]["ci95"][1] < 1
