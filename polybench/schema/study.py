"""The saved document of a study.

Schema history:
    polybench.study/1  before the first release
    polybench.study/2  fields in standard terms
    polybench.study/3  step times are means
"""

from __future__ import annotations

import datetime

from polybench.schema.analyses import RepetitionSpread, Statement
from polybench.schema.encoding import decode, encode
from polybench.schema.metadata import Document, PhaseSeconds, PublishedResult, Resumed, RoundInterference, Settings, Tag
from polybench.schema.options import Id
from polybench.schema.result import Result

SCHEMA = "polybench.study/3"


class StudyDocument(Document, kw_only=True):
    """The saved document. `study` is the whole study as TOML; running it repeats the measurement.

    `finished` is false while the study runs, and true after it ends, even if Ctrl-C ended it. `title` and
    `tags` come from options or a study file, `published` from a study file; polybench did not measure these numbers.
    """

    schema: str = SCHEMA
    id: Id
    finished: bool | None = None
    phase_seconds: PhaseSeconds | None = None
    """Null if the study was interrupted and resumed."""
    resumed: list[Resumed] = []
    title: str | None = None
    tags: list[Tag] = []
    machine_label: str | None = None
    """The label of the machine in the study file, if the file names several machines."""
    study: str
    settings: Settings
    interference: list[RoundInterference] = []
    """An entry per round."""
    results: list[Result] = []
    published: list[PublishedResult] = []
    repetitions: RepetitionSpread | None = None
    """How much this study and its repetitions on other days differ, if any were given to `derive`."""
    explanation: list[Statement] = []
    """The statements of `compare --explain`."""

    def __post_init__(self) -> None:
        datetime.datetime.fromisoformat(self.created)
        for result in self.results:
            if result.is_measured and not result.nested_step_times:
                raise ValueError(f"{result.configuration} has a step time, but no step times")

    def result(self, configuration: str) -> Result:
        """The result of the configuration of this name, which must exist."""
        return next(result for result in self.results if result.configuration == configuration)


def to_json(study: StudyDocument) -> bytes:
    """Return the document as indented JSON in UTF-8; raises ValueError for a number that JSON cannot hold."""
    return encode(study)


def from_json(text: bytes) -> StudyDocument:
    """Read a saved document; raises msgspec.ValidationError or msgspec.DecodeError with the location."""
    return decode(text, StudyDocument)
