"""The saved studies of the gallery show what today's rules derive from their logs."""

from __future__ import annotations

from pathlib import Path

import pytest

from polybench.log import SettingsChosen, StudyEnded, read_log
from polybench.results.document import derive
from polybench.results.interference import unaffected_step_times
from polybench.schema.documents import kind_of_id
from polybench.stats.statistics import mean_step
from polybench.storage.store import Store
from tests.gallery import GALLERY

LOGS = [path for path in Store(GALLERY / "measured").logs() if kind_of_id(path.stem) == "study"]


@pytest.mark.parametrize("path", LOGS, ids=lambda path: path.stem)
def test_step_times_are_those_that_were_printed(path: Path) -> None:
    events = read_log(path)
    study, end = derive(events), events[-1]
    (settings,) = (event for event in events if isinstance(event, SettingsChosen))
    assert isinstance(end, StudyEnded)
    assert {*end.step_seconds} == {one.configuration for one in study.results if one.step_time}
    for name, printed in end.step_seconds.items():
        result = study.result(name)
        seconds, interval = mean_step(unaffected_step_times(result))
        assert result.step_time is not None
        assert result.step_time.mean == pytest.approx(printed, rel=1e-9)
        assert result.step_time.mean == pytest.approx(seconds)
        assert result.step_time.ci95 == pytest.approx(interval)
        if not result.trainings:
            assert result.epoch_seconds == pytest.approx(settings.steps_in_epoch * printed)
