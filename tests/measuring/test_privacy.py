"""What a document tells of a person, a machine, and the environment that it was measured in."""

from __future__ import annotations

import getpass
import socket
from pathlib import Path

import msgspec
import pytest

from polybench.core.document.study import to_json
from polybench.core.spec import Study
from polybench.measuring.study import run_study
from polybench.report import anonymous as module
from polybench.report.anonymous import anonymous
from polybench.report.saved_studies import Store
from polybench.wire.environment import recorded
from tests import small
from tests.factories import study
from tests.measuring.test_study import FAST, Listener, run, small_data

__all__ = ["small_data"]

CANARY = "canary-5f1e"


def test_no_secret_of_the_environment_is_in_a_document_or_a_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (
        "AWS_SECRET_ACCESS_KEY",
        "MY_PASSWORD",
        "TF_API_TOKEN",
        "TF_VAR_db",
        "JULIA_PKG_AUTH",
        "HARMLESS",
        "https_proxy",
    ):
        monkeypatch.setenv(name, CANARY)
    monkeypatch.setenv("KMP_BLOCKTIME", "7")
    document = run("fake", "fake+crash", store=Store(tmp_path), processes=1, rounds=1, parity=False)
    assert document.results[0].versions["inherited"]["KMP_BLOCKTIME"] == "7"
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert any(path.suffix == ".log" for path in files)
    assert not [path for path in files if CANARY.encode() in path.read_bytes()]


def test_what_engines_read_and_nobody_sets_is_recorded() -> None:
    user = {
        "OMP_NUM_THREADS": "9",
        "OMP_SCHEDULE": "static",
        "LD_PRELOAD": "x.so",
        "EDITOR": "vi",
        "MALLOC_X": "1",
    }
    assert recorded(user, {"OMP_NUM_THREADS": "2"}) == {"LD_PRELOAD": "x.so", "OMP_SCHEDULE": "static"}


def test_an_anonymous_study_names_no_host_user_or_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "marys-laptop")
    monkeypatch.setattr(getpass, "getuser", lambda: "mary")
    folder = tmp_path / "home" / "mary"
    folder.mkdir(parents=True)
    data = small.cifar_folder(folder, 100)
    wanted = Study(engines=("fake", "fake+crash"), data=str(data), batch_size=16, **(FAST_ONCE))
    store = Store(folder / "results")
    argv = ["compare", "--data", str(data), "--results", f"{folder}/results"]
    document = run_study(wanted, Listener(), store=store, argv=argv, anonymous=True)
    (path,) = store.folder.glob("*.json")
    for text in (to_json(document).decode(), path.read_text()):
        assert "mary" not in text
        assert str(tmp_path) not in text
    assert document.host.hostname == "<host>"
    assert document.argv[2] == "<folder>/cifar"
    assert (document.results[1].log or "").startswith("<folder>/fake+crash")


FAST_ONCE = {
    name: value
    for name, value in (FAST | {"processes": 1, "rounds": 1, "parity": False}).items()
    if name != "data"
}


def test_nothing_else_of_a_document_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_names", list)
    document = study()
    document.host.hostname = "<host>"
    assert msgspec.to_builtins(anonymous(document)) == msgspec.to_builtins(document)
