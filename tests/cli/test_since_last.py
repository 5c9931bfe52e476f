"""`polybench versions --since-last`: the newest commit of a real package against the last good one, simulated."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from polybench.cli.versions import _versions_since_last
from polybench.runner.versions import Versions
from polybench.schema.options import Study
from polybench.storage.store import Store
from tests.commands import refused
from tests.factories import measured, study
from tests.log_of import save_document
from tests.versioned_package import ENGINE, git, install_row, write_package

FAST = (
    *("--engines", "small", "--data", "synthetic", "--batch-size", "16", "--threads", "1", "--no-metrics"),
    *("--processes", "5", "--rounds-per-process", "1", "--steps-per-round", "3"),
    *("--wait-idle", "0"),
)


def commit(folder: Path, factor: float) -> str:
    (folder / "small_engine.py").write_text(ENGINE.replace("FACTOR = 1.0", f"FACTOR = {factor}"))
    git(folder, "commit", "--quiet", "--all", "--message", f"Factor {factor}")
    return git(folder, "rev-parse", "HEAD")[:12]


class Releases(Versions):
    """A package whose newest release is 4."""

    def newest(self) -> tuple[str, str]:
        return "3", "4"


def test_the_last_good_version_is_the_newest_that_met_no_condition(tmp_path: Path) -> None:
    store, request = Store(tmp_path), (Releases("torch"), Study(engines=("torch",)))
    conditions = {"slower": 0.05}
    base, newest, (tag, version) = _versions_since_last(*request, store, conditions) or ("", "", ("", ""))
    assert (base, newest, version) == ("3", "4", "version=4")
    for number, seconds in (("1", 0.0165), ("2", 0.0165), ("3", 0.020)):
        head = study(measured("torch@base/cpu", 0.0165), measured("torch@head/cpu", seconds))
        tags, created = [tag, f"version={number}"], f"2026-01-0{number}T00:00:00Z"
        save_document(store, msgspec.structs.replace(head, id=f"2026010{number}-a", created=created, tags=tags))
    assert (_versions_since_last(*request, store, conditions) or ())[:2] == ("2", "4")


@pytest.mark.wide  # test_action.py builds commits; which one is the last good one is tested above
def test_each_new_commit_is_compared_once_with_the_last_good_one(tmp_path: Path) -> None:
    package = tmp_path / "package"
    first, second = (one[:12] for one in write_package(package, [1.0, 1.0]))
    install_row(tmp_path / "site")
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(tmp_path / "site"), *filter(None, sys.path)]),
        "PIP_NO_INDEX": "1",
    }

    def since_last() -> tuple[int, list[str], str]:
        results = ("--results", tmp_path / "results")
        command = ["versions", "--since-last", "--checkout", package, *FAST, *results, "--format", "json"]
        done = subprocess.run(
            [sys.executable, "-m", "polybench", *map(str, command)],
            capture_output=True, text=True, check=False, env=environment, cwd=tmp_path,
        )  # fmt: skip
        document = json.loads(done.stdout) if done.stdout else {"results": []}
        return done.returncode, [result["environment"] for result in document["results"]], done.stderr

    assert since_last()[:2] == (0, [first, second])
    code, measured, message = since_last()
    assert (code, measured) == (0, [])
    assert f"no new version: {second}" in message
    slow = commit(package, 1.5)
    code, measured, message = since_last()
    assert (code, measured) == (1, [second, slow])
    assert "is slower by" in message
    fixed = commit(package, 1.001)
    assert since_last()[:2] == (0, [second, fixed])  # the slow commit is not the last good one
    assert len([*(tmp_path / "results").glob("*.json")]) == 3


def test_it_needs_a_package_and_one_engine() -> None:
    assert "expected either" in refused("versions", "--since-last", "--engines", "fake")
    assert "expected one engine" in refused("versions", "--since-last", "--engines", "fake,torch", "--package", "torch")


def test_the_versions_come_from_saved_studies_or_are_given() -> None:
    options = ("--engines", "fake", "--package", "torch")
    assert refused("versions", *options).startswith("expected BASE and HEAD, ")
    assert refused("versions", "2.12.1", *options).startswith("expected BASE and HEAD, ")
    assert refused("versions", "2.12.1", "--since-last", *options).startswith("2.12.1: --since-last finds both")
    assert refused("versions", "--since-last", "--no-save", *options).startswith("--no-save: --since-last finds")
