"""`polybench bisect`: real environments with commits of a real package, whose steps are simulated."""

from __future__ import annotations

import json
import math
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, cast

import msgspec
import pytest

from polybench.experiments import bisect
from polybench.experiments.bisect import Interrupted, Unmeasurable, run_bisect, search
from polybench.log import Header
from polybench.render import render
from polybench.runner.progress import NullProgress
from polybench.runner.versions import BuildFailed, Versions
from polybench.schema.analyses import BisectDocument, BisectPair
from polybench.schema.options import Study
from polybench.schema.result import Status
from polybench.schema.study import StudyDocument
from polybench.storage.store import Store
from tests.commands import refused
from tests.factories import unmeasured
from tests.log_of import save_document
from tests.simulated_machine import Machine, Script
from tests.versioned_package import git, install_row, write_package

FAST = (
    *("--engines", "small", "--data", "synthetic", "--batch-size", "16", "--threads", "1", "--no-metrics"),
    *("--processes", "2", "--rounds-per-process", "1", "--steps-per-round", "3", "--format", "json"),
    *("--wait-idle", "0"),
)


class Search(NamedTuple):
    """A finished search for the slow commit, the last of three."""

    folder: Path
    commits: list[str]
    document: dict[str, Any]
    variables: dict[str, str]

    def again(self, results: Path) -> subprocess.CompletedProcess[str]:
        """Search with the saved studies in this folder."""
        arguments = ("bisect", self.commits[0], "main", "--checkout", self.folder / "package", *FAST)
        command = [sys.executable, "-m", "polybench", *map(str, arguments), "--results", str(results)]
        environment = os.environ | self.variables
        return subprocess.run(command, capture_output=True, text=True, check=False, env=environment, cwd=self.folder)


@pytest.fixture(scope="module")
def searched(tmp_path_factory: pytest.TempPathFactory, shared_folders: Path) -> Search:
    folder = tmp_path_factory.mktemp("search")
    install_row(folder / "site")
    variables = {
        "PYTHONPATH": os.pathsep.join([str(folder / "site"), *filter(None, sys.path)]),
        "XDG_CACHE_HOME": os.environ["XDG_CACHE_HOME"],  # with the commits' environments
        "PIP_NO_INDEX": "1",
    }
    search = Search(folder, write_package(folder / "package", [1.0, 1.0, 1.5]), {}, variables)
    done = search.again(folder / "results")
    assert done.returncode == 0, done.stderr
    return search._replace(document=json.loads(done.stdout))


@pytest.fixture
def results(searched: Search, tmp_path: Path) -> Path:
    """Return a copy of the search's saved studies."""
    return shutil.copytree(searched.folder / "results", tmp_path / "results")


def test_the_slow_commit_of_a_checkout_is_named_and_saved_pairs_are_reused(searched: Search, results: Path) -> None:
    document, commits = searched.document, searched.commits
    assert document["version"] == commits[2][:12]
    assert document["previous"] == commits[1][:12]
    assert document["description"] == "Commit 2"
    assert document["ci95"][0] < 1.5 < document["ci95"][1]
    assert len(document["pairs"]) <= 1.5 * math.log2(2) + 6
    studies = {*results.glob("*.jsonl")}
    assert json.loads(searched.again(results).stdout) == document
    assert {*results.glob("*.jsonl")} == studies


@pytest.mark.wide  # a pair that was interrupted is measured again in the same way
def test_a_pair_that_is_missing_is_measured_again(searched: Search, results: Path) -> None:
    studies = {*results.glob("*.jsonl")}
    newest = max(studies, key=lambda path: path.name)
    newest.unlink()  # as if the search had been interrupted before the last pair
    assert json.loads(searched.again(results).stdout)["version"] == searched.document["version"]
    assert len({*results.glob("*.jsonl")} - studies) >= 1


def test_a_pair_that_was_interrupted_is_measured_again(searched: Search, results: Path) -> None:
    newest = max(results.glob("*.jsonl"), key=lambda path: path.name)
    lines = newest.read_text("utf-8").splitlines()
    end = json.loads(lines[-1]) | {"outcome": "interrupted"}  # after its last step
    newest.write_text("\n".join([*lines[:-1], json.dumps(end), ""]), "utf-8")
    resumed = searched.again(results)
    assert resumed.returncode == 0, resumed.stderr
    assert json.loads(resumed.stdout)["version"] == searched.commits[2][:12]


@pytest.fixture
def package(tmp_path: Path) -> tuple[Path, list[str]]:
    folder = tmp_path / "small-engine"
    return folder, write_package(folder, [1.0, 1.0, 1.0, 1.5])


