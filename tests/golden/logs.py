"""Recorded logs and their reports: `derive` must compute the same from a log of today tomorrow.

`python -m tests.golden logs` records them again; that is needed only if the log itself changes.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec

from polybench.log import AnyEvent, Header, SettingsChosen, encode_line, read_log
from polybench.results.document import derive
from polybench.run import resume_study, run_study
from polybench.runner.progress import NullProgress
from polybench.schema.study import to_json
from polybench.storage.store import Store
from tests.factories import typical_study
from tests.runner.studies import interrupt_at
from tests.simulated_machine import Machine, Script, study_of

FOLDER = Path(__file__).with_name("logs")

TWO = {"torch": Script(), "tf": Script(0.014, pause_interval=40, pause_seconds=0.096)}
FEW: dict[str, Any] = {"processes": 3, "rounds_per_process": 2, "steps_per_round": 6}

STUDIES: dict[str, tuple[Machine, dict[str, Any]]] = {
    "bursts": (Machine(seed=41, bursts=0.5), FEW | {"prices": {"cpu": 3.6}, "baseline": "tf/cpu", "budget": 30.0}),
    "trainings": (Machine(seed=42), FEW | {"epochs": 2, "accuracy": True}),
    "interrupted": (Machine(seed=43), FEW),
    "resumed": (Machine(seed=44), FEW),
}


def record(name: str, folder: Path) -> None:
    """Record a log and its report."""
    machine, fields = STUDIES[name]
    store, study = Store(folder), study_of(TWO, **fields)
    stops = name in ("interrupted", "resumed")
    with machine.simulate(TWO):
        progress = interrupt_at("process 2 of 3: round 2") if stops else NullProgress()
        document = run_study(study, progress, store=store)
        if name == "resumed":
            resume_study(str(document.id), NullProgress(), store=store)
    path = store.log_path(str(document.id))
    header, *events = read_log(path)
    assert isinstance(header, Header)
    header = msgspec.structs.replace(header, host=typical_study().host, polybench=typical_study().polybench)
    path.unlink()
    events = [_without_variables(event) for event in events]
    (FOLDER / f"{name}.jsonl").write_bytes(b"".join(map(encode_line, [header, *events])))
    (FOLDER / f"{name}.json").write_bytes(to_json(derive([header, *events])))


def _without_variables(event: AnyEvent) -> AnyEvent:
    """Return the event without the variables of the machine that recorded it."""
    if not isinstance(event, SettingsChosen):
        return event
    nothing: dict[str, Any] = {"env_vars": {}, "inherited_env_vars": {}, "unrecorded_env_hash": ""}
    planned = [msgspec.structs.replace(one, **nothing) for one in event.configurations]
    return msgspec.structs.replace(event, configurations=planned)


def saved_report(name: str) -> Any:
    """Return the report that was computed when the log was recorded."""
    return json.loads((FOLDER / f"{name}.json").read_bytes())
