"""Exit codes, from documents."""

from __future__ import annotations

import pytest

from polybench.commands.outcome import exit_code
from polybench.core.document.identity import Parity
from polybench.core.document.result import Result
from tests.factories import WORKLOAD, measured, study


def absent(status: str) -> Result:
    return Result(
        cell="x/cpu", engine="x", variant=None, device="cpu", workload=WORKLOAD, status=status  # type: ignore[arg-type]
    )  # fmt: skip


def different() -> Result:
    return measured("tf/cpu", 0.01, parity=Parity("fail", "off"))


@pytest.mark.parametrize(
    ("results", "code"),
    [
        ([measured("torch/cpu", 0.01)], 0),
        ([measured("torch/cpu", 0.01), absent("unavailable")], 0),
        ([measured("torch/cpu", 0.01), absent("failed")], 1),
        ([measured("torch/cpu", 0.01), different()], 1),
        ([absent("unavailable")], 4),
        ([absent("unavailable"), absent("failed")], 1),
        ([measured("torch/cpu", 0.01), absent("failed"), absent("interrupted")], 130),
    ],
    ids=[
        "ok",
        "unavailable",
        "failed",
        "different",
        "nothing measured",
        "only failures",
        "interrupted",
    ],
)
def test_exit_codes(results: list[Result], code: int) -> None:
    assert exit_code(study(*results)) == code


def test_parity_alone_is_done_when_it_passed() -> None:
    assert exit_code(study(absent("ok")), parity_only=True) == 4
    passed = absent("ok")
    passed.parity = Parity("pass")
    assert exit_code(study(passed), parity_only=True) == 0
