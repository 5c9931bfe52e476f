"""`polybench diff`: verdicts, formats, exit codes."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from typer.testing import Result

import polybench
from polybench.analysis.diff import TOLERANCE
from polybench.errors import BadInput
from polybench.stats.between_studies import ASSUMED_STD
from polybench.storage.store import Store
from tests.analysis.test_diff import SHIFTS, both, slow_down
from tests.commands import invoke, printed_json, refused
from tests.factories import measured, study
from tests.log_of import save_document

NEW = {"versions": {"torch": "2.13.0\x1b[2J"}}


@pytest.fixture(autouse=True)
def saved(own_folders: Path) -> None:
    store = Store(own_folders / "results")
    save_document(store, both(0.0100))
    save_document(
        store, msgspec.structs.replace(both(0.0150, **NEW), id="20260202-new", created="2026-02-02T00:00:00Z")
    )
    save_document(store, msgspec.structs.replace(study(measured("torch/cpu", 0.01, processes=1)), id="20240202-one"))
    save_document(
        store, msgspec.structs.replace(slow_down(both(0.0160, versions={"torch": "3"}), 1.2), id="20270202-hot")
    )


def run(*arguments: str) -> Result:
    return invoke("diff", *arguments)


def test_the_text_lists_changes_and_then_verdicts() -> None:
    result = run("2025", "last")
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert lines[0].startswith("A: 20250101-000000-abcd on host")
    assert lines[3:6] == ["Changes:", "", "  torch/cpu: torch: 2.12.0 -> 2.13.0\\x1b[2J"]
    torch, tf = lines[9:11]
    assert torch.split()[:3] == ["torch/cpu", "10.0", "ms"]
    assert torch.endswith("slower")
    assert tf.endswith("cannot tell")
    assert "1 slower, 1 cannot tell; tolerance 1%" in result.stdout


def test_json_and_csv_have_ratio_interval_and_changes() -> None:
    document: dict[str, Any] = printed_json("diff", "2025", "2026")
    assert (document["schema"], document["tolerance"]) == ("polybench.diff/2", TOLERANCE)
    torch, _ = document["rows"]
    assert (torch["verdict"], torch["changed"]["torch"][0]) == ("slower", "2.12.0")
    assert torch["ci95"][0] < torch["ratio"] < torch["ci95"][1]
    assert torch["corrected_ci95"][0] < torch["corrected_ratio"] < torch["corrected_ci95"][1] < 1
    assert torch["controls"] == ["tf/cpu"]
    assert (torch["spread"]["repetitions"], torch["spread"]["std"]) == (0, ASSUMED_STD)
    lines = run("2025", "2026", "--format", "csv").stdout.splitlines()
    assert lines[0].startswith("configuration,verdict,reason,step_seconds_a,step_seconds_b,ratio,low,high,")
    assert lines[1].startswith("torch/cpu,slower,,0.0")
    record = dict(zip(lines[0].split(","), next(csv.reader(lines[1:])), strict=True))
    assert (record["spread"], record["repetitions"]) == (str(ASSUMED_STD), "0")
    assert "| torch/cpu " in run("2025", "2026", "--format", "markdown").stdout


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["2025", "2026", "--fail-if", "slower=5%"], 1),
        (["2025", "2026", "--fail-if", "slower=51%"], 0),
        (["2025", "2026", "--fail-if", "faster=5%"], 0),
        (["2026", "2025", "--fail-if", "faster=5%"], 1),
        (["2025", "2026", "--fail-if", "slower=5%", "--tolerance", "51%"], 0),
        (["2025", "2024", "--fail-if", "slower=5%"], 4),
        (["2025", "2024"], 0),
        (["2025", "2027", "--fail-if", "slower=61%"], 0),
        (["2025", "2027", "--fail-if", "slower=20%"], 1),
    ],
)
def test_fail_if_sets_the_exit_code(arguments: list[str], code: int) -> None:
    result = run(*arguments)
    assert result.exit_code == code, result.output
    if code == 1:
        assert "torch/cpu is " in result.stderr


def test_fail_if_uses_the_change_corrected_for_machine_drift() -> None:
    result = run("2025", "2027", "--fail-if", "slower=20%")
    assert "torch/cpu is slower by 60.0%, corrected for machine drift\n" in result.stderr
    torch, _ = printed_json("diff", "2025", "2027")["rows"]
    assert torch["ratio"] == pytest.approx(1 / 1.2 / 1.6)
    assert torch["machine_drift_ratio"] == pytest.approx(1 / 1.2)
    assert torch["corrected_ratio"] == pytest.approx(1 / 1.6)
    assert "torch/cpu is slower by 50.0%\n" in run("2025", "2026", "--fail-if", "slower=5%").stderr
    assert "torch/cpu is faster by 33.3%\n" in run("2026", "2025", "--fail-if", "faster=5%").stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["2025", "nowhere"], "no study 'nowhere'"),
        (["2025", "2026", "--fail-if", "slow=5%"], "did you mean 'slower'"),
        (["2025", "2026", "--fail-if", "slower"], "expected VERDICT=PERCENT"),
        (["2025", "2026", "--format", "svg"], "unknown format 'svg'"),
    ],
)
def test_bad_input_has_a_message(arguments: list[str], message: str) -> None:
    assert message in refused("diff", *arguments)


def test_python_returns_the_same_verdicts() -> None:
    new = polybench.load("2026")
    result = polybench.diff("2025", new)
    assert [row["verdict"] for row in result.rows()] == ["slower", "cannot tell"]
    assert json.loads(result.to_json())["b"]["id"] == new.document.id
    assert "Changes:\n" in str(result)
    assert "| torch/cpu" in result._repr_markdown_()
    assert list(result.to_pandas().index) == ["torch/cpu", "tf/cpu"]
    assert polybench.diff("2025", new, tolerance=0.6).rows()[0]["verdict"] == "cannot tell"
    with pytest.raises(BadInput, match="expected a fraction between 0 and 1"):
        polybench.diff("2025", new, tolerance=5)


def test_hosts_may_be_declared_one_machine(own_folders: Path) -> None:
    moved = msgspec.structs.replace(both(0.0150, **NEW), id="20280202-moved")
    moved.host.hostname = "container-2"
    save_document(Store(own_folders / "results"), moved)
    arguments = ("2025", "2028", "--fail-if", "slower=5%")
    assert run(*arguments).exit_code == 4
    assert run(*arguments, "--same-machine").exit_code == 1


def test_saved_studies_tell_how_much_studies_of_the_machine_differ(own_folders: Path) -> None:
    for number, shift in enumerate(SHIFTS):
        repetition = slow_down(both(0.0100), 1 + shift)
        save_document(
            Store(own_folders / "results"), msgspec.structs.replace(repetition, id=f"2019010{number}-repetition")
        )
    torch, _ = printed_json("diff", "2025", "2026")["rows"]
    assert torch["spread"]["repetitions"] >= len(SHIFTS)
