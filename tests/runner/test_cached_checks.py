"""Studies reuse passed parity checks of earlier studies, and only valid ones."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from zipfile import ZipFile

import msgspec
import numpy as np
import pytest

from polybench.engines import ENGINES, EngineSpec
from polybench.experiments.layers import run_layers
from polybench.machine import host
from polybench.protocol import calls
from polybench.protocol.calls import Loaded
from polybench.run import run_study
from polybench.schema.options import Study
from polybench.schema.study import StudyDocument
from polybench.storage.store import Store
from tests.runner.studies import FAST, RecordingProgress
from tests.worker_sessions import InProcess

ENGINE = """
import contextlib, os
import archived
from polybench.engines.job import EngineInfo
from polybench.engines.reference.engine import ReferenceEngine

class Engine(ReferenceEngine):
    def probe(self):
        with contextlib.suppress(FileNotFoundError):
            os.remove({once!r})
            raise RuntimeError("the first one fails")
        return EngineInfo({{"injected": {version!r}}}, {{}}, ("cpu",))

    def run_steps(self, first, n):  # trains on other batches unless these are 0
        with open({offset!r}) as file:
            offset = eval(file.read())
        import late
        variables = (len(os.environ.get(name, "")) for name in ("OMP_BATCH", "OMP_DISABLED_PASSES"))
        changes = {wrong}, offset, archived.OFFSET, late.OFFSET, *variables
        return super().run_steps(first + sum(changes), n)
"""
FIELDS = FAST | {
    "processes": 1,
    "rounds_per_process": 1,
    "steps_per_round": 1,
    "batch_size": 2,
    "metrics": False,
    "threads": 1,
}
STUDY = Study(engines=("injected", "injected"), devices=("cpu",), **FIELDS)


class Checks(RecordingProgress):
    """Records which configurations were checked."""

    @property
    def checked(self) -> list[str]:
        return [stage.split()[1] for stage in self.stages if stage.startswith("checking")]


WriteEngine = Callable[..., None]


class EngineModule:
    """The engine's module, and what it imports: `archived` from an archive, `late` in its first step.

    They are links to files that are written once, since a file that is written again is other code.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "versions").mkdir()

    def write(
        self, version: str = "1", wrong: int = 0, archived: int = 0, late: int = 0, startup: str | None = None
    ) -> None:
        """Write the engine; Python runs the code `startup` at its start."""
        once, offset = self.folder / "once", self.folder / "offset"
        once.unlink(missing_ok=True)
        offset.write_text("0")
        engine = ENGINE.format(version=version, wrong=wrong, once=str(once), offset=str(offset))
        self._link("injected_engine.py", f"engine-{version}-{wrong}", lambda file: file.write_text(engine))
        self._link("late.py", f"late-{late}", lambda file: file.write_text(f"OFFSET = {late}"))
        (self.folder / "sitecustomize.py").unlink(missing_ok=True)
        if startup is not None:
            self._link("sitecustomize.py", "startup", lambda file: file.write_text(startup))
        self._link("archive.zip", f"archive-{archived}", partial(self._write_archive, archived))

    def _write_archive(self, offset: int, file: Path) -> None:
        with ZipFile(file, "w") as archive:
            archive.writestr("archived.py", f"OFFSET = {offset}")

    def _link(self, name: str, version: str, write: Callable[[Path], object]) -> None:
        file, link = self.folder / "versions" / version, self.folder / name
        if not file.exists():
            write(file)
        link.unlink(missing_ok=True)
        link.symlink_to(file)

    def add_to_path(self, patched: pytest.MonkeyPatch) -> None:
        patched.setenv("PYTHONDONTWRITEBYTECODE", "1")
        path = (str(self.folder), str(self.folder / "archive.zip"), os.environ.get("PYTHONPATH", ""))
        patched.setenv("PYTHONPATH", os.pathsep.join(path))
        spec = EngineSpec("injected_engine:Engine", "a test", copies_data=False)
        patched.setitem(ENGINES, "injected", spec)


