"""Where the docs say that an engine has run, and how they know."""

from __future__ import annotations

import msgspec
import pytest

from polybench.core.document.identity import Parity
from polybench.core.document.result import Result
from polybench.core.document.study import StudyDocument
from tests import factories
from tests.ran_table import ran, table

PASSED = Parity("pass")


def study(*results: Result, gpus: tuple[str, ...] = ("NVIDIA X",), day: str = "2026-11-05") -> StudyDocument:
    made = factories.study(*results)
    host = msgspec.structs.replace(made.host, cpu="Some(R)  CPU", gpus=list(gpus))
    return msgspec.structs.replace(made, host=host, created=f"{day}T10:00:00+00:00")


def row(cell: str, *studies: StudyDocument) -> str:
    lines = table({"torch"}, studies).splitlines()
    return next(line for line in lines if line.startswith(f"| `{cell}` |")).partition("` | ")[2]


def test_what_neither_a_test_nor_a_study_has_run_is_written_only() -> None:
    assert row("torch") == "by the tests | written only |"
    assert row("torch+compile") == "written only | written only |"
    assert row("torch+cudagraph") == "- | written only |"
    assert row("keras") == "written only | - |"


def test_a_study_says_on_what_and_when_and_the_newest_day_counts() -> None:
    measured = factories.measured("torch/cuda", 1.0, parity=PASSED)
    older = study(measured, factories.measured("torch/cpu", 1.0, parity=PASSED))
    newer = study(measured, day="2026-12-01")
    said = "by the tests; by hand on Some(R) CPU, 2026-11-05 | by hand on NVIDIA X, 2026-12-01 |"
    assert row("torch", older, newer) == row("torch", newer, older) == said


def test_variants_that_ran_together_have_a_row() -> None:
    result = factories.measured("torch/cuda", 1.0, parity=PASSED)
    result.variant, result.device = "channels_last+compile", "cuda:1"
    assert row("torch+channels_last+compile", study(result, gpus=("NVIDIA X", "NVIDIA Y"))) == (
        "written only | by hand on NVIDIA Y, 2026-11-05 |"
    )


@pytest.mark.parametrize(
    "result",
    [
        factories.measured("torch/cuda", 1.0, parity=Parity("fail")),
        factories.measured("torch/cuda", 1.0, parity=Parity("skipped")),
        factories.absent("torch/cuda", "unavailable", "no NVIDIA driver"),
    ],
)
def test_what_failed_or_was_not_checked_has_not_run(result: Result) -> None:
    assert row("torch", study(result)) == "by the tests | written only |"


def test_the_program_says_of_cuda_what_the_docs_say() -> None:
    """`polybench engines` has no saved studies at hand: its words follow the table."""
    from polybench.engines import ENGINES

    for line in ran().splitlines()[2:]:
        cell, _, on_cuda = (part.strip(" `") for part in line.strip("|").split("|"))
        if cell in ENGINES and on_cuda != "-":
            assert ("has not run" in ENGINES[cell].runs_on) == (on_cuda == "written only"), cell
