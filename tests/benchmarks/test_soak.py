"""A short soak test; `python benchmarks/soak.py` is the long one."""

from __future__ import annotations

import pytest
import soak


@pytest.mark.wide  # test_failures.py has each fault
def test_no_fault_loses_measurements(capsys: pytest.CaptureFixture[str]) -> None:
    found = soak.run(studies=2, seconds=60.0, seed=20260801)
    assert not found, capsys.readouterr().out