@pytest.fixture(scope="module")
def passed(tmp_path_factory: pytest.TempPathFactory) -> tuple[EngineModule, Path, StudyDocument]:
    """The engine module, the caches after a study with a passed check, and its document."""
    module, caches = EngineModule(tmp_path_factory.mktemp("engine")), tmp_path_factory.mktemp("caches")
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("XDG_CACHE_HOME", str(caches))
        module.add_to_path(patched)
        module.write()
        document, checked = study()
    assert checked == ["injected/cpu"]
    assert {result.parity.status for result in document.results} == {"pass"}
    return module, caches, document


@pytest.fixture
def write_engine(passed: tuple[EngineModule, Path, StudyDocument], monkeypatch: pytest.MonkeyPatch) -> WriteEngine:
    """Return `write(version, wrong)`, which replaces the engine, after a study in which the first has passed."""
    module, caches, _ = passed
    # Not the data, which other tests may have mapped: copying writes to existing files.
    data = shutil.ignore_patterns("epochs", "synthetic")
    shutil.copytree(caches, os.environ["XDG_CACHE_HOME"], dirs_exist_ok=True, ignore=data)
    module.add_to_path(monkeypatch)
    module.write()
    return module.write


def study(recheck: bool = False, strict: bool = False) -> tuple[StudyDocument, list[str]]:
    """Run the study; return its document and the checked configurations."""
    listener = Checks()
    document = run_study(STUDY, listener, store=None, parity_check="all" if recheck else "new", strict=strict)
    assert all(result.is_measured for result in document.results)
    return document, listener.checked


def test_a_passed_check_is_reused_with_all_details(
    write_engine: WriteEngine, passed: tuple[EngineModule, Path, StudyDocument]
) -> None:
    *_, first = passed
    second, checked = study()
    assert checked == []
    for before, after in zip(first.results, second.results, strict=True):
        assert before.parity.status == "pass"
        assert before.parity.checked_at is not None
        assert before.parity.tensors
        assert after.parity == before.parity
        assert after.versions == before.versions


def wrong_result(module: EngineModule, _: pytest.MonkeyPatch) -> None:
    module.write(wrong=1)


def another_version(module: EngineModule, _: pytest.MonkeyPatch) -> None:
    module.write(version="2", wrong=1)


def archive(module: EngineModule, _: pytest.MonkeyPatch) -> None:
    module.write(archived=1)


def module_that_is_imported_late(module: EngineModule, _: pytest.MonkeyPatch) -> None:
    module.write(late=1)


def sitecustomize(module: EngineModule, _: pytest.MonkeyPatch) -> None:
    module.write(startup="import os; os.environ['OMP_BATCH'] = '1'")


