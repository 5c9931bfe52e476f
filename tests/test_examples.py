"""Every example runs, with tiny settings."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).parent.parent / "examples"


def test_compare_in_python() -> None:
    command = [sys.executable, str(EXAMPLES / "compare_in_python.py"), "synthetic", "fake", "fake+slow"]
    output = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout
    assert output.splitlines()[-1].startswith("fake+slow/cpu")
    assert "times the baseline" in output
