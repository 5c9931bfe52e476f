"""Overview of several studies: step times of their configurations, without a verdict."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from polybench.schema.metrics import METRICS
from polybench.schema.study import StudyDocument


class Overview(NamedTuple):
    """A row per configuration, a column per study.

    Attributes:
        studies: element ID, title, machine and date of each study.
        rows: configurations and their step time in each study, or "".
    """

    studies: list[tuple[str, str, str, str]]
    rows: list[tuple[str, list[str]]]


def overview(studies: Sequence[tuple[str, str, StudyDocument]]) -> Overview:
    """Build the overview of studies, given with their element IDs and titles.

    Configurations appear in the order of their first study.
    """
    step_times = [
        {result.configuration: METRICS["step_time"].text(result) for result in study.results if result.is_ranked}
        for _, _, study in studies
    ]
    configurations = dict.fromkeys(configuration for texts in step_times for configuration in texts)
    return Overview(
        studies=[
            (section_id, title, study.host.hostname, study.created.partition("T")[0])
            for section_id, title, study in studies
        ],
        rows=[
            (configuration, [texts.get(configuration, "") for texts in step_times]) for configuration in configurations
        ],
    )


def title_for(study: StudyDocument) -> str:
    """Return the title of a study, or its workload."""
    settings = study.settings
    return study.title or f"{settings.model} on {settings.dataset}, batch {settings.batch_size}"
