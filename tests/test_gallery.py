"""The saved studies of the gallery show what today's rules derive from their step times."""

from __future__ import annotations

from copy import deepcopy

import pytest

from polybench.results.comparisons import add_comparisons
from polybench.results.interference import unaffected_step_times
from polybench.schema.study import StudyDocument
from polybench.stats.statistics import mean_step
from polybench.storage.store import Store
from tests.gallery import GALLERY

STUDIES = [pytest.param(study, id=study.id) for study in Store(GALLERY / "measured").studies()]


@pytest.mark.parametrize("study", STUDIES)
def test_derived_values_are_those_of_the_step_times(study: StudyDocument) -> None:
    again = deepcopy(study.results)
    add_comparisons(again, study.settings.baseline, study.settings.prices)
    for saved, derived in zip(study.results, again, strict=True):
        assert (saved.vs_baseline, saved.cost, saved.break_even_steps) == (
            derived.vs_baseline,
            derived.cost,
            derived.break_even_steps,
        )
        if saved.step_time:
            seconds, interval = mean_step(unaffected_step_times(saved))
            assert saved.step_time.mean == pytest.approx(seconds)
            assert saved.step_time.ci95 == pytest.approx(interval)
            if not saved.trainings:
                assert saved.epoch_seconds is not None
                steps = saved.epoch_seconds / seconds
                assert steps == pytest.approx(round(steps))
