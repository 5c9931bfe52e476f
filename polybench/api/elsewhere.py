"""Studies on other machines, as Python gets them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Required, TypedDict

import msgspec

from polybench.api.results import MergeResult
from polybench.api.study_results import StudyResult
from polybench.core.document.merge import MergeDocument
from polybench.core.errors import BadInput, said
from polybench.core.machines import MachineGroup
from polybench.fleet.run import run_fleet
from polybench.fleet.table import table
from polybench.measuring.fleet_checkpoint import Fleet
from polybench.measuring.progress import Progress


class MachineKeys(TypedDict, total=False):
    """The keys of `[[machines]]`: the fields of core.machines.MachineGroup, which has their meanings.

    Written out as `Options` is; a test holds that they are the same.
    """

    label: Required[str]
    accelerator: str | None
    resource: str | None
    partition: str | None
    constraint: str | None
    minutes: int | None
    devices: Sequence[str] | None
    price: float | None


class MachinesResult(MergeResult):
    """A study on several machines: their rows in one table, and each as the study that it is.

    Attributes:
        document: of the table.
        studies: by the machine's label, without those of which nothing came.
    """

    def __init__(self, document: MergeDocument, studies: Mapping[str, StudyResult]) -> None:
        super().__init__(document)
        self.studies = dict(studies)

    def save(self, results: Path | None = None) -> list[Path]:
        """Write each study to the results folder; `polybench merge` makes the same table of them."""
        return [study.save(results) for study in self.studies.values()]


def on_one(fleet: Fleet, progress: Progress) -> StudyResult:
    """Measure on a single machine.

    Raises:
        BadInput: no machine could run it, or none is there.
        PolybenchError: nothing came of it.
    """
    document = run_fleet(fleet, progress, store=None).machines[0].document
    assert document is not None  # or the driver has raised
    return StudyResult(document)


def on_each(fleet: Fleet, progress: Progress) -> MachinesResult:
    """Measure on every machine.

    Raises:
        BadInput: no machine could run it, or none of a class is there.
        PolybenchError: there is one machine, and nothing came of it.
    """
    measured = run_fleet(fleet, progress, store=None)
    documents = {one.label: one.document for one in measured.machines if one.document is not None}
    for label, document in documents.items():
        document.machine = label  # also where it is the only one
    studies = {label: StudyResult(document) for label, document in documents.items()}
    return MachinesResult(table(measured, fleet.study, progress.warn), studies)


def groups_of(machines: Sequence[MachineKeys]) -> tuple[MachineGroup, ...]:
    """As a study file's.

    Raises:
        BadInput: a key or value is unknown, or there is no machine.
    """
    try:
        groups = msgspec.convert(machines, tuple[MachineGroup, ...])
    except msgspec.ValidationError as error:
        raise BadInput(f"machines{said(error)}") from error
    if not groups:
        raise BadInput("machines: there is none; leave it out to measure on any one machine")
    return groups
