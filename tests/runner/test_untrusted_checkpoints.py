"""Checkpoints of other users: whatever they contain, resuming one is refused without a traceback or a deletion."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from polybench.data import synthetic
from polybench.machine import host
from polybench.runner.checkpoint import CheckpointStore, ClusterCheckpoint, ClusterRun, MachineStudy, SweepCheckpoint
from polybench.runner.prepare import new_header
from polybench.runner.scratch import exclusive_lock
from polybench.schema.options import MachineGroup, Study
from polybench.storage.store import Store
from tests.commands import invoke, printed_json, refused
from tests.runner.studies import FAST, IMAGES, interrupt_at, run

Content = dict[str, Any]
SECOND_STUDY = "20250101-000000-abcd"


@pytest.fixture(scope="module")
def measured(shared_folders: Path) -> Path:
    """Return a results folder with a study that stopped after one of two process runs."""
    fields = FAST | {"rounds_per_process": 2, "parity": False, "epochs": 2}
    store, listener = Store(shared_folders / "results"), interrupt_at("process 2 of 2: starting")
    with pytest.MonkeyPatch.context() as patched:
        for split, images in IMAGES.items():
            patched.setitem(synthetic.IMAGES, split, images)
        run("fake", "fake+slow", listener=listener, store=store, **fields)
    return store.folder


@pytest.fixture
def results(measured: Path, tmp_path: Path) -> Path:
    """Return a copy, beside a folder that no command may touch."""
    (tmp_path / "victim").mkdir()
    (tmp_path / "victim" / "thesis.tex").write_text("all of it")
    shutil.copytree(measured, tmp_path / "results")
    return tmp_path / "results"


def only_id(results: Path) -> str:
    (id,) = CheckpointStore(results).ids()
    return id


def forge(file: Path, change: Callable[[Content], object]) -> None:
    """Change the content of a checkpoint, and its checksum with it."""
    content = json.loads(file.read_bytes().partition(b"\n")[2])
    change(content)
    text = json.dumps(content).encode()
    file.write_bytes(hashlib.sha256(text).hexdigest().encode() + b"\n" + text)


def snapshot(folder: Path) -> dict[str, bytes | None]:
    """Return all files below a folder, apart from locks."""
    return {
        str(path): path.read_bytes() if path.is_file() else None
        for path in sorted(folder.rglob("*"))
        if path.name != "lock"
    }


@pytest.mark.parametrize("id", ["../../victim", "../..", "/", "..", "", "victim\n", "x" * 200, SECOND_STUDY])
def test_the_id_in_a_checkpoint_leads_nowhere(id: str, results: Path) -> None:
    """The ID of the folder selects a checkpoint; another ID inside would delete and write elsewhere."""
    own = only_id(results)
    forge(results / "unfinished" / own / "study", lambda content: content["header"].update(id=id))
    before = snapshot(results.parent)
    assert "cannot read checkpoint" in refused("resume", own, "--results", results)
    rows = printed_json("list", "--results", results)
    assert {row["id"] for row in rows} == {own}
    assert snapshot(results.parent) == before
    assert invoke("resume", own, "--discard", "--results", results).exit_code == 0
    assert (results.parent / "victim" / "thesis.tex").exists()
    assert (results / f"{own}.json").exists()


@pytest.mark.parametrize("linked", ["unfinished", "unfinished/ID", "logs", "logs/ID"])
def test_links_out_of_the_results_folder_are_refused(linked: str, results: Path) -> None:
    id, outside = only_id(results), results.parent / "outside"
    shutil.rmtree(results / "logs", ignore_errors=True)
    link = results / linked.replace("ID", id)
    if link.exists():
        link.rename(outside)
    else:
        outside.mkdir()
        link.parent.mkdir(exist_ok=True)
    link.symlink_to(outside)
    before = snapshot(outside)
    assert "delete the link" in refused("resume", id, "--results", results)
    if linked.startswith("unfinished"):
        assert "delete the link" in refused("resume", id, "--discard", "--results", results)
    assert snapshot(outside) == before


def test_locks_neither_follow_links_nor_empty_files(results: Path, own_folders: Path) -> None:
    victim, id = results.parent / "victim" / "thesis.tex", only_id(results)
    lock = results / "unfinished" / id / "lock"
    lock.unlink(missing_ok=True)
    lock.symlink_to(victim)
    assert "cannot lock" in refused("resume", id, "--results", results)
    lock.unlink()
    lock.hardlink_to(victim)
    with CheckpointStore(results).lock(id), pytest.raises(Exception, match="still running"):
        CheckpointStore(results).lock(id).__enter__()
    with exclusive_lock():
        pass
    machine_lock = own_folders / "xdg_cache_home" / "polybench" / f"measuring-{host.boot_id()}.lock"
    assert machine_lock.stat().st_mode & 0o777 == 0o600
    machine_lock.unlink()
    machine_lock.symlink_to(victim)
    assert "Too many levels of symbolic links" in refused("compare", "--engines", "fake", "--data", "synthetic")
    assert victim.read_text() == "all of it"


def first_run(content: Content) -> Content:
    run: Content = content["runs"][0]
    return run


DAMAGE: dict[str, Callable[[Content], object]] = {
    "negative process runs": lambda content: content["completed"].update(process_runs=-1),
    "more process runs than measured": lambda content: content["completed"].update(process_runs=2),
    "no configurations": lambda content: content.update(runs=[]),
    "unknown configuration": lambda content: first_run(content)["configuration"].update(engine="nobody"),
    "swapped configurations": lambda content: content["runs"].reverse(),
    "no groups": lambda content: content["completed"].update(groups=[]),
    "no step times": lambda content: first_run(content).update(step_times=[[]], block_counters=[[]]),
    "an empty round": lambda content: first_run(content)["step_times"][0].__setitem__(0, []),
    "a lost round": lambda content: first_run(content)["step_times"][0].pop(),
    "a lost counter": lambda content: first_run(content)["block_counters"][0].pop(),
    "zero": lambda content: first_run(content)["step_times"][0][0].__setitem__(0, 0.0),
    "negative time": lambda content: first_run(content)["step_times"][0][0].__setitem__(0, -1.0),
    "NaN": lambda content: first_run(content)["step_times"][0][0].__setitem__(0, float("nan")),
    "infinity": lambda content: first_run(content)["step_times"][0][0].__setitem__(0, float("inf")),
    "5e-324": lambda content: first_run(content)["step_times"][0][0].__setitem__(0, 5e-324),
    "1e308": lambda content: first_run(content)["step_times"][0][0].__setitem__(0, 1e308),
    "negative steps per value": lambda content: first_run(content).update(steps_per_value=-3),
    "no steps per value": lambda content: first_run(content).update(steps_per_value=0),
    "negative memory": lambda content: first_run(content).update(peak_rss_bytes=-1),
    "huge wall time": lambda content: first_run(content)["block_counters"][0][0].update(wall_seconds=1e308),
    "wrong type": lambda content: first_run(content).update(losses={}),
    "empty record": lambda content: content.update(completed={"process_runs": 1}),
    "no header": lambda content: content.pop("header"),
    "not a study": lambda content: content.update(study="engines = 3"),
    "no TOML": lambda content: content.update(study="]"),
    "deep": lambda content: first_run(content).update(losses=json.loads("[" * 900 + "]" * 900)),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_checkpoint_is_bad_input_and_remains(damage: str, results: Path) -> None:
    id = only_id(results)
    forge(results / "unfinished" / id / "study", DAMAGE[damage])
    before = snapshot(results)
    assert id in refused("resume", id, "--results", results)
    assert snapshot(results) == before
    assert invoke("list", "--results", results).exit_code == 0


def test_flipped_bits_of_a_checkpoint_are_noticed(results: Path) -> None:
    id = only_id(results)
    file = results / "unfinished" / id / "study"
    text = file.read_bytes()
    for place in range(0, len(text), len(text) // 7):
        file.write_bytes(text[:place] + bytes([text[place] ^ 1]) + text[place + 1 :])
        assert "cannot read checkpoint" in refused("resume", id, "--results", results)


def sweep(started: dict[int, str]) -> SweepCheckpoint:
    return SweepCheckpoint(
        header=new_header(), study="engines = ['fake']\n", axes={"threads": [1, 2]}, command="sweep", started=started
    )


def cluster(*ids: str) -> ClusterCheckpoint:
    groups = [MachineGroup(label="a"), MachineGroup(label="b")]
    return ClusterCheckpoint(
        header=new_header(),
        study="engines = ['fake']\n",
        run=ClusterRun(study=Study(engines=("fake",)), groups=groups, on="local"),
        machine_studies=[MachineStudy(label=label, study_id=id) for label, id in zip("ab", ids, strict=False)],
    )


@pytest.mark.parametrize(
    "checkpoint",
    [
        sweep({0: "../../victim"}),
        sweep({7: SECOND_STUDY}),
        sweep({-1: SECOND_STUDY}),
        sweep({0: SECOND_STUDY, 1: SECOND_STUDY}),
        cluster("../../victim", SECOND_STUDY),
        cluster(SECOND_STUDY),
        cluster(SECOND_STUDY, SECOND_STUDY),
    ],
    ids=lambda checkpoint: str(checkpoint.study_ids),
)
def test_runs_of_several_studies_name_only_their_own(
    checkpoint: SweepCheckpoint | ClusterCheckpoint, results: Path
) -> None:
    id = checkpoint.header.id
    CheckpointStore(results).write(checkpoint)
    before = snapshot(results.parent)
    assert "cannot read checkpoint" in refused("resume", id, "--results", results)
    assert snapshot(results.parent) == before
    assert invoke("resume", id, "--discard", "--results", results).exit_code == 0
    assert (results.parent / "victim" / "thesis.tex").exists()
    assert len(CheckpointStore(results).ids()) == 1


def test_discarding_a_sweep_spares_a_study_that_runs(results: Path) -> None:
    running = only_id(results)
    CheckpointStore(results).write(foreign := sweep({0: running}))
    with CheckpointStore(results).lock(running):
        assert "still running" in refused("resume", foreign.header.id, "--discard", "--results", results)
    assert only_id(results) == running


def test_every_checkpoint_is_listed_once_under_the_name_of_its_folder(results: Path) -> None:
    checkpoints, id = CheckpointStore(results), only_id(results)
    CheckpointStore(results).write(both := sweep({}))
    copies = ["20250101-000000-aaaa", "20250101-000000-bbbb", "_"]
    for copy in copies:
        shutil.copytree(checkpoints.folder / id, checkpoints.folder / copy)
    shutil.copy(checkpoints.folder / id / "study", checkpoints.folder / both.header.id)
    (results / "copy.json").write_bytes((results / f"{id}.json").read_bytes())
    listed = [row["id"] for row in printed_json("list", "--results", results)]
    assert sorted(listed) == sorted([id, both.header.id, "copy", *copies])


def test_a_training_is_not_saved_through_a_link(results: Path) -> None:
    """The worker writes the state of a training, and would follow a link in the folder of a checkpoint."""
    id = only_id(results)
    victim = results.parent / "victim" / "thesis.tex"
    folder = results / "unfinished" / id
    for seed in range(2):
        (folder / f"training-0-{seed}-1.npz").symlink_to(victim)
    done = invoke("resume", id, "--results", results)
    assert done.exit_code == 0, done.output
    assert victim.read_text() == "all of it"