def test_ends_that_are_not_two_commits_of_one_history_are_refused(package: tuple[Path, list[str]]) -> None:
    folder, commits = package
    given = ("--checkout", folder, "--engines", "fake")
    assert "expected an older commit" in refused("bisect", commits[3], commits[1], *given)
    assert "no commit 'missing'" in refused("bisect", "missing", commits[1], *given)
    assert "expected either" in refused("bisect", "a", "b", "--engines", "fake")
    assert "expected one engine" in refused("bisect", "a", "b", "--package", "torch", "--engines", "torch,tf")


def test_a_commit_that_cannot_be_built_is_reported_with_the_installers_error(package: tuple[Path, list[str]]) -> None:
    folder, _ = package
    (folder / "pyproject.toml").write_text("[build-system]\nrequires = 1\n")
    git(folder, "commit", "--quiet", "--all", "--message", "Broken")
    source = Versions(None, folder)
    with pytest.raises(BuildFailed, match=r"(?i)^error.*\(all output: .*build\.log\)"):
        source.environment(source.label("main"))


def simulated(machine: Machine, first: int, factor: float, processes: int = 5) -> Callable[[str], BisectPair]:
    def measure(version: str) -> BisectPair:
        seconds = 0.020 * (factor if int(version) >= first else 1)
        scripts = {"torch": Script(0.020), "tf": Script(seconds)}
        document = machine.measure(scripts, processes=processes, baseline="torch/cpu")
        comparison = document.result("tf/cpu").vs_baseline
        assert comparison is not None
        return BisectPair(version=version, study=document.id, ratio=1 / comparison.speedup)

    return measure


VERSIONS = [str(number) for number in range(65)]


@pytest.mark.parametrize(
    ("machine", "processes"),
    [
        pytest.param({}, 5, id="steady"),
        pytest.param({"drift": 0.02}, 5, id="drifting", marks=pytest.mark.wide),
        pytest.param({"bursts": 0.1}, 5, id="busy", marks=pytest.mark.wide),
        pytest.param({"slow_processes": 0.05}, 16, id="bimodal", marks=pytest.mark.wide),
    ],
)
def test_one_slow_commit_of_64_is_found_on_a_simulated_machine(machine: dict[str, float], processes: int) -> None:
    right = wrong = 0
    searches = 20 if machine else 5  # the others are in the wide ring
    for seed in range(searches):
        document = search(VERSIONS, [], simulated(Machine(seed=seed, **machine), 1 + 3 * seed, 1.1, processes))
        right += document.version == str(1 + 3 * seed)
        wrong += document.version not in (None, str(1 + 3 * seed))
        assert len(document.pairs) <= 1.5 * 6 + 6
    assert wrong == 0
    assert right >= 19 * searches / 20


def test_versions_that_cannot_be_measured_are_skipped() -> None:
    measure = simulated(Machine(seed=1, process=0.001), 40, 1.1)

    def fails(version: str) -> BisectPair:
        if 38 <= int(version) <= 41:
            raise Unmeasurable("does not compile")
        return measure(version)

    document = search(VERSIONS, [], fails)
    assert (document.previous, document.version) == ("37", "42")
    assert {*document.skipped} <= {"38", "39", "40", "41"}
    assert "38, 39, 40, 41 could not be measured" in render(document, "table")


def test_an_end_that_cannot_be_measured_is_an_error() -> None:
    def fails(_: str) -> BisectPair:
        raise Unmeasurable("does not compile")

    with pytest.raises(Unmeasurable, match="does not compile"):
        search(VERSIONS, [], fails)


def exact(first: int, *unmeasurable: str) -> Callable[[str], BisectPair]:
    """Return a measurement without errors of versions that are slower from the first one on."""

    def measure(version: str) -> BisectPair:
        if version in unmeasurable:
            raise Unmeasurable("does not compile")
        return BisectPair(version=version, study="s", ratio=1.1 if int(version) >= first else 1.0)

    return measure


def test_no_version_replaces_an_end_that_cannot_be_measured() -> None:
    with pytest.raises(Unmeasurable, match="does not compile"):
        search(VERSIONS, [], exact(40, VERSIONS[-1]))


def test_the_version_before_the_change_is_not_counted_with_those_that_were_skipped() -> None:
    document = search(VERSIONS[:17], [], exact(12, "8"))
    assert (document.previous, document.version, [*document.skipped]) == ("11", "12", ["8"])


def test_an_inconclusive_search_names_the_first_and_the_last_possible_version() -> None:
    document = search(VERSIONS[:17], [], exact(12), max_pairs=4)
    assert document.version is None
    assert document.credible_versions is not None
    first, last = map(int, document.credible_versions)
    assert first < 12 < last


