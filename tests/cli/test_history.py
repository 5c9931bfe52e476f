"""`polybench history`: configurations over time, and change points."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from polybench.analysis import history as over_time
from polybench.schema.metadata import UNKNOWN_HOST
from polybench.storage.store import Store
from tests.commands import printed, printed_json
from tests.factories import DISTURBED, WORKLOAD, measured, study
from tests.log_of import save_document


def series(*arguments: str) -> list[dict[str, Any]]:
    document = printed_json("history", *arguments)
    assert document["schema"] == "polybench.history/2"
    found: list[dict[str, Any]] = document["series"]
    return found


def save(
    folder: Path, day: int, seconds: float, version: str = "0.16.9", host: dict[str, Any] | None = None, **changes: Any
) -> None:
    document = study(
        measured("flux/cpu", seconds, versions={"Flux": version, "build": {"x": "1"}}), measured("tf/cpu", 0.02)
    )
    document.host = msgspec.structs.replace(document.host, **(host or {}))
    settings = msgspec.structs.replace(document.settings, **changes)
    name, created = f"202601{day:02d}", f"2026-01-{day:02d}T10:00:00+00:00"
    save_document(Store(folder), msgspec.structs.replace(document, id=name, created=created, settings=settings))


@pytest.fixture
def folder(own_folders: Path) -> Path:
    found = own_folders / "results"
    for day, seconds in enumerate((0.0400, 0.0402, 0.0399, 0.0401), start=1):
        save(found, day, seconds)
    for day, seconds in enumerate((0.0250, 0.0252, 0.0249), start=5):
        save(found, day, seconds, "0.16.10\x1b[2J")
    return found


def test_a_change_point_has_its_study_ratio_and_versions(folder: Path) -> None:
    (flux,) = series("--engine", "flux", "--model", "lenet")
    assert [point["study"] for point in flux["points"]] == [f"202601{day:02d}" for day in range(1, 8)]
    (change,) = flux["change_points"]
    assert (change["study"], change["previous_study"]) == ("20260105", "20260104")
    assert change["ratio"] == pytest.approx(1.6, rel=0.01)
    assert change["changed"] == {"Flux": ["0.16.9", "0.16.10\x1b[2J"]}
    assert flux["points"][4]["segment_level"] == pytest.approx(0.025, rel=0.01)
    (tf,) = series("--engine", "tf")
    assert tf["change_points"] == []


def test_a_change_of_the_version_is_not_in_the_spread_between_studies(folder: Path) -> None:
    (flux,) = series("--engine", "flux")
    assert flux["spread"]["repetitions"] == len(flux["points"]) - 2


def test_changed_versions_are_beside_the_step_times(folder: Path) -> None:
    text = printed("history", "--engine", "flux")
    assert text.startswith("flux/cpu: lenet, synthetic, batch 128, fp32, 2 threads, on host (Some CPU")
    lines = text.splitlines()
    first, fifth = (next(line for line in lines if f"202601{day}" in line) for day in ("01", "05"))
    assert "polybench 0.1.0, Flux 0.16.9" in first
    assert "* Flux 0.16.9 -> 0.16.10\\x1b[2J" in fifth
    words = " ".join(text.split())
    assert re.search(r"\* faster by a factor of 1.60 \(1.5\d to 1.6\d\) since 20260105: Flux 0.16.9 -> 0.16.10", words)
    assert "without the machine's drift, which tf/cpu shows" in words


def test_a_series_without_a_change_point_says_what_is_known(folder: Path) -> None:
    half = "no change point; from the first half of the studies to the second: "
    found = " ".join(printed("history", "--engine", "tf", "--tolerance", "2%").split())
    assert half + "no difference above 2.0%" in found
    found = " ".join(printed("history", "--engine", "tf", "--tolerance", "0.1%").split())
    assert half + "cannot tell: between " in found
    (tf,) = series("--engine", "tf", "--tolerance", "0.1%")
    assert (tf["verdict"], tf["reason"][:7]) == ("cannot tell", "between")
    assert [one["verdict"] for one in series("--engine", "flux")] == [None]
    save(folder, 30, 0.1, data_sha256="f" * 64)
    assert "cannot tell: fewer than two studies with an interval" in " ".join(printed("history").split())


@pytest.mark.parametrize(
    ("changes", "other", "before"),
    [
        ({"malloc": "system"}, "malloc system", "malloc retain"),
        ({"pinned_cpus": [0, 2]}, "pinned CPUs True", "pinned CPUs False"),
        ({"host": {"cores": 64}}, "cores 64", "cores 2"),
        ({"host": {"gpus": ["H100"]}}, "gpus H100", "gpus none"),
    ],
)
def test_other_settings_or_another_machine_of_the_same_name_make_another_series(
    folder: Path, changes: dict[str, Any], other: str, before: str
) -> None:
    save(folder, 20, 0.1, **changes)
    two, one = sorted(series("--engine", "flux"), key=lambda one: len(one["points"]))
    assert (two["distinguishing_settings"], one["distinguishing_settings"]) == (other, before)
    assert len(one["points"]) == 7


def test_settings_that_differ_between_workloads_only_are_not_listed(folder: Path) -> None:
    document = study(measured("flux/cpu", 0.5, workload=msgspec.structs.replace(WORKLOAD, model="dlframeworks-cnn")))
    document.settings.data_sha256 = "f" * 64
    save_document(Store(folder), msgspec.structs.replace(document, id="20260120"))
    assert [one["distinguishing_settings"] for one in series("--engine", "flux")] == ["", ""]


def test_anonymous_studies_are_never_joined_and_have_no_change_points(folder: Path) -> None:
    for day in range(20, 24):
        save(folder, day, 0.04 if day < 22 else 0.02, host={"hostname": UNKNOWN_HOST})
    anonymous = [one for one in series("--engine", "flux") if one["hostname"] == UNKNOWN_HOST]
    assert [len(one["points"]) for one in anonymous] == [1] * 4
    assert not any(one["change_points"] for one in anonymous)


def test_filters_select_studies_and_configurations(folder: Path) -> None:
    assert len(series()) == 2
    (flux,) = series("--version", "flux=0.16.9")
    assert (flux["configuration"], len(flux["points"])) == ("flux/cpu", 4)
    (flux,) = series("--engine", "flux", "--since", "2026-01-05")
    assert len(flux["points"]) == 3
    assert printed("history", "--engine", "jax") == "no ranked configuration of a saved study matches\n"


def test_a_series_has_a_maximum_length(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(over_time, "MAX_STUDIES", 5)
    (flux,) = series("--engine", "flux")
    assert (flux["points"][0]["study"], flux["excluded"]) == ("20260103", 2)
    assert "2 earlier studies excluded" in printed("history", "--engine", "flux")


def test_one_process_has_no_interval_and_little_weight(folder: Path) -> None:
    document = study(measured("flux/cpu", 0.04, processes=1, versions={"Flux": "0.16.9"}))
    save_document(Store(folder), msgspec.structs.replace(document, id="20260130", created="2026-01-30"))
    (flux,) = series("--engine", "flux")
    assert flux["points"][-1]["ci95"] is None
    assert len(flux["change_points"]) == 1
    assert "(one process)" in printed("history", "--engine", "flux")


def test_a_change_within_the_tolerance_is_no_change_point(folder: Path) -> None:
    for tolerance, changes in (("50%", 1), ("70%", 0)):
        (flux,) = series("--engine", "flux", "--tolerance", tolerance)
        assert len(flux["change_points"]) == changes


def test_studies_of_other_data_make_another_series(folder: Path) -> None:
    save(folder, 20, 0.1, data_sha256="f" * 64)
    assert sorted(len(one["points"]) for one in series("--engine", "flux")) == [1, 7]


def test_what_changes_every_engine_is_the_machine(own_folders: Path) -> None:
    for day in range(1, 9):
        slow = 1.3 if day > 4 else 1.0
        flux = measured("flux/cpu", 0.04 * slow * (1.5 if day > 6 else 1.0))
        document = study(flux, *(measured(f"{name}/cpu", 0.02 * slow) for name in ("tf", "jax")))
        save_document(
            Store(own_folders / "results"),
            msgspec.structs.replace(document, id=f"2026010{day}", created=f"2026-01-0{day}"),
        )
    changed, tf, jax = series()
    assert [change["study"] for change in changed["change_points"]] == ["20260107"]
    assert changed["change_points"][0]["ratio"] == pytest.approx(1 / 1.5)
    assert changed["controls"] == ["tf/cpu", "jax/cpu"]
    ratios = [point["machine_drift_ratio"] for point in changed["points"]]
    assert ratios[0] / ratios[4] == pytest.approx(1.3)
    # Nothing changed about the controls themselves.
    assert (tf["change_points"], jax["change_points"]) == ([], [])
    (alone,) = series("--engine", "flux")
    assert alone["controls"] == ["tf/cpu", "jax/cpu"]


def test_a_study_with_interference_makes_no_change_point(folder: Path) -> None:
    affected_result = measured(
        "flux/cpu", 0.08, versions={"Flux": "0.16.10\x1b[2J", "build": {"x": "1"}}, interference=DISTURBED
    )
    for day in ("28", "29", "30"):
        save_document(
            Store(folder), msgspec.structs.replace(study(affected_result), id=f"202601{day}", created=f"2026-01-{day}")
        )
    (flux,) = series("--engine", "flux")
    assert [change["study"] for change in flux["change_points"]] == ["20260105"]


def test_studies_with_interference_hide_no_change_point(folder: Path) -> None:
    disturbed = measured("flux/cpu", 0.08, interference=DISTURBED)
    for hour in ("11", "12", "13"):
        saved = msgspec.structs.replace(study(disturbed), id=f"20260104{hour}", created=f"2026-01-04T{hour}:00:00")
        save_document(Store(folder), saved)
    (flux,) = series("--engine", "flux")
    (change,) = flux["change_points"]
    assert 1.58 < change["ratio"] < 1.62
