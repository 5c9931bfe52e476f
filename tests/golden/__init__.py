"""A saved study of the fake engine: `python -m tests.golden` measures it again and writes `study.json`.

It is written again when the document changes on purpose; its diff then shows what readers of documents meet.
"""

from __future__ import annotations

from pathlib import Path
from unittest.mock import patch

import msgspec

from polybench.core.document.circumstances import Took
from polybench.core.document.study import StudyDocument
from polybench.core.spec import Study
from polybench.data import synthetic
from polybench.measuring.progress import Silent
from polybench.measuring.study import run_study
from tests.factories import study as made_up

FILE = Path(__file__).with_name("study.json")

STUDY = Study(
    engines=("fake", "fake+slow", "fake+unavailable"),
    devices=("cpu",),
    data="synthetic",
    batch_size=16,
    threads=1,
    processes=2,
    rounds=2,
    steps=3,
    epochs=1,
    accuracy=True,
    prices={"cpu": 3.6},
)


def measure() -> StudyDocument:
    """The study on 200 images, with what tells when and where it ran exchanged for something made up."""
    with patch.dict(synthetic.IMAGES, {"train": 200, "test": 100}):
        document = run_study(STUDY, Silent(), store=None)
    for result in document.results:
        result.versions["inherited"] = {}  # what whoever runs this has set
    told = made_up()
    return msgspec.structs.replace(
        document,
        id=told.id,
        created=told.created,
        polybench=told.polybench,
        argv=told.argv,
        host=told.host,
        warnings=told.warnings,
        took=Took(data=0.1, parity=0.5, starts=[0.6, 0.5], rounds=[0.2, 0.2], counting=0.1, trainings=0.8),
    )
