"""Short names of the configurations of a document."""

from __future__ import annotations

from collections.abc import Callable

from polybench.schema.measurements import LayersDocument
from polybench.schema.result import ConfigurationStatus
from polybench.schema.study import StudyDocument

Namer = Callable[[ConfigurationStatus], str]


def namer(document: StudyDocument | LayersDocument) -> Namer:
    """Return a function that names a configuration, with its device only if the document has several."""
    rows = document.configurations if isinstance(document, LayersDocument) else document.results
    several = len({row.device for row in rows if row.step_times}) > 1

    def name(row: ConfigurationStatus) -> str:
        without_device = row.configuration.replace(f"/{row.device}", "")
        return f"{without_device} on {row.device}" if several else without_device

    return name
