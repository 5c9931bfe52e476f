"""The table of tested platforms, and its sources."""

from __future__ import annotations

import msgspec
import pytest

from polybench.schema.parity import ParityCheck
from polybench.schema.result import Result
from polybench.schema.study import StudyDocument
from tests import factories
from tests.tested_on_table import ran, table

PASSED = ParityCheck("pass")


def study(*results: Result, gpus: tuple[str, ...] = ("NVIDIA X",), day: str = "2026-11-05") -> StudyDocument:
    made = factories.study(*results)
    host = msgspec.structs.replace(made.host, cpu="Some(R)  CPU", gpus=list(gpus))
    return msgspec.structs.replace(made, host=host, created=f"{day}T10:00:00+00:00")


def row(configuration: str, *studies: StudyDocument) -> str:
    lines = table({"torch"}, studies).splitlines()
    return next(line for line in lines if line.startswith(f"| `{configuration}` |")).partition("` | ")[2]


def test_an_engine_without_tests_and_studies_has_never_been_run() -> None:
    assert row("torch") == "by the tests | never run |"
    assert row("torch+compile") == "never run | never run |"
    assert row("torch+cudagraph") == "- | never run |"
    assert row("keras") == "never run | - |"


def test_a_study_gives_hardware_and_newest_date() -> None:
    measured = factories.measured("torch/cuda", 1.0, parity=PASSED)
    older = study(measured, factories.measured("torch/cpu", 1.0, parity=PASSED))
    newer = study(measured, day="2026-12-01")
    expected = "by the tests; by hand on Some(R) CPU, 2026-11-05 | by hand on NVIDIA X, 2026-12-01 |"
    assert row("torch", older, newer) == row("torch", newer, older) == expected


def test_variants_that_ran_together_have_a_row() -> None:
    result = factories.measured("torch/cuda", 1.0, parity=PASSED)
    result.variant, result.device = "channels_last+compile", "cuda:1"
    assert row("torch+channels_last+compile", study(result, gpus=("NVIDIA X", "NVIDIA Y"))) == (
        "never run | by hand on NVIDIA Y, 2026-11-05 |"
    )


@pytest.mark.parametrize(
    "result",
    [
        factories.measured("torch/cuda", 1.0, parity=ParityCheck("fail")),
        factories.measured("torch/cuda", 1.0, parity=ParityCheck("skipped")),
        factories.unmeasured("torch/cuda", "unavailable", "no NVIDIA driver"),
    ],
)
def test_failed_or_unchecked_configurations_do_not_count(result: Result) -> None:
    assert row("torch", study(result)) == "by the tests | never run |"


def test_the_program_and_the_docs_agree_about_cuda() -> None:
    """`polybench engines` reads no saved studies, so its texts follow the table."""
    from polybench.engines import ENGINES

    for line in ran().splitlines()[2:]:
        configuration, _, on_cuda = (part.strip(" `") for part in line.strip("|").split("|"))
        if configuration in ENGINES and on_cuda != "-":
            assert ("has not been tested" in ENGINES[configuration].runs_on) == (on_cuda == "never run"), configuration
