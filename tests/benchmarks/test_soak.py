"""A short soak test; `python benchmarks/soak.py` is the long one."""

from __future__ import annotations

import pytest
import soak
from _faults import FAULTS


def test_no_fault_loses_measurements(capsys: pytest.CaptureFixture[str]) -> None:
    found = soak.run(studies=2, seconds=60.0, seed=20260801)
    assert not found, capsys.readouterr().out


def test_the_soak_test_finds_leftovers(tmp_path: soak.Path) -> None:
    place = soak.Place(tmp_path)
    (tmp_path / "cache" / "polybench" / "scratch-1").mkdir(parents=True)
    results = tmp_path / "study-0"
    results.mkdir()
    (results / ".half").touch()
    left = " ".join(soak._left(place, 0, results, FAULTS["Ctrl-C"]))
    assert "scratch is left" in left
    assert "half-written" in left
    ended = soak.Ended(7, b"", "Traceback (most recent call last)")
    assert [text.split(":")[0] for text in soak._lost(place, ended, results, FAULTS["Ctrl-C"])] == [
        "a traceback",
        "exit code 7",
    ]
