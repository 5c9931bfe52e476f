"""The spread between a study and its repetitions on other days."""

from __future__ import annotations

import math
from statistics import variance
from typing import Any

import msgspec
import pytest

from polybench.results import repetitions
from polybench.results.repetitions import Repetitions, spread_between_days
from polybench.results.summaries import StudySummary, summarize
from polybench.schema.analyses import RepetitionSpread
from polybench.schema.study import StudyDocument
from polybench.storage.anonymize import anonymize
from tests.factories import measured, study


def measured_on(day: int, torch: float, tf: float, **changes: Any) -> StudyDocument:
    """Return a study of January 2025 with the mean steps of torch, which is the baseline, and of tf."""
    document = study(measured("torch/cpu", torch, **changes), measured("tf/cpu", tf, **changes))
    document.settings.baseline = "torch/cpu"
    return msgspec.structs.replace(document, id=f"202501{day:02}-000000-abcd", created=f"2025-01-{day:02}T10:00:00Z")


def saved(*documents: StudyDocument) -> list[StudySummary]:
    return [summarize(one) for one in documents]


THIS = measured_on(4, 0.020, 0.010)
SLOWER = measured_on(5, 0.024, 0.012)
"""The whole machine is slower on that day; the ratio is the same."""
OTHER_RATIO = measured_on(6, 0.020, 0.0104)


def test_the_spread_of_speeds_leaves_out_what_slows_all_engines() -> None:
    assert spread_between_days(THIS, saved(THIS, SLOWER)) == RepetitionSpread("speeds", pytest.approx(0.0), 2)
    found = spread_between_days(THIS, saved(THIS, SLOWER, OTHER_RATIO))
    # The logs of the three ratios are 0, 0 and log 1.04 away from that of this study.
    assert found == RepetitionSpread("speeds", pytest.approx(0.03922 / 3**0.5, rel=1e-3), 3)
    assert found.description == "Between 3 studies on different days, speeds vary by ±2.3% (standard deviation)"


def test_a_single_engine_has_a_spread_of_mean_steps() -> None:
    one, two = (msgspec.structs.replace(document, results=document.results[1:]) for document in (THIS, SLOWER))
    found = spread_between_days(one, saved(one, two))
    assert found == RepetitionSpread("mean steps", pytest.approx(0.18232 / 2**0.5, rel=1e-3), 2)


def test_engines_share_one_spread_by_their_degrees_of_freedom() -> None:
    more, again = (
        msgspec.structs.replace(one, results=[*one.results, measured("jax/cpu", seconds)])
        for one, seconds in ((THIS, 0.010), (SLOWER, 0.012 * 1.1))
    )
    found = spread_between_days(more, saved(more, again, OTHER_RATIO))
    squares = 2 * (0.03922**2 / 3) + 0.09531**2 / 2  # tf in three studies, jax in two
    assert found == RepetitionSpread("speeds", pytest.approx((squares / 3) ** 0.5, rel=1e-3), 3)


@pytest.mark.parametrize(
    "other",
    [
        THIS,
        msgspec.structs.replace(OTHER_RATIO, created="2025-01-04T23:00:00Z"),  # the same day
        measured_on(5, 0.02, 0.01, versions={"torch": "2.12"}),
        measured_on(5, 0.02, 0.01, processes=1),
        anonymize(SLOWER),
    ],
)
def test_without_a_repetition_on_another_day_there_is_no_spread(other: StudyDocument) -> None:
    assert spread_between_days(THIS, saved(other)) is None
    assert spread_between_days(anonymize(THIS), saved(anonymize(SLOWER))) is None


def test_the_spread_between_studies_leaves_out_that_of_their_processes() -> None:
    steps = [0.0200, 0.0206] * 3
    documents = [measured_on(day, seconds, 0.01) for day, seconds in enumerate(steps, start=1)]
    this, *others = (msgspec.structs.replace(one, results=one.results[:1]) for one in documents)
    found = Repetitions(saved(*others), {"this": this}).spread("this", device="cpu")
    of_processes = 0.01**2 / 3  # variance of the mean over three processes, 1 % apart
    assert found.std == pytest.approx((variance(map(math.log, steps)) - of_processes) ** 0.5, rel=1e-3)


def test_a_study_of_another_machine_is_no_repetition() -> None:
    elsewhere = msgspec.structs.replace(SLOWER, host=msgspec.structs.replace(SLOWER.host, hostname="elsewhere"))
    assert spread_between_days(THIS, saved(elsewhere)) is None


def test_a_repetition_without_the_baseline_has_no_speeds() -> None:
    without = msgspec.structs.replace(SLOWER, results=SLOWER.results[1:])
    assert spread_between_days(THIS, saved(without)) is None


def test_the_spread_between_days_is_that_of_the_newest_studies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repetitions, "MAX_STUDIES", 1)
    found = spread_between_days(THIS, saved(SLOWER, OTHER_RATIO))  # the oldest first, as a store has them
    assert found == RepetitionSpread("speeds", pytest.approx(math.log(1.04) / 2**0.5), 2)


def test_the_spread_between_studies_is_that_of_the_newest_studies(monkeypatch: pytest.MonkeyPatch) -> None:
    documents = [
        measured_on(day, seconds, 0.01) for day, seconds in enumerate([0.010, 0.015, *[0.02] * 5, 0.02], start=1)
    ]
    *others, this = (msgspec.structs.replace(one, results=one.results[:1]) for one in documents)
    stds = []
    for newest in (6, 100):  # with this one
        monkeypatch.setattr(repetitions, "MAX_STUDIES", newest)
        stds.append(Repetitions(saved(*others), {"this": this}).spread("this", device="cpu"))
    assert [one.repetitions for one in stds] == [5, 7]
    assert stds[0].std < 0.01 < stds[1].std
