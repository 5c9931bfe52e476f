"""The site of the docs, built for real."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from polybench.cli import app
from polybench.schema.metrics import METRICS
from polybench.storage.store import Store
from tests.browser import Visitor, launched
from tests.factories import points_over_threads
from tests.gallery import GALLERY, figures
from tests.log_of import save_sweep

ROOT = Path(__file__).parents[1]

pytestmark = pytest.mark.wide

LIGHT_DESKTOP = {"viewport": {"width": 1280, "height": 900}, "color_scheme": "light"}
DARK_PHONE = {"viewport": {"width": 390, "height": 844}, "color_scheme": "dark"}
PAGES_OF_EACH_KIND = (
    *(".", "limitations", "engines", "clusters", "guides/teach_a_class", "notebooks/2_*", "gallery", "gallery/2*"),
    *("reference/commands", "reference/commands/compare", "reference/columns", "reference/document"),
    *("julia", "contributing"),
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    build = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    done = subprocess.run(build, cwd=ROOT, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr
    return folder


def test_every_command_and_column_is_in_the_reference(site: Path) -> None:
    group = typer.main.get_command(app)
    listed = (site / "reference/commands/index.html").read_text()
    for name, command in group.commands.items():
        page = (site / "reference/commands" / name / "index.html").read_text()
        documented = [parameter for parameter in command.load().params if not getattr(parameter, "hidden", False)]
        assert all(option in page for parameter in documented for option in parameter.opts), name
        assert f'href="{name}/"' in listed
        assert re.search(rf'<a href="./" class="md-nav__link md-nav__link--active">\s*<span[^>]*>\s*{name}\s*<', page)
    columns = (site / "reference/columns/index.html").read_text()
    assert not [name for name in METRICS if f"<code>{name}</code>" not in columns]


def test_every_field_of_a_saved_study_is_in_the_reference(site: Path) -> None:
    page = (site / "reference/document/index.html").read_text()
    schema = json.loads((ROOT / "polybench/schema/study.schema.json").read_text())
    fields = {field for part in schema["$defs"].values() for field in part.get("properties", {})}
    assert not [field for field in fields if f"<code>{field}</code>" not in page]


def test_every_function_that_julia_exports_is_in_the_reference(site: Path) -> None:
    page = (site / "julia/index.html").read_text()
    module = (ROOT / "julia/src/PolyBench.jl").read_text()
    (exported,) = re.findall(r"^export (.+)$", module, re.MULTILINE)
    assert not [name for name in exported.split(", ") if f'<h3 id="{name}"' not in page]


browser = pytest.fixture(launched, scope="module")


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    """Serve the site, because browsers do not search files."""

    class Handler(SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(site))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


def test_search_finds_what_polybench_lacks(browser: Any, address: str) -> None:
    page = Visitor(browser, address).page
    for words in ("Windows", "GRU", "float16", "ROCm", "limitations"):
        page.goto(f"{address}?q={words}")
        page.wait_for_selector(f".md-search-result__link mark:text-is('{words}')")
        assert "limitations/" in page.get_attribute(".md-search-result__link", "href"), words


@pytest.mark.parametrize("options", [LIGHT_DESKTOP, DARK_PHONE], ids=["desktop", "phone"])
def test_pages_are_accessible(browser: Any, address: str, site: Path, options: dict[str, Any]) -> None:
    axe = pytest.importorskip("axe_core_python.sync_playwright", reason="axe-core is not installed")
    found, visitor = {}, Visitor(browser, address, **options)
    for path in PAGES_OF_EACH_KIND:
        page = next(site.glob(f"{path}/index.html"))
        visitor.page.goto(address + page.relative_to(site).as_posix())
        violations = axe.Axe().run(visitor.page)["violations"]
        if violations:
            found[path] = {one["id"]: one["nodes"][0]["html"] for one in violations}
    assert not found
    assert visitor.messages == []


def test_pages_load_nothing_external(site: Path) -> None:
    assert not [path for path in site.rglob("*") if "hooks" in path.name]  # nor the hooks that built the site
    for page in site.rglob("*.html"):
        loaded = [line for line in page.read_text().splitlines() if 'src="http' in line or "fonts.g" in line]
        assert not loaded, page


def test_the_first_page_has_the_sample_of_the_readme(site: Path) -> None:
    page = (site / "index.html").read_text()
    (sentence,) = re.findall(r"^torch is .* times as fast as flux on cpu\.$", (ROOT / "README.md").read_text(), re.M)
    assert sentence in page
    assert 'src="images/speed.svg"' in page


def test_options_in_text_are_not_broken_over_lines(site: Path) -> None:
    option = '<span class="option">{}</span>'.format
    assert f"compare {option('--engines')} flux,torch,tf {option('--data')} " in (site / "index.html").read_text()


def test_a_pipe_in_code_does_not_split_a_table_cell(site: Path) -> None:
    page = (site / "reference/commands/run/index.html").read_text()
    assert "<code>STUDY.toml|ID &lt;str&gt;</code>" in page


def test_each_study_of_the_gallery_has_its_page_and_report(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    studies = list(Store(GALLERY / "measured").studies())
    listed = (site / "gallery/index.html").read_text()
    for study in studies:
        page = (site / "gallery" / study.id / "index.html").read_text()
        assert f"old when this page was made: {study.settings.model} (" in page
        assert f"{study.created[:10]}, polybench " in page
        assert all(result.configuration in page for result in study.results)
        assert study.id in (site / "gallery" / f"{study.id}.html").read_text()
        assert f'href="{study.id}/"' in listed
        has_verdict = any(result.vs_baseline and not result.vs_baseline.is_inconclusive for result in study.results)
        assert (f'src="figures/{study.id}.thumbnail.svg"' in listed) == has_verdict
        assert ("The speeds of this study are inconclusive" in page) != has_verdict
        assert f"{study.settings.baseline}: baseline" in page  # the alternative text of a figure
        # The command reads from the gallery and saves elsewhere, so it has no --results.
        (command,) = re.findall(r"Repeat it on your machine, in a clone: <code>polybench (.*?)</code>", page)
        command = re.sub("<[^>]+>", "", command)  # options are elements of their own
        assert "--results" not in command
        planned = CliRunner().invoke(app, [*command.split(), "--data", "synthetic", "--dry-run"])
        assert planned.exit_code == 0, planned.output
    assert studies


def load_hooks(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, ROOT / f"docs/{name}.py")
    assert spec is not None
    assert spec.loader is not None
    hooks = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(hooks)
    return hooks


@pytest.mark.parametrize("version", [None, "0.1.0"])
def test_only_a_site_that_mike_builds_has_a_menu_of_versions(
    version: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mkdocs.config import load_config

    monkeypatch.delenv("MIKE_DOCS_VERSION", raising=False)
    if version:
        monkeypatch.setenv("MIKE_DOCS_VERSION", version)
    config = load_config(str(ROOT / "mkdocs.yml"))
    load_hooks("hooks").on_config(config)
    assert config.extra == ({"version": {"provider": "mike"}} if version else {})


def test_each_sweep_of_the_gallery_has_its_page_and_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from mkdocs.config import load_config
    from mkdocs.structure.files import Files

    hooks = load_hooks("gallery_hooks")
    monkeypatch.setattr(hooks, "_FOLDER", tmp_path)
    store, id = Store(tmp_path / "measured"), "sweep-20250101-000000-abcd"
    save_sweep(store, id, points_over_threads())
    sweep = store.load_other(id, "sweep")
    assert set(figures(Store(tmp_path / "measured"))) == {f"{sweep.id}.scaling", f"{sweep.id}.thumbnail"}
    site = load_config(str(ROOT / "mkdocs.yml"), site_dir=str(tmp_path / "site"))
    site.plugins._current_plugin = "a hook"  # MkDocs sets this before it calls a hook
    pages = {file.src_uri: file.content_string for file in hooks.on_files(Files([]), site)}
    assert set(pages) == {f"gallery/{sweep.id}.md", f"gallery/{sweep.id}.html"}
    assert all(curve.configuration in page for curve in sweep.curves for page in pages.values())
    assert f"({sweep.id}.md)" in hooks.on_page_markdown("<!-- gallery -->")
