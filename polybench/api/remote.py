"""Studies on other machines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Required, TypedDict

import msgspec

from polybench.api.results import MergeResult, StudyResult
from polybench.cluster.run import cluster_table, run_on_cluster
from polybench.errors import BadInput, format_validation_error
from polybench.runner.checkpoint import ClusterRun
from polybench.runner.prepare import new_header
from polybench.runner.progress import Progress
from polybench.schema.analyses import MergeDocument
from polybench.schema.options import MachineGroup
from polybench.storage.store import Store, results_folder


class MachineKeys(TypedDict, total=False):
    """The keys of `[[machines]]`: the fields of schema.options.MachineGroup, which documents them.

    They are repeated here, as in `Options`; a test compares both.
    """

    label: Required[str]
    accelerator: str | None
    resources: str | None
    partition: str | None
    constraint: str | None
    minutes: int | None
    devices: Sequence[str] | None
    price: float | None


class MachinesResult(MergeResult):
    """A study on several machines: all rows in one table, and the study of each machine.

    Attributes:
        document: the table.
        studies: by the machine's label, without machines that returned no result.
    """

    def __init__(self, document: MergeDocument, studies: Mapping[str, StudyResult]) -> None:
        super().__init__(document)
        self.studies = dict(studies)

    def save(self, results: Path | None = None) -> list[Path]:
        """Write each study to the results folder; `polybench merge` prints the same table from them."""
        return [study.save(results) for study in self.studies.values()]


def run_on_each(run: ClusterRun, progress: Progress) -> MachinesResult:
    """Measure on every machine."""
    saved = Store(results_folder(None)).summaries()
    cluster_result = run_on_cluster(run, progress, store=None, header=new_header())
    studies = {}
    for one in cluster_result.machines:
        if one.document is not None:
            one.document.machine_label = one.label  # even if it is the only machine
            studies[one.label] = StudyResult(one.document, one.log)
    return MachinesResult(cluster_table(cluster_result, run.study, progress.on_warning, saved), studies)


def parse_machine_groups(machines: Sequence[MachineKeys]) -> tuple[MachineGroup, ...]:
    """Return machine groups, as in a study file."""
    try:
        groups = msgspec.convert(machines, tuple[MachineGroup, ...])
    except msgspec.ValidationError as error:
        raise BadInput(f"machines{format_validation_error(error)}") from error
    if not groups:
        raise BadInput("machines is empty; drop it to measure on a single machine")
    return groups
