"""A saved study of the fake engine: `python -m tests.golden` measures it again and writes `study.json`.

Write it again after an intended change of the document; its diff shows the change for readers of documents.
"""

from __future__ import annotations

from pathlib import Path
from unittest.mock import patch

import msgspec

from polybench.data import synthetic
from polybench.run import run_study
from polybench.runner.progress import NullProgress
from polybench.schema.metadata import PhaseSeconds
from polybench.schema.options import Study
from polybench.schema.study import StudyDocument
from tests.factories import study as made_up

FILE = Path(__file__).with_name("study.json")

STUDY = Study(
    engines=("fake", "fake+slow", "faulty+unavailable"),
    devices=("cpu",),
    data="synthetic",
    batch_size=16,
    threads=1,
    processes=2,
    rounds_per_process=2,
    steps_per_round=3,
    epochs=1,
    accuracy=True,
    prices={"cpu": 3.6},
)


def measure() -> StudyDocument:
    """Measure the study on 200 images, and replace values that depend on time and machine."""
    with patch.dict(synthetic.IMAGES, {"train": 200, "test": 100}):
        document = run_study(STUDY, NullProgress(), store=None)
    for result in document.results:
        result.versions["inherited"] = {}  # depends on the user's environment
    fixed = made_up()
    return msgspec.structs.replace(
        document,
        id=fixed.id,
        created=fixed.created,
        polybench=fixed.polybench,
        argv=fixed.argv,
        host=fixed.host,
        interference=fixed.interference,
        warnings=fixed.warnings,
        phase_seconds=PhaseSeconds(
            data=0.1, parity=0.5, process_starts=[0.6, 0.5], rounds=[0.2, 0.2], allocation_count=0.1, trainings=0.8
        ),
    )
