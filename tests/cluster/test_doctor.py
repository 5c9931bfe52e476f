"""Diagnosis of a cluster's machines, with a scripted executor."""

from __future__ import annotations

import json
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from polybench.cli import app
from polybench.cluster import doctor
from polybench.cluster.messages import Diagnosed, Finished, Rejected, Started
from tests.cluster.scripted_executor import CTRL_C, NODE_GONE, ScriptedExecutor

MACHINE = {
    "python": "3.12.1", "usable_threads": 4, "cores": 8, "available_memory_bytes": 1 << 30, "gpus": [],
    "other_cpu_percent": 120.0, "idle": False,
}  # fmt: skip
TORCH = {"runs": True, "versions": {"torch": "2.9"}, "devices": ["cpu", "cuda"]}
MISSING = {"runs": False, "reason": "no", "hint": "pip"}


def report(**engines: Any) -> dict[str, Any]:
    return {"polybench": "0.1.0", "machine": MACHINE, "engines": engines}


def run(monkeypatch: pytest.MonkeyPatch, executor: ScriptedExecutor, *more: str) -> Result:
    monkeypatch.setattr(doctor, "make_executor", lambda target, upload: executor)
    return CliRunner().invoke(app, ["doctor", "--on", "auto", *more])


def test_every_machine_has_a_row_or_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    messages = [Started(hostname="host-a"), Diagnosed(report(torch=TORCH, jax=MISSING)), Finished()]
    rejected, error = Rejected("it has polybench 0.0.1", 2), "b: it has polybench 0.0.1"
    executor = ScriptedExecutor(error=error, a=[messages] * 2, b=[[rejected]] * 2, c=[[NODE_GONE]] * 2, d=[])
    result = run(monkeypatch, executor, "--format", "json")
    assert result.exit_code == 0
    found = json.loads(result.stdout)
    assert (found["target"], found["error"], found["interrupted"]) == ("auto", error, False)
    assert [(one["machine"], one["hostname"], one["error"]) for one in found["machines"]] == [
        ("a", "host-a", None),
        ("b", None, "it has polybench 0.0.1"),
        ("c", None, "the node is gone"),
        ("d", None, "no script is left"),
    ]
    assert found["machines"][0]["report"] == report(torch=TORCH, jax=MISSING)
    assert all(task.diagnose and host == f"host-{label}" for label, task, host in executor.started)

    text = run(monkeypatch, executor).stdout
    configurations = [part.strip() for part in text.splitlines()[2].split("  ") if part.strip()]
    assert configurations == [
        *("a", "0.1.0", "3.12.1", "4 of 8 cores", "1.00 GiB", "none", "120 % of a core,"),
        *("2.9 cpu,cuda", "missing"),
    ]
    assert text.splitlines()[3].split() == ["BUSY"]
    assert "b: it has polybench 0.0.1" in text
    assert "a study on all of these machines would be rejected: b: it has polybench 0.0.1" in text


def test_exit_code_is_4_if_no_engine_works(monkeypatch: pytest.MonkeyPatch) -> None:
    nothing = report(jax=MISSING, reference={"runs": True, "versions": {}, "devices": ["cpu"]})
    executor = ScriptedExecutor(warnings=["Ray has no authentication"], a=[[Diagnosed(nothing), Finished()]])
    result = run(monkeypatch, executor)
    assert result.exit_code == 4
    assert "Ray has no authentication" in result.stdout


def test_ctrl_c_prints_the_received_reports(monkeypatch: pytest.MonkeyPatch) -> None:
    executor = ScriptedExecutor(a=[[Diagnosed(report(torch=TORCH)), Finished()]], b=[[CTRL_C]])
    result = run(monkeypatch, executor, "--format", "json")
    assert result.exit_code == 130
    found = json.loads(result.stdout)
    assert found["interrupted"]
    assert [one["error"] for one in found["machines"]] == [None, "interrupted before it answered"]
