"""`polybench doctor` for the machines of a cluster, through the node program and the executors of studies."""

from __future__ import annotations

import contextlib

import msgspec

from polybench.cluster.driver import ClusterProgress
from polybench.cluster.executor import Executor, Node, make_executor
from polybench.cluster.messages import LAST_MESSAGES, Diagnosed, NodeLost, Rejected, Started, Task, current_fingerprint
from polybench.errors import BadInput
from polybench.runner.doctor import Report
from polybench.runner.prepare import new_header, new_id
from polybench.runner.progress import Progress
from polybench.schema.options import Study

_WAIT_SECONDS = 60.0
"""Maximum duration of one wait for events, as in the driver of a study."""


class Diagnosis(msgspec.Struct):
    """Report of one machine, or the reason why it cannot run a study."""

    machine: str
    hostname: str | None = None
    error: str | None = None
    report: Report | None = None


class ClusterDiagnosis(msgspec.Struct):
    """Reports of all available machines; error and warnings are those of a study on all of them."""

    target: str
    machines: list[Diagnosis] = []
    error: str | None = None
    warnings: list[str] = []
    interrupted: bool = False


def diagnose(target: str, progress: Progress, *, upload: bool = False) -> ClusterDiagnosis:
    """Diagnose every machine; each has to be free, as for a study.

    Raises:
        BadInput: the cluster does not exist or does not respond.
    """
    with contextlib.closing(make_executor(target, upload=upload)) as executor:
        progress.on_stage(f"checking the machines of {target}")
        nodes = executor.nodes()
        diagnosis = ClusterDiagnosis(
            target, [Diagnosis(node.group.label, error="interrupted before it answered") for node in nodes]
        )
        try:
            diagnosis.warnings = executor.check([node.group for node in nodes])
        except BadInput as error:
            diagnosis.error = str(error)
        try:
            _collect(executor, nodes, diagnosis, ClusterProgress(progress, has_several_machines=len(nodes) > 1))
        except KeyboardInterrupt:
            diagnosis.interrupted = True
        return diagnosis


def _collect(executor: Executor, nodes: list[Node], diagnosis: ClusterDiagnosis, progress: ClusterProgress) -> None:
    header, fingerprint = new_header(), current_fingerprint()
    machines = {one.machine: one for one in diagnosis.machines}
    open_labels = set(machines)
    for node in nodes:
        machine = machines[node.group.label]
        try:
            own_header = msgspec.structs.replace(header, id=new_id())
            task = Task(header=own_header, study=Study(), fingerprint=fingerprint, diagnose=True)
            executor.start(node.group, task, node.hostname)
        except BadInput as error:
            machine.error = str(error)
            open_labels.discard(machine.machine)
    while open_labels:
        for label, message in executor.events(_WAIT_SECONDS):
            match message:
                case Started():
                    machines[label].hostname = message.hostname
                case Diagnosed(report):
                    machines[label].report, machines[label].error = report, None
                case Rejected(text) | NodeLost(text):
                    machines[label].error = text
                case _:
                    progress.report(label, message)
            if isinstance(message, LAST_MESSAGES):
                open_labels.discard(label)
