"""`polybench versions` and `polybench bisect` on commits of a Julia package, of which one makes a step slower."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from polybench.engines.flux.julia.discovery import Julia, manifest
from tests.configured_julia import configured_julia
from tests.versioned_package import git

Run = Callable[..., subprocess.CompletedProcess[str]]

LOCATE = "print(Base.locate_package(Base.PkgId(Base.UUID(ARGS[1]), ARGS[2])))"
UPDATE = "  @.. mvel = "
"""Begin of the line that updates the velocity of momentum."""
WAIT = "  start = time_ns(); while time_ns() - start < 2_000_000 end # 2 ms for each of ten tensors\n"
OPTIONS = (
    "--data synthetic --batch-size 16 --threads 1 --no-metrics --no-parity --processes 3 --rounds-per-process 1"
    " --steps-per-round 20 --format json"
)


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a repository of Optimisers.jl: the installed version, a slower one, and a comment; without Julia, skip."""
    julia = configured_julia()
    folder = tmp_path_factory.mktemp("package") / "Optimisers.jl"
    shutil.copytree(_source(julia, "Optimisers"), folder, copy_function=shutil.copyfile)
    git(folder, "init", "--quiet", "--initial-branch=main")
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "--message", "Release")
    rules = folder / "src" / "rules.jl"
    text = rules.read_text("utf-8")
    assert text.count(UPDATE) == 1
    for message, new in (("Wait in each update", WAIT + UPDATE), ("Add a comment", "  # a comment\n" + WAIT + UPDATE)):
        rules.write_text(text.replace(UPDATE, new), "utf-8")
        git(folder, "commit", "--quiet", "--all", "--message", message)
    return folder


@pytest.fixture
def run(checkout: Path) -> Run:
    """Return a function that runs polybench on commits, whose environments the tests share."""
    folder = checkout.parent
    own = {"XDG_CACHE_HOME": str(folder / "cache"), "POLYBENCH_RESULTS": str(folder / "results")}

    def run(command: str, first: str, last: str, *options: str) -> subprocess.CompletedProcess[str]:
        words = [sys.executable, "-m", "polybench", command, first, last, "--checkout", str(checkout)]
        words += ["--engines", "flux", *OPTIONS.split(), *options]
        return subprocess.run(words, capture_output=True, text=True, check=False, env=os.environ | own, cwd=folder)

    return run


def _source(julia: Julia, name: str) -> Path:
    """Return the folder of a package, which may be an indirect dependency."""
    uuid = manifest(julia)[name]["uuid"]
    command = [julia.executable, f"--project={julia.project}", "--startup-file=no", "-e", LOCATE, uuid, name]
    return Path(subprocess.run(command, check=True, capture_output=True, text=True).stdout).parents[1]


@pytest.mark.wide
@pytest.mark.timeout(1200)  # compiles Flux for each commit, 7 minutes on 2 busy cores
def test_a_slow_commit_of_a_julia_package_is_measured(run: Run, checkout: Path) -> None:
    done = run("versions", "HEAD~2", "HEAD~1", "--fail-if", "slower=20%")
    assert done.returncode == 1, done.stderr
    base, slow = json.loads(done.stdout)["results"]
    commits = [git(checkout, "rev-parse", "--short=12", name) for name in ("HEAD~2", "HEAD~1")]
    assert [base["configuration"], slow["configuration"]] == [f"flux@{commit}/cpu" for commit in commits]
    assert slow["vs_baseline"]["ci95"][1] < 1


@pytest.mark.wide
@pytest.mark.timeout(2400)
def test_a_slow_commit_of_a_julia_package_is_found(run: Run, checkout: Path) -> None:
    done = run("bisect", "HEAD~2", "HEAD")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["version"] == git(checkout, "rev-parse", "--short=12", "HEAD~1")
    assert found["description"] == "Wait in each update"
    assert found["ci95"][0] > 1
