"""`polybench history`: cells over time, their steps, what is known of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from typer.testing import CliRunner

from polybench.cli import app
from polybench.core.errors import BadInput
from polybench.core.steps import Piece, pieces
from polybench.report import history as over_time
from polybench.report.anonymous import UNKNOWN_HOST
from polybench.report.saved_studies import Store
from tests.factories import WORKLOAD, measured, study


def run(*arguments: str) -> str:
    result = CliRunner().invoke(app, ["history", *arguments])
    assert result.exit_code == 0, result.output
    return result.stdout


def series(*arguments: str) -> list[dict[str, Any]]:
    document = json.loads(run(*arguments, "--format", "json"))
    assert document["schema"] == "polybench.history/1"
    found: list[dict[str, Any]] = document["series"]
    return found


def save(
    folder: Path,
    day: int,
    seconds: float,
    version: str = "0.16.9",
    host: dict[str, Any] | None = None,
    **changes: Any,
) -> None:
    document = study(
        measured("flux/cpu", seconds, versions={"Flux": version, "build": {"x": 1}}), measured("tf/cpu", 0.02)
    )
    document.host = msgspec.structs.replace(document.host, **(host or {}))
    settings = msgspec.structs.replace(document.settings, **changes)
    name, created = f"202601{day:02d}", f"2026-01-{day:02d}T10:00:00+00:00"
    Store(folder).save(msgspec.structs.replace(document, id=name, created=created, settings=settings))


@pytest.fixture
def folder(own_folders: Path) -> Path:
    found = own_folders / "results"
    for day, seconds in enumerate((0.0400, 0.0402, 0.0399, 0.0401), start=1):
        save(found, day, seconds)
    for day, seconds in enumerate((0.0250, 0.0252, 0.0249), start=5):
        save(found, day, seconds, "0.16.10\x1b[2J")
    return found


def test_a_step_has_its_study_factor_and_versions(folder: Path) -> None:
    (flux,) = series("--engine", "flux", "--model", "lenet")
    assert [point["study"] for point in flux["points"]] == [f"202601{day:02d}" for day in range(1, 8)]
    (step,) = flux["steps"]
    assert (step["study"], step["before"], step["acknowledged"]) == ("20260105", "20260104", False)
    assert step["ratio"] == pytest.approx(1.6, rel=0.01)
    assert step["changed"] == {"Flux": ["0.16.9", "0.16.10\x1b[2J"]}
    assert flux["points"][4]["level"] == pytest.approx(0.025, rel=0.01)
    (tf,) = series("--engine", "tf")
    assert tf["steps"] == []


def test_the_line_is_drawn_with_versions_beside_it(folder: Path) -> None:
    text = run("--engine", "flux")
    assert text.startswith("flux/cpu: lenet, synthetic, batch 128, fp32, 2 threads, on host (Some CPU")
    lines = text.splitlines()
    first, fourth, fifth = (
        next(line for line in lines if f"202601{day}" in line) for day in ("01", "04", "05")
    )
    assert "polybench 0.1.0, Flux 0.16.9" in first
    assert fourth.index("o") > fifth.index("o")
    assert "* Flux 0.16.9 -> 0.16.10\\x1b[2J" in fifth
    assert "* faster since 20260105, by a factor of 1.60: Flux 0.16.9 -> 0.16.10" in " ".join(text.split())
    assert "no step" in run("--engine", "tf")


def test_a_step_is_told_once(folder: Path) -> None:
    assert "acknowledged step" in run("--engine", "flux", "--acknowledge", "20260105")
    text = run("--engine", "flux")
    assert "faster since" not in text
    assert "1 acknowledged step (*)" in text
    (flux,) = series("--engine", "flux")
    assert [step["acknowledged"] for step in flux["steps"]] == [True]
    for day in range(8, 11):  # another step is another matter
        save(folder, day, 0.05, "0.17")
    (flux,) = series("--engine", "flux")
    assert [step["acknowledged"] for step in flux["steps"]] == [True, False]
    (folder / "history" / "20260105.json").write_text("damaged")
    (flux,) = series("--engine", "flux")
    assert [step["acknowledged"] for step in flux["steps"]] == [False, False]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("20260104", "no step begins at 20260104; a step begins at: 20260105"),
        ("last", "no step begins at 20260107; a step begins at: 20260105"),
        ("2027", "no study '2027'"),
        ("202601", "is the beginning of 7 studies"),
        ("", "is the beginning of 7 studies"),
    ],
)
def test_where_no_step_begins_there_is_nothing_to_acknowledge(
    folder: Path, tmp_path: Path, name: str, message: str
) -> None:
    output = tmp_path / "history.txt"
    error = CliRunner().invoke(app, ["history", "--acknowledge", name, "--output", str(output)]).exception
    assert isinstance(error, BadInput)
    assert message in str(error)
    assert not output.exists()


def test_what_is_acknowledged_is_known_at_once_and_all_is_fitted_once(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fitted = []

    def counted(*given: Any) -> list[Piece]:
        fitted.append(given)
        return pieces(*given)

    monkeypatch.setattr(over_time, "pieces", counted)
    (flux,) = series("--engine", "flux", "--acknowledge", "20260105")
    assert [step["acknowledged"] for step in flux["steps"]] == [True]
    assert len(fitted) == 1
    (flux,) = series("--engine", "flux")
    assert [step["acknowledged"] for step in flux["steps"]] == [True]


def test_what_is_not_alike_is_another_series(folder: Path) -> None:
    save(folder, 20, 0.1, heap="system")
    save(folder, 21, 0.1, heap="system")
    two, one = sorted(series("--engine", "flux"), key=lambda one: len(one["points"]))
    assert (two["other"], one["other"]) == ("heap system", "heap keep")
    assert len(one["points"]) == 7


@pytest.mark.parametrize(
    ("host", "other", "before"),
    [({"cores": 64}, "cores 64", "cores 2"), ({"gpus": ["H100"]}, "gpus H100", "gpus none")],
)
def test_machines_of_one_name_are_told_apart(
    folder: Path, host: dict[str, Any], other: str, before: str
) -> None:
    save(folder, 20, 0.1, host=host)
    two, one = sorted(series("--engine", "flux"), key=lambda one: len(one["points"]))
    assert (two["other"], one["other"]) == (other, before)


def test_what_only_other_workloads_differ_in_is_not_said(folder: Path) -> None:
    document = study(measured("flux/cpu", 0.5, workload=msgspec.structs.replace(WORKLOAD, model="rosetta")))
    document.settings.data_sha256 = "f" * 64
    Store(folder).save(msgspec.structs.replace(document, id="20260120"))
    assert [one["other"] for one in series("--engine", "flux")] == ["", ""]


def test_anonymous_studies_may_be_of_any_machines_and_have_no_steps(folder: Path) -> None:
    for day in range(20, 24):
        save(folder, day, 0.04 if day < 22 else 0.02, host={"hostname": UNKNOWN_HOST})
    anonymous = [one for one in series("--engine", "flux") if one["hostname"] == UNKNOWN_HOST]
    assert [len(one["points"]) for one in anonymous] == [1] * 4
    assert not any(one["steps"] for one in anonymous)


def test_filters_choose_studies_and_cells(folder: Path) -> None:
    assert len(series()) == 2
    (flux,) = series("--version", "flux=0.16.9")
    assert (flux["cell"], len(flux["points"])) == ("flux/cpu", 4)
    (flux,) = series("--engine", "flux", "--since", "2026-01-05")
    assert len(flux["points"]) == 3
    assert run("--engine", "jax") == "no ranked cell of a saved study is like that\n"


def test_only_so_many_studies_are_looked_at(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(over_time, "MOST", 5)
    (flux,) = series("--engine", "flux")
    assert (flux["points"][0]["study"], flux["left_out"]) == ("20260103", 2)
    assert "2 earlier ones left out" in run("--engine", "flux")


def test_one_process_has_no_interval_and_counts_little(folder: Path) -> None:
    document = study(measured("flux/cpu", 0.04, processes=1, versions={"Flux": "0.16.9"}))
    Store(folder).save(msgspec.structs.replace(document, id="20260130", created="2026-01-30"))
    (flux,) = series("--engine", "flux")
    assert flux["points"][-1]["interval95"] is None
    assert len(flux["steps"]) == 1
    assert "(one process)" in run("--engine", "flux")