def test_an_interrupted_search_keeps_its_pairs() -> None:
    measure, taken = simulated(Machine(seed=4), 20, 1.1), 0

    def interrupted(version: str) -> BisectPair:
        nonlocal taken
        taken += 1
        if taken == 5:
            raise Interrupted
        return measure(version)

    document = search(VERSIONS, [], interrupted)
    assert (document.interrupted, document.version, len(document.pairs)) == (True, None, 4)
    assert search(VERSIONS, [*document.pairs], measure).version == "20"


class Numbers:
    """Versions that are numbers."""

    subject, checkout = "tf", None

    def between(self, start: str, end: str) -> list[str]:
        return [*map(str, range(int(start), int(end) + 1))]

    def pair(self, study: Study, *_: str) -> Study:
        return study

    def describe(self, version: str) -> str:
        return version


class SavedPairs:
    """Searches among versions of which the third is slow, and what they measured; some pairs lack their second side."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._store, self._machine = Store(folder), Machine(seed=2)
        self.measured: list[str] = []
        self.incomplete: dict[int, Status] = {}
        monkeypatch.setattr(bisect, "run_study", self._run_study)

    def _run_study(self, *_: object, store: Store, header: Header) -> StudyDocument:
        version = header.tags[-1].partition("=")[2]
        scripts = {"torch": Script(0.020), "tf": Script(0.030 if int(version) >= 3 else 0.020)}
        document = self._machine.measure(scripts, processes=3, baseline="torch/cpu")
        if (status := self.incomplete.get(len(self.measured))) is not None:
            document.results[1] = unmeasured("tf/cpu", status, "no step time")
        second = f"{len(self.measured):02d}"
        header_fields = {"host": header.host, "tags": [*header.tags]}
        header_fields |= {"id": f"20260101-0000{second}-abcd", "created": f"2026-01-01T00:00:{second}+00:00"}
        save_document(store, document := msgspec.structs.replace(document, **header_fields))
        self.measured.append(version)
        return document

    def search(self, last: str) -> BisectDocument:
        source, study = cast("Versions", Numbers()), Study(engines=("tf",))
        return run_bisect(source, ("0", last), study, NullProgress(), store=self._store)


@pytest.fixture
def saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SavedPairs:
    return SavedPairs(tmp_path, monkeypatch)


def test_saved_pairs_are_those_of_the_same_ends(saved: SavedPairs) -> None:
    assert saved.search("16").version == "3"
    pairs = [*saved.measured]
    again = saved.search("16")
    assert again.version == "3"
    assert [pair.version for pair in again.pairs] == saved.measured == pairs
    assert saved.search("8").version == "3"
    assert "8" in saved.measured[len(pairs) :]


def test_saved_pairs_are_those_of_the_same_machine(saved: SavedPairs, monkeypatch: pytest.MonkeyPatch) -> None:
    saved.search("16")
    pairs = [*saved.measured]
    other = msgspec.structs.replace(bisect.host.this_host(), hostname="other")
    monkeypatch.setattr(bisect.host, "this_host", lambda: other)
    assert saved.search("16").version == "3"
    assert len(saved.measured) > len(pairs)


@pytest.mark.parametrize("status", ["interrupted", "failed"])
def test_a_saved_pair_of_which_one_side_has_no_step_time_is_measured_again(saved: SavedPairs, status: Status) -> None:
    saved.incomplete = {4: status}
    stopped = saved.search("16")
    assert stopped.interrupted == (status == "interrupted")
    assert (saved.measured[4] in stopped.skipped) == (status == "failed")
    again = saved.search("16")
    assert (again.interrupted, again.version) == (False, "3")


def test_the_table_of_each_outcome() -> None:
    pairs = [BisectPair(version="b", study="s", ratio=1.1)] * 3
    found = BisectDocument(
        subject="torch", engine="torch", versions=["a", "b"], pairs=pairs, processes=5, version="b", previous="a",
        probability=1.0, ratio=1.1, ci95=(1.08, 1.12),
    )  # fmt: skip
    text = render(found, "table")
    assert "slower since b: the step time changed by +10.0% [+8.0%, +12.0%] over a; 3 pairs" in " ".join(text.split())
    assert render(found, "csv").splitlines() == ["version,study,ratio", *["b,s,1.1"] * 3]
    equal = search(["a", "b"], [], lambda version: BisectPair(version=version, study="s", ratio=1.0))
    assert len(equal.pairs) == 6
    assert "b does not differ measurably from a" in " ".join(render(equal, "table").split())
