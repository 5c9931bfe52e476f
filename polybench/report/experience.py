"""What saved studies of this machine tell of how long another one takes."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Sequence
from typing import Literal

import msgspec

from polybench.core.document.circumstances import Host, Took
from polybench.core.document.study import check_schema, decoded
from polybench.core.document.times import Startup
from polybench.core.errors import BadInput
from polybench.core.spec import Study, Workload
from polybench.data.disk import regular_bytes
from polybench.planning.estimate import NOTHING_EXPECTED, NOTHING_KNOWN, Estimate, Known, estimate
from polybench.planning.plan import Plan
from polybench.report.listed import Filters
from polybench.report.saved_studies import Store, results_folder

Check = Literal["new", "all", "only"]

_MOST = 10
"""Studies that are read, the newest of those that may tell something."""

_ROUNDS = ("processes", "rounds", "steps", "budget", "target")
"""Fields of a study on which its number of rounds depends."""
_COUNTED = ("metrics",)
"""And whether anything is counted; the way of the images is the workload's."""


class _Step(msgspec.Struct, frozen=True):
    median: float


class _Parity(msgspec.Struct, frozen=True):
    status: str


class _Result(msgspec.Struct, frozen=True):
    cell: str
    workload: Workload
    status: str
    step_seconds: _Step | None = None
    startup: Startup | None = None
    parity: _Parity = _Parity("skipped")


class _Host(msgspec.Struct, frozen=True):
    hostname: str
    cpu: str


class _Document(msgspec.Struct, frozen=True):
    """The part of `StudyDocument` that is looked at; the samples are passed over."""

    host: _Host
    study: str
    results: list[_Result]
    took: Took | None = None
    finished: bool | None = None


def expected(plan: Plan, store: Store | None, host: Host, *, check: Check = "new") -> Estimate:
    """How long the plan's study will take, by all that is known.

    Args:
        plan: of the study.
        store: where studies are saved; None is where they are by default.
        host: this machine.
        check: what is checked: what is "new" since an earlier study has checked it, "all", or all and
            "only" that is done.
    """
    known = experience(plan, store or Store(results_folder()), host)
    found = estimate(plan, known._replace(checked=known.checked and check == "new"))
    return NOTHING_EXPECTED._replace(parity=found.parity) if check == "only" else found


def experience(plan: Plan, store: Store, host: Host) -> Known:
    """What the newest studies tell that measured these cells, or some of them, with the same workload."""
    known = NOTHING_KNOWN
    cells = {cell.name: plan.workload_of(cell) for cell in plan.cells}
    for document in itertools.islice(_documents(plan, store, host), _MOST):
        results = {
            one.cell: one
            for one in document.results
            if one.cell in cells and one.status == "ok" and _same(one.workload, cells[one.cell])
        }
        steps = {name: one.step_seconds.median for name, one in results.items() if one.step_seconds}
        starts = {name: one.startup.total_seconds for name, one in results.items() if one.startup}
        known = known._replace(steps=steps | {**known.steps}, starts=starts | {**known.starts})
        took = document.took
        if took is None or not took.starts or not document.finished or len(document.results) != len(cells):
            continue
        if set(results) != set(cells):
            continue
        if known.took is None:
            known = known._replace(took=took, same_rounds=_like(document.study, plan.study, _ROUNDS))
            checked = all(one.parity.status == "pass" for one in results.values())
            known = known._replace(checked=checked)
        if known.counted is None and _like(document.study, plan.study, _COUNTED):
            known = known._replace(counted=took)
        if known.parity is None and took.parity > 0:
            known = known._replace(parity=took.parity)
    return known


def _documents(plan: Plan, store: Store, host: Host) -> Iterator[_Document]:
    """Of this machine and model, the newest first; what cannot be read tells nothing."""
    wanted = Filters(model=plan.model.name, host=host.hostname)
    with contextlib.suppress(BadInput):
        for one in reversed(store.listed()):
            if one.batch_size != plan.workload.batch_size or not wanted.has(one):
                continue
            with contextlib.suppress(OSError, msgspec.MsgspecError):
                text = regular_bytes(store.folder / f"{one.file}.json")
                check_schema(text)
                document = decoded(text, _Document)
                if document.host.cpu == host.cpu:
                    yield document


def _same(theirs: Workload, ours: Workload) -> bool:
    """Whether a step takes as long; the data set is called otherwise in a document, and does not matter."""
    return msgspec.structs.replace(theirs, dataset="") == msgspec.structs.replace(ours, dataset="")


def _like(theirs: str, ours: Study, fields: Sequence[str]) -> bool:
    try:
        study = msgspec.toml.decode(theirs, type=Study)
    except (msgspec.MsgspecError, BadInput):
        return False
    return all(getattr(study, name) == getattr(ours, name) for name in fields)