def environment_variable(_: EngineModule, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_BATCH", "1")


def compiler_passes(_: EngineModule, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_DISABLED_PASSES", "fusion")


CHANGES = (
    *(wrong_result, another_version, archive, module_that_is_imported_late, sitecustomize),
    *(environment_variable, compiler_passes),
)


@pytest.mark.parametrize("change", CHANGES)
def test_a_bug_after_a_passed_check_is_detected(
    change: Callable[[EngineModule, pytest.MonkeyPatch], None],
    write_engine: WriteEngine,
    passed: tuple[EngineModule, Path, StudyDocument],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    change(passed[0], monkeypatch)
    document, checked = study()
    assert checked == ["injected/cpu"]
    assert {result.parity.status for result in document.results} == {"fail"}


def test_a_check_is_repeated_on_request(write_engine: WriteEngine, tmp_path: Path) -> None:
    document, checked = study(recheck=True)
    assert checked == ["injected/cpu"]
    assert {result.parity.status for result in document.results} == {"pass"}
    listener = Checks()
    only = run_study(STUDY, listener, store=Store(tmp_path), parity_check="only")
    assert listener.checked == ["injected/cpu"]
    assert only.results[0].parity.checked_at is not None
    assert not [*Store(tmp_path).logs()]  # only a study that measures is saved


@pytest.mark.parametrize(("offset", "status"), [("1", "fail"), ("1 / 0", "skipped")])
def test_a_repeated_check_that_does_not_pass_invalidates_the_cached_one(
    offset: str, status: str, write_engine: WriteEngine, passed: tuple[EngineModule, Path, StudyDocument]
) -> None:
    module, *_ = passed
    (module.folder / "offset").write_text(offset)  # not loaded by workers, so the cached check stays valid
    for check in ("all", "new"):
        listener = Checks()
        document = run_study(STUDY, listener, store=None, parity_check=check)
        assert listener.checked == ["injected/cpu"]
        assert {result.parity.status for result in document.results} == {status}


def test_configurations_that_exceed_memory_are_checked_before_any_is_measured(
    write_engine: WriteEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_engine(version="2")
    monkeypatch.setattr(host, "available_memory", lambda: 1)
    listener = Checks()
    document = run_study(STUDY, listener, store=None)
    assert any("2 groups" in warning for warning in listener.warnings)
    assert listener.checked == ["injected/cpu"]
    assert [[len(process) for process in result.nested_step_times] for result in document.results] == [[1], [1]]
    assert {result.parity.status for result in document.results} == {"pass"}
    assert len(document.interference) == 2  # one round of each group


def test_workers_that_confirm_a_check_are_measured_together(
    write_engine: WriteEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    class MemoryInUse(Checks):
        """Leaves no memory as soon as the first workers start."""

        def on_stage(self, text: str) -> None:
            super().on_stage(text)
            if "process 1 of 1: starting" in text:
                monkeypatch.setattr(host, "available_memory", lambda: 1)

    listener = MemoryInUse()
    document = run_study(STUDY, listener, store=None)
    assert sum("starting" in stage for stage in listener.stages) == 1
    assert not any("groups" in warning for warning in listener.warnings)
    assert [len(result.nested_step_times) for result in document.results] == [1, 1]


def test_a_failure_during_a_stale_check_affects_only_its_configuration(
    write_engine: WriteEngine, passed: tuple[EngineModule, Path, StudyDocument]
) -> None:
    write_engine(version="2")
    (passed[0].folder / "once").touch()  # one of the two finds it in the first process run
    listener = Checks()
    document = run_study(STUDY, listener, store=None)
    assert len(listener.checked) == 1
    failed, other = sorted(document.results, key=lambda result: result.status)
    assert (failed.status, failed.is_measured, failed.parity.status) == ("failed", False, "skipped")
    assert "the first one fails" in str(failed.reason)
    assert (other.status, other.is_measured, other.parity.status) == ("ok", True, "pass")


def test_strict_loads_engines_without_repeating_their_checks(write_engine: WriteEngine) -> None:
    document, checked = study(strict=True)
    assert checked == []
    assert {result.parity.status for result in document.results} == {"pass"}


def test_layers_reuse_passed_checks(write_engine: WriteEngine) -> None:
    listener = Checks()
    document = run_layers(STUDY, listener).document
    assert listener.checked == []
    assert document.configurations[0].parity == "pass"


def test_a_removed_engine_is_unavailable_and_unchecked(
    write_engine: WriteEngine, passed: tuple[EngineModule, Path, StudyDocument]
) -> None:
    (passed[0].folder / "injected_engine.py").unlink()
    document = run_study(STUDY, Checks(), store=None)
    assert [(result.status, result.parity.status) for result in document.results] == [("unavailable", "skipped")] * 2


def test_the_code_fingerprint_is_reproducible() -> None:
    def load() -> Loaded:
        session = InProcess(ENGINES["reference"].factory)
        return session.request(calls.load(ENGINES["reference"].factory))

    first = load()
    assert str(Path(np.__file__).resolve()) in first.code
    assert load() == first


def test_cells_of_one_kind_share_a_check_and_others_do_not(write_engine: WriteEngine) -> None:
    listener = Checks()
    other = msgspec.structs.replace(STUDY, learning_rate=0.02)
    run_study(other, listener, store=None)
    assert listener.checked == ["injected/cpu"]
