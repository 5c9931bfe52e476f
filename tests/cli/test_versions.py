"""`polybench versions`: errors; tests/test_action.py has the comparison of two commits."""

from __future__ import annotations

from pathlib import Path

from tests.commands import refused
from tests.versioned_package import write_package


def test_invalid_requests_are_refused_before_anything_is_built(tmp_path: Path) -> None:
    base, _head = write_package(tmp_path / "package", [1.0, 1.1])
    given = ("--checkout", tmp_path / "package", "--engines", "fake")
    assert "no commit 'missing'" in refused("versions", base, "missing", *given)
    assert "expected either" in refused("versions", "a", "b", "--engines", "fake")
    assert "expected one engine" in refused("versions", base, "main", *given, "--engines", "fake,torch")
    assert "expected one device" in refused("versions", base, "main", *given, "--precision", "fp32,bf16")
    assert "expected VERDICT=PERCENT" in refused("versions", base, "main", *given, "--fail-if", "slower")


def test_a_version_is_not_compared_with_itself(tmp_path: Path) -> None:
    (commit,) = write_package(tmp_path / "package", [1.0])
    message = refused("versions", commit, "main", "--checkout", tmp_path / "package", "--engines", "fake")
    assert "are the same version" in message
